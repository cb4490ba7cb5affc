"""Streaming reads with a real session and real brokers: each event once, through what breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.testing.processes.brokers import cell, topic
from tests.spark.conftest import brokers, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from gapless.sync import Client
    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def publish(client: Client, topic: str, low: int, high: int) -> None:
    with client.publisher(topic, name="feed") as publisher:
        publisher.send_many(({"i": i}, b"") for i in range(low, high))


def stream(spark: SparkSession, broker: Desk, topic: str, **options: Any) -> DataFrame:
    reader = spark.readStream.format("gapless").option("url", broker.url).option("topic", topic)
    for name, value in {"subscription": f"spark {topic}", **options}.items():
        reader = reader.option(name, value)
    return reader.schema("i bigint, pubend string, tick bigint").load()


def run_to_the_end(table: DataFrame, folder: Path) -> None:
    """Everything that is there now, into Parquet, from the checkpoint if there is one."""
    begin_parquet(table, folder, availableNow=True).awaitTermination()


def begin_parquet(table: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = table.writeStream.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(folder / "rows"), format="parquet")


def written(spark: SparkSession, folder: Path) -> list[int]:
    return sorted(
        row.i for row in spark.read.schema("i bigint").parquet(str(folder / "rows")).collect()
    )


def wait_until_released(client: Client, topic: str, tick: int) -> None:
    """Everything up to this tick."""
    wait_until(lambda: client.positions(topic)[f"{topic}/0"][0] > tick)


def test_a_query_goes_on_from_its_checkpoint_and_acknowledges_also_the_last_batch(
    spark: SparkSession, broker: Desk, tmp_path: Path
) -> None:
    with broker.client() as client:
        client.create_topic("restart")
        with client.subscribe("restart", "(i <> 3)", name="spark restart"):
            pass
        table = stream(
            spark,
            broker,
            "restart",
            filter="(i <> 3)",
            maxEventsPerTrigger=4,
            keepLastBatch="false",
        )
        publish(client, "restart", 0, 10)
        run_to_the_end(table, tmp_path)
        assert written(spark, tmp_path) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
        last = client.publish_many("restart", [({"i": i}, b"") for i in (10, 11)])[-1]
        run_to_the_end(table, tmp_path)
        assert written(spark, tmp_path) == [0, 1, 2, *range(4, 12)]
        wait_until_released(client, "restart", last.tick)


def test_a_checkpoint_that_is_one_commit_older_can_be_continued(
    spark: SparkSession, broker: Desk, tmp_path: Path
) -> None:
    """And by a filter that is spelt differently."""
    seen: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        seen.extend(row.i for row in batch.collect())

    def run(condition: str) -> None:
        table = stream(spark, broker, "older", filter=condition, startingOffsets="earliest")
        writer = table.writeStream.foreachBatch(take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    with broker.client() as client:
        client.create_topic("older")
        run("i>=0")
        for low in (0, 10):
            publish(client, "older", low, low + 10)
            run("i>=0")
        assert sorted(seen) == list(range(20))
        seen.clear()
        for folder in ("commits", "offsets"):
            files = [path for path in (tmp_path / folder).iterdir() if path.name.isdigit()]
            max(files, key=lambda path: int(path.name)).unlink()
        run("(i >= 0)")
        assert sorted(seen) == list(range(10, 20))


def test_a_batch_that_failed_is_read_again_alike_in_other_partitions(
    spark: SparkSession, broker: Desk, tmp_path: Path
) -> None:
    with broker.client() as client:
        client.create_topic("again", pubends=2)
        with client.subscribe("again", name="spark again", start="earliest"):
            pass
        for name in ("alice", "bob"):
            with client.publisher("again", name=name) as publisher:
                publisher.send_many(({"i": i}, b"") for i in range(20))
    seen: list[tuple[int, int, list[tuple[str, int]]]] = []

    def take(batch: DataFrame, number: int) -> None:
        rows = sorted((row.pubend, row.tick) for row in batch.collect())
        seen.append((number, batch.rdd.getNumPartitions(), rows))
        if number == 1 and len(seen) == 2:
            raise RuntimeError("between reading and committing")

    def run(partitions: int) -> None:
        options = {"maxOffsetsPerTrigger": 15, "minPartitions": partitions}
        table = stream(spark, broker, "again", **options)
        writer = table.writeStream.foreachBatch(take).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    with pytest.raises(Exception, match="between reading and committing"):
        run(1)
    run(5)
    batches = {number: rows for number, _, rows in seen}
    (_, few, failed), (_, many, repeated) = seen[1:3]
    assert [number for number, _, _ in seen][:3] == [0, 1, 1]
    assert failed == repeated
    assert few < 5 <= many
    assert [len(rows) for rows in batches.values() if rows] == [15, 15, 10]
    assert len({row for rows in batches.values() for row in rows}) == 40


def test_what_retention_has_taken_from_a_slow_query_is_told(
    spark: SparkSession, broker: Desk, tmp_path: Path
) -> None:
    with broker.client() as client:
        client.create_topic("slow", retention_seconds=0.2)
        options = {"startingOffsets": "latest"}
        run_to_the_end(stream(spark, broker, "slow", **options), tmp_path)
        lost = client.publish("slow", {"i": 0})
        wait_until_released(client, "slow", lost.tick)
        with client.subscribe("slow", name="holder"):
            kept = client.publish("slow", {"i": 1})
        options["failOnDataLoss"] = "true"
        with pytest.raises(Exception, match=r"slow/0 \[\d+, \d+\) was released and is lost"):
            run_to_the_end(stream(spark, broker, "slow", **options), tmp_path)
        options["failOnDataLoss"] = "false"
        run_to_the_end(stream(spark, broker, "slow", **options), tmp_path)
        assert set(written(spark, tmp_path)) <= {1}  # it may be gone by now, too
        assert kept.tick > lost.tick


def test_a_broker_that_is_killed_while_a_query_runs_makes_no_difference(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = cell("edge", ["b"], subscribers=True), topic("t", "b")
    with brokers(*text, start=("b",), config={"range_bytes_max": 2_000}) as desk:
        table = stream(spark, desk, "t", startingOffsets="earliest", minPartitions=3)
        query = begin_parquet(table, tmp_path, processingTime="0 seconds")
        try:
            with desk.client() as client:
                wait_until(lambda: query.recentProgress)  # it has to be there first
                publish(client, "t", 0, 300)
                desk.kill("b")
                desk.start("b")
                publish(client, "t", 300, 400)
            query.processAllAvailable()
        finally:
            query.stop()
        assert query.exception() is None
        assert written(spark, tmp_path) == list(range(400))
