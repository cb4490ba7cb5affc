"""Batch reads with a real session and a real broker: what was published is what the table has."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

import gapless
import gapless.spark
from tests.spark.conftest import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def fill(broker: Desk, topic: str, count: int, pubends: int = 2) -> None:
    """Events 0 to `count`, kept for ever, spread over the pubends by their publishers."""
    with broker.client() as client:
        client.create_topic(topic, pubends=pubends)
        with client.subscribe(topic, name=f"keep {topic}"):
            pass
        for part, name in enumerate(("alice", "bob", "carol", "dave")):
            with client.publisher(topic, name=name) as publisher:
                publisher.send_many(
                    ({"i": i, "even": i % 2 == 0, "price": i / 4, "name": f"n{i % 3}"}, b"x" * i)
                    for i in range(part, count, 4)
                )


def numbers(table: DataFrame) -> list[int]:
    return sorted(
        row[0] for row in table.selectExpr("int(get_json_object(attributes, '$.i'))").collect()
    )


def test_a_table_has_every_event_with_all_that_was_published(
    spark: SparkSession, broker: Desk
) -> None:
    fill(broker, "whole", 40)
    table = gapless.spark.read_log(spark, broker.url, "whole", minPartitions=6)
    rows = {json.loads(row.attributes)["i"]: row for row in table.collect()}
    assert sorted(rows) == list(range(40))
    with broker.client() as client:
        events = [e for batch in client.read("whole") for e in batch.events()]  # type: ignore[union-attr]
    for event in events:
        row = rows[event.attributes["i"]]
        assert (row.topic, row.pubend, row.tick) == (event.topic, event.pubend, event.tick)
        assert (row.publisher, row.sequence) == (event.publisher, event.sequence)
        assert bytes(row.body) == event.body
        assert int(row.published.timestamp() * 1e6) == event.tick >> 10
        assert json.loads(row.attributes) == event.attributes


def test_what_is_pruned_by_options_is_pruned_and_nothing_else(
    spark: SparkSession, broker: Desk
) -> None:
    fill(broker, "pruned", 40)
    with broker.client() as client:
        ends = {name: high for name, (_, high) in client.positions("pruned").items()}
        tokens = gapless.Token(ends)
        client.publish_many("pruned", [({"i": i}, b"") for i in (100, 101)])

    def read(**options: Any) -> DataFrame:
        return gapless.spark.read_log(spark, broker.url, "pruned", **options)

    assert numbers(read(where="i >= 30 AND even")) == [30, 32, 34, 36, 38]
    assert numbers(read(endingOffsets=tokens.to_json())) == list(range(40))
    assert numbers(read(startingOffsets=tokens.to_json())) == [100, 101]
    assert numbers(read(startingOffsets="latest")) == []
    by_pubend = [numbers(read(pubends=name, endingOffsets=tokens.to_json())) for name in ends]
    assert sorted(chain(*by_pubend)) == list(range(40))
    assert all(by_pubend)
    middle = ends["pruned/0"] >> 10  # all of the first 40 are before it
    later = f"{middle // 1000 + 1}"
    assert numbers(read(endingTimestamp=later)) == list(range(40))
    assert read(columns=["tick", "body"]).columns == ["tick", "body"]


def test_two_conditions_on_one_log_do_not_disturb_each_other(
    spark: SparkSession, broker: Desk
) -> None:
    """The trap: with Spark's own push-down, filters of one scan apply to others of one `load`."""
    fill(broker, "trap", 20)
    table = gapless.spark.read_log(spark, broker.url, "trap")
    number = "get_json_object(attributes, '$.i')"
    even, odd = table.where(f"{number} % 2 = 0"), table.where(f"{number} % 2 = 1")
    assert (table.count(), even.count(), table.count()) == (20, 10, 20)
    assert numbers(even.unionAll(odd)) == list(range(20))
    narrow = gapless.spark.read_log(spark, broker.url, "trap", where="i < 5")
    assert (narrow.count(), table.count(), narrow.unionAll(table).count()) == (5, 20, 25)


def test_attributes_are_columns_of_the_types_that_the_user_gives(
    spark: SparkSession, broker: Desk
) -> None:
    with broker.client() as client:
        client.create_topic("typed")
        with client.subscribe("typed", name="keep typed"):
            pass
        client.publish_many(
            "typed",
            [
                ({"s": "a", "price": 1.5, "n": 1, "ok": True}, b"0"),
                ({"s": "b", "price": 2, "n": 2**40}, b"1"),
                ({"s": 7, "price": "dear", "n": 3, "ok": 1}, b"2"),
                ({}, b"3"),
            ],
        )
    schema = "s string, price double, n int, ok boolean, body binary, _corrupt_record string"
    table = gapless.spark.read_log(spark, broker.url, "typed", schema=schema).orderBy("body")
    found = [(r.s, r.price, r.n, r.ok, r._corrupt_record) for r in table.collect()]
    assert found == [
        ("a", 1.5, 1, True, None),
        ("b", 2.0, None, None, '{"s":"b","price":2,"n":1099511627776}'),
        (None, None, 3, None, '{"s":7,"price":"dear","n":3,"ok":1}'),
        (None, None, None, None, None),
    ]
    strict = gapless.spark.read_log(spark, broker.url, "typed", schema=schema, mode="FAILFAST")
    with pytest.raises(Exception, match="which is no"):
        strict.collect()


