"""LIKE patterns: read, match without backtracking, compare.

Theory of operation
    `_` is one character (code point), `%` any run of them, also none. A pattern is kept as its
    literal pieces with `""` for each `_` and `None` for `%`; among wildcards that stand together
    every `_` comes first and one `%` last, which means the same. So patterns that differ in
    writing only are equal.
    Matching cuts the pattern at each `%` into segments. The first is fixed to the start, the last
    to the end, and each of the others may take its leftmost place: a later place can only leave
    less room for the rest, so there is nothing to try again. How a segment is found: `segment`.

Cost
    O(text + pattern) where no segment between two `%` has `_` in it; where one has, a little more
    for each of its characters (`segment`). No backtracking.

Invariants (established by `parse_pattern`)
    I1  no two literal pieces stand together, none is empty
    I2  `None` is never followed by `None` or `""`
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from gapless.filters.segment import Search, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMPARED_MAX = 1_000
"""Patterns longer than this, taken together, are only compared for equality."""

Part = str | None
"""A literal piece, `""` for `_`, or None for `%`."""


class Pattern(msgspec.Struct, frozen=True, gc=False):
    """A LIKE pattern with its escapes resolved: literal pieces around `%` (None) and `_` ("")."""

    parts: tuple[Part, ...]

    def matches(self, text: str) -> bool:
        """For many texts, see `compile_pattern`."""
        return compile_pattern(self)(text)

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
            return False  # before they are remembered
        return _implies(self.parts, other.parts)


def parse_pattern(text: str, escape: str | None = None) -> Pattern:
    """The pattern that `text` writes. ValueError if it ends in its escape character."""
    parts: list[Part] = []
    literal: list[str] = []
    singles, runs = 0, False

    def end_wildcards() -> None:
        nonlocal singles, runs
        parts.extend([""] * singles)
        if runs:
            parts.append(None)
        singles, runs = 0, False

    def end_literal() -> None:
        if literal:
            parts.append("".join(literal))
            literal.clear()

    characters = iter(text)
    for character in characters:
        if character == escape:
            character = next(characters, "")
            if not character:
                raise ValueError("a pattern must not end in its escape character")
        elif character in "%_":
            end_literal()
            singles, runs = singles + (character == "_"), runs or character == "%"
            continue
        end_wildcards()
        literal.append(character)
    end_literal()
    end_wildcards()
    return Pattern(tuple(parts))


def compile_pattern(pattern: Pattern) -> Callable[[str], bool]:
    """A fast test for one pattern."""
    exact = pattern.exact
    if exact is not None:
        return exact.__eq__
    segments = _segments(pattern.parts)
    size = sum(segment.size for segment in segments)
    first, last = segments[0], segments[-1]
    if len(segments) == 1:
        return lambda text: len(text) == size and first.stands_at(text, 0)
    # A segment without `_` is kept as its text: most are, and there may be many.
    middle: list[Any] = [one if one.literal is None else one.literal for one in segments[1:-1]]
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


def _segments(parts: Sequence[Part]) -> list[Segment]:
    """The pattern, cut at each `%`."""
    segments: list[list[str]] = [[]]
    for part in parts:
        if part is None:
            segments.append([])
        else:
            segments[-1].append(part)
    return [Segment(segment) for segment in segments]


@lru_cache(maxsize=4096)
def _implies(narrow: tuple[Part, ...], wide: tuple[Part, ...]) -> bool:
    """Does `wide` match `narrow` read as a text, its wildcards being characters of their own?"""
    symbols: list[Part] = []
    for part in narrow:
        symbols.extend(part or (part,))
    goals: list[Part] = []
    for part in wide:
        goals.extend(part or (part,))
    return len(symbols) + len(goals) <= COMPARED_MAX and _match_symbols(symbols, goals)


def _match_symbols(symbols: list[Part], goals: list[Part]) -> bool:
    """The classic two-pointer wildcard match: only the last `%` is ever taken up again."""
    place = goal = 0
    resume_place, resume_goal = 0, -1
    while place < len(symbols):
        symbol = symbols[place]
        wanted = goals[goal] if goal < len(goals) else "end"
        if wanted is None:
            resume_place, resume_goal = place, goal + 1
            goal += 1
        elif wanted == symbol or (wanted == "" and symbol is not None):
            place += 1
            goal += 1
        elif resume_goal >= 0:
            resume_place += 1
            place, goal = resume_place, resume_goal
        else:
            return False
    return all(rest is None for rest in goals[goal:])
