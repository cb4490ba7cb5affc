"""Constraints: what a conjunction says about one attribute, in canonical form.

Theory of operation
    Every simple predicate of the language restricts one attribute to a set of values of one
    kind: numbers, strings, booleans, timestamps or bytes; or it asks whether the attribute is there
    at all. A constraint is such a set. `AND` on the same attribute is intersection, covering is
    inclusion. Equal sets have equal constraints, so two conjunctions that cover each other are
    equal: the routing tables of `propagation` depend on that.

    Numbers   an interval of the real line less some points, or a finite set of points.
              1 and 1.0 are the same number; a NaN is in no set (it compares UNKNOWN).
    Strings   a half-open interval by code point, less some points, or a finite set of points.
              The string right after s is s + NUL, so `> s` starts at s + NUL, `<= s` ends
              before s + NUL, `= s` is [s, s + NUL), and the prefix `ab` is ['ab', 'ac').
              `LIKE` patterns that are no prefix are kept beside the interval.
    Ranges    timestamps or bytes: half-open intervals as those of strings, without patterns. The
              timestamp right after t is a microsecond later, the bytes right after b are b and 0.

Invariants (established by `booleans`, `numbers`, `strings`, `ranges`; build these nowhere else)
    I1  no constraint is empty: an impossible conjunction has no constraints, it is dropped
    I2  `values` is set exactly if the set is finite and known; then all else is at its default
    I3  `excluded` holds only points inside the interval and not at a closed end of it
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gapless.core.timestamps import FIRST, LAST, MICROSECOND, Timestamp
from gapless.filters.like import Pattern, compile_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


Number = int | float
Ordered = TypeVar("Ordered", Number, str, Timestamp, bytes)

PATTERNS_COMPARED_MAX = 8
"""Above this many patterns on one attribute, patterns that others imply are kept: to find them is
quadratic, and to keep them is harmless."""

RUN_MAX = 16
"""The longest run of neighbours (strings s, s + NUL, …) that is turned into a finite set."""


class Missing(msgspec.Struct, frozen=True, gc=False):
    """The attribute is not there: `a IS NULL`."""


class Present(msgspec.Struct, frozen=True, gc=False):
    """The attribute is there, of whatever kind: `a IS NOT NULL`, `EXISTS a`."""


class Booleans(msgspec.Struct, frozen=True, gc=False):
    """A boolean that is one of `values` (sorted; one or two of them)."""

    values: tuple[bool, ...]


class Numbers(msgspec.Struct, frozen=True, gc=False):
    """A number in an interval less `excluded`, or one of `values` (both sorted)."""

    low: Number = -inf
    high: Number = inf
    low_open: bool = False
    high_open: bool = False
    excluded: tuple[Number, ...] = ()
    values: tuple[Number, ...] | None = None

    def admits(self, value: Number) -> bool:
        if self.values is not None:
            return holds(self.values, value)
        return self.spans(value) and not holds(self.excluded, value)

    def spans(self, value: Number) -> bool:
        """Is it inside the interval? (A NaN never is.)"""
        above = value > self.low if self.low_open else value >= self.low
        return above and (value < self.high if self.high_open else value <= self.high)


class Strings(msgspec.Struct, frozen=True, gc=False):
    """A string in [low, high) less `excluded`, or one of `values` (sorted); and the patterns."""

    low: str = ""
    high: str | None = None  # None: no upper end
    excluded: tuple[str, ...] = ()
    values: tuple[str, ...] | None = None
    like: tuple[Pattern, ...] = ()
    unlike: tuple[Pattern, ...] = ()

    def admitting(self) -> Callable[[str], bool]:
        """A test whether a value is in the set; its patterns are compiled once."""
        low, high, excluded, values = self.low, self.high, self.excluded, self.values
        if values is not None:
            return lambda value: holds(values, value)
        like = [compile_pattern(pattern) for pattern in self.like]
        unlike = [compile_pattern(pattern) for pattern in self.unlike]
        if len(like) == 1 and self == Strings(like=self.like):  # as in LIKE '%abc%'
            return like[0]

        def test(value: str) -> bool:
            if not low <= value or (high is not None and value >= high) or holds(excluded, value):
                return False
            for matches in like:
                if not matches(value):
                    return False
            for matches in unlike:  # noqa: SIM110 - a generator takes twice as long
                if matches(value):
                    return False
            return True

        return test


class Timestamps(msgspec.Struct, frozen=True, gc=False):
    """A timestamp in [low, high) less `excluded`, or one of `values` (sorted)."""

    low: Timestamp = FIRST
    high: Timestamp | None = None  # None: no upper end
    excluded: tuple[Timestamp, ...] = ()
    values: tuple[Timestamp, ...] | None = None


class ByteStrings(msgspec.Struct, frozen=True, gc=False):
    """Bytes in [low, high) less `excluded`, or one of `values` (sorted)."""

    low: bytes = b""
    high: bytes | None = None  # None: no upper end
    excluded: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] | None = None


Range = Timestamps | ByteStrings
RangeT = TypeVar("RangeT", Timestamps, ByteStrings)
Constraint = Missing | Present | Booleans | Numbers | Strings | Range


def holds(ordered: Sequence[Ordered], value: Ordered) -> bool:
    """Is the value in this sorted sequence?"""
    place = bisect_left(ordered, value)
    return place < len(ordered) and ordered[place] == value


def after(value: Any) -> Any:
    """The string, the timestamp or the bytes right after this one; None after the last."""
    if isinstance(value, Timestamp):
        return value + MICROSECOND if value < LAST else None
    return value + (b"\0" if isinstance(value, bytes) else "\0")


def admits(constraint: Range, value: Any) -> bool:
    """Is a value of the constraint's kind in the set?"""
    if constraint.values is not None:
        return holds(constraint.values, value)
    low, high, holes = constraint.low, constraint.high, constraint.excluded
    return low <= value and (high is None or value < high) and not holds(holes, value)


