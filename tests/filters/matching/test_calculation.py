"""Calculation: numpy's value of an expression is the evaluator's, for every pair of numbers."""

from __future__ import annotations

from itertools import product
from math import isnan
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from gapless.filters.filter import Filter
from gapless.filters.matching.calculation import Calculation
from gapless.filters.matching.expression_column import ExpressionColumn, read_comparison
from tests.filters.matching.test_expression_column import EXPRESSIONS, FLOATS, INTEGERS

if TYPE_CHECKING:
    from collections.abc import Sequence

POOLS: dict[str, tuple[pa.DataType, Sequence[int | float]]] = {
    "integers": (pa.int64(), INTEGERS),
    "floats": (pa.float64(), FLOATS),
}


def computed_of(text: str) -> ExpressionColumn:
    [conjunction] = Filter.parse(f"{text} > 0").conjunctions
    found = read_comparison(conjunction.residuals[0])
    assert found is not None
    return ExpressionColumn(found[0], 0)


@pytest.mark.parametrize("kind_b", POOLS)
@pytest.mark.parametrize("kind_a", POOLS)
def test_every_pair_of_numbers_gives_the_value_that_the_evaluator_gives(
    kind_a: str, kind_b: str
) -> None:
    (type_a, pool_a), (type_b, pool_b) = POOLS[kind_a], POOLS[kind_b]
    pairs = list(product([None, *pool_a], [None, *pool_b]))
    a, b = zip(*pairs, strict=True)
    batch = pa.record_batch(
        {"a": pa.array(a, type_a), "b": pa.array(b, type_b), "c": pa.array([3] * len(a))}
    )
    events = [{n: v for n, v in row.items() if v is not None} for row in batch.to_pylist()]
    for text in EXPRESSIONS:
        computed = computed_of(text)
        for value, event in zip(Calculation(batch).column(computed), events, strict=True):
            expected = computed.of(event)
            assert value == expected or (isnan(value) and isnan(expected)), (text, event)
