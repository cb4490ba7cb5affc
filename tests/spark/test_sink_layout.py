"""Rows to events: each type as documented, every other column refused by its name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from gapless.core.errors import EventError, UsageError
from gapless.core.events import EventBatch
from gapless.spark.sink_layout import lay_out
from gapless.spark.sink_options import parse_sink_options
from gapless.wire.events import check_events

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("spark"),  # it is what reads schemas
]

Published = list[tuple[str, dict[str, Any], bytes]]


def publish(ddl: str, rows: list[tuple[Any, ...]], **options: str) -> Published:
    """What these rows become: topic, attributes, body."""
    given = {"url": "gapless://127.0.0.1:7117", "topic": "t", **options}
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    layout = lay_out(schema, parse_sink_options(given, is_stream=True))
    arrow = to_arrow_schema(schema, timezone="UTC")
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in arrow]
    batch = pa.record_batch(
        [pa.array(c, f.type) for c, f in zip(columns, arrow, strict=True)], arrow
    )
    return [
        (topic, content.attributes, content.body)
        for topic, _, events in layout.encode(batch)
        for content in check_events(EventBatch(tuple(events)))
    ]


def test_each_type_becomes_what_is_documented() -> None:
    instant = datetime(2026, 1, 31, 12, 0, 0, 5, UTC)
    ddl = (
        "b boolean, i1 tinyint, i2 smallint, i4 int, i8 bigint, f4 float, f8 double, s string, "
        "at timestamp, local timestamp_ntz, day date, whole decimal(18,0)"
    )
    row = (True, 1, 2, 3, 1 << 60, 0.5, 0.1, "é", instant, instant.replace(tzinfo=None))
    us = 1_769_860_800_000_005
    (event,) = publish(ddl, [(*row, date(2026, 1, 31), Decimal(10**17))])
    wanted: dict[str, Any] = {"b": True, "i1": 1, "i2": 2, "i4": 3, "i8": 1 << 60}
    wanted |= {"f4": 0.5, "f8": 0.1, "s": "é", "at": instant, "local": us}
    wanted |= {"day": "2026-01-31", "whole": 10**17}
    assert event == ("t", wanted, b"")
    ddl = "d decimal(10,2), raw binary, tags array<string>, deep struct<a: int>, m map<string,int>"
    (event,) = publish(ddl, [(Decimal("1.50"), b"\0", ["a"], {"a": None}, [("k", 1)])])
    wanted = {"d": "1.50", "raw": b"\0", "tags": '["a"]', "deep": '{"a":null}'}
    assert event == ("t", {**wanted, "m": '{"k":1}'}, b"")
    event = publish("b boolean", [(True,)])[0]
    assert event[1]["b"] is True


def test_null_is_absent_and_a_null_body_is_empty() -> None:
    rows = [(None, "x", b"1"), (2, None, None), (None, None, b"3")]
    assert publish("i int, s string, body binary", rows) == [
        ("t", {"s": "x"}, b"1"),
        ("t", {"i": 2}, b""),
        ("t", {}, b"3"),
    ]


def test_a_batch_without_rows_has_no_events() -> None:
    assert publish("i int, body string", []) == []


def test_text_may_be_a_body_and_value_may_be_its_name() -> None:
    assert publish("i int, value string", [(1, "é")]) == [("t", {"i": 1}, "é".encode())]


def test_json_holds_every_column_but_the_topic() -> None:
    ddl = "i int, topic string, tags array<string>, d decimal(9,2)"
    rows = [(1, "x", ["a"], Decimal("1.50")), (None, "x", None, None)]
    assert publish(ddl, rows, body="json", attributes="i") == [
        ("t", {"i": 1}, b'{"i":1,"tags":["a"],"d":"1.50"}'),
        ("t", {}, b"{}"),
    ]


def test_the_option_chooses_attributes_and_what_is_not_chosen_may_be_anything() -> None:
    ddl = "a int, b int, topic string, tags array<string>, body string"
    rows = [(1, 2, "x", ["z"], "y")]
    assert publish(ddl, rows, attributes="b,topic") == [("t", {"b": 2, "topic": "x"}, b"y")]
    assert publish(ddl, rows, attributes="") == [("t", {}, b"y")]


def test_events_that_were_read_can_be_written_again() -> None:
    ddl = (
        "topic string, pubend string, tick bigint, published timestamp, publisher string, "
        "sequence bigint, attributes map<string, struct<bool: boolean, int: bigint, "
        "float: double, text: string>>, body binary, score int"
    )
    attributes = [("a", {"int": 1}), ("b", {"text": "x"}), ("c", {"bool": False})]
    rows = [("old", "old/0", 7, datetime.now(UTC), "p", 3, attributes, b"z", 9)]
    wanted = {"a": 1, "b": "x", "c": False, "score": 9}
    assert publish(ddl, rows) == [("t", wanted, b"z")]
    assert publish(ddl, rows, topic="") == [("old", wanted, b"z")]


def test_a_column_called_like_one_of_an_event_is_refused_or_renamed() -> None:
    for ddl in ("sequence int, a int", "topic string, tick bigint"):
        with pytest.raises(UsageError, match="has the name of a column that every event has"):
            publish(ddl, [])
    with pytest.raises(UsageError, match="both say where rows go"):
        publish("topic string, a int", [])
    renamed = publish("tick int, topic string", [(2, "x")], rename="beat=tick,subject=topic")
    assert renamed == [("t", {"beat": 2, "subject": "x"}, b"")]
    with pytest.raises(UsageError, match="two columns become the attribute 'a'"):
        publish("a int, b int", [], rename="a=b")
    with pytest.raises(UsageError, match="option rename names 'c'"):
        publish("a int", [], rename="a=c")


def test_attributes_as_json_keep_their_types_and_bad_json_is_refused() -> None:
    rows = [('{"a":1,"b":1.0,"c":"x","d":true,"e":null,"f":{"float":"NaN"}}',), (None,), ("{}",)]
    first, second, third = publish("attributes string", rows)
    assert (second, third) == (("t", {}, b""), ("t", {}, b""))
    assert list(map(type, first[1].values())) == [int, float, str, bool, float]
    for text, said in (("[1]", "which is no JSON object"), ('{"a":[1]}', "which no attribute")):
        with pytest.raises(UsageError, match=said):
            publish("attributes string", [(text,)])


def test_a_map_of_one_type_gives_attributes_too() -> None:
    rows = [([("a", "x"), ("b", None)],), (None,), ([],)]
    assert publish("attributes map<string,string>", rows) == [
        ("t", {"a": "x"}, b""),
        ("t", {}, b""),
        ("t", {}, b""),
    ]


def test_rows_go_where_their_topic_says_in_their_order() -> None:
    rows = [("a", 0), ("b", 1), ("a", 2), ("b", 3), ("a", 4)]
    found = publish("topic string, i int", rows, topic="")
    assert [(topic, attributes["i"]) for topic, attributes, _ in found] == [
        ("a", 0),
        ("a", 2),
        ("a", 4),
        ("b", 1),
        ("b", 3),
    ]


@pytest.mark.parametrize(
    ("ddl", "options", "said"),
    [
        ("tags array<interval day>", {}, r"column 'tags' is array<interval day>, which no attr"),
        ("m map<int,string>", {}, "column 'm' is map<int,string>"),
        ("gap interval day", {}, "column 'gap' is interval day"),
        ("attributes map<int,string>", {}, "column 'attributes' is map<int,string>"),
        ("attributes map<string,void>", {}, "column 'attributes' is map<string,void>"),
        ("body int", {}, "column body is int, and a body is bytes"),
        ("body string, value string", {}, "two bodies"),
        ("value string", {"body": "json"}, "column value and option body=json are two bodies"),
        ("a int, a int", {}, "two columns are called 'a'"),
        ("a int", {"attributes": "a,b"}, "names 'b', and there is no such column"),
        ("topic int", {"topic": ""}, "column topic is not text"),
        ("a int", {"topic": ""}, "nothing says which topic"),
    ],
)
def test_what_cannot_be_is_refused_by_name(ddl: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        publish(ddl, [], **options)


def test_a_name_that_no_attribute_may_have_is_refused() -> None:
    with pytest.raises(EventError, match="longer than"):
        publish(f"{'x' * 300} int", [])


def test_a_row_without_a_topic_is_refused() -> None:
    with pytest.raises(UsageError, match="a row has no topic"):
        publish("topic string, i int", [("a", 1), (None, 2)], topic="")