def booleans(values: Iterable[bool]) -> Booleans | None:
    """The canonical set of these booleans; None if there are none."""
    kept = tuple(sorted(set(values)))
    return Booleans(kept) if kept else None


def numbers(
    low: Number = -inf,
    high: Number = inf,
    low_open: bool = False,
    high_open: bool = False,
    excluded: Iterable[Number] = (),
    values: Iterable[Number] | None = None,
) -> Numbers | None:
    """The canonical set of numbers that meet all of this; None if there are none."""
    if not excluded and values is None and low < high:  # nearly all
        return Numbers(_plain(low), _plain(high), low_open, high_open)
    holes = set(excluded)
    low_open = low_open or low in holes
    high_open = high_open or high in holes
    interval = Numbers(_plain(low), _plain(high), low_open, high_open)
    if values is None and low == high:
        values = (low,)
    if values is not None:
        if holes or low > -inf or high < inf:
            values = [v for v in values if interval.spans(v) and v not in holes]
        kept = set(map(_plain, values))
        return Numbers(values=tuple(sorted(kept))) if kept else None
    if low > high:
        return None
    if not holes:
        return interval
    inside = sorted({_plain(v) for v in holes if low < v < high})
    return Numbers(interval.low, interval.high, low_open, high_open, tuple(inside))


def _plain(number: Number) -> Number:
    """An integer where the number is one in 64 bits, so that equal sets also look the same."""
    if type(number) is float and number.is_integer() and -(2.0**63) <= number < 2.0**63:
        return int(number)
    return number


def prefix_end(prefix: str) -> str | None:
    """The first string after all that start with `prefix`; None if there is none after them."""
    stem = prefix.rstrip("\U0010ffff")
    return stem[:-1] + chr(ord(stem[-1]) + 1) if stem else None


def strings(
    low: str = "",
    high: str | None = None,
    excluded: Iterable[str] = (),
    values: Iterable[str] | None = None,
    like: Iterable[Pattern] = (),
    unlike: Iterable[Pattern] = (),
) -> Strings | None:
    """The canonical set of strings that meet all of this; None if there are none."""
    if values is not None and not (low or high is not None or excluded or like or unlike):
        ordered = tuple(sorted(set(values)))
        return Strings(values=ordered) if ordered else None
    like, unlike, holes = set(like), set(unlike), set(excluded)
    for pattern in like:
        low, high = max(low, pattern.prefix), _earlier(high, prefix_end(pattern.prefix))
    if holes:
        low, high = _less_holes_at_ends(low, high, holes)
    if values is None:
        values = _neighbours(low, high)
    if values is not None:
        admits = Strings(low, high, like=tuple(like), unlike=tuple(unlike)).admitting()
        kept = sorted({value for value in values if value not in holes and admits(value)})
        return Strings(values=tuple(kept)) if kept else None
    if high is not None and low >= high:
        return None
    if like or unlike:
        whole = _reduce(low, high, like, unlike)
        if whole is None:
            return None
    else:
        whole = Strings(low, high)
    inside = tuple(sorted(filter(whole.admitting(), holes))) if holes else ()
    return Strings(low, high, inside, None, whole.like, whole.unlike)


