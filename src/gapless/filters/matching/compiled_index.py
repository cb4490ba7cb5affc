"""The compiled engine: clauses as rows of the arena. See `arena`, `bucket`, `columns`.

Theory of operation
    A clause becomes one row under each of its keys; its tests become slots. What slots cannot
    say exactly stays behind as a *check*: then the row reports the number of the check instead
    of the handle, with `UNVERIFIED` set, and the check is made on the event itself.
    Arrays grow by half when they are full. Once more was removed than is left, all rows move to
    a fresh arena, and codes and columns that none of them uses are free again.

Invariants
    I1  an identity below UNVERIFIED is a handle; above, the number of a check
    I2  garbage is bounded: at most `GARBAGE_MIN` removals, or as many as there are rows
"""

from __future__ import annotations

from itertools import repeat
from struct import Struct, pack_into
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.filters.matching import arena, kernels
from gapless.filters.matching.batch_search import ROWS_FLOATS_MAX, match_slices, search_batch
from gapless.filters.matching.checks import clause_check
from gapless.filters.matching.columns import Columns, Slot
from gapless.filters.matching.encoder import make_encoder
from gapless.filters.matching.located_encoder import make_located_encoder, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from gapless.core.events import Value
    from gapless.filters.constraint import Constraint
    from gapless.filters.matching.plan import Clause, Key
    from gapless.filters.syntax import Condition

UNVERIFIED = 1 << 31
SETS_PROBED_MAX = 64
"""Beyond this many combinations of attributes, new ones are found by one attribute only."""

GARBAGE_MIN = 1_000
WORDS_FIRST = 1 << 14
TABLE_FIRST = 64
BATCH_OUT = 1 << 21
FEW = 12


class Check:
    """What the slots of one clause leave open, to be tested on the event itself."""

    def __init__(
        self, handle: int, tests: tuple[tuple[str, Constraint], ...], residuals: tuple[Any, ...]
    ) -> None:
        self.handle = handle
        self._parts = (tests, residuals)
        holds = clause_check(tests, residuals)
        assert holds is not None
        self.holds = holds

    def __reduce__(self) -> tuple[object, ...]:
        return Check, (self.handle, *self._parts)


