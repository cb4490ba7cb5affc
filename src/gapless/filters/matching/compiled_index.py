"""The compiled engine: clauses as rows of the arena. See `arena`, `bucket`, `columns`.

Theory of operation
    A clause becomes one row under each of its keys; its tests become slots. What slots cannot
    say exactly is tested by a check (`verification`).
    An event becomes a row of floats in one of three ways. From its bytes (`table_encoder`) and by a
    generated function (`encoder`) all columns are written. Both must be prepared again when columns
    have changed; that happens once enough events have come to pay for it. Until then, and where
    there are too many columns, an event is pairs of a column and a value (`column_pairs`).
    Arrays grow by half when they are full. Once more rows were removed than are left, all rows move
    to a fresh arena, and codes and columns that none of them uses are free again.

Invariants
    I1  garbage is bounded: the rows of at most `GARBAGE_MIN` removals, or as many as there are
    I2  what an event costs does not depend on how many attributes filters name, but up to
        `DENSE_MAX` of them
"""

from __future__ import annotations

from itertools import repeat
from struct import pack_into
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.filters.matching import arena, kernels
from gapless.filters.matching.batch_search import ROWS_FLOATS_MAX, match_slices, search_batch
from gapless.filters.matching.column_pairs import Pairs, encode_pairs
from gapless.filters.matching.columns import KEYS, ColumnInterval, ColumnLayout
from gapless.filters.matching.encoder import INLINE_MAX, make_encoder
from gapless.filters.matching.memory import WORDS_FIRST, Memory, fresh_arena
from gapless.filters.matching.table_encoder import make_table_encoder, rows_of
from gapless.filters.matching.verification import Check, Verification

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from gapless.core.events import Value
    from gapless.filters.constraint import Constraint
    from gapless.filters.matching.batch_search import Counted
    from gapless.filters.matching.checks import ValueCheck
    from gapless.filters.matching.plan import Clause, Key
    from gapless.filters.syntax import Condition

    AttributesOf = Callable[[int], Mapping[str, Any]]

SETS_PROBED_MAX = 64
"""Beyond this many combinations of attributes, new ones are found by one attribute only."""

LOCATED_AFTER, WRITTEN_AFTER = 1, 40
"""Events for each attribute after which it pays to prepare for changed columns: to read them from
bytes, and to generate a function."""

GARBAGE_MIN = 1_000
BATCH_OUT = 1 << 21
FEW = 12