def ranges(
    kind: type[RangeT],
    low: Any = None,
    high: Any = None,
    excluded: Iterable[Any] = (),
    values: Iterable[Any] | None = None,
) -> RangeT | None:
    """The canonical set of timestamps or bytes that meet all of this; None if there are none."""
    low = kind().low if low is None else low
    holes = set(excluded)
    while low in holes:
        low = after(low)
        if low is None:
            return None
    while (last := _before(kind, high)) is not None and last in holes:
        high = last
    if values is None:
        values = _run(kind, low, high)
    if values is not None:
        kept = {v for v in values if low <= v and (high is None or v < high)} - holes
        return kind(values=tuple(sorted(kept))) if kept else None
    if high is not None and low >= high:
        return None
    return kind(low, high, tuple(sorted(v for v in holes if admits(kind(low, high), v))))


def _before(kind: type[Range], end: Any) -> Any:
    """The last value of [low, end), whatever low is; None if there is none."""
    if kind is Timestamps:
        return LAST if end is None else end - MICROSECOND if end > FIRST else None
    return end[:-1] if end and end[-1] == 0 else None


def _run(kind: type[Range], low: Any, high: Any) -> list[Any] | None:
    """All values of [low, high), where they are few."""
    if kind is Timestamps:
        count = (LAST - low if high is None else high - low) // MICROSECOND + (high is None)
        return None if count > RUN_MAX else [low + each * MICROSECOND for each in range(count)]
    if high is None or not high.startswith(low) or len(high) - len(low) > RUN_MAX:
        return None
    return (
        None
        if high[len(low) :].strip(b"\0")
        else [high[:end] for end in range(len(low), len(high))]
    )


def _earlier(high: str | None, other: str | None) -> str | None:
    return other if high is None else high if other is None else min(high, other)


def _less_holes_at_ends(low: str, high: str | None, holes: set[str]) -> tuple[str, str | None]:
    """[low, high) without the holes that stand right at its ends."""
    while low in holes:
        low += "\0"
    while high and high.endswith("\0") and high[:-1] in holes:
        high = high[:-1]
    return low, high


def _neighbours(low: str, high: str | None) -> list[str] | None:
    """All strings of [low, high), where they are few: low, low + NUL, low + NUL + NUL, …"""
    if high is None or not high.startswith(low) or len(high) - len(low) > RUN_MAX:
        return None
    return (
        None if high[len(low) :].strip("\0") else [high[:end] for end in range(len(low), len(high))]
    )


def _reduce(low: str, high: str | None, like: set[Pattern], unlike: set[Pattern]) -> Strings | None:
    """[low, high) with the patterns that say something more; None if nothing is left."""
    unlike = {u for u in unlike if may_start_in(low, high, u.prefix)}
    if len(like) + len(unlike) <= PATTERNS_COMPARED_MAX:
        known = [within(low, high), *like]
        if any(pattern.implies(u) for pattern in known for u in unlike):
            return None
        like = {p for p in like if not any(q != p and q.implies(p) for q in known)}
        unlike = {u for u in unlike if not any(v != u and u.implies(v) for v in unlike)}
    return Strings(low, high, (), None, _in_order(like), _in_order(unlike))


def may_start_in(low: str, high: str | None, prefix: str) -> bool:
    """May a string that starts with `prefix` be in [low, high)?"""
    end = prefix_end(prefix)
    return (high is None or prefix < high) and (end is None or low < end)


def within(low: str, high: str | None) -> Pattern:
    """The pattern of the longest prefix that all strings of [low, high) have."""
    if high is None:
        return Pattern((None,))
    length, beyond = 0, len(low) + 1
    while beyond - length > 1:  # how far low and high agree, by bisection
        middle = (length + beyond) // 2
        length, beyond = (middle, beyond) if high.startswith(low[:middle]) else (length, middle)
    if length < len(low) and prefix_end(low[: length + 1]) == high:
        length += 1  # as in ['ab', 'ac')
        while low[length : length + 1] == "\U0010ffff":
            length += 1
    return Pattern((low[:length], None) if length else (None,))


def _in_order(patterns: set[Pattern]) -> tuple[Pattern, ...]:
    if len(patterns) < 2:
        return tuple(patterns)
    return tuple(sorted(patterns, key=lambda p: [(part is None, part or "") for part in p.parts]))