def test_what_was_released_is_told_exactly(spark: SparkSession, broker: Desk) -> None:
    with broker.client() as client:
        client.create_topic("released")
        with client.subscribe("released", name="keeper", start="earliest") as keeper:
            client.publish_many("released", [({"i": i}, b"") for i in range(5)])
            start = keeper.token
            deliveries = iter(keeper)
            for _ in range(5):
                last = next(deliveries)
            keeper.acknowledge()
        client.publish("released", {"i": 5})
        low = start.get("released/0")
        wait_until(lambda: client.positions("released")["released/0"][0] > last.tick)  # type: ignore[union-attr]

    def read(**options: Any) -> list[Any]:
        token = start.to_json()
        return gapless.spark.read_log(
            spark, broker.url, "released", startingOffsets=token, **options
        ).collect()

    with pytest.raises(Exception, match=rf"released/0 \[{low}, \d+\) was released"):
        read()
    assert [row.attributes for row in read(failOnDataLoss=False)] == ['{"i":5}']
    gap, event = read(gaps="rows")
    assert (gap.tick, gap.attributes) == (low, None)
    assert last.tick < gap.lost_until <= event.tick  # type: ignore[union-attr]
    assert (event.attributes, event.lost_until) == ('{"i":5}', None)


def test_an_option_that_is_wrong_is_refused_by_name(spark: SparkSession, broker: Desk) -> None:
    with pytest.raises(Exception, match=r"there is no option 'startingofset'.*startingOffsets"):
        gapless.spark.read_log(spark, broker.url, "t", startingOfset="earliest").count()


ODD: list[tuple[dict[str, Any], bytes]] = [
    ({"n": 1, "x": 0.5, "flag": True, "s": "text"}, b""),
    ({"n": 2.5, "x": math.inf, "s": "é"}, b""),
    ({}, b""),
]


def test_attributes_come_as_json_maps_or_columns(spark: SparkSession, broker: Desk) -> None:
    with broker.client() as client:
        client.create_topic("forms")
        with client.subscribe("forms", name="keep forms"):
            pass
        client.publish_many("forms", ODD)

    def read(**options: Any) -> list[Any]:
        return (
            gapless.spark.read_log(spark, broker.url, "forms", **options).orderBy("tick").collect()
        )

    assert [json.loads(row.attributes) for row in read()] == [
        ODD[0][0],
        {"n": 2.5, "x": {"float": "Infinity"}, "s": "é"},
        {},
    ]
    assert [row.attributes for row in read(attributesAs="map")] == [
        {"n": "1", "x": "0.5", "flag": "true", "s": "text"},
        {"n": "2.5", "x": "inf", "s": "é"},
        {},
    ]
    typed = read(attributesAs="typed")
    assert (typed[0].attributes["n"].int, typed[1].attributes["n"].float) == (1, 2.5)
    for options in ({"inferSchema": "true"}, {"attributesAs": "columns"}):
        rows = read(**options)
        assert [(row.n, row.x, row.flag, row.s) for row in rows] == [
            (1.0, 0.5, True, "text"),
            (2.5, math.inf, None, "é"),
            (None, None, None, None),
        ]
    renamed = read(schema="tick bigint, number double", rename="n=number")
    assert [row.number for row in renamed] == [1.0, 2.5, None]
    with pytest.raises(Exception, match="contradict each other"):
        read(inferSchema="true", attributesAs="map")


NESTED = (
    "n int, at timestamp, local timestamp_ntz, day date, amount decimal(10,2), "
    "large decimal(30,0), raw binary, tags array<string>, "
    "deep struct<a: int, when: timestamp, parts: array<struct<x: double, raw: binary>>>, "
    "counts map<string, bigint>"
)


def test_what_the_sink_writes_the_source_reads_back_with_its_type(
    spark: SparkSession, broker: Desk
) -> None:
    with broker.client() as client:
        client.create_topic("back")
        with client.subscribe("back", name="keep back"):
            pass
    at = datetime(2026, 1, 31, 12, 0, 0, 5)  # noqa: DTZ001 - as Spark has them
    deep = {"a": 1, "when": at, "parts": [{"x": 0.5, "raw": b"y"}, {"x": None, "raw": None}]}
    first = (1, at, at, date(2026, 1, 31), Decimal("-12.50"), Decimal(10**25))
    rows: list[tuple[Any, ...]] = [
        (*first, b"\0\xff", ["a", None], deep, {"k": 1 << 60}),
        (2, *[None] * 9),
        (
            3,
            at,
            None,
            None,
            Decimal("0.00"),
            Decimal(-1),
            b"",
            [],
            {"a": None, "when": None, "parts": []},
            {},
        ),
    ]
    table = spark.createDataFrame(rows, NESTED)
    table.write.format("gapless").options(url=broker.url, topic="back").mode("append").save()
    read = gapless.spark.read_log(spark, broker.url, "back", schema=NESTED, mode="FAILFAST")
    assert read.orderBy("n").collect() == table.orderBy("n").collect()
    seen = gapless.spark.read_log(
        spark,
        broker.url,
        "back",
        where="at < TIMESTAMP '9999-01-01T00:00:00Z' AND raw = X'00FF'",
        attributesAs="typed",
    )
    [found] = seen.select("attributes.at.timestamp", "attributes.raw.bytes").collect()
    assert tuple(found) == (at, b"\0\xff")
    # And what was read can be written again, by JSON: nothing changes on the way.
    again = gapless.spark.read_log(spark, broker.url, "back", where="n = 1")
    again.write.format("gapless").options(url=broker.url, topic="back").mode("append").save()
    assert read.count() == 3, "a DataFrame shows what there was when it was planned"
    anew = gapless.spark.read_log(spark, broker.url, "back", where="n = 1", schema=NESTED)
    assert anew.collect() == [*table.where("n = 1").collect()] * 2
    wrong = gapless.spark.read_log(
        spark, broker.url, "back", where="n = 2", schema="n binary, _corrupt_record string"
    )
    assert [tuple(row) for row in wrong.collect()] == [(None, '{"n":2}')]
