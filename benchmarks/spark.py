"""Spark: reading a topic, beside ready-made Arrow batches and Spark's own rate source.

All in one session with two cores, in turns; each figure is the best of several runs. *Ready-made*
is a data source that yields the same rows as Arrow batches which are in memory already: what
Spark's own part costs. Events have 4 attributes and a body of 250 bytes. The batch reads are of a
longer log, so that it is the rows that take the time, and not what Spark takes for any job.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema

import gapless.spark
from benchmarks.report import Report, rate
from gapless.spark.arrow_batches import ArrowBatches
from gapless.spark.options import parse_options
from gapless.testing.processes.brokers import Processes, cell, topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame

ROOT = Path(__file__).parent.parent
TYPED = "symbol string, price double, volume bigint, halted boolean, tick bigint, body binary"
SLICES = 4
RUNS = 2
RARE = 1_000
"""One event in so many is wanted."""


class ReadyReader(DataSourceReader, DataSourceStreamReader):
    """Yields what is in a file of Arrow batches, which the system holds in memory."""

    def __init__(self, options: dict[str, str]) -> None:
        self.path = options["file"]
        self.count = int(options["count"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's
        return {"rows": 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override] # noqa: N802 - Spark's
        return {"rows": self.count}

    def partitions(self, *_: Any) -> list[InputPartition]:
        return [InputPartition(number) for number in range(SLICES)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        with pa.memory_map(self.path) as file, pa.ipc.open_file(file) as batches:
            for number in range(partition.value, batches.num_record_batches, SLICES):
                yield batches.get_batch(number)


class Ready(DataSource):
    """`format("ready")`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def reader(self, schema: Any) -> ReadyReader:
        return ReadyReader(dict(self.options))

    def streamReader(self, schema: Any) -> ReadyReader:  # noqa: N802 - Spark's
        return ReadyReader(dict(self.options))


def event(number: int) -> tuple[dict[str, Any], bytes]:
    attributes = {
        "symbol": f"S{number % 100}",
        "price": number % 97 + 0.5,
        "volume": number % RARE,
        "halted": number % 5 == 0,
    }
    return attributes, b"x" * 250


def publish(url: str, topic: str, count: int) -> None:
    with gapless.sync.connect(url) as client:
        with client.subscribe(topic, name=f"keeper of {topic}"):
            pass
        with client.publisher(topic, name="feed") as publisher:
            for low in range(0, count, 1_000):
                publisher.send_many(map(event, range(low, min(low + 1_000, count))))


def make_ready(url: str, spark: SparkSession, schema: str | None, path: Path) -> str:
    """The rows of the topic as a file of Arrow batches."""
    table = gapless.spark.read_log(spark, url, "t", schema=schema)
    columns = ArrowBatches(table.schema, parse_options({"url": url, "topic": "t"}, is_stream=False))
    arrow = to_arrow_schema(table.schema, timezone="UTC")
    with gapless.sync.connect(url) as client, pa.ipc.new_file(path, arrow) as out:
        for batch in client.read("t"):
            if len(batch):
                out.write_batch(columns.batch("t", "t/0", batch.run))  # type: ignore[union-attr]
    return str(path)


def stream_s(table: DataFrame, scratch: Path) -> float:
    """How long the one batch of a stream takes, as Spark says."""
    with TemporaryDirectory(dir=scratch) as folder:
        writer = table.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        largest = max(query.recentProgress, key=lambda each: each["numInputRows"])
        return float(largest["durationMs"]["addBatch"]) / 1e3


def batch_s(table: DataFrame) -> float:
    begin = time.perf_counter()
    table.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begin


def best(works: dict[str, Callable[[], float]]) -> dict[str, float]:
    """Of each the best time, all in turns, after one round to warm up."""
    rounds = [{name: work() for name, work in works.items()} for _ in range(RUNS + 1)]
    return {name: min(each[name] for each in rounds[1:]) for name in works}


def make_session(scratch: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Workers import this module to make `Ready`.
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "2g")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(scratch),
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    gapless.spark.register(session)
    session.dataSource.register(Ready)
    return session


