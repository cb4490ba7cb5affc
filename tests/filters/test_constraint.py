"""Constraints: equal sets are equal values, and membership is exact at every edge."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.filters.constraint import (
    Booleans,
    Constraint,
    Missing,
    Numbers,
    Present,
    Strings,
    booleans,
    numbers,
    prefix_end,
    strings,
    within,
)
from gapless.filters.like import Pattern, parse_pattern
from tests.filters import oracle
from tests.filters.strategies import texts

if TYPE_CHECKING:
    from gapless.core.events import Value

LAST = "\U0010ffff"


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (numbers(5, 5), numbers(values=[5])),
        (numbers(values=[1, 2.0, 1.0]), Numbers(values=(1, 2))),
        (numbers(values=[-0.0]), numbers(values=[0])),
        (numbers(low=1, excluded=[1]), numbers(low=1, low_open=True)),
        (numbers(low=1, excluded=[0, 1, 2.0]), Numbers(1, inf, True, False, (2,))),
        (numbers(1, 3, values=[0, 1, 2, 9], excluded=[2]), numbers(values=[1])),
        (numbers(1, 1, excluded=[1]), None),
        (numbers(2, 1), None),
        (numbers(1, 1, low_open=True), None),
        (strings("a", "a\0"), strings(values=["a"])),
        (strings("a", "a\0\0"), strings(values=["a", "a\0"])),
        (strings("ab", "ac"), strings(low="ab", high=prefix_end("ab"))),
        (strings(low="a", excluded=["a"]), strings(low="a\0")),
        (strings(low="a", excluded=["a", "a\0"]), strings(low="a\0\0")),
        (strings(high="b\0", excluded=["b", "a"]), Strings("", "b", ("a",))),
        (strings("b", "b"), None),
        (strings(high=""), None),
        (strings("a", "a\0", excluded=["a"]), None),
        (strings(values=["b", "a", "b"]), Strings(values=("a", "b"))),
        (strings(values=["ab", "b"], like=[parse_pattern("a%b")]), strings(values=["ab"])),
        (strings(values=["ab"], unlike=[parse_pattern("a%b")]), None),
        (booleans([True, False, True]), Booleans((False, True))),
        (booleans([]), None),
    ],
)
def test_equal_sets_are_equal_constraints(one: Constraint | None, same: Constraint | None) -> None:
    assert one == same


def test_numbers_that_are_integers_are_kept_as_integers() -> None:
    assert repr(numbers(1.0, 2.0, excluded=[1.5])) == repr(numbers(1, 2, excluded=[1.5]))


def test_patterns_that_say_nothing_new_are_dropped() -> None:
    narrow, wide = parse_pattern("a%bc"), parse_pattern("%c")
    assert strings(like=[narrow, wide]) == Strings("a", "b", like=(narrow,))
    assert strings(unlike=[narrow, wide]) == Strings(unlike=(wide,))
    assert strings("x", "y", unlike=[narrow]) == Strings("x", "y")
    assert strings("xby", "xbz", like=[parse_pattern("%b%")]) == Strings("xby", "xbz")
    assert strings(like=[narrow], unlike=[wide]) is None
    assert strings(like=[narrow], excluded=["q", "abc"]) == Strings(
        "a", "b", ("abc",), None, (narrow,)
    )


def test_many_patterns_are_kept_as_they_are() -> None:
    many = [parse_pattern(f"%{number}%") for number in range(40)]
    kept = strings(like=[*many, parse_pattern("%0%1%")])
    assert kept is not None
    assert len(kept.like) == 41


@pytest.mark.parametrize(
    ("prefix", "end"),
    [("", None), ("ab", "ac"), (f"a{LAST}", "b"), (LAST, None), ("a\ud7ff", "a\ud800")],
)
def test_the_end_of_a_prefix(prefix: str, end: str | None) -> None:
    assert prefix_end(prefix) == end


@given(prefix=texts(), text=texts())
def test_a_prefix_is_an_interval(prefix: str, text: str) -> None:
    end = prefix_end(prefix)
    inside = prefix <= text and (end is None or text < end)
    assert inside == text.startswith(prefix)


@pytest.mark.parametrize(
    ("low", "high", "prefix"),
    [
        ("ab", "ac", "ab"),
        ("abc", "abd", "abc"),
        ("abc", "ac", "ab"),
        ("a", "b\0", ""),
        ("a", None, ""),
        (f"ab{LAST}x", "ac", f"ab{LAST}"),
        ("ab", "abc", "ab"),
    ],
)
def test_the_prefix_that_an_interval_has_in_common(low: str, high: str | None, prefix: str) -> None:
    assert within(low, high) == Pattern((prefix, None) if prefix else (None,))


@given(data=st.data())
def test_membership_meets_every_part_of_the_definition(data: st.DataObject) -> None:
    pool = st.sampled_from([-inf, -1, 0, 0.5, 1, 2, inf])
    low, high, value = data.draw(pool), data.draw(pool), data.draw(pool)
    low_open, high_open = data.draw(st.booleans()), data.draw(st.booleans())
    excluded = data.draw(st.lists(pool, max_size=3))
    wanted = (
        (low < value or (low == value and not low_open))
        and (value < high or (value == high and not high_open))
        and value not in excluded
    )
    found = numbers(low, high, low_open, high_open, excluded)
    assert (found is not None and oracle.admits(found, value)) == wanted


@pytest.mark.parametrize(
    ("constraint", "value", "inside"),
    [
        (Missing(), None, True),
        (Missing(), 0, False),
        (Present(), "", True),
        (Present(), nan, True),
        (Present(), None, False),
        (Numbers(), nan, False),
        (Numbers(), inf, True),
        (Numbers(), True, False),
        (Numbers(), "1", False),
        (Numbers(values=(1,)), True, False),
        (Numbers(values=(1,)), 1.0, True),
        (Strings(), "", True),
        (Strings(), 1, False),
        (Booleans((True,)), True, True),
        (Booleans((True,)), 1, False),
        (Booleans((False,)), None, False),
    ],
)
def test_kinds_do_not_mix(constraint: Constraint, value: Value | None, inside: bool) -> None:
    assert oracle.admits(constraint, value) is inside
