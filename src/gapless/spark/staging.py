"""Staging: what tasks do with rows, and the driver with what the tasks have done.

Theory of operation
    Every attempt of a task stages its events in a part of its own, under the producer and the
    number of the transaction, and tells the driver the part's name and length. Nobody sees them.
    The driver commits the parts of the attempts that count, in the order of partitions: the broker
    publishes all of them at once, and drops the parts of other attempts. A transaction that was
    committed before changes nothing, however its rows are split this time.
    A transaction belongs to one topic. Rows for several are one transaction in each, under the same
    number: each is all or nothing by itself, and a batch that is done again completes the rest.

Invariants
    I1  a part's name is used once: attempts of one number may coincide over restarts of the driver
    I2  a commit names the length of each part, and is refused unless all of it is there
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import WriterCommitMessage

from gapless import sync
from gapless.core.errors import GaplessError, UsageError
from gapless.wire.buffers import keep_buffers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gapless.client.transaction import CommitReceipt
    from gapless.spark.sink_layout import SinkLayout
    from gapless.spark.sink_options import SinkOptions

TOPICS_MAX = 1_000
"""Topics in one partition of one batch; beyond it the task fails: partition by topic."""

ABORT_PATIENCE_S = 2.0
"""What is not aborted by then expires."""


@dataclass
class StagedPartition(WriterCommitMessage):
    """What one attempt of a task has staged: by topic, its part and how many events that has."""

    producer: str
    transaction: int
    partition: int
    parts: dict[str, tuple[str, int]] = field(default_factory=dict)


def stage(
    options: SinkOptions,
    layout: SinkLayout,
    batches: Iterator[Any],
    staged: StagedPartition,
    attempt: int,
) -> StagedPartition:
    """Stage all rows of a partition; durable when it returns."""
    keep_buffers()
    part = f"{staged.partition}.{attempt}.{uuid4().hex}"
    stagers: dict[str, sync.Stager] = {}
    with ExitStack() as stack:
        client: sync.Client | None = None
        for batch in batches:
            for topic, events in layout.encode(batch):
                if not events:
                    continue
                client = client or stack.enter_context(_connect(options, options.patience_s))
                if topic not in stagers:
                    if len(stagers) >= TOPICS_MAX:
                        raise UsageError(
                            f"one partition has rows for more than {TOPICS_MAX} topics",
                            'Partition by topic: df.repartition("topic").',
                        )
                    stagers[topic] = stack.enter_context(
                        client.stage(
                            topic, producer=staged.producer, id=staged.transaction, part=part
                        )
                    )
                stagers[topic].send_encoded(events)
    staged.parts = {topic: (part, stager.count) for topic, stager in stagers.items()}
    return staged


def commit(options: SinkOptions, messages: Sequence[Any]) -> dict[str, CommitReceipt]:
    """Publish what was staged, topic by topic; by topic what came of it."""
    parts: dict[str, dict[str, int]] = {}
    done = sorted((each for each in messages if each is not None), key=lambda each: each.partition)
    for message in done:
        for topic, (part, count) in message.parts.items():
            parts.setdefault(topic, {})[part] = count
    if not parts:
        return {}
    producer, number = done[0].producer, done[0].transaction
    with _connect(options, options.patience_s) as client:
        return {
            topic: client.commit(topic, producer=producer, id=number, parts=named)
            for topic, named in sorted(parts.items())
        }


def abort(options: SinkOptions, messages: Sequence[Any]) -> None:
    """Drop what was staged, if a broker can be asked now. What is committed stays committed."""
    left = [(each, *item) for each in messages if each for item in each.parts.items()]
    if not left:
        return
    try:
        with _connect(options, min(options.patience_s, ABORT_PATIENCE_S)) as client:
            for message, topic, (part, _) in left:
                name = {"producer": message.producer, "id": message.transaction}
                client.abort(topic, part=part, **name)
    except GaplessError:
        pass  # it expires, and the reason why this is aborted is what Spark has to report


def _connect(options: SinkOptions, patience_s: float) -> sync.Client:
    credentials: Any = options.credentials
    return sync.connect(options.url, patience_s=patience_s, **credentials)
