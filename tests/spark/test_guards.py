"""What a stream guards against: a second query, a zombie, a host that hangs. The reader that Spark
would run is driven directly, against brokers that are processes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import gapless
from gapless.client.errors import RefusedError
from gapless.core.errors import UsageError
from gapless.spark.options import parse_shape
from gapless.spark.schema import default_schema
from gapless.spark.slices import Slice
from gapless.spark.stream_reader import StreamReader
from gapless.spark.subscription_lease import QUERY, token_of
from gapless.testing.processes.brokers import cell, topic
from tests.spark.conftest import brokers, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.conftest import Desk

ALL = ReadAllAvailable()


def reader(desk: Desk, **more: str) -> StreamReader:
    options = {"url": desk.url, "subscription": "query", "startingOffsets": "earliest", **more}
    if "topicPattern" not in options:
        options.setdefault("topic", "t")
    shape = {key: value for key, value in options.items() if key != "subscription"}
    return StreamReader(options, default_schema(parse_shape(shape)))


def rows(stream: StreamReader, start: Any, end: Any) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for part in stream.partitions(start, end):
        assert isinstance(part, Slice)
        for batch in stream.read(part):
            found += zip(
                batch.column("topic").to_pylist(), batch.column("tick").to_pylist(), strict=True
            )
    return found


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    edge = cell("edge", ["b"], subscribers=True)
    with brokers(edge, topic("t", "b"), start=("b",)) as made:
        yield made


def test_a_second_query_is_refused_by_name_and_the_first_goes_on(desk: Desk) -> None:
    first = reader(desk, subscription="alone")
    start = first.initialOffset()
    with desk.client() as client:
        client.publish_many("t", [({"i": i}, b"") for i in range(10)])
    second = reader(desk, subscription="alone")
    began_s = time.monotonic()
    with pytest.raises(RefusedError, match=f"is read by query '{start[QUERY]}'"):
        second.initialOffset()
    assert time.monotonic() - began_s < 10, "the first is connected: to wait is no use"
    wait_until(lambda: first.latestOffset(start, ALL) != start)
    end = first.latestOffset(start, ALL)
    assert len(rows(first, start, end)) == 10
    first.latestOffset(end, ALL)
    first.stop()
    second.stop()


def test_a_later_run_takes_over_and_the_zombie_cannot_acknowledge(desk: Desk) -> None:
    zombie = reader(desk, subscription="zombie")
    start = zombie.initialOffset()
    with desk.client() as client:
        client.publish_many("t", [({"i": i}, b"") for i in range(10)])
    wait_until(lambda: zombie.latestOffset(start, ALL) != start)
    end = zombie.latestOffset(start, ALL)
    heir = reader(desk, subscription="zombie")
    assert heir.latestOffset(start, ALL) != start, "the checkpoint's offset names the query"
    with pytest.raises(RefusedError, match="has taken it over"):
        zombie._lease.acknowledge(zombie._client, token_of(end))
    with pytest.raises(RefusedError, match="has taken it over"):
        zombie.latestOffset(end, ALL)
    assert rows(heir, start, end) == rows(zombie, start, end)
    heir.stop()
    zombie.stop()


def test_a_query_with_another_condition_is_refused_and_another_spelling_is_not(desk: Desk) -> None:
    first = reader(desk, subscription="spelt", filter="i<3 AND i >= 0")
    start = first.initialOffset()
    first.stop()
    same = reader(desk, subscription="spelt", filter="(i >= 0) and (i < 3)")
    same.latestOffset(start, ALL)
    same.stop()
    with desk.client() as client:
        with client.subscribe("t", "x<3", name="made elsewhere"):
            pass
        with client.subscribe("t", "(x < 3)", name="made elsewhere"):
            pass
        with (
            pytest.raises(RefusedError, match="with condition"),
            client.subscribe("t", "x < 4", name="made elsewhere"),
        ):
            pass


def test_several_topics_are_one_stream_and_each_row_says_its_topic(desk: Desk) -> None:
    with desk.client() as client:
        for name in ("trades.eu", "trades.us", "orders"):
            client.create_topic(name, keep_seconds=3_600)
    for given, expected in (
        ({"topic": "trades.eu,orders"}, {"trades.eu", "orders"}),
        ({"topicPattern": r"trades\..*"}, {"trades.eu", "trades.us"}),
    ):
        more = {"subscription": f"several by {min(given)}", "startingOffsets": "latest"}
        stream = reader(desk, **more, **given)
        start = stream.initialOffset()
        with desk.client() as client:
            for name in ("trades.eu", "trades.us", "orders"):
                client.publish_many(name, [({"i": i}, b"") for i in range(30)])
        seen: list[tuple[str, int]] = []
        while len(seen) < 60:
            end = stream.latestOffset(start, ReadMaxRows(7))
            batch = rows(stream, start, end)
            assert len(batch) <= 7
            seen, start = seen + batch, end
        assert {name for name, _ in seen} == expected
        assert len(set(seen)) == 60
        stream.stop()
    with pytest.raises(UsageError, match="no topic matches"):
        reader(desk, topicPattern="x.*").initialOffset()


def test_a_host_that_hangs_stops_its_own_pubends_and_no_others() -> None:
    cells = cell("p", ["p"]), cell("q", ["q"], "p"), cell("e", ["e"], "p", subscribers=True)
    with brokers(*cells, topic("t", "p", "q"), start=("p", "q", "e")) as desk:
        stream = reader(desk, url=desk.processes.url("e"))
        start = stream.initialOffset()
        with gapless.sync.connect(desk.processes.url("p", "e")) as client:
            wait_until(lambda: client.publish("t", {"i": 0}).pubend == "t/0")
            wait_until(lambda: stream.latestOffset(start, ALL) != start)
            before = stream.latestOffset(start, ALL)
            desk.processes.hang("q")
            receipts = client.publish_many("t", [({"i": i}, b"") for i in range(5)])
            assert {each.pubend for each in receipts} == {"t/0"}
            began_s = time.monotonic()
            wait_until(lambda: stream.latestOffset(before, ALL) != before)
            end = stream.latestOffset(before, ALL)
            assert {tick for _, tick in rows(stream, before, end)} >= {
                each.tick for each in receipts
            }
            assert time.monotonic() - began_s < 45, "patience is 60 s"
            desk.processes.wake("q")
        stream.stop()
