"""The Spark sink: rows a second into a broker, beside what Spark alone takes and beside the read.

Rows have 4 attributes and a body of 250 bytes; two tasks, one broker, one pubend. The upper
table is one process without Spark: encoding alone, and staging and committing what is encoded. The
other is of whole jobs in a warm session, in turns, the best round of each: writes until the last
row can be read, and reads of what they wrote. A job lasts some seconds, as any costs some tenths.
Of streams it is the one micro-batch, as Spark tells it. CPU is that of all processes together:
where others use the machine too, its shares are the ones to trust.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import gapless
from benchmarks.broker import serving
from benchmarks.peers.usage import cpu_seconds as cpu_of
from benchmarks.peers.usage import members
from benchmarks.report import Report, cpu_seconds, rate
from gapless.wire.columnar import EventColumns, encode_columns
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

BODY_BYTES = 250
ROUNDS = 2
BATCH = 10_000  # rows that Spark hands over at a time
COLUMNS = (
    "concat('S', id % 100) as symbol",
    "id % 97 + 0.5D as price",
    "id as volume",
    "id % 5 = 0 as halted",
    f"repeat('x', {BODY_BYTES}) as body",
)
TYPED = "symbol string, price double, volume bigint, halted boolean, tick bigint, body binary"
MAPS_READ, TYPED_READ = "read as maps", "read as typed columns"


class Cost(NamedTuple):
    """Seconds of one job."""

    wall_s: float
    broker_s: float  # of CPU
    others_s: float  # the JVM, the workers in Python, and this process

    @property
    def cpu_s(self) -> float:
        return self.broker_s + self.others_s


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
    alone = Report("spark-sink-alone", "The Spark sink, without Spark", ("work", "rows/s"))
    count = 50_000 if quick else 1_000_000
    with serving() as (url, broker):
        for name, rows_s in bare(url, 20_000 if quick else 200_000).items():
            alone.add(name, rate(rows_s))
        with TemporaryDirectory(prefix="gapless-") as scratch:
            found = Jobs(url, broker, count, Path(scratch)).measure()
    columns = ("job", "rows/s", "CPU µs/row", "broker", "rows/s to read: maps, typed", "by CPU")
    report = Report("spark-sink", "The Spark sink", columns)
    for name, cost in found.items():
        kind = name.partition(":")[0]
        reads = [found[f"{kind}: {each}"] for each in (MAPS_READ, TYPED_READ)]
        report.add(
            name,
            rate(count / cost.wall_s),
            f"{cost.cpu_s / count * 1e6:.2f}",
            f"{cost.broker_s / count * 1e6:.2f}",
            ", ".join(f"{read.wall_s / cost.wall_s:.2f}" for read in reads),
            ", ".join(f"{read.cpu_s / cost.cpu_s:.2f}" for read in reads),
        )
    report.notes.append(f"{count} rows in each job, to nowhere when they are read")
    return [alone, report]


def bare(url: str, count: int) -> dict[str, float]:
    """Without Spark."""
    rows = range(BATCH)
    columns = EventColumns(
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
        wait_readable(client, topic)
        done = time.perf_counter() - started
    return {
        "encode by column (CPU)": BATCH / by_column,
        "encode by row (CPU)": BATCH / by_row,
        "stage, one connection": stager.count / staged,
        "stage, commit, readable": stager.count / done,
    }


class Jobs:
    """Whole jobs of Spark against one broker."""

    def __init__(self, url: str, broker: int, count: int, scratch: Path) -> None:
        self.url, self.broker, self.count, self.scratch = url, broker, count, scratch
        self.session = make_session()

    def measure(self) -> dict[str, Cost]:
        """Of each the best round, after one to warm up."""
        try:
            with gapless.sync.connect(self.url) as client:
                self.client = client
                rounds = [self._round() for _ in range(ROUNDS + 1)]
        finally:
            self.session.stop()
        return {
            name: Cost(*map(min, zip(*(each[name] for each in rounds[1:]), strict=True)))
            for name in rounds[0]
        }

    def _round(self) -> dict[str, Cost]:
        rows = self.session.range(0, self.count, 1, 2).selectExpr(*COLUMNS)
        topic, streamed = make_topic(self.client), make_topic(self.client)
        works: dict[str, Callable[[], float]] = {
            "batch: hand rows over, nothing else": lambda: self._save(rows, "counting"),
            "batch: write": lambda: self._save(rows, "gapless", topic) + self._wait(topic),
            f"batch: {MAPS_READ}": lambda: self._read(topic),
            f"batch: {TYPED_READ}": lambda: self._read(topic, TYPED),
            "stream: write": lambda: self._stream_in(streamed) + self._wait(streamed),
            f"stream: {MAPS_READ}": lambda: self._stream_out(streamed),
            f"stream: {TYPED_READ}": lambda: self._stream_out(streamed, TYPED),
        }
        return {name: self._cost(work) for name, work in works.items()}

    def _cost(self, work: Callable[[], float]) -> Cost:
        before = self._cpu_s()
        wall_s = work()
        broker_s, others_s = (now - then for now, then in zip(self._cpu_s(), before, strict=True))
        return Cost(wall_s, broker_s, others_s)

    def _cpu_s(self) -> tuple[float, float]:
        family = members(os.getpid())
        return cpu_of(self.broker), sum(cpu_of(each) for each in family if each != self.broker)

    def _save(self, rows: DataFrame, form: str, topic: str = "") -> float:
        options = {"url": self.url, "topic": topic} if topic else {}
        return timed(rows.write.format(form).options(**options).mode("append").save)

    def _wait(self, topic: str) -> float:
        return timed(partial(wait_readable, self.client, topic))

    def _read(self, topic: str, schema: str | None = None) -> float:
        table = gapless.spark.read_log(
            self.session, self.url, topic, schema=schema, minPartitions=2
        )
        return timed(table.write.format("noop").mode("overwrite").save)

    def _stream_in(self, topic: str) -> float:
        """One micro-batch of a source that has no end."""
        source = self.session.readStream.format("rate-micro-batch").option("numPartitions", 2)
        rows = source.option("rowsPerBatch", self.count).load()
        rows = rows.withColumnRenamed("value", "id").selectExpr(*COLUMNS)
        with TemporaryDirectory(dir=self.scratch) as folder:
            writer = rows.writeStream.format("gapless").option("url", self.url)
            writer = writer.option("topic", topic).option("checkpointLocation", folder)
            query = writer.trigger(once=True).start()
            query.awaitTermination()
            return batch_s(query)

    def _stream_out(self, topic: str, schema: str | None = None) -> float:
        reader = self.session.readStream.format("gapless").option("url", self.url)
        reader = reader.option("topic", topic).option("startingOffsets", "earliest")
        reader = reader.option("subscription", uuid4().hex).option("minPartitions", 2)
        table = (reader.schema(schema) if schema else reader).load()
        with TemporaryDirectory(dir=self.scratch) as folder:
            writer = table.writeStream.format("noop").option("checkpointLocation", folder)
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            return batch_s(query)


def batch_s(query: Any) -> float:
    """How long the largest batch of a query took, without what Spark notes about it."""
    largest = max(query.recentProgress, key=lambda each: each["numInputRows"])
    return float(largest["durationMs"]["addBatch"]) / 1e3


def make_session() -> SparkSession:
    import gapless.spark

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "1g")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    gapless.spark.register(session)
    # Spark's workers know no benchmarks.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    session.dataSource.register(Counting)
    return session


def make_topic(client: gapless.sync.Client) -> str:
    """One whose events are kept."""
    name = f"bench {uuid4().hex}"
    client.create_topic(name)
    with client.subscribe(name, name=f"keep {name}"):
        pass
    return name


def wait_readable(client: gapless.sync.Client, topic: str) -> None:
    """A commit is answered when it is durable; nothing else enters the log before all its events
    have. So what is published now comes behind them."""
    client.publish(topic, {})


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