class CompiledIndex:
    """Clauses by handle, in one arena. See the module docstring."""

    name = "compiled"
    _out = np.empty(0, np.uint32)  # for matches on their way out; kept, for it is large

    def __init__(self) -> None:
        self._columns = Columns()
        self._checks: dict[int, Check] = {}  # by number
        self._checked: dict[int, list[int]] = {}  # handle -> numbers of its checks
        self._free_checks: list[int] = []
        self._garbage = 0
        self._encoder_version = -1
        self._use(fresh_arena(WORDS_FIRST))

    def _use(self, words: NDArray[np.int64]) -> None:
        self._words = words
        self._bytes = memoryview(words).cast("B")  # type: ignore[arg-type]
        self._identities = words.view(np.uint32)
        self._identity_view = self._bytes.cast("I")
        self._out_at = 2 * int(words[arena.OUT])

    def _grow(self, missing: int) -> None:
        old = self._words
        new = np.zeros(max(len(old) + len(old) // 2, int(old[arena.TOP]) + missing), np.int64)
        new[: old[arena.TOP]] = old[: old[arena.TOP]]
        self._use(new)

    # -- adding and removing -------------------------------------------------------------------

    def add(self, handle: int, clauses: tuple[Clause, ...]) -> None:
        for clause in clauses:
            names, keys, tests = self._access(clause)
            slots, loose, residuals = self._slots(tests, clause.residuals)
            identity = handle
            if loose or residuals:
                check = Check(handle, tuple(loose), tuple(residuals))
                identity = UNVERIFIED | self._new_check(check)
            if clause.prefix is not None:
                edge = self._columns.prefix_edge(*clause.prefix)
                self._insert(handle, identity, edge >> 32, [edge & arena.LOW_HALF], slots)
            elif not names:
                self._insert(handle, identity, 0, [], slots)
            else:
                number = self._columns.set_of(names)
                for key in keys:
                    codes = list(map(self._columns.key_code, names, key))
                    self._insert(handle, identity, number, codes, slots)

    def _access(
        self, clause: Clause
    ) -> tuple[tuple[str, ...], Sequence[Key], Sequence[tuple[str, Constraint]]]:
        """The names and keys to find a clause by, and what to test then."""
        names, sets = clause.names, self._columns.sets
        if len(names) < 2 or names in sets or len(sets) < SETS_PROBED_MAX:
            return names, clause.keys, clause.tests
        # By one attribute only: the one of which filters name the most values.
        attributes = self._columns.attributes
        best = max(
            range(len(names)),
            key=lambda i: len(attributes[names[i]].codes) if names[i] in attributes else 0,
        )
        keys = dict.fromkeys((key[best],) for key in clause.keys)
        others = (*clause.pinned[:best], *clause.pinned[best + 1 :])
        return (names[best],), list(keys), (*others, *clause.tests)

    def _slots(
        self, tests: Sequence[tuple[str, Constraint]], residuals: Sequence[Condition]
    ) -> tuple[list[Slot], list[tuple[str, Constraint]], list[Condition]]:
        """The slots of all that is to be tested, and what they do not say in full."""
        columns, slots_max = self._columns, arena.SLOTS_MAX - 5
        slots: list[Slot] = []
        loose: list[tuple[str, Constraint]] = []
        left: list[Condition] = []
        for test in tests:
            fits = len(slots) < slots_max and columns.has_room()
            found, exact = columns.slots(*test) if fits else ((), False)
            slots += found
            if not exact:
                loose.append(test)
        for residual in residuals:
            fits = len(slots) < slots_max and columns.has_room()
            found, exact = columns.comparison_slots(residual) if fits else ((), False)
            slots += found
            if not exact:
                left.append(residual)
        return slots, loose, left

    def _new_check(self, check: Check) -> int:
        number = self._free_checks.pop() if self._free_checks else len(self._checks)
        self._checks[number] = check
        self._checked.setdefault(check.handle, []).append(number)
        return number

    def _insert(
        self, handle: int, identity: int, root: int, codes: list[int], slots: list[Slot]
    ) -> None:
        request = [handle, identity, len(codes), root, *codes, *_PADS[len(codes)], len(slots)]
        for slot in slots:
            request += slot  # type: ignore[arg-type]
        while True:
            _REQUESTS[len(slots)].pack_into(self._bytes, 8 * REQUEST_AT, *request)
            missing = kernels.insert(self._words)
            if not missing:
                self._out_at = 2 * int(self._words[arena.OUT])
                return
            self._grow(missing)

    def remove(self, handle: int) -> None:
        kernels.remove(self._words, handle)
        if self._checked:
            for number in self._checked.pop(handle, ()):
                del self._checks[number]
                self._free_checks.append(number)
        self._garbage += 1
        if self._garbage > GARBAGE_MIN and self._garbage > self._words[arena.ROWS_ALIVE]:
            self._collect()

    def _collect(self) -> None:
        """Move all rows to a fresh arena and let go of what they do not use."""
        columns = self._columns
        size = int(self._words[arena.TOP])
        while True:
            codes = np.zeros(columns.code_count, np.uint8)
            used = np.zeros(columns.width + 1, np.uint8)
            sets = np.zeros(columns.set_count + 1, np.uint8)
            for attribute in columns.attributes.values():
                if attribute.code is not None:
                    used[attribute.code] = 1
            fresh = fresh_arena(max(size, WORDS_FIRST))
            missing = kernels.transfer(self._words, fresh, codes, used, sets)
            if not missing:
                break
            size += max(missing, size // 2)
        columns.sweep(lambda c: used[c] > 1, lambda c: codes[c] > 0, lambda s: sets[s] > 0)
        self._garbage = 0
        self._use(fresh[: fresh[arena.TOP] + WORDS_FIRST].copy())

    # -- matching ------------------------------------------------------------------------------

    def _prepare(self) -> None:
        """Write the encoder, the sets and the room for one event anew: columns have changed."""
        columns, words = self._columns, self._words
        self._reserve(arena.EVENT, arena.EVENT_CAP, columns.width)
        self._reserve(arena.SETS, arena.SETS_CAP, columns.set_count * arena.SET_WORDS)
        lengths = sum(len(a.lengths) for a in columns.attributes.values())
        self._reserve(arena.EXTRA, arena.EXTRA_CAP, 1 + lengths)
        words = self._words
        at = words[arena.SETS]
        words[at : at + columns.set_count * arena.SET_WORDS] = 0
        for names, number in columns.sets.items():
            place = at + number * arena.SET_WORDS
            words[place] = len(names)
            for index, name in enumerate(names):
                words[place + 1 + index] = columns.code_column(name)
        words[arena.SETS_COUNT] = columns.set_count
        words[words[arena.EXTRA]] = 0
        self._event_at = 8 * int(words[arena.EVENT])
        self._extra_at = 8 * int(words[arena.EXTRA])
        self._has_extra = lengths > 0
        self._encode = make_encoder(columns)
        self._located_encoder = make_located_encoder(columns)
        self._encoder_version = columns.version

    def _reserve(self, table: int, capacity: int, need: int) -> None:
        """Room for a table that nothing but this class fills; the old place is left behind."""
        if need <= self._words[capacity]:
            return
        need *= 2
        if self._words[arena.TOP] + need > len(self._words):
            self._grow(need)
        words = self._words
        words[table], words[capacity] = words[arena.TOP], need
        words[arena.TOP] += need

    def match(self, attributes: Mapping[str, Value]) -> list[int] | NDArray[np.uint32]:
        """The handles of all filters that match, ascending; an array is valid until the next call.

        Few come as a list, many as an array: whichever is faster to look keys up by.
        """
        if self._encoder_version != self._columns.version:
            self._prepare()
        extra = self._encode(attributes, self._bytes, self._event_at)
        if self._has_extra:
            pack_into(f"={1 + len(extra)}q", self._bytes, self._extra_at, len(extra), *extra)
        count = kernels.match_one(self._words)
        first = self._out_at
        if 0 <= count <= FEW:
            return self._identity_view[first : first + count].tolist()
        if count > 0:
            return self._identities[first : first + count]
        return self._verified(attributes, self._identities[first : first - 1 - count])

    def _verified(self, attributes: Mapping[str, Value], found: NDArray[np.uint32]) -> list[int]:
        handles = {number for number in found.tolist() if number < UNVERIFIED}
        for number in found.tolist()[len(handles) :]:
            check = self._checks[number - UNVERIFIED]
            if check.handle not in handles and check.holds(attributes):
                handles.add(check.handle)
        return sorted(handles)

    def match_events(
        self, events: Sequence[Mapping[str, Value]]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Pairs (index of the event, handle) as two arrays, by event, then by handle."""
        if self._encoder_version != self._columns.version:
            self._prepare()
        if len(events) > 1 and len(events) * self._columns.width > ROWS_FLOATS_MAX:
            return match_slices(self.match_events, events, self._columns.width)
        extra, ends = _NOTHING, np.zeros(len(events), np.int64)
        rows = rows_of(events, self._located_encoder)
        if rows is None:
            width = self._columns.width
            rows = np.empty(len(events) * width)
            buffer = memoryview(rows).cast("B") if len(rows) else bytearray()  # type: ignore[arg-type]
            offsets = range(0, 8 * len(rows), 8 * width) if width else repeat(0)
            found = list(map(self._encode, events, repeat(buffer), offsets))
            if self._has_extra:
                extra = np.array([edge for edges in found for edge in edges], np.int64)
                ends = np.cumsum(list(map(len, found)), dtype=np.int64)
        counts, handles = self.count_rows(rows, extra, ends, events.__getitem__)
        return np.repeat(np.arange(len(events), dtype=np.uint32), counts), handles

    def match_record_batch(
        self, batch: pa.RecordBatch
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """By row of a record batch how many filters match, and their handles, row after row."""
        from gapless.filters.matching.batch_encoder import Encoding
        from gapless.filters.matching.record_batch import BatchRows

        if self._encoder_version != self._columns.version:
            self._prepare()
        encoding = Encoding(self._columns, batch)
        extra, ends = encoding.extra()
        return self.count_rows(encoding.rows, extra, ends, BatchRows(batch).__getitem__)

    def count_rows(
        self,
        rows: NDArray[np.float64],
        extra: NDArray[np.int64],
        extra_ends: NDArray[np.int64],
        attributes_of: Any,
    ) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """As `match_record_batch`, for encoded events; checks ask `attributes_of(index)`."""
        room = int(self._words[arena.ROWS_ALIVE]) + BATCH_OUT
        if len(self._out) < room:
            self._out = np.empty(room, np.uint32)
        width = self._columns.width
        counts, handles = search_batch(self._words, width, rows, extra, extra_ends, self._out)
        if self._checks and (handles >= UNVERIFIED).any():
            indices = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
            indices, handles = self._verified_pairs(indices, handles, attributes_of)
            counts = np.bincount(indices, minlength=len(counts))
        return counts, handles

    def _verified_pairs(
        self, indices: NDArray[np.uint32], handles: NDArray[np.uint32], attributes_of: Any
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        loose = handles >= UNVERIFIED
        sure = indices[~loose].astype(np.uint64) << np.uint64(32) | handles[~loose]
        held = []
        for index, number in zip(indices[loose].tolist(), handles[loose].tolist(), strict=True):
            check = self._checks[number - UNVERIFIED]
            if check.holds(attributes_of(index)):
                held.append(index << 32 | check.handle)
        pairs = np.unique(np.concatenate([sure, np.array(held, np.uint64)]))
        return (pairs >> np.uint64(32)).astype(np.uint32), pairs.astype(np.uint32)

    def statistics(self) -> dict[str, int | str]:
        return {
            "rows": int(self._words[arena.ROWS_ALIVE]),
            "bytes": 8 * int(self._words[arena.TOP]),
            "columns": self._columns.width,
            "engine": self.name,
        }

    # -- leaving and entering a process --------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {"words": self.words(), "rest": self.rest()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.restore(state["words"], state["rest"])

    def words(self) -> NDArray[np.int64]:
        """The arena as far as it is used, with all that matching needs reserved in it."""
        if self._encoder_version != self._columns.version:
            self._prepare()
        return self._words[: self._words[arena.TOP]]

    def rest(self) -> tuple[Any, ...]:
        """All but the arena."""
        return self._columns, self._checks, self._checked, self._free_checks, self._garbage

    def restore(self, words: NDArray[np.int64], rest: tuple[Any, ...]) -> None:
        """Become what `words` and `rest` were taken from. The array is used as it is."""
        self._columns, self._checks, self._checked, self._free_checks, self._garbage = rest
        self._encoder_version = -1
        self._use(words)


REQUEST_AT = arena.HEADER_WORDS
_NOTHING = np.empty(0, np.int64)
_PADS = [(0,) * (4 - count) for count in range(5)]
_REQUESTS = [Struct("=9q" + "qdd" * count) for count in range(arena.SLOTS_MAX + 1)]


def fresh_arena(size: int) -> NDArray[np.int64]:
    """An arena without rows: the header, the request and the first tables."""
    words = np.zeros(max(size, WORDS_FIRST), np.int64)
    top = REQUEST_AT + arena.REQUEST_WORDS
    words[arena.REQUEST] = REQUEST_AT
    for table, capacity, entry_words in (
        (arena.EDGES, arena.EDGES_CAP, 2),
        (arena.BUCKETS, arena.BUCKETS_CAP, arena.BUCKET_WORDS),
        (arena.ROWS, arena.ROWS_CAP, 2),
        (arena.HANDLES, arena.HANDLES_CAP, 1),
    ):
        words[table], words[capacity] = top, TABLE_FIRST
        top += TABLE_FIRST * entry_words
    words[arena.OUT], words[arena.SCRATCH] = top, top + TABLE_FIRST // 2
    words[arena.BUCKETS_COUNT], words[arena.ROWS_COUNT] = 2, 1
    words[arena.TOP] = top + TABLE_FIRST
    return words
