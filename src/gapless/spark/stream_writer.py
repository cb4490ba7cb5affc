"""The streaming sink: every row of a query becomes an event exactly once.

Theory of operation
    The producer is the query, by the id that its checkpoint keeps, or by `txnAppId`. A transaction
    is a micro-batch, by its id. Spark runs a batch again if it does not know that the batch was
    committed; the broker knows, and ignores the repeat.
    A query repeats its last batch only. A batch with a lower id comes from a checkpoint that is
    older or another one, and may hold other rows. To ignore it could lose rows in silence, so it is
    an error.

Spark makes a new writer for each batch and for each commit: all that is known is in the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter

from gapless.core.errors import UsageError
from gapless.core.transaction_messages import FORGOTTEN
from gapless.spark.sink_layout import lay_out
from gapless.spark.sink_options import parse_sink_options
from gapless.spark.staging import StagedPartition, abort, commit, stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.datasource import WriterCommitMessage
    from pyspark.sql.types import StructType

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
"""What Spark calls them among the properties of a task."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Made on the driver for each batch, and again for its commit; tasks get copies of it."""

    def __init__(
        self, options: Mapping[str, str], schema: StructType, overwrite: bool = False
    ) -> None:
        self.options = parse_sink_options(options, is_stream=True, overwrite=overwrite)
        self.layout = lay_out(schema, self.options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """On an executor: stage the rows of one partition."""
        task = TaskContext.get()
        assert task is not None
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        assert query is not None
        assert batch is not None
        producer = self.options.producer or query
        staged = StagedPartition(producer, int(batch), task.partitionId())
        return stage(self.options, self.layout, iterator, staged, task.attemptNumber())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """On the driver: publish."""
        for (topic, _), receipt in commit(self.options, messages).items():
            if receipt.first_tick == FORGOTTEN:
                raise UsageError(
                    f"batch {batchId} is older than the last that this query has published to "
                    f"{topic!r}: its checkpoint is older or new, and its rows may not be the same",
                    "Continue from the newest checkpoint, or with another txnAppId.",
                )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort(self.options, messages)
