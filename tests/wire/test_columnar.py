"""Events by column: the same as one by one, whatever the rows hold."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.client.columns import KINDS as KINDS_OF_VALUE
from gapless.client.columns import VALUE
from gapless.core.errors import EventError
from gapless.core.events import EventBatch
from gapless.wire import columnar
from gapless.wire.columnar import EventColumns, check_attribute_name, encode_columns, encode_json
from gapless.wire.events import TEXT_MAX, check_events, encode_event

if TYPE_CHECKING:
    from gapless.core.events import Value

INT64 = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, Any] = {
    "b": st.booleans(),
    "i": INT64,
    "small": st.integers(-300, 300),
    "f": st.floats(allow_nan=False),
    "t": st.text(max_size=40),
    "at": st.datetimes(timezones=st.just(UTC)),
    "raw": st.binary(max_size=40),
}
KINDS = {
    "b": pa.bool_(),
    "i": pa.int64(),
    "small": pa.int64(),
    "f": pa.float64(),
    "t": pa.string(),
    "at": pa.timestamp("us", "UTC"),
    "raw": pa.binary(),
}
ROW = st.fixed_dictionaries({name: st.none() | value for name, value in VALUES.items()})
MAP = st.dictionaries(
    st.text(min_size=1, max_size=5),
    st.none()
    | st.booleans()
    | INT64
    | st.floats(allow_nan=False)
    | st.text(max_size=300)
    | st.datetimes(timezones=st.just(UTC))
    | st.binary(max_size=300),
    max_size=20,
)


def read(columns: EventColumns) -> list[tuple[dict[str, Any], bytes]]:
    contents = check_events(EventBatch(tuple(encode_columns(columns))))
    return [(content.attributes, content.body) for content in contents]


def expected(attributes: dict[str, Value], body: bytes) -> tuple[dict[str, Any], bytes]:
    (content,) = check_events(EventBatch((encode_event(attributes, body),)))
    return content.attributes, content.body


def present(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


@given(st.lists(st.tuples(ROW, st.none() | st.binary(max_size=300)), min_size=1, max_size=20))
def test_columns_give_the_events_that_rows_give(rows: list[tuple[Any, bytes | None]]) -> None:
    attributes = {
        name: pa.array([row[name] for row, _ in rows], kind) for name, kind in KINDS.items()
    }
    bodies = pa.array([body for _, body in rows], pa.binary())
    found = read(EventColumns(len(rows), attributes, None, bodies))
    assert found == [expected(present(row), body or b"") for row, body in rows]
    kinds = [{name: type(value) for name, value in each.items()} for each, _ in found]
    assert kinds == [{name: type(value) for name, value in present(row).items()} for row, _ in rows]


@given(st.lists(st.none() | MAP, min_size=1, max_size=10), st.integers(0, 9))
def test_a_map_gives_attributes_of_any_names_and_types(rows: list[Any], skipped: int) -> None:
    fields = dict(zip(KINDS_OF_VALUE, (field.name for field in VALUE), strict=True))
    maps = pa.array(
        [
            None
            if row is None
            else [(name, {fields[type(v)]: v} if v is not None else {}) for name, v in row.items()]
            for row in rows
        ],
        pa.map_(pa.string(), VALUE),
    ).slice(skipped)
    wanted = [expected(present(row or {}), b"") for row in rows[skipped:]]
    assert read(EventColumns(len(wanted), {}, maps)) == wanted


def test_a_column_counts_before_an_entry_of_the_map_with_its_name() -> None:
    maps = pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64()))
    assert read(EventColumns(1, {"a": pa.array(["x"])}, maps)) == [({"a": "x", "b": 2}, b"")]


def test_a_timestamp_beyond_the_year_9999_is_refused() -> None:
    beyond = pa.array([1 << 60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    with pytest.raises(EventError, match="a timestamp is beyond the years 1 to 9999"):
        read(EventColumns(1, {"at": beyond}))


def test_large_columns_are_encoded_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = EventColumns(
        9, {"i": pa.array(range(9))}, None, pa.array([bytes([i]) for i in range(9)])
    )
    monkeypatch.setattr(columnar, "SLICE_BYTES_MAX", 30)
    assert read(columns) == [({"i": i}, bytes([i])) for i in range(9)]


def test_what_the_broker_would_refuse_is_refused_before_it_is_sent() -> None:
    with pytest.raises(EventError, match="limit is 100"):
        list(encode_columns(EventColumns(1, {}, None, pa.array([b"x" * 200])), event_bytes_max=100))
    wide = {f"a{i}": pa.array([True]) for i in range(257)}
    with pytest.raises(EventError, match="257 attributes"):
        list(encode_columns(EventColumns(1, wide)))
    texts = pa.array(["é" * TEXT_MAX, None, "x" * TEXT_MAX])
    assert len(list(encode_columns(EventColumns(3, {"a": texts})))) == 3
    with pytest.raises(EventError, match="a text has 65537 characters, the limit is 65536"):
        list(encode_columns(EventColumns(2, {"a": pa.array(["x", "x" * (TEXT_MAX + 1)])})))
    with pytest.raises(EventError, match="empty"):
        check_attribute_name("")


def test_a_row_as_json_leaves_nulls_out_and_keeps_maps_as_objects() -> None:
    rows = pa.record_batch(
        {
            "a": pa.array([1, None]),
            "m": pa.array([None, [("k", [1.5])]], pa.map_(pa.string(), pa.list_(pa.float64()))),
        }
    )
    assert encode_json(rows).to_pylist() == [b'{"a":1}', b'{"m":{"k":[1.5]}}']
