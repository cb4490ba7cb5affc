"""The encoders of attribute maps, written and sparse: the same rows of floats."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isnan
from typing import Any

import numpy as np
import pytest

from gapless.filters.constraint import Missing, Numbers
from gapless.filters.matching import encoder
from gapless.filters.matching.column_pairs import encode_pairs
from gapless.filters.matching.columns import ColumnLayout

Encode = Callable[[ColumnLayout, dict[str, Any]], tuple[list[float], list[int]]]


def written(columns: ColumnLayout, attributes: dict[str, Any]) -> tuple[list[float], list[int]]:
    row = np.zeros(columns.width)
    extra = encoder.make_encoder(columns)(attributes, memoryview(row).cast("B"), 0)  # type: ignore[arg-type]
    return row.tolist(), extra


def sparse(columns: ColumnLayout, attributes: dict[str, Any]) -> tuple[list[float], list[int]]:
    row = columns.blank[: columns.width].copy()
    pairs = encode_pairs(columns, [attributes])
    row[pairs.columns] = pairs.values
    return row.tolist(), pairs.edges.tolist()


@pytest.fixture(params=[written, sparse])
def encode(request: pytest.FixtureRequest) -> Encode:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def columns() -> ColumnLayout:
    return ColumnLayout()


def test_a_number_fills_its_column_and_nothing_else_does(
    columns: ColumnLayout, encode: Encode
) -> None:
    columns.slots("x", Numbers(low=1))
    for value, expected in ((5, 5.0), (2.5, 2.5), (inf, inf), (2**53 + 1, 2.0**53)):
        assert encode(columns, {"x": value})[0] == [expected]
    assert encode(columns, {"x": 10**400})[0][0] < inf
    for nothing in ("5", True, None, object()):
        assert isnan(encode(columns, {"x": nothing})[0][0])
    assert isnan(encode(columns, {})[0][0])


def test_codes_tell_kinds_and_named_values_apart(columns: ColumnLayout, encode: Encode) -> None:
    column = columns.code_column("x")
    text, number = columns.code_of("x", "1"), columns.code_of("x", 1)
    assert text > 0 > number
    cases = [
        ("1", text),
        (1, number),
        (1.0, number),
        ("2", 2.0),
        (2, -1.0),
        (True, 1.0),
        (False, 0.0),
    ]
    for value, expected in cases:
        assert encode(columns, {"x": value})[0][column] == expected
    assert isnan(encode(columns, {"y": 1})[0][column])


def test_presence_is_never_unknown(columns: ColumnLayout, encode: Encode) -> None:
    columns.slots("x", Missing())
    assert encode(columns, {})[0] == [0.0]
    assert encode(columns, {"x": None})[0] == [0.0]
    assert encode(columns, {"x": float("nan")})[0] == [1.0]
    assert encode(columns, {"x": object()})[0] == [1.0]


def test_a_prefix_is_found_once_however_short_the_value(
    columns: ColumnLayout, encode: Encode
) -> None:
    short, long = columns.prefix_edge("x", "ab"), columns.prefix_edge("x", "abcdef")
    assert encode(columns, {"x": "ab"})[1] == [short]
    assert encode(columns, {"x": "abcdefg"})[1] == [short, long]
    assert encode(columns, {"x": "a"})[1] == []
    assert encode(columns, {"x": 5})[1] == []
