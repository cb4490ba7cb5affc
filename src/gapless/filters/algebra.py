"""The algebra of constraints: intersection, inclusion and union of sets of values.

Theory of operation
    Intersection is exact and n-ary: a thousand `a <> …` are one pass. Inclusion never says yes
    wrongly, and says yes whenever it is so for intervals, sets, prefixes and null tests; only
    between general LIKE patterns may it miss one. Union joins what is again one constraint:
    ranges that overlap or touch, points that fill a hole or close an end.

Invariants
    I1  includes(a, b) and includes(b, a) only if a == b
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, TypeVar

from gapless.filters.constraint import (
    Booleans,
    Constraint,
    Missing,
    Number,
    Numbers,
    Present,
    Strings,
    booleans,
    may_start_in,
    numbers,
    strings,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind = TypeVar("Kind", Booleans, Numbers, Strings)


def intersect(constraints: Sequence[Constraint]) -> Constraint | None:
    """What meets all of these; None if nothing does. There must be one or more."""
    if len(constraints) == 1:
        return constraints[0]
    narrow = [one for one in constraints if not isinstance(one, Present)]
    if not narrow:
        return Present()
    first = narrow[0]
    if any(type(one) is not type(first) for one in narrow):
        return None
    match first:
        case Booleans():
            return booleans(set.intersection(*(set(one.values) for one in _only(Booleans, narrow))))
        case Numbers():
            return _intersect_numbers(_only(Numbers, narrow))
        case Strings():
            return _intersect_strings(_only(Strings, narrow))
        case Missing() | Present():
            return first if len(narrow) == len(constraints) else None


def _only(kind: type[Kind], constraints: Sequence[Constraint]) -> list[Kind]:
    return [one for one in constraints if isinstance(one, kind)]


def _intersect_numbers(all_of: list[Numbers]) -> Numbers | None:
    low, low_open = max((one.low, one.low_open) for one in all_of)
    high, high_closed = min((one.high, not one.high_open) for one in all_of)
    finite = [set(one.values) for one in all_of if one.values is not None]
    return numbers(
        low,
        high,
        low_open,
        not high_closed,
        chain.from_iterable(one.excluded for one in all_of),
        set.intersection(*finite) if finite else None,
    )


def _intersect_strings(all_of: list[Strings]) -> Strings | None:
    finite = [set(one.values) for one in all_of if one.values is not None]
    return strings(
        max(one.low for one in all_of),
        min((one.high for one in all_of if one.high is not None), default=None),
        chain.from_iterable(one.excluded for one in all_of),
        set.intersection(*finite) if finite else None,
        chain.from_iterable(one.like for one in all_of),
        chain.from_iterable(one.unlike for one in all_of),
    )


def includes(wide: Constraint, narrow: Constraint) -> bool:
    """Is surely every value of `narrow` also in `wide`?"""
    if wide == narrow:
        return True
    match wide, narrow:
        case Present(), _:
            return not isinstance(narrow, Missing)
        case Booleans(), Booleans():
            return set(wide.values) >= set(narrow.values)
        case Numbers(), Numbers():
            return _includes_numbers(wide, narrow)
        case Strings(), Strings():
            return _includes_strings(wide, narrow)
        case _:
            return False


def _includes_numbers(wide: Numbers, narrow: Numbers) -> bool:
    if narrow.values is not None:
        return all(map(wide.admits, narrow.values))
    return (
        wide.values is None
        and (wide.low, wide.low_open) <= (narrow.low, narrow.low_open)
        and (wide.high, not wide.high_open) >= (narrow.high, not narrow.high_open)
        and not any(map(narrow.admits, wide.excluded))
    )


def _includes_strings(wide: Strings, narrow: Strings) -> bool:
    if narrow.values is not None:
        return all(map(wide.admits, narrow.values))
    if wide.values is not None or wide.low > narrow.low:
        return False
    if wide.high is not None and (narrow.high is None or narrow.high > wide.high):
        return False
    if any(map(narrow.admits, wide.excluded)):
        return False
    known = (within(narrow.low, narrow.high), *narrow.like)
    return all(any(q.implies(p) for q in known) for p in wide.like) and all(
        any(u.implies(v) for v in narrow.unlike)
        or not may_start_in(narrow.low, narrow.high, u.prefix)
        for u in wide.unlike
    )


def unite(constraints: Sequence[Constraint]) -> list[Constraint]:
    """The same values in as few constraints as we can tell, in a fixed order."""
    missing = Missing() in constraints
    result: list[Constraint] = [Missing()] if missing else []
    if Present() in constraints:
        return [*result, Present()]
    of_boolean = _only(Booleans, constraints)
    if of_boolean:
        result.append(
            Booleans(tuple(sorted(set(chain.from_iterable(b.values for b in of_boolean)))))
        )
    of_number = _only(Numbers, constraints)
    of_string = _only(Strings, constraints)
    patterned = [one for one in of_string if one.like or one.unlike]
    plain = [one for one in of_string if not (one.like or one.unlike)]
    result.extend(_unite_numbers(of_number))
    result.extend(_unite_strings(plain))
    result.extend(dict.fromkeys(patterned))
    return result


def _unite_numbers(some_of: list[Numbers]) -> list[Numbers]:
    """Ranges by their lower end; each is joined to the one before it if they overlap or touch."""
    points = set(chain.from_iterable(one.values or () for one in some_of))
    ranges = [Numbers(point, point) for point in points]
    ranges += [
        Numbers(*_ends(one), tuple(hole for hole in one.excluded if hole not in points))
        for one in some_of
        if one.values is None
    ]
    ranges.sort(key=lambda one: (one.low, one.low_open))
    joined: list[Numbers] = []
    for one in ranges:
        last = joined[-1] if joined else None
        if last is None or one.low > last.high:
            joined.append(one)
            continue
        holes = [hole for hole in last.excluded if not one.admits(hole)]
        holes += [hole for hole in one.excluded if not last.admits(hole)]
        if one.low == last.high and one.low_open and last.high_open:
            holes.append(one.low)
        high, closed = max((last.high, not last.high_open), (one.high, not one.high_open))
        joined[-1] = Numbers(last.low, high, last.low_open, not closed, tuple(sorted(holes)))
    canonical = [numbers(*_ends(one), one.excluded) for one in joined]
    rest = [one for one in canonical if one is not None and one.values is None]
    finite = numbers(values=[p for one in canonical if one is not None for p in one.values or ()])
    return rest if finite is None else [finite, *rest]


def _ends(one: Numbers) -> tuple[Number, Number, bool, bool]:
    return one.low, one.high, one.low_open, one.high_open


def _unite_strings(some_of: list[Strings]) -> list[Strings]:
    points = set(chain.from_iterable(one.values or () for one in some_of))
    ranges = [Strings(point, point + "\0") for point in points]
    ranges += [
        Strings(one.low, one.high, tuple(hole for hole in one.excluded if hole not in points))
        for one in some_of
        if one.values is None
    ]
    ranges.sort(key=lambda one: one.low)
    joined: list[Strings] = []
    for one in ranges:
        last = joined[-1] if joined else None
        if last is None or (last.high is not None and one.low > last.high):
            joined.append(one)
            continue
        holes = [hole for hole in last.excluded if not one.admits(hole)]
        holes += [hole for hole in one.excluded if not last.admits(hole)]
        highs = (last.high, one.high)
        high = None if None in highs else max(last.high or "", one.high or "")
        joined[-1] = Strings(last.low, high, tuple(sorted(holes)))
    canonical = [strings(one.low, one.high, one.excluded) for one in joined]
    rest = [one for one in canonical if one is not None and one.values is None]
    finite = strings(values=[p for one in canonical if one is not None for p in one.values or ()])
    return rest if finite is None else [finite, *rest]
