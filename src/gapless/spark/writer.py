"""The batch sink: the rows of a DataFrame become events, all of them or none.

With `txnAppId` and `txnVersion` a repeated job is ignored: versions of an application ascend, and a
version that is not above the last committed one was written before. Without them each job has a
name of its own: its rows are published together or not at all, and a repeated job publishes them
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter

from gapless.core.transaction_messages import ONCE
from gapless.spark.sink_layout import lay_out
from gapless.spark.sink_options import parse_sink_options
from gapless.spark.staging import StagedPartition, abort, commit, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType


class BatchWriter(DataSourceArrowWriter):
    """Made once for a job, on the driver; tasks get copies of it."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, overwrite: bool = False
    ) -> None:
        self.options = parse_sink_options(options, is_stream=False, overwrite=overwrite)
        self.layout = lay_out(schema, self.options)
        self.producer = self.options.producer or f"{ONCE}{uuid4().hex}"
        self.transaction = self.options.transaction or 0

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """On an executor: stage the rows of one partition."""
        task = TaskContext.get()
        assert task is not None
        staged = StagedPartition(self.producer, self.transaction, task.partitionId())
        return stage(self.options, self.layout, iterator, staged, task.attemptNumber())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: publish."""
        commit(self.options, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort(self.options, messages)
