"""Covering: never wrong, complete for single conjunctions, and how much it finds beyond."""

from __future__ import annotations

import random
from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.filters.covering import covers
from gapless.filters.filter import Filter
from gapless.filters.normal import normalise
from gapless.filters.parse import parse
from tests.filters import oracle
from tests.filters.strategies import attribute_maps, conditions, conjunctions

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.events import Value
    from gapless.filters.syntax import Condition

# Simple tests over few constants, and values that lie densely around those constants: whatever
# two conjunctions of these tests differ in, some event of the grid shows it.
TESTS = (
    *("{} = 1", "{} = 2.0", "{} <> 1", "{} < 2", "{} <= 2", "{} > 1", "{} >= 1", "{} IN (1, 2, 3)"),
    *("{} BETWEEN 1 AND 3", "{} NOT IN (1, 3)", "{} = 'a'", "{} <> 'ab'", "{} < 'b'", "{} <= 'ab'"),
    *("{} > 'a'", "{} >= 'ab'", "{} LIKE 'a%'", "{} LIKE 'ab%'", "{} IN ('a', 'ab', 'b')"),
    *("{} LIKE 'ab'", "{}", "{} <> TRUE", "{} IN (TRUE, FALSE)", "{} IS NULL", "{} IS NOT NULL"),
    *("{} BETWEEN 'a' AND 'b'", "{} LIKE '%'", "TRUE"),
)
VALUES: tuple[Value | None, ...] = (
    *(None, True, False, float("-inf"), 0, 1, 1.5, 2, 2.5, 3, 4, float("inf"), float("nan")),
    *("", "a", "a\0", "aa", "ab", "ab\0", "abb", "ac", "b", "b\0", "c"),
)
GRID = [
    {name: value for name, value in (("x", x), ("y", y)) if value is not None}
    for x, y in product(VALUES, VALUES)
]


def matched(condition: Condition) -> frozenset[int]:
    return frozenset(n for n, event in enumerate(GRID) if oracle.is_true(condition, event))


def covered(wide: Condition, narrow: Condition) -> bool:
    return covers(normalise(wide), normalise(narrow))


@settings(max_examples=150)
@given(wide=conditions(), narrow=conditions(), attributes=attribute_maps())
def test_covering_is_never_wrong(
    wide: Condition, narrow: Condition, attributes: dict[str, Value]
) -> None:
    if covered(wide, narrow) and oracle.is_true(narrow, attributes):
        assert oracle.is_true(wide, attributes)


@given(one=conditions())
def test_every_condition_covers_itself(one: Condition) -> None:
    assert covered(one, one)


@settings(max_examples=100)
@given(one=conjunctions(), other=conjunctions(), both=st.booleans())
def test_conjunctions_that_cover_each_other_are_identical(
    one: Condition, other: Condition, both: bool
) -> None:
    first, second = normalise(one), normalise(other)
    if len(first) == len(second) == 1:
        mutual = first[0].covers(second[0]) and second[0].covers(first[0])
        assert mutual == (first == second)


def grid_conjunctions() -> list[tuple[Condition, frozenset[int]]]:
    """All ANDs of one test on x and one on y, and of two on x."""
    on_x = [test.format("x") for test in TESTS]
    on_y = [test.format("y") for test in TESTS[::3]]
    texts = [f"{one} AND {other}" for one, other in product(on_x, on_y)]
    texts += [f"{one} AND {other}" for one, other in product(on_x, on_x) if one < other]
    parsed = {normalise(parse(text)): parse(text) for text in texts}
    return [(condition, matched(condition)) for condition in parsed.values()]


@pytest.mark.slow
def test_single_conjunctions_are_complete_and_canonical_on_a_grid() -> None:
    """Every true covering is found, and equal sets of events have equal normal forms."""
    known = [(normalise(condition), events) for condition, events in grid_conjunctions()]
    assert len({events for _, events in known}) == len(known)
    true_coverings = 0
    for wide, wide_events in known:
        for narrow, narrow_events in known:
            wanted = wide_events >= narrow_events
            true_coverings += wanted
            assert covers(wide, narrow) == wanted, (wide, narrow)
    assert true_coverings > 2 * len(known)


def random_condition(dice: random.Random) -> Condition:
    """Two or three simple tests under AND, OR and NOT."""
    tests = [dice.choice(TESTS).format(dice.choice("xy")) for _ in range(dice.randint(2, 3))]
    text = tests[0]
    for test in tests[1:]:
        text = f"({text}) {dice.choice(('AND', 'OR'))} {dice.choice(('', 'NOT '))}{test}"
    return parse(text)


@pytest.mark.slow
def test_the_share_of_true_coverings_found_between_any_conditions(
    record_property: Callable[[str, object], None],
) -> None:
    """Not counted are the trivial ones: from everything, of nothing, of itself."""
    dice = random.Random(2004)
    known = [(normalise(c), matched(c)) for c in (random_condition(dice) for _ in range(250))]
    true_coverings = found = 0
    for wide, wide_events in known:
        for narrow, narrow_events in known:
            answer = covers(wide, narrow)
            wanted = wide_events >= narrow_events
            assert wanted or not answer, (wide, narrow)
            if narrow_events and narrow_events != wide_events and len(wide_events) < len(GRID):
                true_coverings += wanted
                found += answer
    record_property("true coverings found", f"{found} of {true_coverings}")
    print(f"found {found} of {true_coverings} true coverings, {found / true_coverings:.1%}")
    assert found / true_coverings > 0.95


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("", "a = 1"),
        ("a = 1", "FALSE"),
        ("a > 1", "a > 2 AND b = 1"),
        ("a = 1 OR a = 2", "a IN (1, 2)"),
        ("a = 1 OR b = 1 AND a = 2", "a IN (1, 2) AND b = 1"),
        ("a IS NOT NULL", "a LIKE '%x%'"),
        ("a LIKE '%b%'", "a LIKE 'ab%'"),
        ("a LIKE '%b%'", "a LIKE 'xby%z' AND c = 1"),
        ("a NOT LIKE '%b'", "a NOT LIKE '%b%' AND a > 'c'"),
        ("a NOT LIKE 'a%b'", "a LIKE 'c%'"),
        ("a NOT LIKE 'b%'", "a IN ('a', 'c')"),
        ("a + b > c", "c < a + b AND d"),
        ("a OR b", "a AND c OR b AND c"),
        ("a = TRUE OR a = FALSE AND b = 1", "b = 1 AND a IN (TRUE, FALSE)"),
    ],
)
def test_coverings_that_must_be_found(wide: str, narrow: str) -> None:
    assert covered(parse(wide), parse(narrow))
    assert not covered(parse(narrow), parse(wide)) or normalise(parse(wide)) == normalise(
        parse(narrow)
    )


def test_filters_mean_the_same_however_they_are_spelt() -> None:
    same = [("x<3", "(x < 3)"), ("a = 1 AND b = 2", "b=2 and a=1"), ("x IN (1, 2)", "x=2 OR x=1")]
    for one, other in same:
        assert Filter.parse(one).means(Filter.parse(other))
    assert not Filter.parse("x < 3").means(Filter.parse("x <= 3"))
    assert not Filter.parse("").means(Filter.parse("x < 3"))