class CompiledIndex:
    """Clauses by handle, in one arena. See the module docstring."""

    name = "compiled"
    _out = np.empty(0, np.uint32)  # for matches on their way out; kept, for it is large

    def __init__(self) -> None:
        self._columns = ColumnLayout()
        self._verification = Verification()
        self._garbage = 0
        self._forget_preparations()
        self._memory = Memory(fresh_arena())

    def _forget_preparations(self) -> None:
        self._seen_version, self._seen = -1, 0  # events since columns have changed
        self._ready_version = self._written_version = self._sets_version = -1

    # -- adding and removing -------------------------------------------------------------------

    def add(self, handle: int, clauses: tuple[Clause, ...]) -> None:
        known: dict[int, ValueCheck] = {}
        for clause in clauses:
            names, keys, tests = self._access(clause)
            slots, loose, residuals = self._slots(tests, clause.residuals)
            identity = handle
            if loose or residuals:
                check = Check(handle, tuple(loose), tuple(residuals), known)
                identity = self._verification.add(check)
            if names:
                root = self._columns.set_of(names)
                for key in keys:
                    codes = list(map(self._columns.key_code, names, key))
                    self._memory.insert(handle, identity, root, codes, slots)
                continue
            if clause.prefix is not None:
                edge: int | None = self._columns.prefix_edge(*clause.prefix)
            else:
                edge = self._columns.guard_of(clause.needed, is_dear=identity != handle)
            if edge is None:
                self._memory.insert(handle, identity, KEYS, [], slots)
            else:
                self._memory.insert(handle, identity, edge >> 32, [edge & arena.LOW_HALF], slots)

    def _access(
        self, clause: Clause
    ) -> tuple[tuple[str, ...], Sequence[Key], Sequence[tuple[str, Constraint]]]:
        """The names and keys to find a clause by, and what to test then."""
        names, sets = clause.names, self._columns.sets
        if len(names) < 2 or names in sets or len(sets) < SETS_PROBED_MAX:
            return names, clause.keys, clause.tests
        best = self._columns.rarest(names)
        keys = dict.fromkeys((key[best],) for key in clause.keys)
        others = (*clause.pinned[:best], *clause.pinned[best + 1 :])
        return (names[best],), list(keys), (*others, *clause.tests)

    def _slots(
        self, tests: Sequence[tuple[str, Constraint]], residuals: Sequence[Condition]
    ) -> tuple[list[ColumnInterval], list[tuple[str, Constraint]], list[Condition]]:
        """The slots of all that is to be tested, and what they do not say in full."""
        columns, slots_max = self._columns, arena.SLOTS_MAX - 5
        slots: list[ColumnInterval] = []
        loose: list[tuple[str, Constraint]] = []
        left: list[Condition] = []
        for test in tests:
            fits = len(slots) < slots_max and columns.has_room(test[0])
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

    def remove(self, handle: int) -> None:
        words = self._memory.words
        self._garbage += kernels.remove(words, handle)
        if self._verification:
            self._verification.remove(handle)
        if self._garbage > GARBAGE_MIN and self._garbage > words[arena.ROWS_ALIVE]:
            self._collect()

    def _collect(self) -> None:
        """Move all rows to a fresh arena and let go of what they do not use."""
        columns, words = self._columns, self._memory.words
        size = int(words[arena.TOP])
        while True:
            codes = np.zeros(columns.code_count, np.uint8)
            used = np.zeros(columns.width + 1, np.uint8)
            sets = np.zeros(columns.set_count + 1, np.uint8)
            for attribute in columns.attributes.values():
                if attribute.code is not None:
                    used[attribute.code] = 1
            fresh = fresh_arena(size)
            missing = kernels.transfer(words, fresh, codes, used, sets)
            if not missing:
                break
            size += max(missing, size // 2)
        columns.sweep((used > 1).tobytes(), codes.tobytes(), sets.tobytes())
        self._garbage = 0
        self._memory.use(fresh[: fresh[arena.TOP] + WORDS_FIRST].copy())

    # -- preparing -----------------------------------------------------------------------------

    def _is_worth(self, events: int, after: int) -> bool:
        """Have enough events come since columns changed to pay for preparing?"""
        columns = self._columns
        if self._seen_version != columns.version:
            self._seen_version, self._seen = columns.version, 0
        self._seen += events
        return self._seen >= after * len(columns.attributes) and not columns.is_sparse

    def _is_ready(self, events: int) -> bool:
        """Are the tables there that rows of all columns need? They are made if that is worth it."""
        if self._ready_version == self._columns.version:
            return True
        if self._is_worth(events, LOCATED_AFTER):
            self._prepare()
        return self._ready_version == self._columns.version

    def _is_written(self, events: int) -> bool:
        """Is there a function for the columns as they are? It is written if that is worth it."""
        if self._written_version == self._columns.version:
            return True
        few = len(self._columns.attributes) <= INLINE_MAX
        if few and self._is_worth(events, WRITTEN_AFTER):
            self.prepare()
        return self._written_version == self._columns.version

    def prepare(self) -> None:
        """Prepare everything that can be prepared, whether it pays or not."""
        columns = self._columns
        if not columns.is_sparse:
            self._prepare()
            if len(columns.attributes) <= INLINE_MAX and self._written_version != columns.version:
                self._encode = make_encoder(columns)
                self._written_version = columns.version

    def _renew_tables(self) -> None:
        """All tables that matching needs, whichever way events come."""
        if self._columns.is_sparse:
            self._renew_sets()
        else:
            self._prepare()

    def _renew_sets(self) -> None:
        if self._sets_version != self._columns.sets_version:
            self._write_sets()

    def _prepare(self) -> None:
        """Make the tables for rows of all columns."""
        columns = self._columns
        if self._ready_version == columns.version:
            return
        keys = [name for name, attribute in columns.attributes.items() if attribute.is_key]
        self._write_sets([(columns.code_column(name),) for name in keys])
        guarded = sum(a.guard is not None for a in columns.attributes.values())
        lengths = sum(len(a.lengths) for a in columns.attributes.values())
        memory = self._memory
        self._event_at = 8 * memory.reserve(arena.EVENT, arena.EVENT_CAP, columns.width)
        extra = memory.reserve(arena.EXTRA, arena.EXTRA_CAP, 1 + lengths + guarded)
        memory.words[extra] = 0
        self._extra_at = 8 * extra
        self._has_extra = lengths + guarded > 0
        self._table_encoder = make_table_encoder(columns)
        self._ready_version = columns.version

    def _write_sets(self, singles: Sequence[tuple[int, ...]] = ()) -> None:
        """The sets to probe: those of several columns, then these of one."""
        columns = self._columns
        several = [
            (number, tuple(map(columns.code_column, names)))
            for names, number in columns.sets.items()
        ]
        every = [*several, *((KEYS, single) for single in singles)]
        memory = self._memory
        at = memory.reserve(arena.SETS, arena.SETS_CAP, len(every) * arena.SET_WORDS)
        words = memory.words
        for root, places in every:
            words[at : at + 1 + len(places)] = (len(places), *places)
            words[at + arena.SET_ROOT] = root
            at += arena.SET_WORDS
        words[arena.SETS_COUNT], words[arena.SETS_SEVERAL] = len(every), len(several)
        self._sets_version = columns.sets_version

    # -- matching ------------------------------------------------------------------------------

    def match(self, attributes: Mapping[str, Value]) -> list[int] | NDArray[np.uint32]:
        """The handles of all filters that match, ascending; an array is valid until the next call.

        Few come as a list, many as an array: whichever is faster to look keys up by.
        """
        if self._written_version != self._columns.version and not self._is_written(1):
            return self._match_pairs((attributes,))[1]
        memory = self._memory
        extra = self._encode(attributes, memory.bytes, self._event_at)
        if self._has_extra:
            pack_into(f"={1 + len(extra)}q", memory.bytes, self._extra_at, len(extra), *extra)
        count = kernels.match_one(memory.words)
        first = memory.out_at
        if 0 <= count <= FEW:
            return memory.identity_view[first : first + count].tolist()
        if count > 0:
            return memory.identities[first : first + count]
        found = memory.identities[first : first - 1 - count]
        return self._verification.of_one(attributes, found)

    def match_events(
        self, events: Sequence[Mapping[str, Value]]
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """Pairs (index of the event, handle) as two arrays, by event, then by handle."""
        width = 1 if self._columns.is_sparse else self._columns.width
        if len(events) > 1 and len(events) * width > ROWS_FLOATS_MAX:
            return match_slices(self.match_events, events, width)
        found = None
        if hasattr(events, "locate") and self._is_ready(len(events)):
            found = rows_of(events, self._table_encoder)
        if found is not None:
            rows, edges = found
            extra = edges.by_row(len(events))
            counts, handles = self._match_rows(rows, *extra, events.__getitem__)
        elif self._is_written(len(events)):
            counts, handles = self._match_written(events)
        else:
            counts, handles = self._match_pairs(events)
        return np.repeat(np.arange(len(events), dtype=np.uint32), counts), handles

    def _match_written(self, events: Sequence[Mapping[str, Value]]) -> Counted:
        extra, ends = _NOTHING, np.zeros(len(events), np.int64)
        width = self._columns.width
        rows = np.empty(len(events) * width)
        buffer = memoryview(rows).cast("B") if len(rows) else bytearray()  # type: ignore[arg-type]
        offsets = range(0, 8 * len(rows), 8 * width) if width else repeat(0)
        found = list(map(self._encode, events, repeat(buffer), offsets))
        if self._has_extra:
            extra = np.array([edge for edges in found for edge in edges], np.int64)
            ends = np.cumsum(list(map(len, found)), dtype=np.int64)
        return self._match_rows(rows, extra, ends, events.__getitem__)

    def match_record_batch(self, batch: pa.RecordBatch) -> Counted:
        """By row of a record batch how many filters match, and their handles, row after row."""
        from gapless.filters.matching.batch_encoder import Encoding
        from gapless.filters.matching.record_batch import BatchRows

        self._renew_tables()
        encoding = Encoding(self._columns, batch)
        extra = encoding.edges.by_row(encoding.count)
        attributes_of = BatchRows(batch).__getitem__
        if not self._columns.is_sparse:
            return self._match_rows(encoding.rows, *extra, attributes_of)
        return self._search_pairs(Pairs(*encoding.pairs(), *extra), attributes_of)

    def _match_pairs(self, events: Sequence[Mapping[str, Value]]) -> Counted:
        self._renew_sets()
        pairs = encode_pairs(self._columns, events)
        return self._search_pairs(pairs, events.__getitem__)

    def _search_pairs(self, pairs: Pairs, attributes_of: AttributesOf) -> Counted:
        words, row = self._memory.words, self._columns.blank

        def search(out: NDArray[np.uint32], ends: NDArray[np.int64], first: int) -> int:
            return kernels.match_pairs(words, row, *pairs, out, ends, first)  # type: ignore[no-any-return]

        counts, found = search_batch(search, len(pairs.ends), self._room())
        return self._verification.of_many(counts, found, attributes_of)

    def _match_rows(
        self,
        rows: NDArray[np.float64],
        extra: NDArray[np.int64],
        extra_ends: NDArray[np.int64],
        attributes_of: AttributesOf,
    ) -> Counted:
        """As `match_record_batch`, for encoded events; checks ask `attributes_of(index)`."""
        words, width = self._memory.words, self._columns.width

        def search(out: NDArray[np.uint32], ends: NDArray[np.int64], first: int) -> int:
            return kernels.match_rows(words, rows, width, extra, extra_ends, out, ends, first)  # type: ignore[no-any-return]

        counts, found = search_batch(search, len(extra_ends), self._room())
        return self._verification.of_many(counts, found, attributes_of)

    def _room(self) -> NDArray[np.uint32]:
        """For matches on their way out: those of one event at least."""
        rows = int(self._memory.words[arena.ROWS_ALIVE])
        if len(self._out) < rows + BATCH_OUT // 2:
            self._out = np.empty(rows + rows // 2 + BATCH_OUT, np.uint32)
        return self._out

    def statistics(self) -> dict[str, int | str]:
        return {
            "rows": int(self._memory.words[arena.ROWS_ALIVE]),
            "bytes": 8 * int(self._memory.words[arena.TOP]),
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
        self._renew_tables()
        words = self._memory.words
        return words[: words[arena.TOP]]

    def rest(self) -> tuple[Any, ...]:
        """All but the arena."""
        return self._columns, self._verification, self._garbage

    def restore(self, words: NDArray[np.int64], rest: tuple[Any, ...]) -> None:
        """Restore an index from its `words` and `rest`. The array is used without a copy."""
        self._columns, self._verification, self._garbage = rest
        self._forget_preparations()
        self._memory = Memory(words)


_NOTHING = np.empty(0, np.int64)
