"""Normal form: it says the same as the condition, is canonical, and refuses to explode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings

from gapless.core.errors import FilterError
from gapless.filters.constraint import (
    Booleans,
    Missing,
    Numbers,
    Present,
    Strings,
)
from gapless.filters.evaluate import compile_condition
from gapless.filters.filter import Filter
from gapless.filters.like import parse_pattern
from gapless.filters.normal import Conjunction, is_plain, normalise
from gapless.filters.parse import parse
from tests.filters import oracle
from tests.filters.strategies import attribute_maps, conditions

if TYPE_CHECKING:
    from gapless.core.events import Value
    from gapless.filters.syntax import Condition

EVERYTHING = (Conjunction(()),)


def meets(conjunctions: tuple[Conjunction, ...], attributes: dict[str, Value]) -> bool:
    return any(
        all(oracle.admits(constraint, attributes.get(name)) for name, constraint in one.constraints)
        and all(compile_condition(residual)(attributes) for residual in one.residuals)
        for one in conjunctions
    )


@settings(max_examples=250)
@given(condition=conditions(), attributes=attribute_maps())
def test_the_normal_form_matches_what_the_condition_matches(
    condition: Condition, attributes: dict[str, Value]
) -> None:
    assert meets(normalise(condition), attributes) == oracle.is_true(condition, attributes)


@settings(max_examples=100)
@given(condition=conditions())
def test_conjunctions_are_sorted_and_none_covers_another(condition: Condition) -> None:
    found = normalise(condition)
    for one in found:
        names = [name for name, _ in one.constraints]
        assert names == sorted(set(names))
        assert not any(other.covers(one) for other in found if other is not one)


@pytest.mark.parametrize(
    ("text", "constraint"),
    [
        ("a = 5", Numbers(values=(5,))),
        ("5 = a", Numbers(values=(5,))),
        ("a <> 5", Numbers(excluded=(5,))),
        ("5 > a", Numbers(high=5, high_open=True)),
        ("a >= 2 * 3 - 1", Numbers(low=5)),
        ("a BETWEEN 5 AND 5.0", Numbers(values=(5,))),
        ("a >= 1 AND a <= 1", Numbers(values=(1,))),
        ("a IN (1, 2, 3) AND a <> 2 AND a < 3", Numbers(values=(1,))),
        ("NOT (a < 1 OR a > 2)", Numbers(1, 2)),
        ("a < 5 OR a > 5", Numbers(excluded=(5,))),
        ("a = 1 OR a = 2 OR 3 = a", Numbers(values=(1, 2, 3))),
        ("a = 1 OR a > 1", Numbers(low=1)),
        ("a > 3 OR a > 1", Numbers(low=1, low_open=True)),
        ("a = 'x'", Strings(values=("x",))),
        ("a > 'x'", Strings(low="x\0")),
        ("a <= 'x'", Strings(high="x\0")),
        ("a LIKE 'ab%'", Strings("ab", "ac")),
        ("a >= 'ab' AND a < 'ac'", Strings("ab", "ac")),
        ("a LIKE 'ab'", Strings(values=("ab",))),
        ("a NOT LIKE 'ab'", Strings(excluded=("ab",))),
        ("a LIKE '%'", Strings()),
        ("a LIKE '%b'", Strings(like=(parse_pattern("%b"),))),
        ("a NOT LIKE '%b'", Strings(unlike=(parse_pattern("%b"),))),
        ("a NOT IN ('x', 'y')", Strings(excluded=("x", "y"))),
        ("a NOT IN (1, 2)", Numbers(excluded=(1, 2))),
        ("a", Booleans((True,))),
        ("NOT a", Booleans((False,))),
        ("a <> TRUE", Booleans((False,))),
        ("a OR NOT a", Booleans((False, True))),
        ("a NOT IN (TRUE)", Booleans((False,))),
        ("a IS NULL", Missing()),
        ("a IS NOT NULL OR a = 1", Present()),
        ("EXISTS a AND a > 1", Numbers(low=1, low_open=True)),
    ],
)
def test_one_attribute_has_one_canonical_constraint(text: str, constraint: object) -> None:
    [found] = normalise(parse(text))
    assert found.constraints == (("a", constraint),)
    assert found.residuals == ()


@pytest.mark.parametrize(
    "text",
    [
        "FALSE",
        "a = 1 AND a = 2",
        "a = 1 AND a = 'x'",
        "a IS NULL AND a IS NOT NULL",
        "1 = 2",
        "a = 1 AND a",
        "a < ''",
        "a NOT LIKE '%'",
        "a NOT IN (1, 'x')",
        "a NOT IN (TRUE, FALSE)",
        "a > 5 AND a < 5",
        "a = 1 / 0",
        "a <> 1 / 0",
        "NOT TRUE",
        "'x' = 1",
        "a BETWEEN 2 AND 1",
        "a IS NULL AND NOT (b = 1 OR b <> 1)",
    ],
)
def test_what_nothing_can_meet_has_no_alternatives(text: str) -> None:
    assert normalise(parse(text)) == ()


@pytest.mark.parametrize(
    "text", ["", "TRUE", "a = 1 OR TRUE", "1 < 2", "'ab' LIKE 'a%'", "NOT FALSE AND 2 IN (1, 2)"]
)
def test_what_everything_meets_is_one_empty_conjunction(text: str) -> None:
    assert normalise(parse(text)) == EVERYTHING


def test_an_attribute_left_free_in_one_alternative_is_free() -> None:
    assert normalise(parse("b = 1 AND a = 2 OR b = 1")) == normalise(parse("b = 1"))


def test_alternatives_that_differ_in_one_attribute_are_joined() -> None:
    assert normalise(parse("a = 1 AND b = 2 OR a = 1 AND b = 3")) == normalise(
        parse("a = 1 AND b IN (3, 2)")
    )


def test_not_between_leaves_two_alternatives() -> None:
    below, above = normalise(parse("a NOT BETWEEN 1 AND 2"))
    assert below.constraints == (("a", Numbers(high=1, high_open=True)),)
    assert above.constraints == (("a", Numbers(low=2, low_open=True)),)


def test_residuals_are_written_in_one_way() -> None:
    one = normalise(parse("a + b > c AND x = 1 AND y = z"))
    assert one == normalise(parse("z = y AND c < a + b AND NOT (x <> 1 OR y <> z)"))
    assert one != normalise(parse("c < b + a AND x = 1 AND y = z"))
    assert one[0].constraints == (("x", Numbers(values=(1,))),)
    assert len(one[0].residuals) == 2


def test_a_literal_keeps_its_kind_in_residuals() -> None:
    assert normalise(parse("a / 2 = b")) != normalise(parse("a / 2.0 = b"))


def test_exclusions_on_one_attribute_do_not_multiply() -> None:
    text = " AND ".join(f"a NOT LIKE '{letter}%'" for letter in "abcdefghijkl")
    assert len(normalise(parse(text))) == 2
    text = " AND ".join(f"a NOT BETWEEN {10 * n} AND {10 * n + 5}" for n in range(40))
    assert len(normalise(parse(text))) == 41


def test_a_thousand_alternatives_are_the_limit() -> None:
    distinct = [f"a{number} > 1" for number in range(1_001)]
    assert len(normalise(parse(" OR ".join(distinct[:-1])))) == 1_000
    with pytest.raises(FilterError, match="1000 at most"):
        normalise(parse(" OR ".join(distinct)))


@pytest.mark.parametrize(
    "text",
    [
        " AND ".join(f"(a{n} = 1 OR b{n} = 2)" for n in range(2_000)),
        "NOT (" + " OR ".join(f"a{n} BETWEEN 1 AND 2" for n in range(2_000)) + ")",
        "(" + " OR ".join(f"a{n} > 1" for n in range(900)) + ") AND "
        "(" + " OR ".join(f"b{n} > 1" for n in range(900)) + ")",
        "("
        + " OR ".join(f"b{n} > 1" for n in range(900))
        + ") AND a IN ("
        + ",".join(map(str, range(6_000)))
        + ") AND (c > 1 OR d > 1)",
    ],
)
def test_exponential_conditions_are_refused_at_once(text: str) -> None:
    with pytest.raises(FilterError, match="multiplies out"):
        normalise(parse(text))


@pytest.mark.parametrize(
    "patterns",
    [
        " AND ".join(f"a NOT LIKE '%{n}_x%'" for n in range(1_000)),
        "(" + " OR ".join(f"a LIKE '%{n}_x%'" for n in range(1_000)) + ")",
        " AND ".join(f"a LIKE '%{n}_x%'" for n in range(1_000)),
    ],
)
def test_many_patterns_beside_a_long_list_are_refused_when_parsed(patterns: str) -> None:
    listed = ",".join(f"'{n}'" for n in range(3_000))
    with pytest.raises(FilterError, match="multiplies out"):
        Filter.parse(f"a IN ({listed}) AND {patterns}")


@pytest.mark.parametrize("test", ["a{} <= b", "a LIKE '%{}_x%'", "a + {} > b"])
def test_what_no_index_helps_with_is_not_multiplied_by_many_alternatives(test: str) -> None:
    """An event would be tried against each test in each alternative, 60 ms for one condition."""
    alternatives = " OR ".join(f"x{n} > y" for n in range(600))
    with pytest.raises(FilterError, match="multiplies out"):
        Filter.parse(" AND ".join(test.format(n) for n in range(150)) + f" AND ({alternatives})")
    few = " AND ".join(test.format(n) for n in range(5))
    assert len(Filter.parse(f"{few} AND ({alternatives})").conjunctions) == 600
    groups = [" OR ".join(test.format(f"{n}{m}") for m in range(3)) for n in range(6)]
    assert len(Filter.parse(" AND ".join(f"({one})" for one in groups)).conjunctions) == 729


def test_long_flat_conditions_are_one_pass() -> None:
    [excluded] = normalise(parse(" AND ".join(f"a <> {n}" for n in range(4_500))))
    assert len(excluded.constraints) == 1
    [listed] = normalise(parse(" OR ".join(f"a = {n}" for n in range(4_500))))
    assert listed == normalise(parse(f"a IN ({','.join(map(str, range(4_500)))})"))[0]
    [many] = normalise(parse(" AND ".join(f"a{n} = 1" for n in range(4_500))))
    assert len(many.constraints) == 4_500


def test_plain_conditions_are_told_from_those_that_may_grow() -> None:
    assert is_plain(parse("a = 1 AND b BETWEEN 1 AND 2 AND c IN ('x') AND d IS NULL"))
    assert is_plain(parse("a + b > 1"))
    assert is_plain(parse("a IN ('x', 'y') AND a LIKE '%z%'"))
    for text in ("a = 1 OR b = 2", "NOT (a = 1 AND b = 2)", "a AND b IS NOT NULL", "a IN (1, 'x')"):
        assert not is_plain(parse(text))
