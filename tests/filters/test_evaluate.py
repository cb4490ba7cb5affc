"""Evaluation: three-valued logic by truth table, kinds, and agreement with a dumb evaluator."""

from __future__ import annotations

import enum
from collections import Counter
from datetime import datetime
from math import inf, nan
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings

from gapless.filters.evaluate import compile_condition
from gapless.filters.parse import parse
from tests.filters import oracle
from tests.filters.strategies import attribute_maps, conditions

if TYPE_CHECKING:
    from gapless.core.events import Value
    from gapless.filters.syntax import Condition

WORDS = {True: "t", False: "f", None: "u"}
EVENT: dict[str, Value] = {"t": True, "f": False, "n": 5, "s": "abc", "z": nan}


def evaluate(text: str, attributes: dict[str, Value]) -> bool | None:
    return compile_condition(parse(text))(attributes)


@pytest.mark.parametrize(
    ("left", "right", "both", "either"),
    [
        ("t", "t", "t", "t"),
        ("t", "f", "f", "t"),
        ("t", "u", "u", "t"),
        ("f", "t", "f", "t"),
        ("f", "f", "f", "f"),
        ("f", "u", "f", "u"),
        ("u", "t", "u", "t"),
        ("u", "f", "f", "u"),
        ("u", "u", "u", "u"),
    ],
)
def test_and_and_or_follow_the_truth_tables(left: str, right: str, both: str, either: str) -> None:
    assert WORDS[evaluate(f"{left} AND {right}", EVENT)] == both
    assert WORDS[evaluate(f"{left} OR {right}", EVENT)] == either


@pytest.mark.parametrize(("operand", "result"), [("t", "f"), ("f", "t"), ("u", "u")])
def test_not_follows_the_truth_table(operand: str, result: str) -> None:
    assert WORDS[evaluate(f"NOT {operand}", EVENT)] == result


@pytest.mark.parametrize("sign", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize(
    "sides", ["n {} 'abc'", "s {} 5", "missing {} 5", "s {} missing", "z {} 5", "z {} z", "n {} t"]
)
def test_comparison_across_kinds_with_null_or_with_nan_is_unknown(sign: str, sides: str) -> None:
    assert evaluate(sides.format(sign), EVENT) is None


@pytest.mark.parametrize("condition", ["t > f", "t <= t", "t BETWEEN f AND t"])
def test_booleans_have_no_order(condition: str) -> None:
    assert evaluate(condition, EVENT) is None


@pytest.mark.parametrize(
    ("condition", "result"),
    [
        ("n IN (1, 5)", True),
        ("n NOT IN (1, 5)", False),
        ("n IN (1, 2)", False),
        ("n IN (1, 'abc')", None),
        ("n IN (5, 'abc')", True),
        ("n NOT IN (1, 'abc')", None),
        ("n IN ('abc')", None),
        ("t IN (1)", None),
        ("t IN (TRUE)", True),
        ("z IN (1, 2)", None),
        ("missing NOT IN (1)", None),
        ("n * 2 IN (10)", True),
        ("s LIKE 'a%'", True),
        ("n LIKE '5'", None),
        ("s NOT LIKE 'a%'", False),
        ("z IS NULL", False),
        ("z IS NOT NULL", True),
        ("EXISTS n AND NOT EXISTS missing", True),
        ("s BETWEEN 'abb' AND 'abd'", True),
        ("n NOT BETWEEN 6 AND missing", True),
        ("n BETWEEN 1 AND 'x'", None),
        ("s + 1 = 2", None),
        ("+s = 'abc'", None),
        ("1 / 0 = 1", None),
        ("n / 0 <> 1", None),
        ("7 / 2 = 3.5 AND -7 / 2 = -3.5 AND 7 % -4 = 3", True),
        ("9007199254740993 = 9007199254740992.0", False),
        ("TRUE = TRUE", True),
        ("'a' = 1", None),
    ],
)
def test_tests_and_their_unknowns(condition: str, result: bool | None) -> None:
    assert evaluate(condition, EVENT) is result


def test_an_integer_and_a_float_compare_exactly() -> None:
    assert evaluate("a > 9007199254740992.0", {"a": 2**53 + 1}) is True
    assert evaluate("a < 9007199254740993", {"a": 2.0**53}) is True
    assert evaluate("a < 1E308", {"a": 10**400}) is False
    assert evaluate("a > 1E308", {"a": inf}) is True


def test_subclasses_of_the_kinds_count_as_their_kind() -> None:
    class Colour(enum.StrEnum):
        RED = "red"

    class Degree(float):
        pass

    assert evaluate("c = 'red' AND d > 1.5", {"c": Colour.RED, "d": Degree(2)}) is True
    assert evaluate("d > 1.5", {"d": np.float64(2)}) is True  # which numpy calls np.True_
    assert evaluate("d > 1 AND d < 2", {"d": np.float64(3)}) is False
    assert evaluate("d < e", {"d": np.float64(1), "e": 2}) is True


def test_a_value_of_no_kind_is_there_and_compares_unknown() -> None:
    odd: dict[str, Value] = {"a": datetime.min}  # noqa: DTZ901 - on purpose
    assert evaluate("a IS NOT NULL", odd) is True
    for condition in ("a = 'x'", "a <> 'x'", "a = a", "a LIKE '%'", "a IN ('x')", "a + 1 = 1"):
        assert evaluate(condition, odd) is None


def test_none_counts_as_missing() -> None:
    assert evaluate("a IS NULL", {"a": None}) is True  # type: ignore[dict-item]  # on purpose


@settings(max_examples=250)
@given(condition=conditions(), attributes=attribute_maps())
def test_closures_agree_with_the_dumb_evaluator(
    condition: Condition, attributes: dict[str, Value]
) -> None:
    found = compile_condition(condition)(attributes)
    assert {False: 0, None: 1, True: 2}[found] == oracle.truth(condition, attributes)


def test_random_events_meet_random_conditions_often_enough() -> None:
    """The share of outcomes that the property tests of this package rest on."""
    outcomes: Counter[bool | None] = Counter()

    @settings(max_examples=200, database=None, derandomize=True)
    @given(condition=conditions(), attributes=attribute_maps())
    def count(condition: Condition, attributes: dict[str, Value]) -> None:
        outcomes[compile_condition(condition)(attributes)] += 1

    count()
    assert min(outcomes[True], outcomes[False], outcomes[None]) > 20, outcomes
