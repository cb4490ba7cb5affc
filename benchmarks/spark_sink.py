"""The Spark sink: rows a second into a broker, beside what Spark alone takes and beside the read.

Rows have 4 attributes and a body of 250 bytes; two tasks, one broker, one pubend. The upper
part is one process without Spark: encoding alone, and staging and committing what is encoded. The
rest is wall time in a warm session, all in turn, the best of some rounds.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import gapless
from benchmarks.broker import serving
from benchmarks.report import Report, cpu_seconds, rate
from gapless.client.range import RangeBatch
from gapless.wire.columnar import Columns, encode_columns
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

BODY_BYTES = 250
ROUNDS = 3
WORKS = (
    "Spark: hand rows over, nothing else",
    "Spark: write",
    "Spark: write, until the last row is readable",
    "Spark: read back",
)
BATCH = 10_000  # rows that Spark hands over at a time
COLUMNS = (
    "concat('S', id % 100) as symbol",
    "id % 97 + 0.5D as price",
    "id as volume",
    "id % 5 = 0 as halted",
    f"repeat('x', {BODY_BYTES}) as body",
)


class CountingWriter(DataSourceArrowWriter):
    """Takes all rows and does nothing with them."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


class Counting(DataSource):
    """What Spark takes to hand rows over."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def writer(self, schema: StructType, overwrite: bool) -> CountingWriter:
        return CountingWriter()


def run(quick: bool) -> list[Report]:
    report = Report("spark_sink", "The Spark sink", ("work", "rows/s", "to the read"))
    found: dict[str, float] = {}
    with serving() as (url, _):
        found |= bare(url, 20_000 if quick else 100_000)
        found |= spark_rates(url, 20_000 if quick else 200_000)
    for name, rows_s in found.items():
        report.add(name, rate(rows_s), f"{rows_s / found['Spark: read back']:.2f}")
    return [report]


def bare(url: str, count: int) -> dict[str, float]:
    """Without Spark."""
    rows = range(BATCH)
    columns = Columns(
        BATCH,
        {
            "symbol": pa.array([f"S{i % 100}" for i in rows]),
            "price": pa.array([i % 97 + 0.5 for i in rows]),
            "volume": pa.array(rows, pa.int64()),
            "halted": pa.array([i % 5 == 0 for i in rows]),
        },
        None,
        pa.array([b"x" * BODY_BYTES] * BATCH),
    )
    names = list(columns.attributes)
    table = zip(*(column.to_pylist() for column in columns.attributes.values()), strict=True)
    listed = [dict(zip(names, row, strict=True)) for row in table]
    by_column = cpu_seconds(lambda: list(encode_columns(columns)))
    by_row = cpu_seconds(lambda: [encode_event(row, b"x" * BODY_BYTES) for row in listed])
    events = list(encode_columns(columns))
    with gapless.sync.connect(url) as client:
        topic = make_topic(client)
        started = time.perf_counter()
        with client.stage(topic, producer="bare", id=0) as stager:
            for _ in range(count // BATCH):
                stager.send_encoded(events)
        staged = time.perf_counter() - started
        client.commit(topic, producer="bare", id=0, parts={stager.part: stager.count})
        wait_readable(client, topic, stager.count)
        done = time.perf_counter() - started
    return {
        "encode by column (CPU)": BATCH / by_column,
        "encode by row (CPU)": BATCH / by_row,
        "stage, one connection": stager.count / staged,
        "stage, commit, readable": stager.count / done,
    }


def spark_rates(url: str, count: int) -> dict[str, float]:
    import gapless.spark

    rounds: list[tuple[float, ...]] = []
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    for name in ("spark.driver.host", "spark.driver.bindAddress"):
        builder = builder.config(name, "127.0.0.1")
    spark = builder.config("spark.driver.memory", "1g").getOrCreate()
    try:
        spark.sparkContext.setLogLevel("ERROR")
        gapless.spark.register(spark)
        # Spark's workers know no benchmarks.
        cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
        spark.dataSource.register(Counting)
        with gapless.sync.connect(url) as client:
            rows = spark.range(0, count, 1, 2).selectExpr(*COLUMNS)
            few = spark.range(0, 20_000, 1, 2).selectExpr(*COLUMNS)
            warm = {"url": url, "topic": make_topic(client)}

            def save(rows: DataFrame, format_name: str, options: dict[str, str]) -> None:
                rows.write.format(format_name).options(**options).mode("append").save()

            for _ in range(2):
                save(few, "counting", {})
                save(few, "gapless", warm)
                read_back(spark, **warm)
            for _ in range(ROUNDS):
                topic = make_topic(client)
                save_all = partial(save, rows, "gapless", {"url": url, "topic": topic})
                alone = timed(partial(save, rows, "counting", {}))
                written = timed(save_all)
                readable = written + timed(partial(wait_readable, client, topic, count))
                read = timed(partial(read_back, spark, url, topic))
                rounds.append((alone, written, readable, read))
    finally:
        spark.stop()
    return {
        name: count / min(times)
        for name, times in zip(WORKS, zip(*rounds, strict=True), strict=True)
    }


def read_back(spark: SparkSession, url: str, topic: str) -> None:
    loaded = spark.read.format("gapless").option("url", url).option("topic", topic)
    loaded.option("minPartitions", "2").load().write.format("noop").mode("overwrite").save()


def make_topic(client: gapless.sync.Client) -> str:
    """One whose events are kept."""
    name = f"bench {uuid4().hex}"
    client.create_topic(name)
    with client.subscribe(name, name=f"keep {name}"):
        pass
    return name


def wait_readable(client: gapless.sync.Client, topic: str, count: int) -> None:
    """A commit is answered when it is durable; the last of its events are in the log soon after."""
    start = None
    while count > 0:
        for batch in client.read(topic, start=start):
            assert isinstance(batch, RangeBatch)
            count -= len(batch)
            start = gapless.Token({batch.pubend: batch.span.end})


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
