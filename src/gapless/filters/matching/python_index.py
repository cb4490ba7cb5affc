"""The Python engine: dictionaries of clauses by access key. Nothing to import, nothing to warm.

Theory of operation
    One table per access: per tuple of attribute names that clauses pin together, and per
    (attribute, length) of literal prefixes. A table maps the key that an event must have to the
    clauses that stand under it. An event looks into every table once; what it finds is tested in
    turn. Clauses without access are tested against every event.

Invariants
    I1  no table and no bucket is empty: what was removed leaves nothing behind
    I2  a clause stands once under each of its keys

Cost
    One look-up per table and event, one check (0.1 to 0.3 µs) per clause found. About 1 kB a
    clause: this engine is for small sets and for machines without compiled kernels.
"""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING

from gapless.filters.matching.checks import clause_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gapless.core.events import Value
    from gapless.filters.matching.checks import ClauseCheck
    from gapless.filters.matching.plan import Clause

    Bucket = dict[int, tuple[int, ClauseCheck | None]]  # row number -> (handle, check)
    Table = dict[object, Bucket]
    Access = tuple[tuple[str, ...], int]  # names and the prefix length; 0: whole values

EVERY: tuple[tuple[str, ...], int] = ((), 0)
"""The access of clauses that have none: one bucket under the empty key."""


class PythonIndex:
    """Clauses by handle. See the module docstring."""

    name = "python"

    def __init__(self) -> None:
        self._tables: dict[Access, Table] = {}
        self._clauses: dict[int, tuple[Clause, ...]] = {}
        self._rows: dict[int, range] = {}
        self._row_count = 0  # grows for ever: a row number is never used again

    def add(self, handle: int, clauses: tuple[Clause, ...]) -> None:
        first = row = self._row_count
        for clause in clauses:
            check = clause_check(clause.tests, clause.residuals)
            for access, key in _places(clause):
                bucket = self._tables.setdefault(access, {}).setdefault(key, {})
                bucket[row] = (handle, check)
                row += 1
        self._row_count = row
        self._clauses[handle] = clauses
        self._rows[handle] = range(first, row)

    def remove(self, handle: int) -> None:
        rows = iter(self._rows.pop(handle))
        for clause in self._clauses.pop(handle):
            for access, key in _places(clause):
                table = self._tables[access]
                bucket = table[key]
                del bucket[next(rows)]
                if not bucket:
                    del table[key]
                    if not table:
                        del self._tables[access]

    def match(self, attributes: Mapping[str, Value]) -> list[int]:
        """The handles of all filters that match, ascending."""
        found: set[int] = set()
        for access, table in self._tables.items():
            bucket = table.get(_key_of(attributes, access))
            if bucket is None:
                continue
            for handle, check in bucket.values():
                if check is None or check(attributes):
                    found.add(handle)
        return sorted(found)

    @property
    def asks_for_nothing(self) -> bool:
        """Does every clause match every event, whatever its attributes?"""
        if self._tables.keys() - {EVERY}:
            return False
        bucket = self._tables.get(EVERY, {}).get((), {})
        return all(check is None for _, check in bucket.values())

    def clauses(self) -> Iterable[tuple[int, tuple[Clause, ...]]]:
        """All that is in here, for another engine to take over."""
        return self._clauses.items()

    def __getstate__(self) -> dict[int, tuple[Clause, ...]]:
        return self._clauses

    def __setstate__(self, clauses: dict[int, tuple[Clause, ...]]) -> None:
        PythonIndex.__init__(self)
        for handle, some in clauses.items():
            self.add(handle, some)

    def statistics(self) -> dict[str, int | str]:
        buckets = [bucket for table in self._tables.values() for bucket in table.values()]
        return {
            "rows": sum(map(len, buckets)),
            "bytes": sum(map(getsizeof, (*self._tables.values(), *buckets))),  # but not the checks
            "engine": self.name,
        }


def _places(clause: Clause) -> Iterator[tuple[Access, object]]:
    """Every table and key that the clause stands under."""
    if clause.prefix is not None:
        name, prefix = clause.prefix
        yield ((name,), len(prefix)), prefix
    elif len(clause.names) == 1:
        for key in clause.keys:
            yield (clause.names, 0), key[0]
    elif clause.names:
        for key in clause.keys:
            yield (clause.names, 0), key
    else:
        yield EVERY, ()


def _key_of(attributes: Mapping[str, Value], access: Access) -> object:
    """The key under which this event looks; None (never a key) where it has none."""
    names, length = access
    if len(names) == 1:
        value = attributes.get(names[0])
        if length:
            return value[:length] if isinstance(value, str) else None
        return None if value.__class__ is bool else value  # True would find what stands under 1
    key = tuple(map(attributes.get, names))
    return None if bool in map(type, key) else key
