"""The stream reader: a named subscription as a stream of micro-batches.

Theory of operation
    The subscription holds storage back; the events are read by range reads, in parallel, straight
    from the brokers that have them. So nothing is ever delivered to the subscription: it is made,
    or found, when a query begins, left at once, and acknowledged by name. An offset is a token, and
    a batch is what lies between two of them: reading it again gives the same events.
    Spark calls `latestOffset` with the end of the last batch that it has committed, also after the
    last batch of all (its `commit` lags by one and never comes for the last). The batch before that
    one is acknowledged there: the last batch stays readable, for a checkpoint may come back one
    commit older (a restored copy; a commit file that a power loss has taken). `keepLastBatch=false`
    acknowledges the last batch, too. Then `latestOffset` waits a little for something that matches;
    when it has waited for `idleSeconds` in all, the offset moves all the same, over nothing, so
    that storage is released.

Invariants
    I1  what is acknowledged is in Spark's commit log, and with `keepLastBatch` the commit after it
    I2  an offset never passes what is settled: what a batch holds never changes
    I3  a subscription that was ended meanwhile is made again where the query stands; what was
        released in between is told by the read itself

Deviation: with `asyncProgressTrackingEnabled` I1 does not hold, so do not use it.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from gapless.client.errors import RefusedError
from gapless.client.telemetry import start_batch
from gapless.core.token import Token
from gapless.filters.filter import Filter
from gapless.spark.arrow_batches import ArrowBatches
from gapless.spark.batch_ends import BatchEnds
from gapless.spark.options import parse_options
from gapless.spark.schema import check_schema
from gapless.spark.slices import Slice, open_client, plan, read_slice, resolve_start

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.trace import Span
    from pyspark.sql.types import StructType

    from gapless.client.subscription_options import Start
    from gapless.sync import Client

POLL_S = 0.05
"""How often brokers are asked whether there is something new, while `latestOffset` waits."""

CONTACT_S = 20.0
"""How often a query that has nothing to acknowledge tells the broker that it runs."""

Offset = dict[str, int]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One in the process of a query, which decides; copies of it on executors, which read."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = parse_options(options, is_stream=True)
        check_schema(schema, self.options)
        self.batches = ArrowBatches(schema, self.options)
        self._begin()

    def _begin(self) -> None:
        self._open: Client | None = None
        self._initial: Offset | None = None
        self._is_held = False  # is the subscription there?
        self._last_commit: Token | None = None  # as far as Spark has told
        self._ends = BatchEnds(self.options)
        self._target: Token | None = None  # with a trigger that ends: where
        self._latest = Token()
        self._moved_s = time.monotonic()
        self._contact_s = self._moved_s
        self._span: Span | None = None  # of the batch that is read, where somebody traces

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "batches": self.batches}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    # --- where ----------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's
        """Where a query without a checkpoint begins; it asks twice."""
        if self._initial is None:
            place = self.options.start
            if isinstance(place, int):
                start: Start = datetime.fromtimestamp(place / 1e6, UTC)
            else:
                start = place or "latest"
            token = self._hold(start)
            if place is not None:  # it counts also if the subscription was there before
                positions = self._client.positions(self.options.topic)
                token = resolve_start(place, positions, gaps=self.options.gaps)
                token = Token({name: max(tick, 1) for name, tick in token})
            self._initial = dict(token)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        limit = self.options.events_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        self._target = self._settled()

    def latestOffset(  # noqa: N802 - Spark's
        self, start: Offset, limit: ReadLimit
    ) -> Offset:
        """Acknowledge `start`, then wait a little for what is new."""
        token = Token(start)
        self._acknowledge(token)
        events_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        deadline_s = time.monotonic() + self.options.long_poll_ms / 1e3
        while True:
            settled = self._target or self._settled()
            end = self._ends.advance(self._client, token, settled, events_max)
            now_s = time.monotonic()
            if end == token and (self._target or now_s >= self._moved_s + self.options.idle_s):
                end = token.join(settled)
            if end != token or now_s >= deadline_s:
                break
            time.sleep(POLL_S)
        if end != token:
            self._moved_s = now_s
        return dict(end)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's
        """For Spark's progress reports: what is settled, as far as we know."""
        return dict(self._latest) or None

    def _settled(self) -> Token:
        positions = self._client.positions(self.options.topic)
        self._latest = Token({name: high for name, (_, high) in positions.items()})
        return self._latest

    # --- what -----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._span = start_batch(self.options.topic, self.options.subscription)
        begin = self._ends.without_silence(Token(start))
        return plan(begin, Token(end), self.options.partitions_min)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, Slice):
            yield from read_slice(partition, self.batches, self.options)

    # --- the subscription -----------------------------------------------------------------------

    @property
    def _client(self) -> Client:
        if self._open is None:
            self._open = open_client(self.options).__enter__()
        return self._open

    def _hold(self, start: Start) -> Token:
        """See to it that the subscription exists; where it stands.

        The broker compares conditions as texts: one that is spelt differently is tried as well.
        """
        given = self.options.condition
        try:
            return self._subscribe(str(Filter.parse(given)), start)
        except RefusedError:
            return self._subscribe(given, start)

    def _subscribe(self, condition: str, start: Start) -> Token:
        name, topic = self.options.subscription, self.options.topic
        with self._client.subscribe(topic, condition, name=name, start=start) as subscription:
            self._is_held = True
            return subscription.token

    def _acknowledge(self, token: Token) -> None:
        if not self._is_held:
            self._hold(token)
        is_due = time.monotonic() >= self._contact_s + CONTACT_S
        if token != self._last_commit or is_due:
            done = self._last_commit if self.options.keeps_last_batch else token
            if token == self._last_commit:
                done = Token()  # nothing new: it only says that the query runs
            try:
                if done is not None:
                    self._client.acknowledge(self.options.subscription, done)
                    self._contact_s = time.monotonic()
            except RefusedError:  # somebody has ended it
                self._hold(done or token)
            self._last_commit = token
            if self._span is not None:
                self._span.end()

    def commit(self, end: Offset) -> None:
        """Nothing: `latestOffset` has said so already, and says so also after the last batch."""

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
