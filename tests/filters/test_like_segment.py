"""Segments: the first place against trying each, by pieces and by stretches; bounded work."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.filters.like import compile_pattern, parse_pattern
from gapless.filters.like_segment import (
    FINDS_MAX,
    FINDS_MIN,
    STRETCH_FIRST,
    Search,
    Segment,
    TextStretch,
)

segments = st.lists(st.sampled_from(["", "", "a", "b", "ab", "é"]), min_size=1, max_size=12)
texts = st.text(alphabet="ab", max_size=300) | st.text(alphabet="abé", max_size=300)


def first_place(parts: list[str], text: str, start: int, end: int) -> int:
    """Where the first place of the segment in text[start:end] ends, by trying each."""
    wanted = "".join(part or "_" for part in parts)
    for place in range(start, end - len(wanted) + 1):
        if all(w in ("_", c) for w, c in zip(wanted, text[place:], strict=False)):
            return place + len(wanted)
    return -1


def pieces_of(parts: list[str]) -> tuple[list[tuple[str, int]], int]:
    pieces, size = [], 0
    for part in parts:
        if part:
            pieces.append((part, size))
        size += len(part) or 1
    return pieces, size


@settings(max_examples=400)
@given(parts=segments, text=texts, data=st.data())
def test_the_first_place_is_found(parts: list[str], text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    search = Search(text)
    search.finds_left = data.draw(st.sampled_from([FINDS_MAX, 0]))
    assert Segment(parts).find(search, start, end) == first_place(parts, text, start, end)


@settings(max_examples=400)
@given(some=st.lists(segments, min_size=1, max_size=4), text=texts)
def test_stretches_find_the_same_one_segment_after_the_other(
    some: list[list[str]], text: str
) -> None:
    search, place = Search(text), 0
    for parts in some:
        pieces, size = pieces_of(parts)
        found = search.first(pieces, size, place, len(text) - size)
        expected = first_place(parts, text, place, len(text))
        assert found == (expected - size if expected >= 0 else -1)
        place = max(place, expected)


@pytest.mark.parametrize("place", [0, 1, STRETCH_FIRST - 1, STRETCH_FIRST, 5_119, 5_120, 9_000])
@pytest.mark.parametrize("other", ["x", "\ud800", "é", "😀"])
def test_what_stands_where_one_stretch_ends_is_found(place: int, other: str) -> None:
    text = "ab" * (place // 2) + "a" * (place % 2) + other + "_b" + "ab" * 3_000
    search = Search(text)
    assert search.first([(other, 0), ("b", 2)], 3, 0, len(text) - 3) == place
    assert search.first([(other, 0), ("b", 2)], 3, place + 1, len(text) - 3) == -1


def test_a_start_beyond_the_last_does_not_count() -> None:
    stretch = TextStretch("aaaa", 0, 4)
    assert stretch.first([("a", 0)], 2, 3) == 2
    assert stretch.first([("a", 0)], 3, 3) == -1
    assert TextStretch("bbba", 0, 4).first([("a", 0)], 0, 3) == -1


class Counted(str):
    """A text that counts how often it is searched, and how much of it is copied."""

    finds = copied = 0

    def find(self, *arguments: Any) -> int:
        Counted.finds += 1
        return super().find(*arguments)

    def __getitem__(self, key: Any) -> str:
        part = super().__getitem__(key)
        Counted.copied += len(part)
        return part


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(
    ("pattern", "unit"),
    [
        ("%a_b%", "ab" * 500),
        ("%" + "a_" * 200 + "a%", "a" * 198 + "b"),
        ("%" + "a_" * 2_000 + "a%", "a" * 1_998 + "b"),
        ("%" + "_a" * 2_000 + "b%", "a" * 1_000),
        ("%a_b" * 300 + "%", "ab" * 100 + "axb"),
        ("%é_ö" * 30 + "%", "éö" * 500),
    ],
)
def test_work_grows_with_the_text_and_never_more(pattern: str, unit: str, times: int) -> None:
    """However many starts look good: few searches for each segment, each character copied a few
    times at most."""
    text = Counted(unit * (60_000 * times // len(unit)))
    Counted.finds = Counted.copied = 0
    compile_pattern(parse_pattern(pattern))(text)
    segments = pattern.count("%") - 1
    pieces = sum(map(bool, parse_pattern(pattern).parts))
    assert Counted.finds <= FINDS_MAX + segments * FINDS_MIN + 2 * pieces
    assert Counted.copied <= 2 * len(text) + segments * STRETCH_FIRST + 2 * len(pattern)
