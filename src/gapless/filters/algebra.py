"""The algebra of constraints: intersection, inclusion and union of sets of values.

Theory of operation
    Intersection is exact and n-ary: a thousand `a <> …` are one pass. Inclusion never says yes
    wrongly, and says yes whenever it is so for intervals, sets, prefixes and null tests; only
    between general LIKE patterns may it miss one. Union joins what is again one constraint:
    ranges that overlap or touch, points that fill a hole or close an end. A hole stays if all
    ranges that span it exclude it; that is counted, without a look at each range.

Invariants
    I1  includes(a, b) and includes(b, a) only if a == b
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from functools import partial
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from gapless.filters.constraint import (
    PATTERNS_COMPARED_MAX,
    Booleans,
    ByteStrings,
    Constraint,
    Missing,
    Number,
    Numbers,
    Present,
    RangeT,
    Strings,
    Timestamps,
    admits,
    after,
    booleans,
    may_start_in,
    numbers,
    ranges,
    strings,
    within,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Kind = TypeVar("Kind", Booleans, Numbers, Strings, Timestamps, ByteStrings)
Interval = TypeVar("Interval", Strings, Timestamps, ByteStrings)


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
        case Timestamps():
            return _intersect_ranges(Timestamps, _only(Timestamps, narrow))
        case ByteStrings():
            return _intersect_ranges(ByteStrings, _only(ByteStrings, narrow))
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


def _intersect_ranges(kind: type[RangeT], all_of: list[RangeT]) -> RangeT | None:
    finite = [set(one.values) for one in all_of if one.values is not None]
    return ranges(
        kind,
        max(one.low for one in all_of),
        min((one.high for one in all_of if one.high is not None), default=None),
        chain.from_iterable(one.excluded for one in all_of),
        set[Any].intersection(*finite) if finite else None,
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
        case (Timestamps(), Timestamps()) | (ByteStrings(), ByteStrings()):
            return _includes_range(wide, narrow)
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
        return all(map(wide.admitting(), narrow.values))
    if wide.values is not None or wide.low > narrow.low:
        return False
    if wide.high is not None and (narrow.high is None or narrow.high > wide.high):
        return False
    if wide.excluded and any(map(narrow.admitting(), wide.excluded)):
        return False
    known = (within(narrow.low, narrow.high), *narrow.like)
    if (
        max(len(wide.like), len(wide.unlike), len(known), len(narrow.unlike))
        > PATTERNS_COMPARED_MAX
    ):
        return set(wide.like) <= set(known) and set(wide.unlike) <= set(narrow.unlike)
    return all(any(q.implies(p) for q in known) for p in wide.like) and all(
        any(u.implies(v) for v in narrow.unlike)
        or not may_start_in(narrow.low, narrow.high, u.prefix)
        for u in wide.unlike
    )


def _includes_range(wide: Any, narrow: Any) -> bool:
    """Both are of one kind."""
    if narrow.values is not None:
        return all(admits(wide, value) for value in narrow.values)
    if wide.values is not None or wide.low > narrow.low:
        return False
    if wide.high is not None and (narrow.high is None or narrow.high > wide.high):
        return False
    return not any(admits(narrow, hole) for hole in wide.excluded)


def unite(constraints: Sequence[Constraint]) -> list[Constraint]:
    """The union of these, in as few constraints as we can tell, in a fixed order."""
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
    result.extend(_unite_intervals(Strings, strings, plain))
    result.extend(dict.fromkeys(patterned))
    of_time, of_bytes = _only(Timestamps, constraints), _only(ByteStrings, constraints)
    result.extend(_unite_intervals(Timestamps, partial(ranges, Timestamps), of_time))
    result.extend(_unite_intervals(ByteStrings, partial(ranges, ByteStrings), of_bytes))
    return result


def _unite_numbers(some_of: list[Numbers]) -> list[Numbers]:
    """Ranges by their lower end; each is joined to those before it if they overlap or touch."""
    if len(some_of) < 2:
        return some_of
    points = set(chain.from_iterable(one.values or () for one in some_of))
    ranges = [Numbers(point, point) for point in points]
    ranges += [one for one in some_of if one.values is None]
    ranges.sort(key=lambda one: (one.low, one.low_open))
    canonical: list[Numbers | None] = []
    group: list[Numbers] = []
    touched: list[Number] = []  # where one ends and the next begins, and neither has the point
    top: tuple[Number, bool] = (-inf, False)
    for one in ranges:
        if group and one.low > top[0]:
            canonical.append(_joined_numbers(group, top, touched))
            group, touched = [], []
        if group and (one.low, one.low_open, top[1]) == (top[0], True, False):
            touched.append(one.low)
        end = (one.high, not one.high_open)
        top = max(top, end) if group else end
        group.append(one)
    canonical.append(_joined_numbers(group, top, touched) if group else None)
    rest = [one for one in canonical if one is not None and one.values is None]
    finite = numbers(values=[p for one in canonical if one is not None for p in one.values or ()])
    return rest if finite is None else [finite, *rest]


def _joined_numbers(
    group: list[Numbers], top: tuple[Number, bool], touched: list[Number]
) -> Numbers | None:
    """Ranges that overlap or touch, as one; it ends at `top`, which is (end, closed)."""
    holes = Counter(chain.from_iterable(one.excluded for one in group))
    lows = [(one.low, one.low_open) for one in group]  # sorted already
    highs = sorted((one.high, not one.high_open) for one in group)

    def is_open(hole: Number) -> bool:
        """Does no range have it? Those that span it all leave it out."""
        spanning = bisect_right(lows, (hole, False)) - bisect_left(highs, (hole, True))
        return spanning == holes[hole]

    left = [hole for hole in (*holes, *touched) if is_open(hole)]
    low, low_open = lows[0]
    return numbers(low, top[0], low_open, not top[1], left)


def _unite_intervals(
    kind: type[Interval], make: Callable[..., Interval | None], some_of: list[Interval]
) -> list[Interval]:
    """Sets of values that each have a next one; the strings among them have no patterns."""
    if len(some_of) < 2:
        return some_of
    points = set[Any](chain.from_iterable(one.values or () for one in some_of))
    intervals = [kind(point, after(point)) for point in points]
    intervals += [one for one in some_of if one.values is None]
    intervals.sort(key=lambda one: one.low)
    canonical: list[Interval | None] = []
    group: list[Interval] = []
    top: Any = None
    for one in intervals:
        if group and top is not None and one.low > top:
            canonical.append(_joined_intervals(make, group, top))
            group = []
        top = one.high if not group else _later(top, one.high)
        group.append(one)
    canonical.append(_joined_intervals(make, group, top) if group else None)
    found = [one for one in canonical if one is not None]
    finite = make(values=[point for one in found for point in one.values or ()])
    result = [] if finite is None else [finite]
    result.extend(one for one in found if one.values is None)
    return result


def _later(high: Any, other: Any) -> Any:
    return None if high is None or other is None else max(high, other)


def _joined_intervals(
    make: Callable[..., Interval | None], group: list[Interval], top: Any
) -> Interval | None:
    """Intervals that overlap or touch, as one."""
    holes = Counter[Any](chain.from_iterable(one.excluded for one in group))
    lows: list[Any] = [one.low for one in group]  # sorted already
    highs: list[Any] = sorted(one.high for one in group if one.high is not None)

    def is_open(hole: Any) -> bool:
        return bisect_right(lows, hole) - bisect_right(highs, hole) == holes[hole]

    return make(lows[0], top, filter(is_open, holes))
