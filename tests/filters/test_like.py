"""LIKE patterns: matching against the slow oracle, canonical parts, implication."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.filters.like import COMPARED_MAX, Pattern, compile_pattern, parse_pattern
from tests.filters.oracle import like, unescaped

patterns = st.text(alphabet="ab%_", max_size=8)
texts = st.text(alphabet="ab", max_size=10)
long_patterns = st.lists(
    st.sampled_from(["%", "_", "a", "b", "%a_b", "%a__b", "a_a"]), max_size=20
).map("".join)
long_texts = st.lists(st.sampled_from(["a", "b", "ab" * 20, "axb"]), max_size=12).map("".join)


@settings(max_examples=400)
@given(pattern=patterns, text=texts)
def test_matching_agrees_with_trying_every_way(pattern: str, text: str) -> None:
    assert compile_pattern(parse_pattern(pattern))(text) == like(text, unescaped(pattern, None))


@settings(max_examples=200)
@given(pattern=long_patterns, text=long_texts)
def test_long_patterns_and_texts_too(pattern: str, text: str) -> None:
    assert compile_pattern(parse_pattern(pattern))(text) == like(text, unescaped(pattern, None))


@given(pattern=st.text(alphabet="a%_!", max_size=8), text=st.text(alphabet="a%_!", max_size=6))
def test_escapes_agree_with_trying_every_way(pattern: str, text: str) -> None:
    trailing = len(pattern) - len(pattern.rstrip("!"))
    if trailing % 2:
        with pytest.raises(ValueError, match="escape"):
            parse_pattern(pattern, "!")
    else:
        assert compile_pattern(parse_pattern(pattern, "!"))(text) == like(
            text, unescaped(pattern, "!")
        )


@given(
    pattern=st.text(alphabet="ab%_", max_size=8),
    text=st.text(alphabet="ab%_", max_size=6),
    escape=st.sampled_from("%_"),
)
def test_a_wildcard_that_is_the_escape_character_escapes_wildcards_only(
    pattern: str, text: str, escape: str
) -> None:
    matches = compile_pattern(parse_pattern(pattern, escape))
    assert matches(text) == like(text, unescaped(pattern, escape))


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("", ()),
        ("abc", ("abc",)),
        ("%_%_", ("", "", None)),
        ("a%%b", ("a", None, "b")),
        ("a%_b", ("a", "", None, "b")),
    ],
)
def test_patterns_that_differ_in_writing_only_are_equal(
    pattern: str, parts: tuple[str | None, ...]
) -> None:
    assert parse_pattern(pattern) == Pattern(parts)


def test_the_escape_character_takes_any_character_as_it_is() -> None:
    assert parse_pattern("!a!%!!", "!") == Pattern(("a%!",))
    assert parse_pattern("%%%_", "%") == Pattern(("%_",))


@pytest.mark.parametrize(
    ("pattern", "text"), [("%ab%b", "xab"), ("a%ba%a", "aba"), ("ab%b", "ab"), ("%a_%_b", "xaab")]
)
def test_segments_do_not_share_characters(pattern: str, text: str) -> None:
    assert not compile_pattern(parse_pattern(pattern))(text)


def test_a_wildcard_is_one_code_point_even_beyond_16_bits() -> None:
    assert compile_pattern(parse_pattern("_"))("😀")
    assert not compile_pattern(parse_pattern("__"))("😀")
    assert compile_pattern(parse_pattern("%_%"))("\n")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("%a" * 2_000 + "%b", "a" * 20_000),
        ("%" + "a_" * 2_000 + "b%", "a" * 20_000),
        ("%_" * 4_000 + "X", "a" * 20_000),
        ("%" + "a_" * 30_000 + "a%", ("a" * 29_998 + "b") * 4),
    ],
)
def test_patterns_that_make_others_backtrack_end_soon(pattern: str, text: str) -> None:
    assert not compile_pattern(parse_pattern(pattern))(text)


@given(narrow=patterns, wide=patterns, text=texts)
def test_implication_is_never_wrong(narrow: str, wide: str, text: str) -> None:
    one, other = parse_pattern(narrow), parse_pattern(wide)
    if one.implies(other) and compile_pattern(one)(text):
        assert compile_pattern(other)(text)


@given(one=patterns, other=patterns)
def test_patterns_that_imply_each_other_are_equal(one: str, other: str) -> None:
    first, second = parse_pattern(one), parse_pattern(other)
    assert (first.implies(second) and second.implies(first)) == (first == second)


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        ("abc", "a%"),
        ("ab%", "a%"),
        ("a_c%", "a%c%"),
        ("%ab%", "%b%"),
        ("xay%b", "%a%b"),
        ("a_", "__"),
    ],
)
def test_plain_implications_are_found(narrow: str, wide: str) -> None:
    assert parse_pattern(narrow).implies(parse_pattern(wide))
    assert not parse_pattern(wide).implies(parse_pattern(narrow))


def test_long_patterns_are_compared_for_equality_only() -> None:
    long = "%a" * COMPARED_MAX
    assert parse_pattern(long).implies(parse_pattern(long))
    assert parse_pattern(long).implies(parse_pattern("%"))
    assert not parse_pattern(long).implies(parse_pattern("%a%"))
