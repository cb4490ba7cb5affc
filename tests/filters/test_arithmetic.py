"""Arithmetic: exact integers, IEEE floats, and no value where there is none."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING

import pytest
from hypothesis import given

from gapless.filters.arithmetic import calculate, negate
from tests.filters import oracle
from tests.filters.strategies import values

if TYPE_CHECKING:
    from gapless.core.events import Value

TOP = 2**63 - 1


@pytest.mark.parametrize(
    ("left", "sign", "right", "result"),
    [
        (7, "/", 2, 3.5),
        (-7, "/", 2, -3.5),
        (7, "/", -2, -3.5),
        (6, "/", 2, 3),
        (-6, "/", 2, -3),
        (1, "/", 3, 1 / 3),
        (0, "/", -7, 0),
        (TOP, "/", 1, TOP),
        (TOP, "/", 2, 2.0**62),
        (10**400 + 1, "/", 2, inf),
        (10**400 + 1, "/", -2, -inf),
        (7, "%", -2, 1),
        (-7, "%", 2, -1),
        (7, "/", 2.0, 3.5),
        (TOP, "+", 0, TOP),
        (TOP, "+", 1, 2.0**63),
        (TOP, "*", TOP, float(TOP * TOP)),
        (-(2**63), "/", -1, 2.0**63),
        (1e308, "*", 10, inf),
        (10**400, "*", 1.0, inf),
        (-(10**400), "+", 0, -inf),
    ],
)
def test_results(left: Value, sign: str, right: Value, result: Value) -> None:
    found = calculate(sign, left, right)
    assert found == result
    assert type(found) is type(result)


@pytest.mark.parametrize(
    ("left", "sign", "right"),
    [
        (1, "/", 0),
        (1.0, "/", 0),
        (1, "%", 0.0),
        (inf, "-", inf),
        (inf, "*", 0),
        (inf, "%", 2),
        (nan, "+", 1),
        (1, "%", nan),
        (True, "+", 1),
        ("1", "+", 1),
        (1, "+", None),
    ],
)
def test_what_has_no_value_is_none(left: Value, sign: str, right: Value | None) -> None:
    assert calculate(sign, left, right) is None


def test_the_opposite_of_the_least_integer_is_a_float() -> None:
    assert negate(-(2**63)) == 2.0**63
    assert negate("x") is None


@given(left=values(), right=values())
def test_every_operation_agrees_with_exact_fractions(left: Value, right: Value) -> None:
    for sign in "+-*/%":
        found, wanted = calculate(sign, left, right), oracle.apply(sign, left, right)
        assert (found, type(found)) == (wanted, type(wanted))
