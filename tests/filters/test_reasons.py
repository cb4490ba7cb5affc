"""The part of a condition that decides is named, with the values that it saw."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.filters.filter import Filter
from gapless.filters.reasons import REASONS_MAX, reasons


@pytest.mark.parametrize(
    ("text", "attributes", "shown"),
    [
        ("a > 1 AND b = 'x'", {"a": 2, "b": "y"}, ["b = 'x' is FALSE: b is 'y'"]),
        ("a > 1 AND b = 'x'", {"b": "x"}, ["a > 1 is UNKNOWN: a is missing"]),
        ("a > 1 AND b = 'x'", {"a": "2", "b": "x"}, ["a > 1 is UNKNOWN: a is '2'"]),
        ("a > 1 AND b > 1", {"b": 0}, ["b > 1 is FALSE: b is 0"]),
        ("a = 1 OR a = 2", {"a": 3}, ["a = 1 is FALSE: a is 3", "a = 2 is FALSE: a is 3"]),
        ("a = 1 OR a = 2", {"a": 2}, ["a = 2 is TRUE: a is 2"]),
        ("a = 1 AND (b = 1 OR c = 1)", {"a": 1, "b": 0}, ["b = 1 is FALSE: b is 0",
                                                          "c = 1 is UNKNOWN: c is missing"]),
        ("NOT (a = 1)", {"a": 1}, ["NOT a = 1 is FALSE: a is 1"]),
        ("", {}, ["TRUE is TRUE"]),
    ],
)  # fmt: skip
def test_the_deciding_part_is_named(
    text: str, attributes: dict[str, object], shown: list[str]
) -> None:
    assert [str(each) for each in reasons(Filter.parse(text), attributes)] == shown  # type: ignore[arg-type]


PARTS = st.recursive(
    st.sampled_from(["a = 1", "b > 2", "c = 'x'", "a IS NULL", "NOT (b = 3)"]),
    lambda inner: st.lists(inner, min_size=2, max_size=3).flatmap(
        lambda some: st.sampled_from(["AND", "OR"]).map(
            lambda word: "(" + f" {word} ".join(some) + ")"
        )
    ),
    max_leaves=8,
)


@given(PARTS, st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)))
def test_the_deciding_parts_alone_give_the_same_answer(
    text: str, attributes: dict[str, int]
) -> None:
    whole = Filter.parse(text)
    parts = reasons(whole, attributes)
    assert 0 < len(parts) <= REASONS_MAX
    outcomes = [Filter.parse(each.condition).matches(attributes) for each in parts]
    assert [each.outcome is True for each in parts] == outcomes
    if not whole.matches(attributes):
        assert not all(outcomes)
    else:
        assert any(outcomes)


def test_a_thousand_alternatives_are_not_all_named() -> None:
    text = " OR ".join(f"a = {number} AND b = 1" for number in range(100))
    assert len(reasons(Filter.parse(text), {})) == REASONS_MAX
