"""Cost: what conditions may cost each event at most, estimated from their form.

Theory of operation
    An index finds most tests, and they cost an event next to nothing. Patterns, calculations and
    comparisons of attributes with each other are evaluated one by one, so these are counted, in
    *units* of about 10 ns on a machine of today, for texts of some dozens of characters.
    Where a clause stands under a key (`symbol = 'IBM' AND headline LIKE '%merger%'`), only an event
    with that key pays for it. An event has one key in each table, so only the most expensive key of
    each table counts. Every event pays for clauses without a key. The estimate does not know how
    long texts are: a text of a thousand characters may cost three times as much.

Invariants
    I1  `MatchingLoad.worst` is at least the sum of what is paid without a key and of each table's
        dearest key; after `recount` it is that sum

Cost: a plan for each condition that is added or removed; `worst` is kept.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gapless.filters.constraint import Strings
from gapless.filters.matching.plan import plan
from gapless.filters.syntax import dear_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.filters.filter import Filter
    from gapless.filters.like import Pattern
    from gapless.filters.matching.plan import Clause

LOOK = 1
"""The cost of a clause that no key leads to."""

FEW = 16
FURTHER = 20
"""The cost of each clause of one condition after the first `FEW`: without an index a clause takes
0.2 to 0.5 µs, however many clauses the condition has."""

PATTERN = 100
PLACE = 200
"""The extra cost of a pattern with `_`: it has no text that can be searched for at once."""

PARTS_EACH = 4
"""How many parts of a long pattern cost one unit more."""

CALCULATION = 100

REMEMBERED = 4
"""Conditions whose charges are cached: a new subscription needs them twice or three times."""

Table = tuple[tuple[str, ...], int]
"""Attributes, and the length of a prefix; 0: whole values."""


class Charge(NamedTuple):
    """The cost of one clause for an event; `table` is None where every event pays."""

    cost: int
    table: Table | None = None
    key: object = None


@lru_cache(maxsize=REMEMBERED)
def charges_of(condition: Filter) -> tuple[Charge, ...]:
    """The charges of a condition."""
    return tuple(
        charge
        for number, conjunction in enumerate(condition.conjunctions)
        for charge in _charges(plan(conjunction), LOOK if number < FEW else FURTHER)
        if charge.cost
    )


def _charges(clause: Clause, look: int) -> Iterable[Charge]:
    dear = _dear(clause)
    if clause.names:
        return [Charge(dear, (clause.names, 0), key) for key in clause.keys]
    if clause.prefix is not None:
        name, prefix = clause.prefix
        return [Charge(dear, ((name,), len(prefix)), prefix)]
    return [Charge(look + dear)]


def _dear(clause: Clause) -> int:
    cost = sum((1 + dear_in(residual)) * CALCULATION for residual in clause.residuals)
    for _, constraint in clause.tests:
        if isinstance(constraint, Strings):
            cost += sum(map(_pattern, (*constraint.like, *constraint.unlike)))
    return cost


def _pattern(pattern: Pattern) -> int:
    return PATTERN + ("" in pattern.parts) * PLACE + len(pattern.parts) // PARTS_EACH


class MatchingLoad:
    """The most that one event may cost, for many conditions together."""

    def __init__(self) -> None:
        self._every = 0
        self._tables: dict[Table, dict[object, int]] = {}
        self._peaks: dict[Table, int] = {}  # at least what the dearest key of the table costs
        self._peak_sum = 0
        self._is_stale = False  # some peak may be too high

    @property
    def worst(self) -> int:
        return self._every + self._peak_sum

    def add(self, charges: Iterable[Charge]) -> None:
        for cost, table, key in charges:
            if table is None:
                self._every += cost
                continue
            keys = self._tables.setdefault(table, {})
            keys[key] = keys.get(key, 0) + cost
            peak = self._peaks.get(table, 0)
            if keys[key] > peak:
                self._peaks[table] = keys[key]
                self._peak_sum += keys[key] - peak

    def remove(self, charges: Iterable[Charge]) -> None:
        for cost, table, key in charges:
            if table is None:
                self._every -= cost
                continue
            keys = self._tables[table]
            keys[key] -= cost
            self._is_stale = True
            if not keys[key]:
                del keys[key]
            if not keys:
                del self._tables[table]
                self._peak_sum -= self._peaks.pop(table)

    def worst_with(self, charges: Iterable[Charge]) -> int:
        """What `worst` would be with these charges added."""
        every, more = 0, dict[tuple[Table, object], int]()
        for cost, table, key in charges:
            if table is None:
                every += cost
            else:
                more[table, key] = more.get((table, key), 0) + cost
        peaks: dict[Table, int] = {}
        for (table, key), cost in more.items():
            whole = cost + self._tables.get(table, {}).get(key, 0)
            peaks[table] = max(peaks.get(table, self._peaks.get(table, 0)), whole)
        grown = sum(peak - self._peaks.get(table, 0) for table, peak in peaks.items())
        return self.worst + every + grown

    def recount(self) -> None:
        """Compute the peaks of the tables anew, after charges were removed."""
        if self._is_stale:
            self._is_stale = False
            self._peaks = {table: max(keys.values()) for table, keys in self._tables.items()}
            self._peak_sum = sum(self._peaks.values())

    def check(self) -> None:
        true = {table: max(keys.values()) for table, keys in self._tables.items()}
        assert true.keys() == self._peaks.keys(), "I1"
        assert all(true[table] <= peak for table, peak in self._peaks.items()), "I1"
        assert self._peak_sum == sum(self._peaks.values()), "I1"
