"""Staging with a real broker and no Spark: what tasks and the driver do, in every order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructType

from gapless.client.errors import RefusedError
from gapless.core.errors import UsageError
from gapless.core.transaction_messages import FORGOTTEN
from gapless.spark import staging
from gapless.spark.sink_layout import SinkLayout, lay_out
from gapless.spark.sink_options import SinkOptions, parse_sink_options
from gapless.spark.staging import StagedPartition, abort, commit, stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

LAYOUT = SinkLayout({"i": (1, LongType())}, None, None, (), 0, "")
PRODUCER = "query"


class Sink:
    """Two topics of a broker, and what a job does to them."""

    def __init__(self, broker: Desk, name: str) -> None:
        self.broker = broker
        self.topics = (f"{name} a", f"{name} b")
        self.options: SinkOptions = parse_sink_options({"url": broker.url}, is_stream=True)
        with broker.client() as client:
            for each in self.topics:
                client.create_topic(each)
                with client.subscribe(each, name=f"keep {each}"):
                    pass

    def stage(
        self, batch: int, partition: int, rows: Sequence[int], topics: int = 1, size: int = 3
    ) -> StagedPartition:
        """In Arrow batches of `size`; rows go to the topics in turn."""
        names = [self.topics[i % topics] for i in rows]
        whole = pa.record_batch({"topic": names, "i": list(rows)})
        batches = (whole.slice(start, size) for start in range(0, len(rows), size))
        return stage(self.options, LAYOUT, batches, StagedPartition(PRODUCER, batch, partition), 0)

    def published(self, topic: int = 0) -> list[int]:
        with self.broker.client() as client:
            batches = client.read(self.topics[topic])
            return [int(e.attributes["i"]) for b in batches for e in b.events()]  # type: ignore[union-attr]


@pytest.fixture
def sink(broker: Desk, request: pytest.FixtureRequest) -> Sink:
    return Sink(broker, request.node.name)


def test_nothing_is_seen_before_the_commit_and_then_all_in_the_order_of_partitions(
    sink: Sink,
) -> None:
    second, first = sink.stage(0, 1, range(10, 20)), sink.stage(0, 0, range(10))
    assert sink.published() == []
    (receipt,) = commit(sink.options, [second, first]).values()
    assert sink.published() == list(range(20))
    assert (receipt.count, receipt.repeated) == (20, False)


def test_a_batch_that_is_done_again_in_other_partitions_is_ignored(sink: Sink) -> None:
    commit(sink.options, [sink.stage(0, 0, range(10)), sink.stage(0, 1, range(10, 20))])
    again = [sink.stage(0, number, range(4 * number, 4 * number + 4)) for number in range(5)]
    (receipt,) = commit(sink.options, again).values()
    assert receipt.repeated
    assert sink.published() == list(range(20))


def test_what_losers_have_staged_is_dropped_with_the_commit(sink: Sink) -> None:
    sink.stage(0, 0, range(10))
    winner = sink.stage(0, 0, range(10))
    commit(sink.options, [winner])
    commit(sink.options, [sink.stage(1, 0, range(10, 15))])
    assert sink.published() == list(range(15))


def test_an_abort_drops_what_is_staged_and_nothing_that_is_committed(sink: Sink) -> None:
    done = [sink.stage(0, 0, range(5))]
    commit(sink.options, done)
    abort(sink.options, [*done, None])
    assert sink.published() == list(range(5))
    given_up = [sink.stage(1, 0, range(5, 9))]
    abort(sink.options, [*given_up, None])
    with pytest.raises(RefusedError, match="is not staged"):
        commit(sink.options, given_up)
    commit(sink.options, [sink.stage(1, 0, range(5, 9))])
    assert sink.published() == list(range(9))


def test_an_abort_spares_what_another_driver_stages_for_the_same_batch(sink: Sink) -> None:
    mine, others = sink.stage(0, 0, range(5)), sink.stage(0, 0, range(5))
    abort(sink.options, [others])
    commit(sink.options, [mine])
    assert sink.published() == list(range(5))


def test_each_topic_of_a_batch_is_committed_and_a_repeat_completes_the_rest(sink: Sink) -> None:
    batch = [sink.stage(0, 0, range(6), topics=2), sink.stage(0, 1, range(6, 12), topics=2)]
    first = sink.topics[0], PRODUCER
    only_first = [
        StagedPartition(each.producer, 0, each.partition, {first: each.parts[first]})
        for each in batch
    ]
    commit(sink.options, only_first)  # and here the driver dies
    assert (sink.published(0), sink.published(1)) == ([0, 2, 4, 6, 8, 10], [])
    receipts = commit(sink.options, [sink.stage(0, 0, range(12), topics=2)])
    assert [receipts[name, PRODUCER].repeated for name in sink.topics] == [True, False]
    assert (sink.published(0), sink.published(1)) == ([0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11])


def test_a_batch_that_is_older_than_the_last_is_told_from_the_last(sink: Sink) -> None:
    for number in range(3):
        commit(sink.options, [sink.stage(number, 0, [number])])
    places = [
        commit(sink.options, [sink.stage(number, 0, [number])])[sink.topics[0], PRODUCER].first_tick
        for number in range(3)
    ]
    assert [place == FORGOTTEN for place in places] == [True, True, False]


def test_rows_are_spread_over_pubends_by_a_column_and_a_repeat_changes_nothing(
    broker: Desk,
) -> None:
    with broker.client() as client:
        client.create_topic("spread", pubends=3)
        with client.subscribe("spread", name="keep spread"):
            pass
    given = {"url": broker.url, "topic": "spread", "spreadBy": "key"}
    options = parse_sink_options(given, is_stream=True)
    layout = lay_out(StructType().add("key", "string").add("i", "long"), options)

    def batch(number: int, partitions: int) -> list[StagedPartition]:
        rows = [(f"k{i % 10}", i) for i in range(100 * number, 100 * number + 100)]
        parts = [rows[len(rows) * k // partitions : len(rows) * (k + 1) // partitions]
                 for k in range(partitions)]  # fmt: skip
        return [
            stage(
                options,
                layout,
                iter([pa.record_batch({"key": [k for k, _ in part], "i": [i for _, i in part]})]),
                StagedPartition(PRODUCER, number, place),
                0,
            )
            for place, part in enumerate(parts)
        ]

    first = commit(options, batch(0, 2))
    assert {each.pubend for each in first.values()} == {"spread/0", "spread/1", "spread/2"}
    batch(1, 2)  # staged and never committed
    commit(options, batch(1, 2))
    assert all(each.repeated for each in commit(options, batch(1, 5)).values())
    with broker.client() as client:
        seen: dict[str, list[tuple[str, int]]] = {}
        for found in client.read("spread"):
            for event in found.events():  # type: ignore[union-attr]
                key, i = str(event.attributes["key"]), int(event.attributes["i"])
                seen.setdefault(key, []).append((str(event.pubend), i))
    assert sum(map(len, seen.values())) == 200
    for places in seen.values():
        assert len({pubend for pubend, _ in places}) == 1, "a key stays at one pubend"
        assert [i for _, i in places] == sorted(i for _, i in places)


def test_a_batch_without_rows_asks_nobody() -> None:
    nowhere = parse_sink_options({"url": "gapless://127.0.0.1:1"}, is_stream=True)
    staged = stage(nowhere, LAYOUT, iter(()), StagedPartition(PRODUCER, 0, 0), 0)
    assert commit(nowhere, [staged]) == {}
    abort(nowhere, [staged, None])


def test_an_abort_that_reaches_no_broker_is_left_to_expiry() -> None:
    nowhere = parse_sink_options(
        {"url": "gapless://127.0.0.1:1", "patienceSeconds": "1"}, is_stream=True
    )
    abort(nowhere, [StagedPartition(PRODUCER, 0, 0, {("t", "p"): ("part", 1)})])


def test_a_partition_has_so_many_topics_and_no_more(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "TOPICS_MAX", 1)
    with pytest.raises(UsageError, match="more than 1 topics"):
        sink.stage(0, 0, range(4), topics=2)


def test_a_topic_that_is_not_there_is_named(sink: Sink) -> None:
    sink.topics = ("nowhere", "")
    with pytest.raises(RefusedError, match="no topic 'nowhere'"):
        sink.stage(0, 0, [1])