async def measure(quick: bool, scratch: Path) -> list[Report]:
    count, log_count = (20_000, 100_000) if quick else (300_000, 5_000_000)
    text = cell("edge", ["b"], subscribers=True), topic("t", "b"), topic("log", "b")
    async with Processes(*text) as processes:
        await processes.start("b")
        url = processes.url("b")
        await asyncio.to_thread(publish, url, "t", count)
        await asyncio.to_thread(publish, url, "log", log_count)
        since_s = time.monotonic()
        spark = make_session(scratch)
        try:
            return [
                await asyncio.to_thread(streams, spark, url, count, scratch),
                await asyncio.to_thread(batches, spark, url, log_count, since_s),
            ]
        finally:
            spark.stop()


def streams(spark: SparkSession, url: str, count: int, scratch: Path) -> Report:
    works: dict[str, Callable[[], float]] = {}
    number = iter(range(1_000))
    for name, schema in (("typed columns", TYPED), ("attributes as JSON", None)):
        shape = gapless.spark.read_log(spark, url, "t", schema=schema).schema
        path = make_ready(url, spark, schema, scratch / f"{len(works)}.arrow")
        ready = spark.readStream.format("ready").schema(shape)
        ready = ready.option("file", path).option("count", count)

        def read(shape: Any = shape) -> float:
            reader = spark.readStream.format("gapless").schema(shape).option("url", url)
            reader = reader.option("topic", "t").option("startingOffsets", "earliest")
            reader = reader.option("subscription", f"job {next(number)}")
            return stream_s(reader.option("minPartitions", SLICES).load(), scratch)

        works[f"{name}: ready-made"] = lambda ready=ready: stream_s(ready.load(), scratch)  # type: ignore[misc]
        works[f"{name}: gapless"] = read
    own = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", count)
    works["Spark's rate source (two numbers a row)"] = lambda: rate_s(own.load(), scratch)
    seconds = best(works)
    report = Report(
        "spark-streaming", "Spark: streaming read", ("source", "rows/s", "to ready-made")
    )
    for name, took in seconds.items():
        base = seconds.get(f"{name.partition(':')[0]}: ready-made")
        report.add(name, rate(count / took), f"{base / took:.2f}" if base else "")
    report.notes.append(f"{count} rows in one micro-batch of {SLICES} slices, to nowhere")
    return report


def rate_s(table: DataFrame, scratch: Path) -> float:
    """The same for a source that has no end."""
    with TemporaryDirectory(dir=scratch) as folder:
        writer = table.writeStream.format("noop").option("checkpointLocation", folder)
        query = writer.trigger(processingTime="0 seconds").start()
        while not query.recentProgress:
            time.sleep(0.01)
        query.stop()
        return float(query.recentProgress[0]["durationMs"]["addBatch"]) / 1e3


def batches(spark: SparkSession, url: str, count: int, since_s: float) -> Report:
    def read(topic: str, **options: Any) -> DataFrame:
        return gapless.spark.read_log(spark, url, topic, **options)

    by_broker = "filtered by the broker"
    works: dict[str, Callable[[str], float]] = {
        by_broker: lambda topic: batch_s(read(topic, where="volume = 7")),
        "all, filtered by Spark": lambda topic: batch_s(
            read(topic, minPartitions=SLICES).where("get_json_object(attributes, '$.volume') = 7")
        ),
        "all as typed columns, filtered by Spark": lambda topic: batch_s(
            read(topic, minPartitions=SLICES, schema=TYPED).where("volume = 7")
        ),
    }
    best({name: partial(work, "t") for name, work in works.items()})  # to warm up all but the log
    waited_s = time.monotonic() - since_s
    first = works[by_broker]("log")
    rounds = [{name: work("log") for name, work in works.items()} for _ in range(RUNS)]
    seconds = {name: min(each[name] for each in rounds) for name in works}
    seconds[f"{by_broker}, for the first time"] = first
    report = Report("spark-batch", "Spark: batch read", ("read", "seconds", "to the broker's"))
    least = seconds[by_broker]
    for name, took in seconds.items():
        report.add(name, f"{took:.2f}", f"{took / least:.1f}×")
    report.notes.append(f"{count} rows in the log; one in {RARE} is wanted")
    report.notes.append(f"the first time is {waited_s:.0f} s after the last event was published")
    return report


def run(quick: bool) -> list[Report]:
    with TemporaryDirectory(prefix="gapless-") as scratch:
        return asyncio.run(measure(quick, Path(scratch)))
