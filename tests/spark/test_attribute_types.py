"""A typed column is the same by both ways, and says what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampType,
)

from gapless.client import columns as module
from gapless.client.columns import flatten
from gapless.core.events import EventRun
from gapless.core.timestamps import EPOCH, LAST
from gapless.spark.attribute_types import from_flat, from_values
from gapless.wire.events import encode_event

KINDS = (
    BooleanType(),
    ByteType(),
    ShortType(),
    IntegerType(),
    LongType(),
    FloatType(),
    DoubleType(),
    StringType(),
    TimestampType(),
    DateType(),
    DecimalType(6, 2),
    BinaryType(),
    ArrayType(LongType()),
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, 127, 128, -128, -129, 32767, 32768, 1 << 31, -(1 << 31), (1 << 63) - 1]),
    st.floats(allow_nan=False, width=32),
    st.text(max_size=5),
    st.sampled_from([EPOCH, LAST, b"", b"\x00\xff"]),
    st.sampled_from(["2026-01-31", "1.25", "1.255", "base64:AAE=", "base64:?", "[1, 2]", "[1.5]"]),
)


@pytest.fixture(autouse=True, scope="module")
def few_will_do() -> Any:
    before, module.EVENTS_MIN = module.EVENTS_MIN, 0
    yield
    module.EVENTS_MIN = before


@given(st.lists(VALUES, min_size=1, max_size=20), st.sampled_from(KINDS))
def test_both_ways_give_the_same_column_and_the_same_misfits(
    values: list[Any], kind: DataType
) -> None:
    arrow = to_arrow_type(kind, timezone="UTC")
    encoded = [encode_event({} if value is None else {"a": value}) for value in values]
    flat = flatten(EventRun.of(range(len(encoded)), encoded))
    assert flat is not None
    slow, slow_unfit = from_values(values, kind, arrow)
    quick, quick_unfit = from_flat(flat.find("a"), kind, arrow)
    assert quick.type == slow.type == arrow
    assert quick.equals(slow)
    assert list(quick_unfit) == list(slow_unfit)
    fitting = [row for row in range(len(values)) if values[row] is not None]
    assert [row for row in fitting if not slow[row].is_valid] == list(slow_unfit)
