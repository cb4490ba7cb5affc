"""The plan: which access a conjunction gets, and that nothing of it is lost."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from gapless.filters.filter import Filter
from gapless.filters.matching.checks import check_of, clause_check
from gapless.filters.matching.plan import KEYS_MAX, Clause, plan
from tests.filters import oracle
from tests.filters.strategies import attribute_maps, conditions, values


def clause(text: str) -> Clause:
    [conjunction] = Filter.parse(text).conjunctions
    return plan(conjunction)


def test_equalities_are_one_key_together() -> None:
    found = clause("b = 'x' AND a = 1 AND c > 5")
    assert found.names == ("a", "b")
    assert found.keys == ((1, "x"),)
    assert [name for name, _ in found.tests] == ["c"]


def test_a_short_list_stands_under_each_of_its_values() -> None:
    assert clause("a IN ('x', 'y') AND b = 1").keys == (("x", 1), ("y", 1))


def test_a_list_too_long_for_keys_is_tested() -> None:
    many = ", ".join(f"'{index}'" for index in range(KEYS_MAX + 1))
    found = clause(f"a IN ({many}) AND b = 1")
    assert found.names == ("b",)
    assert [name for name, _ in found.tests] == ["a"]


def test_without_equalities_the_longest_prefix_is_the_access() -> None:
    found = clause("a LIKE 'x%' AND b LIKE 'long%' AND c LIKE '%z'")
    assert found.prefix == ("b", "long")
    assert [name for name, _ in found.tests] == ["a", "c"]


def test_a_pattern_that_goes_on_after_its_prefix_is_tested_too() -> None:
    found = clause("a LIKE 'x%y'")
    assert found.prefix == ("a", "x")
    assert [name for name, _ in found.tests] == ["a"]


@settings(max_examples=80, deadline=None)
@given(conditions(simple=True), values())
def test_a_check_says_what_its_constraint_says(condition: object, value: object) -> None:
    for conjunction in Filter(condition).conjunctions:  # type: ignore[arg-type]
        for _, constraint in conjunction.constraints:
            assert check_of(constraint)(value) is oracle.admits(constraint, value)  # type: ignore[arg-type]
            assert check_of(constraint)(None) is oracle.admits(constraint, None)


@settings(max_examples=80, deadline=None)
@given(conditions(), attribute_maps())
def test_keys_tests_and_residuals_together_are_the_filter(
    condition: object, event: dict[str, object]
) -> None:
    whole = Filter(condition)  # type: ignore[arg-type]
    found = False
    for one in map(plan, whole.conjunctions):
        at_key = not one.names or any(
            all(
                type(event.get(n)) is not bool and event.get(n) == p
                for n, p in zip(one.names, key, strict=True)
            )
            for key in one.keys
        )
        if one.prefix is not None:
            text = event.get(one.prefix[0])
            at_key = isinstance(text, str) and text.startswith(one.prefix[1])
        check = clause_check(one.tests, one.residuals, {})
        found = found or (at_key and (check is None or check(event)))  # type: ignore[arg-type]
    assert found is whole.matches(event)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("a > 1 AND b IS NULL AND c IS NOT NULL", ("a", "c")),
        ("a + b > c", ("a", "b", "c")),
        ("a NOT IN (1, 2) AND NOT (b + 1 IN (2, 3))", ("a", "b")),
        ("a IS NULL", ()),
        ("", ()),
        ("a = 1 AND b > 2", ()),  # found by its key
        ("a LIKE 'x%' AND b > 2", ()),  # found by its prefix
    ],
)
def test_without_keys_and_prefix_an_event_must_have_what_is_tested(
    text: str, needed: tuple[str, ...]
) -> None:
    assert clause(text).needed == needed


@settings(max_examples=200, deadline=None)
@given(conditions(), attribute_maps())
def test_nothing_matches_without_an_attribute_that_is_needed(
    condition: object, event: dict[str, object]
) -> None:
    for conjunction in Filter(condition).conjunctions:  # type: ignore[arg-type]
        found = plan(conjunction)
        check = clause_check(found.tests, found.residuals, {})
        if any(event.get(name) is None for name in found.needed):
            assert check is not None
            assert not check(event)  # type: ignore[arg-type]
