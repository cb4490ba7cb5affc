"""Vectors are a lattice, and a missing element is a zero."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.propagation.vector import (
    agrees,
    difference,
    is_at_least,
    join,
    restrict,
    without_zeros,
)

VECTORS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 3))


@given(VECTORS, VECTORS, VECTORS)
def test_the_join_is_the_least_upper_bound(
    one: dict[str, int], two: dict[str, int], bound: dict[str, int]
) -> None:
    both = join(one, two)
    assert is_at_least(both, one)
    assert is_at_least(both, two)
    if is_at_least(bound, one) and is_at_least(bound, two):
        assert is_at_least(bound, both)


@given(VECTORS, VECTORS)
def test_a_missing_element_is_a_zero(one: dict[str, int], two: dict[str, int]) -> None:
    assert is_at_least(one, two) == is_at_least(without_zeros(one), restrict(two, "abc"))
    assert agrees(one, two) == all(one.get(leaf, 0) == time for leaf, time in two.items())


@given(VECTORS, VECTORS)
def test_the_difference_leads_from_the_old_to_the_new(
    old: dict[str, int], more: dict[str, int]
) -> None:
    new = join(old, more)
    assert join(old, difference(new, old)) == new


def test_a_restriction_names_every_leaf() -> None:
    assert restrict({"a": 1, "x": 5}, ["b", "a"]) == {"a": 1, "b": 0}
