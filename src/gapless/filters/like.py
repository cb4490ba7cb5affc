"""LIKE patterns: read, match in linear time, compare.

Theory of operation
    `_` is one character (code point), `%` any run of them, also none. A pattern is kept as its
    literal pieces with `""` for each `_` and `None` for `%`; among wildcards that stand together
    every `_` comes first and one `%` last, which means the same. So patterns that differ in
    writing only are equal.
    Matching cuts the pattern at each `%` into segments. The first is fixed to the start, the last
    to the end, and each of the others may take its leftmost place: a later place can only leave
    less room for the rest, so there is nothing to try again. A segment without `_` is found by
    `str.find`; one with `_` by shifting one bit per character of the segment (shift-and).

Cost
    O(text) for segments without `_`, O(text · segment / 30) bit work for those with; no
    backtracking. A pattern that is a string, a prefix or a suffix is one call.

Invariants (established by `parse_pattern`)
    I1  no two literal pieces stand together, none is empty
    I2  `None` is never followed by `None` or `""`
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

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


Segment = tuple[str, ...]


@lru_cache(maxsize=1024)
def compile_pattern(pattern: Pattern) -> Callable[[str], bool]:
    """A fast test for one pattern."""
    segments = _segments(pattern.parts)
    if len(segments) == 1:
        exact = pattern.exact
        if exact is not None:
            return exact.__eq__
        size = _size(segments[0])
        whole = _placed(segments[0])
        return lambda text: len(text) == size and whole(text, 0)
    first, *middle, last = segments
    size = sum(map(_size, segments))
    last_size = _size(last)
    starts, ends = _placed(first), _placed(last)
    finders = [_finder(segment) for segment in middle]
    start = _size(first)

    def test(text: str) -> bool:
        if len(text) < size or not starts(text, 0) or not ends(text, len(text) - last_size):
            return False
        place, limit = start, len(text) - last_size
        for find in finders:
            place = find(text, place, limit)
            if place < 0:
                return False
        return True

    return test


def _segments(parts: Sequence[Part]) -> list[Segment]:
    segments: list[list[str]] = [[]]
    for part in parts:
        if part is None:
            segments.append([])
        else:
            segments[-1].append(part)
    return [tuple(segment) for segment in segments]


def _size(segment: Segment) -> int:
    return sum(len(part or "_") for part in segment)


def _placed(segment: Segment) -> Callable[[str, int], bool]:
    """A test whether the segment stands at a place of a text that is long enough."""
    pieces: list[tuple[str, int]] = []
    offset = 0
    for part in segment:
        if part:
            pieces.append((part, offset))
        offset += len(part or "_")
    if not pieces:
        return lambda _text, _place: True
    if len(pieces) == 1:
        [(piece, shift)] = pieces
        return lambda text, place: text.startswith(piece, place + shift)
    return lambda text, place: all(text.startswith(p, place + shift) for p, shift in pieces)


def _finder(segment: Segment) -> Callable[[str, int, int], int]:
    """A search for the segment in text[place:limit]: where its first match ends, or -1."""
    size = _size(segment)
    literal: str
    if len(segment) == 1 and segment[0]:
        literal = segment[0]

        def find_literal(text: str, place: int, limit: int) -> int:
            found = text.find(literal, place, limit)
            return found + size if found >= 0 else -1

        return find_literal

    literal = max(segment, key=len)
    offset = _size(segment[: segment.index(literal)])
    anywhere = 0
    masks: dict[str, int] = {}
    bit = 1
    for part in segment:
        for character in part or "_":
            if part:
                masks[character] = masks.get(character, 0) | bit
            else:
                anywhere |= bit
            bit <<= 1
    for character in masks:
        masks[character] |= anywhere
    goal = 1 << (size - 1)

    def find_shifting(text: str, place: int, limit: int) -> int:
        found = text.find(literal, place + offset, limit)  # no match can start before this
        if found < 0:
            return -1
        state = 0
        for index in range(found - offset, limit):
            state = ((state << 1) | 1) & masks.get(text[index], anywhere)
            if state & goal:
                return index + 1
        return -1

    return find_shifting


@lru_cache(maxsize=4096)
def _implies(narrow: tuple[Part, ...], wide: tuple[Part, ...]) -> bool:
    """Does `wide` match `narrow` read as a text, its wildcards being characters of their own?"""
    if narrow == wide or wide == (None,):
        return True
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
