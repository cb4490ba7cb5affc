"""Plan: how one conjunction is found, and what is left to test once it is found.

Theory of operation
    A conjunction is found through its *access*: the attributes it pins to a few values, taken
    together as one key (`symbol = 'IBM' AND side = 'buy'` is found under `('IBM', 'buy')`), so
    that the work for an event grows with what matches and not with how many filters there are. An
    `IN` of a few values stands under each of them. Without such attributes a literal prefix serves,
    and without that one of the attributes that an event must have at all, for all but `IS NULL`
    demands that. Every event is tested against the rest, `TRUE` and `a IS NULL`, which match nearly
    all events. What the access does not say is a *test* of one attribute, or a *residual*: a
    condition over several attributes that is evaluated only after everything else has held.

Invariants
    I1  access and tests and residuals together are equivalent to the conjunction
    I2  the keys of one conjunction are disjoint: an event finds it under at most one of them
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.timestamps import Timestamp
from gapless.filters.constraint import (
    ByteStrings,
    Missing,
    Numbers,
    Strings,
    Timestamps,
    prefix_end,
)
from gapless.filters.syntax import names_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.events import Value
    from gapless.filters.constraint import Constraint
    from gapless.filters.normal import Conjunction
    from gapless.filters.syntax import Condition

    Attributes = Mapping[str, Value]

KEYS_MAX = 16
"""Under how many keys one conjunction may stand. A longer IN list is tested instead."""

NAMES_MAX = 4
"""How many attributes one key may combine; the other equalities are tested."""

Point = str | int | float | Timestamp | bytes
POINTED: frozenset[type] = frozenset((Strings, Numbers, Timestamps, ByteStrings))
"""Constraints that may list their values."""
Key = tuple[Point, ...]


class Clause(NamedTuple):
    """One conjunction: the names and keys it is found under, and what is left to test."""

    names: tuple[str, ...]  # sorted; empty: found by prefix, or always looked at
    keys: tuple[Key, ...]
    pinned: tuple[tuple[str, Constraint], ...]  # the constraints that the keys stand for
    prefix: tuple[str, str] | None  # (attribute, literal prefix); only without names
    needed: tuple[str, ...]  # attributes that an event must have; only without names and prefix
    tests: tuple[tuple[str, Constraint], ...]
    residuals: tuple[Condition, ...]


def plan(conjunction: Conjunction) -> Clause:
    """Choose the access of a conjunction."""
    pinned: list[tuple[str, Constraint]] = []
    points: list[tuple[Point, ...]] = []
    tests: list[tuple[str, Constraint]] = []
    room = KEYS_MAX
    for name, constraint in conjunction.constraints:
        values = constraint.values if constraint.__class__ in POINTED else None  # type: ignore[union-attr]
        if values is not None and len(values) <= room and len(pinned) < NAMES_MAX:
            room //= len(values)
            pinned.append((name, constraint))
            points.append(values)
        else:
            tests.append((name, constraint))
    if not pinned:
        return _without_points(tests, conjunction.residuals)
    names = tuple([name for name, _ in pinned])
    keys = tuple(product(*points))
    return Clause(names, keys, tuple(pinned), None, (), tuple(tests), conjunction.residuals)


def _without_points(
    tests: list[tuple[str, Constraint]], residuals: tuple[Condition, ...]
) -> Clause:
    best: tuple[str, str] | None = None
    implied: tuple[str, Constraint] | None = None
    for test in tests:
        name, constraint = test
        prefix = literal_prefix(constraint)
        if prefix and (best is None or len(prefix) > len(best[1])):
            best = (name, prefix)
            implied = test if constraint == Strings(prefix, prefix_end(prefix)) else None
    left = tuple(test for test in tests if test is not implied)
    needed = () if best is not None else _needed(tests, residuals)
    return Clause((), (), (), best, needed, left, residuals)


def _needed(
    tests: list[tuple[str, Constraint]], residuals: tuple[Condition, ...]
) -> tuple[str, ...]:
    """The attributes that an event must have: a residual is UNKNOWN without one of its own."""
    names = {name: None for name, constraint in tests if constraint.__class__ is not Missing}
    for residual in residuals:
        names.update(dict.fromkeys(sorted(names_in(residual))))
    return tuple(names)


def literal_prefix(constraint: Constraint) -> str:
    """What every string of the set starts with, as far as its ends show it; maybe nothing."""
    if isinstance(constraint, Strings) and constraint.low:
        return constraint.low if constraint.high == prefix_end(constraint.low) else ""
    return ""


def plan_all(conjunctions: Iterable[Conjunction]) -> tuple[Clause, ...]:
    return tuple(map(plan, conjunctions))
