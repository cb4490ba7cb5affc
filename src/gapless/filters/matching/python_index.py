"""The Python engine: dictionaries of clauses by access key. Nothing to import or to compile.

Theory of operation
    One table per access: per tuple of attribute names that clauses pin together, per (attribute,
    length) of literal prefixes, and per attribute that an event must have. A table maps the key
    that an event must have to the clauses that stand under it, and is watched by one of its
    attributes, the one that watched the fewest when the table came. An event looks into the tables
    that its attributes watch, once each; what it finds is tested in turn. Clauses that no
    attribute leads to are tested against every event.

Invariants
    I1  no table and no bucket is empty: what was removed leaves nothing behind
    I2  a clause stands once under each of its keys

Cost
    One look-up for each attribute of an event and for each table that it watches, one check (0.1 to
    0.3 µs) per clause found. About 1 kB a clause: this engine is for small sets and for machines
    without compiled kernels.
"""

from __future__ import annotations

from sys import getsizeof
from typing import TYPE_CHECKING

from gapless.core.timestamps import Timestamp
from gapless.filters.matching.attribute_columns import plain
from gapless.filters.matching.checks import clause_check

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gapless.core.events import Value
    from gapless.filters.matching.checks import ClauseCheck, ValueCheck
    from gapless.filters.matching.plan import Clause

    Bucket = dict[int, tuple[int, ClauseCheck | None]]  # row number -> (handle, check)
    Table = dict[object, Bucket]
    Access = tuple[tuple[str, ...], int]  # names and the prefix length, or one of those below

WHOLE, PRESENT = 0, -1
"""In place of the length of a prefix: the values themselves, and that there is a value at all."""

KEYS = frozenset((str, int, float, Timestamp, bytes))
"""Values of these classes are looked up as they are."""

TABLES_FEW = 8
"""Number of tables up to which an event looks into each."""


class PythonIndex:
    """Clauses by handle. See the module docstring."""

    name = "python"

    def __init__(self) -> None:
        self._tables: dict[Access, Table] = {}
        self._watched: dict[str, dict[Access, Table]] = {}  # the same by the attribute that watches
        self._watcher: dict[Access, str] = {}
        self._every: Bucket = {}  # clauses that no attribute leads to
        self._clauses: dict[int, tuple[Clause, ...]] = {}
        self._places: dict[int, list[tuple[Access | None, object, int]]] = {}  # by handle
        self._row_count = 0  # grows for ever: a row number is never used again

    def add(self, handle: int, clauses: tuple[Clause, ...]) -> None:
        places = self._places[handle] = []
        known: dict[int, ValueCheck] = {}
        for clause in clauses:
            check = clause_check(clause.tests, clause.residuals, known)
            for access, key in self._accesses(clause):
                self._bucket(access, key)[self._row_count] = (handle, check)
                places.append((access, key, self._row_count))
                self._row_count += 1
        self._clauses[handle] = clauses

    def _accesses(self, clause: Clause) -> Iterator[tuple[Access | None, object]]:
        """Every table and key that the clause stands under; None for the clauses of every event."""
        if clause.prefix is not None:
            name, prefix = clause.prefix
            yield ((name,), len(prefix)), prefix
        elif len(clause.names) == 1:
            for key in clause.keys:
                yield (clause.names, WHOLE), key[0]
        elif clause.names:
            for key in clause.keys:
                yield (clause.names, WHOLE), key
        elif clause.needed:
            tables = self._tables
            name = min(clause.needed, key=lambda one: _size(tables.get(((one,), PRESENT))))
            yield ((name,), PRESENT), True
        else:
            yield None, True

    def _bucket(self, access: Access | None, key: object) -> Bucket:
        if access is None:
            return self._every
        table = self._tables.get(access)
        if table is None:
            table = self._tables[access] = {}
            watched = self._watched
            watcher = min(access[0], key=lambda name: len(watched.get(name, ())))
            watched.setdefault(watcher, {})[access] = table
            self._watcher[access] = watcher
        return table.setdefault(key, {})

    def remove(self, handle: int) -> None:
        del self._clauses[handle]
        for access, key, row in self._places.pop(handle):
            if access is None:
                del self._every[row]
                continue
            table = self._tables[access]
            del table[key][row]
            if not table[key]:
                del table[key]
                if not table:
                    self._drop(access)

    def _drop(self, access: Access) -> None:
        watcher = self._watcher.pop(access)
        del self._tables[access], self._watched[watcher][access]
        if not self._watched[watcher]:
            del self._watched[watcher]

    def match(self, attributes: Mapping[str, Value]) -> list[int]:
        """The handles of all filters that match, ascending."""
        found: set[int] = set()
        if self._every:
            for handle, check in self._every.values():
                if check is None or check(attributes):
                    found.add(handle)
        for tables in self._led_to(attributes):
            for access, table in tables.items():
                bucket = table.get(_key_of(attributes, access))
                if bucket is None:
                    continue
                for handle, check in bucket.values():
                    if check is None or check(attributes):
                        found.add(handle)
        return sorted(found)

    def _led_to(self, attributes: Mapping[str, Value]) -> Iterable[dict[Access, Table]]:
        """All tables that the event may find something in."""
        # Other mappings may be slow to go through.
        if len(self._tables) <= TABLES_FEW or attributes.__class__ is not dict:
            return (self._tables,)
        watched = self._watched
        return [watched[name] for name in attributes if name in watched]

    @property
    def asks_for_nothing(self) -> bool:
        """Does every clause match every event, whatever its attributes?"""
        return not self._tables and all(check is None for _, check in self._every.values())

    def clauses(self) -> Iterable[tuple[int, tuple[Clause, ...]]]:
        """All clauses by handle, for another engine to take over."""
        return self._clauses.items()

    def __getstate__(self) -> dict[int, tuple[Clause, ...]]:
        return self._clauses

    def __setstate__(self, clauses: dict[int, tuple[Clause, ...]]) -> None:
        PythonIndex.__init__(self)
        for handle, some in clauses.items():
            self.add(handle, some)

    def statistics(self) -> dict[str, int | str]:
        tables = self._tables.values()
        buckets = [self._every, *(bucket for table in tables for bucket in table.values())]
        return {
            "rows": sum(map(len, buckets)),
            "bytes": sum(map(getsizeof, (*tables, *buckets))),  # but not the checks
            "engine": self.name,
        }


def _size(table: Table | None) -> int:
    """How many clauses stand in the table of an attribute that must be there."""
    return len(table[True]) if table is not None else 0


def _key_of(attributes: Mapping[str, Value], access: Access) -> object:
    """The key under which this event looks; None (never a key) where it has none."""
    names, length = access
    if len(names) == 1:
        value = attributes.get(names[0])
        if length > 0:
            return value[:length] if isinstance(value, str) else None
        if length == PRESENT:
            return None if value is None else True
        return value if value.__class__ in KEYS else _looked_up(value)
    key = tuple(map(attributes.get, names))
    return key if KEYS.issuperset(map(type, key)) else tuple(map(_looked_up, key))


def _looked_up(value: object) -> object:
    """True would find what stands under 1, and so would what is no number but equals one."""
    found = plain(value)
    return None if isinstance(found, bool) else found
