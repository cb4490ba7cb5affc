"""Matcher: finds which of many filters match an event, with one of two engines.

Theory of operation
    Every filter has a *handle*, a small whole number; engines know handles only. A new filter
    takes the handle freed last, or the next new one. Matches come in ascending order of handles:
    the order in which the filters were added, except that one added after a removal stands in
    the place that the removal left. So the order depends on the history of `add` and `remove`
    alone, and is the same for both engines and for one event, lists and record batches.

Engines
    `python`    dictionaries; starts at once, imports nothing; good up to some hundred filters.
    `compiled`  flat arrays and numba kernels; 10 to 1,000 times faster, 100 to 250 bytes a filter.
    `auto`      (default) python; once there are more than `SMALL_MAX` filters, or a record batch
                or many encoded events come at once, compiled, if its kernels were compiled before
                on this machine, by `python -m gapless.filters.matching.compile_kernels`. Taking
                them over costs about a second, once a process; if they are not there, nothing is
                compiled and python goes on.
                Few filters stay with python as well, for few events: a call of the other costs as
                much as ten events do here.
    Asking for `compiled` by name compiles what is missing: about half a minute, once a machine.

Not safe for use by several threads at once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

from gapless import machine_code
from gapless.filters.matching.plan import plan_all
from gapless.filters.matching.python_index import PythonIndex
from gapless.filters.matching.shapes import Shapes

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from gapless.core.events import Value
    from gapless.filters.filter import Filter
    from gapless.filters.matching.compiled_index import CompiledIndex
    from gapless.filters.matching.matches import Matches

KeyT = TypeVar("KeyT")

Engine = Literal["auto", "python", "compiled"]

SMALL_MAX = 200
"""Up to this many filters the Python engine is not worth leaving."""


BATCH_MIN = 32
"""From so many encoded events on, the compiled engine is quicker however few filters there are."""


class Matcher(Generic[KeyT]):
    """A dynamic set of filters, each under a key of your own (any hashable value)."""

    def __init__(
        self,
        filters: Mapping[KeyT, Filter | str] | Iterable[tuple[KeyT, Filter | str]] = (),
        *,
        engine: Engine = "auto",
    ) -> None:
        if engine not in ("auto", "python", "compiled"):
            raise ValueError(f"engine {engine!r} is none of 'auto', 'python', 'compiled'")
        self._engine: Engine = engine
        self._handles: dict[KeyT, int] = {}
        self._keys: list[KeyT | None] = []  # by handle
        self._key_array: Any = None  # the same as an array, with room to spare; compiled engine
        self._version = 0  # of the keys
        self._shapes = Shapes()
        self._free: list[int] = []  # handles to use again, the last first
        self._index: PythonIndex | CompiledIndex = PythonIndex()
        self._small: PythonIndex | None = None  # the same filters, while they are few
        self._compiled_from = SMALL_MAX if engine == "auto" else inf  # handles, not filters
        if engine == "compiled":
            self._require_compiled()
        for key, condition in filters.items() if isinstance(filters, Mapping) else filters:
            self.add(key, condition)

    def add(self, key: KeyT, condition: Filter | str) -> None:
        """Add a filter. A key that is there already is refused: remove it first."""
        if key in self._handles:
            raise ValueError(f"there is a filter under {key!r} already. Remove it first.")
        if isinstance(condition, str):
            clauses = plan_all(self._shapes.read(condition))
        else:
            clauses = plan_all(condition.conjunctions)
        handle = self._free[-1] if self._free else len(self._keys)
        self._index.add(handle, clauses)
        if self._small is not None:
            self._small.add(handle, clauses)
            self._small = self._small if handle <= SMALL_MAX else None
        if self._free:
            self._free.pop()
        self._set_key(handle, key)
        self._handles[key] = handle
        if handle > self._compiled_from:
            self.accelerate()

    def remove(self, key: KeyT) -> None:
        """Remove a filter; KeyError if there is none under this key."""
        handle = self._handles.pop(key)
        self._index.remove(handle)
        if self._small is not None:
            self._small.remove(handle)
        self._set_key(handle, None)
        self._free.append(handle)

    def match(self, attributes: Mapping[str, Value]) -> list[KeyT]:
        """The keys of all filters that match this event, each once, in the order of handles."""
        handles = self._by_event.match(attributes)
        if handles.__class__ is list:
            keys = self._keys
            return [keys[handle] for handle in handles]  # type: ignore[misc]
        return self._key_array.take(handles).tolist()  # type: ignore[no-any-return]

    @overload
    def match_batch(self, events: Sequence[Mapping[str, Value]]) -> list[tuple[int, KeyT]]: ...
    @overload
    def match_batch(self, events: pa.RecordBatch) -> Matches[KeyT]: ...
    def match_batch(self, events: Any) -> list[tuple[int, KeyT]] | Matches[KeyT]:
        """All pairs of an event and a filter that match, by event, then by handle.

        From a sequence of attribute maps, a list of (index of the event, key); if it can `locate`
        attributes (`core.attribute_table`), maps are made only where they must be. From a record
        batch (one column an attribute, null is missing), the same as two arrays in a `Matches`.
        """
        if not isinstance(events, Sequence):
            return self._match_record_batch(events)
        found = self.match_handles(events)
        if found is not None:
            numbers, handles = found
            return list(zip(numbers.tolist(), self._key_array.take(handles).tolist(), strict=True))
        if (wanted := self.match_any()) is not None:
            return list(product(range(len(events)), wanted))
        index, keys = self._by_event, self._keys
        return [
            (number, keys[handle])  # type: ignore[misc]
            for number, attributes in enumerate(events)
            for handle in index.match(attributes)
        ]

    def match_any(self) -> list[KeyT] | None:
        """The keys of all filters, if each matches every event: the caller need not decode any.
        None if not, or if that is not known."""
        index = self._by_event
        if isinstance(index, PythonIndex) and index.asks_for_nothing:
            return self.match({})
        return None

    @property
    def _by_event(self) -> PythonIndex | CompiledIndex:
        """The index for a single event."""
        return self._index if self._small is None else self._small

    def passing(self, events: Sequence[Mapping[str, Value]]) -> list[int]:
        """The indices of the events that any filter matches, ascending."""
        found = self.match_handles(events)
        if found is not None:
            import numpy as np

            passing: list[int] = np.unique(found[0]).tolist()
            return passing
        if (wanted := self.match_any()) is not None:
            return list(range(len(events))) if wanted else []
        match = self._by_event.match
        return [number for number, attributes in enumerate(events) if len(match(attributes))]

    def match_handles(
        self, events: Sequence[Mapping[str, Value]]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]] | None:
        """The pairs of `match_batch` as two arrays, with handles for keys; None without the
        compiled engine, or where it would not pay."""
        if hasattr(events, "locate"):  # they have loaded the kernels
            self._accelerate_for(len(events))
        small, index = self._small, self._index
        if small is not None and (len(events) < BATCH_MIN or small.asks_for_nothing):
            return None
        return None if isinstance(index, PythonIndex) else index.match_events(events)

    def _accelerate_for(self, events: int) -> None:
        index = self._index
        if len(self._keys) > SMALL_MAX:
            self.accelerate()
        elif isinstance(index, PythonIndex) and events >= BATCH_MIN and not index.asks_for_nothing:
            self._small = index if self.accelerate() else None

    def _match_record_batch(self, batch: pa.RecordBatch) -> Matches[KeyT]:
        import numpy as np

        from gapless.filters.matching.matches import Matches
        from gapless.filters.matching.record_batch import BatchRows

        if self._compiled_from != inf:
            self.accelerate()
        index = self._index
        if isinstance(index, PythonIndex):
            rows = BatchRows(batch)
            found = [index.match(rows[number]) for number in range(len(rows))]
            counts = np.array(list(map(len, found)), np.int64)
            handles = np.array([handle for some in found for handle in some], np.uint32)
        else:
            counts, handles = index.match_record_batch(batch)
        version = self._version

        def keys_of(handles: NDArray[np.uint32]) -> list[KeyT]:
            if version != self._version:
                raise RuntimeError(
                    "the matcher has changed since these matches were found. Ask for their keys "
                    "before you add or remove filters."
                )
            keys = self._keys
            return [keys[handle] for handle in handles.tolist()]

        return Matches(counts, handles, keys_of)

    def __len__(self) -> int:
        return len(self._handles)

    def __contains__(self, key: object) -> bool:
        return key in self._handles

    def handle_of(self, key: KeyT) -> int:
        """The number by which `Matches` names this key's filter; KeyError if there is none."""
        return self._handles[key]

    def key_of(self, handle: int) -> KeyT:
        """The key under which the filter with this handle stands."""
        return self._keys[handle]  # type: ignore[return-value]

    def statistics(self) -> dict[str, int | str]:
        """How many filters and rows there are, which engine is at work, how much room it takes."""
        return {"filters": len(self), **self._index.statistics()}

    # -- leaving and entering a process --------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a snapshot for `Matcher.open`, with the compiled engine's arrays in it."""
        from gapless.filters.matching import snapshot

        self._require_compiled()
        assert not isinstance(self._index, PythonIndex)
        snapshot.write(Path(path), self._index, self._facts())

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Map a snapshot. Processes of a host share its pages. Open only files you trust."""
        from gapless.filters.matching import snapshot

        matcher = cls()
        matcher._index, facts = snapshot.read(Path(path))
        matcher._take(facts)
        return matcher

    def _facts(self) -> tuple[Any, ...]:
        """All but the index."""
        return self._engine, self._handles, self._keys, self._free

    def _take(self, facts: tuple[Any, ...]) -> None:
        self._engine, self._handles, self._keys, self._free = facts
        if not isinstance(self._index, PythonIndex):
            self._make_key_array()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._index, self._facts()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        Matcher.__init__(self)
        self._index, facts = state
        self._take(facts)

    # -- engines -------------------------------------------------------------------------------

    def _set_key(self, handle: int, key: KeyT | None) -> None:
        self._version += 1
        if handle < len(self._keys):
            self._keys[handle] = key
        else:
            self._keys.append(key)
        if self._key_array is not None:
            if handle >= len(self._key_array):
                self._make_key_array()
            self._key_array[handle] = key

    def _make_key_array(self) -> None:
        import numpy as np

        size, old = len(self._keys), self._key_array
        self._key_array = np.empty(size + size // 2 + 64, object)
        if old is not None:
            self._key_array[: len(old)] = old
            return
        for handle, key in enumerate(self._keys):  # one by one, for a tuple must stay one key
            self._key_array[handle] = key

    def accelerate(self) -> bool:
        """Take over the compiled engine if its kernels are ready. Is it at work now?

        Nothing is compiled. `auto` does this once, when it is worth it; call it again where kernels
        may have become ready since, as in a broker that compiles them in another process.
        """
        if not isinstance(self._index, PythonIndex):
            return True
        self._compiled_from = inf
        if self._engine == "python":
            return False
        try:
            from gapless.filters.matching import kernels
        except ImportError:
            return False
        if kernels.are_ready():
            self._require_compiled()
            return True
        _complain("The Python engine goes on.")
        return False

    def _require_compiled(self) -> None:
        """Take over the compiled engine, compiling what is missing."""
        if isinstance(self._index, PythonIndex):
            from gapless.filters.matching import kernels

            _complain("This process compiles for itself.")
            kernels.prepare()
            self._become_compiled()

    def _become_compiled(self) -> None:
        from gapless.filters.matching.compiled_index import CompiledIndex

        index = CompiledIndex()
        if isinstance(self._index, PythonIndex):
            for handle, clauses in self._index.clauses():
                index.add(handle, clauses)
        self._index = index
        self._make_key_array()


def _complain(then: str) -> None:
    """Warn once if compiled code cannot be kept here."""
    if problem := machine_code.complaint():
        warnings.warn(f"{problem} {then}", RuntimeWarning, stacklevel=4)
