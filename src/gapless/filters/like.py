"""LIKE patterns: read, match without backtracking, compare.

Theory of operation
    `_` is one character (code point), `%` any run of them, also none. A pattern is kept as its
    literal pieces with `""` for each `_` and `None` for `%`; among wildcards that stand together
    every `_` comes first and one `%` last, which means the same. So patterns that differ in
    writing only are equal.
    Matching cuts the pattern at each `%` into segments. The first is fixed to the start, the last
    to the end, and each of the others takes its leftmost place: a later place can only leave less
    room for the rest, so nothing is tried again. How a segment is found: `like_segment`.

Cost
    O(text + pattern) where no segment between two `%` has `_` in it; where one has, a little more
    for each of its characters (`like_segment`). No backtracking.

Invariants (established by `parse_pattern`)
    I1  no two literal pieces stand together, none is empty
    I2  `None` is never followed by `None` or `""`
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from gapless.filters.like_segment import Search, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMPARED_MAX = 200
"""Patterns longer than this, taken together, are only compared for equality."""

_RUNS = re.compile("[%_]+|[^%_]+")
_STAND_INS = {"%": "\ud800", "_": "\ud801"}  # halves of surrogate pairs, which no condition has
_WILDCARDS = str.maketrans({stand_in: sign for sign, stand_in in _STAND_INS.items()})

Part = str | None
"""A literal piece, `""` for `_`, or None for `%`."""


class Pattern(msgspec.Struct, frozen=True, gc=False):
    """A LIKE pattern with its escapes resolved: literal pieces around `%` (None) and `_` ("")."""

    parts: tuple[Part, ...]

    @property
    def exact(self) -> str | None:
        """The only string this matches; None where there are several."""
        if not self.parts:
            return ""
        return self.parts[0] if len(self.parts) == 1 and self.parts[0] else None

    @property
    def prefix(self) -> str:
        """What every match starts with."""
        return (self.parts[0] or "") if self.parts else ""

    @property
    def is_prefix(self) -> bool:
        """Does it match exactly the strings that start with `prefix`?"""
        return self.parts == (None,) or (
            len(self.parts) == 2 and bool(self.parts[0]) and self.parts[1] is None
        )

    def implies(self, other: Pattern) -> bool:
        """Does surely every match of this match `other` too? (Sound; not complete for `_`.)"""
        if self.parts == other.parts or other.parts == (None,):
            return True
        if len(self.parts) + len(other.parts) > COMPARED_MAX:
            return False
        return _implies(self.parts, other.parts)


def parse_pattern(text: str, escape: str | None = None) -> Pattern:
    """The pattern that `text` writes. ValueError if it ends in its escape character."""
    if escape is not None:
        after = "[%_]" if escape in "%_" else ".?"  # a wildcard that escapes nothing stays one
        text = re.sub(f"(?s){re.escape(escape)}({after})", _escaped, text)
    parts: list[Part] = []
    for run in _RUNS.findall(text):
        if run[0] not in "%_":
            parts.append(run if escape is None else run.translate(_WILDCARDS))
            continue
        parts.extend([""] * run.count("_"))
        if "%" in run:
            parts.append(None)
    return Pattern(tuple(parts))


def _escaped(match: re.Match[str]) -> str:
    """The character after an escape character; a wildcard as its stand-in."""
    if not match[1]:
        raise ValueError("a pattern must not end in its escape character")
    return _STAND_INS.get(match[1], match[1])


def compile_pattern(pattern: Pattern) -> Callable[[str], bool]:
    """A fast test for one pattern."""
    exact = pattern.exact
    if exact is not None:
        return exact.__eq__
    segments = _segments(pattern.parts)
    first, last = Segment(segments[0]), Segment(segments[-1])
    if len(segments) == 1:
        return lambda text: len(text) == first.size and first.stands_at(text, 0)
    # A segment without `_` is kept as its text: most are, and there may be many.
    middle: list[Any] = [
        one[0] if len(one) == 1 and one[0] else Segment(one) for one in segments[1:-1]
    ]
    size = first.size + last.size
    if len(pattern.parts) == 3 and middle and middle[0].__class__ is str:  # as in '%abc%'
        return lambda text: middle[0] in text

    def test(text: str) -> bool:
        place, end = first.size, len(text) - last.size
        if len(text) < size or not first.stands_at(text, 0) or not last.stands_at(text, end):
            return False
        search: Search | None = None
        for segment in middle:
            if segment.__class__ is str:
                place = text.find(segment, place, end)
                if place < 0:
                    return False
                place += len(segment)
            else:
                search = search or Search(text)
                place = segment.find(search, place, end)
                if place < 0:
                    return False
        return True

    return test


def _segments(parts: Sequence[Part]) -> list[list[str]]:
    """The pattern, cut at each `%`."""
    segments: list[list[str]] = [[]]
    for part in parts:
        if part is None:
            segments.append([])
        else:
            segments[-1].append(part)
    return segments


def _implies(narrow: tuple[Part, ...], wide: tuple[Part, ...]) -> bool:
    """Does `wide` match `narrow` read as a text, its wildcards being characters of their own?

    For each segment of `wide`, one bit for each place where it may start: as in `like_segment`.
    """
    texts = list(filter(None, narrow))
    for piece in filter(None, wide):  # a quick answer for nearly all
        if not any(piece in text for text in texts):
            return False
    segments = _segments(wide)
    sizes = [sum(len(part) or 1 for part in segment) for segment in segments]
    where: dict[Part, int] = {}  # at which places `narrow` has each symbol, as bits
    end = 0
    for part in narrow:
        for symbol in part or (part,):
            where[symbol] = where.get(symbol, 0) | 1 << end
            end += 1
    if end + sum(sizes) + len(sizes) - 1 > COMPARED_MAX:
        return False
    single = ((1 << end) - 1) & ~where.get(None, 0)  # what `_` takes
    place = 0
    for number, segment in enumerate(segments):
        starts, offset = (2 << end) - 1, 0
        for part in segment:
            for symbol in part or (part,):
                starts &= (where.get(symbol, 0) if symbol else single) >> offset
                offset += 1
        if number == len(segments) - 1:  # fixed to the end
            is_there = place <= end - offset if number else end == offset
            return is_there and bool(starts >> (end - offset) & 1)
        starts = starts >> place if number else starts & 1
        if not starts:
            return False
        place += (starts & -starts).bit_length() - 1 + offset
    raise AssertionError("a pattern has a segment")
