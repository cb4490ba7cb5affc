"""The streaming sink, to be stopped at a chosen place, and a query that writes to it.

Options beginning with `hook` are for us; the rest is for the sink.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSource

from gapless.spark.stream_writer import StreamWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

HANG_S = 300.0
# Spark's workers know no tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


class HookedWriter(StreamWriter):
    """Stops, fails or waits where it is told to.

    hookCommit     before: stop before the commit; after: behind it; fail: raise behind it
    hookBatch      of which batch, 0 unless told
    hookFlag       a file that is made when we stop
    hookAttempts   so many attempts of each task fail when all is staged
    hookGate       partition 1 writes nothing before this file exists
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        self.hooks = {key: text for key, text in options.items() if key.startswith("hook")}
        given = {key: text for key, text in options.items() if key not in self.hooks}
        super().__init__(given, schema, overwrite)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None
        gate = self.hooks.get("hookgate")
        if gate and task.partitionId() == 1:
            wait_for(Path(gate))
        staged = super().write(iterator)
        if gate and task.partitionId() == 0:
            Path(self.hooks["hookflag"]).touch()
        if task.attemptNumber() < int(self.hooks.get("hookattempts", "0")):
            raise RuntimeError("this attempt fails on purpose")
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        where = self.hooks.get("hookcommit")
        if batchId != int(self.hooks.get("hookbatch", "0")):
            where = None
        if where == "before":
            self._hang()
        super().commit(messages, batchId)
        if where == "after":
            self._hang()
        if where == "fail":
            raise RuntimeError("this commit fails on purpose, after it was carried out")

    def _hang(self) -> None:
        Path(self.hooks["hookflag"]).touch()
        threading.Event().wait(HANG_S)


class HookedSink(DataSource):
    """`format("hooked")`."""

    @classmethod
    def name(cls) -> str:
        return "hooked"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        return HookedWriter(self.options, schema, overwrite)


def wait_for(path: Path, is_alive: Callable[[], bool] = lambda: True) -> None:
    """Another process makes it, as long as it is alive."""
    tick = threading.Event()
    for _ in range(int(HANG_S / 0.02)):
        if path.exists():
            return
        if not is_alive():
            break
        tick.wait(0.02)
    raise TimeoutError(f"nobody has made {path.name}")


def start_query(
    spark: SparkSession, files: str, checkpoint: str, partitions: int, options: Mapping[str, str]
) -> StreamingQuery:
    """A file of numbers is a micro-batch; each number is an event."""
    spark.dataSource.register(HookedSink)
    rows = spark.readStream.option("maxFilesPerTrigger", "1").text(files)
    numbers = rows.selectExpr("cast(value as bigint) as i", "value as body")
    return (
        numbers.repartitionByRange(partitions, "i")
        .writeStream.format("hooked")
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
