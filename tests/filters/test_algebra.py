"""The algebra of constraints against its meaning, value by value."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.filters.algebra import includes, intersect, unite
from gapless.filters.constraint import (
    Constraint,
    Missing,
    Numbers,
    Present,
    Strings,
    booleans,
    numbers,
    strings,
)
from gapless.filters.like import parse_pattern
from tests.filters import oracle

if TYPE_CHECKING:
    from gapless.core.events import Value

POINTS = (-1, 0, 1, 2)
WORDS = ("", "a", "a\0", "a\0\0", "ab", "b")
VALUES: tuple[Value | None, ...] = (
    *(
        None,
        True,
        False,
        -9,
        -1,
        -0.5,
        0,
        0.5,
        1,
        1.5,
        2,
        9,
        float("nan"),
        float("inf"),
        float("-inf"),
    ),
    *("", "\0", "a", "a\0", "a\0\0", "a\0\0\0", "aa", "ab", "ab\0", "ac", "b", "b\0", "c", "abb"),
)
PATTERNS = tuple(map(parse_pattern, ("%b", "a%b", "_", "a_%", "%a%b%")))


def constraints(plain: bool = False) -> st.SearchStrategy[Constraint]:
    """Canonical constraints over few points; `plain` ones have no LIKE patterns."""
    point, word = st.sampled_from(POINTS), st.sampled_from(WORDS)
    patterns = st.just(()) if plain else st.lists(st.sampled_from(PATTERNS), max_size=2)
    some: list[st.SearchStrategy[Constraint | None]] = [
        st.just(Missing()),
        st.just(Present()),
        st.lists(st.booleans(), min_size=1).map(booleans),
        st.builds(
            numbers,
            st.one_of(st.just(float("-inf")), point),
            st.one_of(st.just(float("inf")), point),
            st.booleans(),
            st.booleans(),
            st.lists(point, max_size=2),
        ),
        st.builds(numbers, values=st.lists(point, min_size=1, max_size=3)),
        st.builds(
            strings,
            st.one_of(st.just(""), word),
            st.one_of(st.none(), word),
            st.lists(word, max_size=2),
            st.none(),
            patterns,
            patterns,
        ),
        st.builds(strings, values=st.lists(word, min_size=1, max_size=3)),
    ]
    return st.one_of(*some).filter(lambda one: one is not None)


@settings(max_examples=200)
@given(some=st.lists(constraints(), min_size=1, max_size=3))
def test_an_intersection_holds_what_all_hold(some: list[Constraint]) -> None:
    met = intersect(some)
    for value in VALUES:
        wanted = all(oracle.admits(one, value) for one in some)
        assert (met is not None and oracle.admits(met, value)) == wanted, value


@given(some=st.lists(constraints(), min_size=1, max_size=3))
def test_intersections_do_not_depend_on_order_or_grouping(some: list[Constraint]) -> None:
    step: Constraint | None = some[-1]
    for one in reversed(some[:-1]):
        step = None if step is None else intersect([step, one])
    assert intersect(some) == step == intersect([*some, *some])


@settings(max_examples=200)
@given(wide=constraints(), narrow=constraints())
def test_inclusion_is_never_wrong(wide: Constraint, narrow: Constraint) -> None:
    if includes(wide, narrow):
        assert all(oracle.admits(wide, value) for value in VALUES if oracle.admits(narrow, value))


@settings(max_examples=400)
@given(wide=constraints(plain=True), narrow=constraints(plain=True))
def test_inclusion_is_complete_without_patterns(wide: Constraint, narrow: Constraint) -> None:
    """The values lie densely enough around the points to tell any two of these sets apart."""
    wanted = all(oracle.admits(wide, value) for value in VALUES if oracle.admits(narrow, value))
    assert includes(wide, narrow) == wanted


@settings(max_examples=200)
@given(one=constraints(), other=constraints())
def test_sets_that_include_each_other_are_equal(one: Constraint, other: Constraint) -> None:
    assert (includes(one, other) and includes(other, one)) == (one == other)


@settings(max_examples=200)
@given(some=st.lists(constraints(), min_size=1, max_size=4))
def test_a_union_holds_what_any_holds(some: list[Constraint]) -> None:
    joined = unite(some)
    for value in VALUES:
        wanted = any(oracle.admits(one, value) for one in some)
        assert any(oracle.admits(one, value) for one in joined) == wanted, value


@given(some=st.lists(constraints(plain=True), min_size=1, max_size=4))
def test_a_union_leaves_nothing_to_join(some: list[Constraint]) -> None:
    joined = unite(some)
    assert unite(joined) == joined
    for one, other in pairwise(joined):
        assert not includes(one, other)
        assert not includes(other, one)


@pytest.mark.parametrize(
    ("some", "joined"),
    [
        (
            [numbers(high=5, high_open=True), numbers(low=5, low_open=True)],
            [Numbers(excluded=(5,))],
        ),
        ([numbers(excluded=[5]), numbers(values=[5])], [Numbers()]),
        ([numbers(1, 3), numbers(2, 5), numbers(values=[9])], [numbers(values=[9]), Numbers(1, 5)]),
        ([numbers(1, 2, low_open=True), numbers(values=[1])], [Numbers(1, 2)]),
        ([strings("a", "b"), strings("b", "c")], [Strings("a", "c")]),
        ([strings("a\0"), strings(values=["a"])], [Strings("a")]),
        ([strings(excluded=["x"]), strings(values=["x", "y"])], [Strings()]),
        ([Present(), Numbers(), Missing()], [Missing(), Present()]),
        ([booleans([True]), booleans([False])], [booleans([True, False])]),
    ],
)
def test_what_touches_is_joined(some: list[Constraint], joined: list[Constraint]) -> None:
    assert unite(some) == joined


class Counted(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) < other  # type: ignore[operator]

    def __gt__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) > other  # type: ignore[operator]

    def __le__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) <= other  # type: ignore[operator]

    def __ge__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) >= other  # type: ignore[operator]

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_a_union_asks_no_range_about_every_hole() -> None:
    """`a NOT IN (…) OR a < 1 OR a < 2 …`: as many holes as ranges."""

    def compared(count: int) -> int:
        holes = [Counted(10_000 + n) for n in range(count)]
        ranges = [numbers(excluded=holes), *(numbers(high=Counted(n)) for n in range(count))]
        Counted.compared = 0
        [united] = unite([one for one in ranges if one is not None])
        assert isinstance(united, Numbers)
        assert len(united.excluded) == count
        return Counted.compared

    assert compared(400) < 3 * compared(200)
