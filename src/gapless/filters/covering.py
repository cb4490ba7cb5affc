"""Covering: does one filter match all that another matches?

Theory of operation
    Every conjunction of the narrow filter must lie within the wide one. Mostly one conjunction
    of the wide filter covers it. Where none does, a finite set of values may still be covered
    value by value by several, so it is taken apart, one attribute at a time.

Invariants
    I1  sound: True only if it is so, for every event
    I2  complete for filters of one conjunction over comparisons, intervals, prefixes, sets and
        null tests on single attributes. Between several conjunctions, between general LIKE
        patterns and between residuals it may miss one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.filters.constraint import (
    Booleans,
    ByteStrings,
    Numbers,
    Strings,
    Timestamps,
    booleans,
    numbers,
    ranges,
    strings,
)
from gapless.filters.normal import Conjunction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.filters.constraint import Constraint

SPLIT_MAX = 1_000
"""How many single values are looked at for one conjunction before we say "cannot tell"."""


def covers(wide: tuple[Conjunction, ...], narrow: tuple[Conjunction, ...]) -> bool:
    """Does surely every event that meets one of `narrow` meet one of `wide`?"""
    return all(_covered(wide, one) for one in narrow)


def _covered(wide: tuple[Conjunction, ...], narrow: Conjunction) -> bool:
    if any(one.covers(narrow) for one in wide):
        return True
    if len(wide) < 2:
        return False
    for name, constraint in narrow.constraints:
        singles = list(_singles(constraint))
        if 1 < len(singles) <= SPLIT_MAX and all(
            any(one.covers(_with(narrow, name, single)) for one in wide) for single in singles
        ):
            return True
    return False


def _singles(constraint: Constraint) -> Iterator[Constraint | None]:
    match constraint:
        case Booleans(values):
            yield from (booleans([value]) for value in values)
        case Numbers(values=points) if points is not None:
            yield from (numbers(values=[value]) for value in points)
        case Strings(values=words) if words is not None:
            yield from (strings(values=[value]) for value in words)
        case Timestamps(values=times) if times is not None:
            yield from (ranges(Timestamps, values=[value]) for value in times)
        case ByteStrings(values=pieces) if pieces is not None:
            yield from (ranges(ByteStrings, values=[value]) for value in pieces)


def _with(conjunction: Conjunction, name: str, constraint: Constraint | None) -> Conjunction:
    assert constraint is not None
    pairs = tuple((n, constraint if n == name else c) for n, c in conjunction.constraints)
    return Conjunction(pairs, conjunction.residuals)
