"""Staging: what tasks do with rows, and the driver with what the tasks have done.

Theory of operation
    Every attempt of a task stages its events in a part of its own, under the producer and the
    number of the transaction, and tells the driver the part's name and length. Nobody sees them.
    The driver commits the parts of the attempts that count, in the order of partitions: the broker
    publishes all of them at once, and drops the parts of other attempts. A transaction that was
    committed before changes nothing, however its rows are split this time.
    A transaction belongs to one topic. Rows for several are one transaction in each, under the same
    number: each is all or nothing by itself, and a batch that is done again completes the rest.
    The name of a producer picks the pubend. With `spreadBy` each pubend of a topic gets a producer
    of its own (`lane_name`), and a transaction; which one a row is in depends on its value alone.

Invariants
    I1  a part's name is used once: attempts of one number may coincide over restarts of the driver
    I2  a commit names the length of each part, and is refused unless all of it is there
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from zlib import crc32

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
    """What one attempt of a task has staged: by topic and producer, its part and how many events
    that has."""

    producer: str
    transaction: int
    partition: int
    parts: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)


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
    stagers: dict[tuple[str, str], sync.Stager] = {}
    with ExitStack() as stack:
        lanes = Lanes(options, staged.producer, stack)
        for batch in batches:
            for topic, lane, events in layout.encode(batch, lanes.count):
                if not events:
                    continue
                producer = lanes.of(topic)[lane]
                key = topic, producer
                if key not in stagers:
                    if len(stagers) >= TOPICS_MAX:
                        raise UsageError(
                            f"one partition has rows for more than {TOPICS_MAX} topics",
                            'Partition by topic: df.repartition("topic").',
                        )
                    stagers[key] = stack.enter_context(
                        lanes.client.stage(
                            topic, producer=producer, id=staged.transaction, part=part
                        )
                    )
                stagers[key].send_encoded(events)
    staged.parts = {key: (part, stager.count) for key, stager in stagers.items()}
    return staged


class Lanes:
    """The producers that the rows of each topic are spread over: one, or one for each pubend."""

    def __init__(self, options: SinkOptions, producer: str, stack: ExitStack) -> None:
        self._options, self._producer, self._stack = options, producer, stack
        self._names: dict[str, list[str]] = {}

    @cached_property
    def client(self) -> sync.Client:
        """Connected when there is a row."""
        return self._stack.enter_context(_connect(self._options, self._options.patience_s))

    def of(self, topic: str) -> list[str]:
        if topic not in self._names:
            count = len(self.client.positions(topic)) if self._options.spread_by else 0
            names = [lane_name(self._producer, lane, count) for lane in range(count)]
            self._names[topic] = names or [self._producer]
        return self._names[topic]

    def count(self, topic: str) -> int:
        return len(self.of(topic))


def lane_name(producer: str, lane: int, count: int) -> str:
    """A producer whose name picks the pubend number `lane` of `count`."""
    names = (f"{producer}/{lane}.{number}" for number in itertools.count())
    return next(name for name in names if crc32(name.encode()) % count == lane)


def commit(options: SinkOptions, messages: Sequence[Any]) -> dict[tuple[str, str], CommitReceipt]:
    """Publish what was staged, topic by topic; by topic and producer what came of it."""
    parts: dict[tuple[str, str], dict[str, int]] = {}
    done = sorted((each for each in messages if each is not None), key=lambda each: each.partition)
    for message in done:
        for key, (part, count) in message.parts.items():
            parts.setdefault(key, {})[part] = count
    if not parts:
        return {}
    number = done[0].transaction
    with _connect(options, options.patience_s) as client:
        return {
            (topic, producer): client.commit(topic, producer=producer, id=number, parts=named)
            for (topic, producer), named in sorted(parts.items())
        }


def abort(options: SinkOptions, messages: Sequence[Any]) -> None:
    """Drop what was staged, if a broker can be asked now. What is committed stays committed."""
    left = [(each, *item) for each in messages if each for item in each.parts.items()]
    if not left:
        return
    try:
        with _connect(options, min(options.patience_s, ABORT_PATIENCE_S)) as client:
            for message, (topic, producer), (part, _) in left:
                client.abort(topic, part=part, producer=producer, id=message.transaction)
    except GaplessError:
        pass  # it expires, and the reason why this is aborted is what Spark has to report


def _connect(options: SinkOptions, patience_s: float) -> sync.Client:
    credentials: Any = options.credentials
    return sync.connect(options.url, patience_s=patience_s, **credentials)
