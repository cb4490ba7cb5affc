"""The stream reader: a named subscription as a stream of micro-batches.

Theory of operation
    The subscription holds storage back; the events are read by range reads, in parallel, straight
    from the brokers that have them. So nothing is ever delivered to the subscription: it is made,
    or found, when a query begins, left at once, and acknowledged by name. An offset is a token, and
    a batch is what lies between two of them: reading it again gives the same events.
    Two queries must not share a subscription: each would acknowledge what the other has not read.
    So a run leases it (`subscription_lease`) before it reads anything. The offset names the query,
    for Spark tells a source neither its checkpoint nor its id: so a run that goes on from a
    checkpoint takes the lease of the run before it, and any other is refused.
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
    I4  a host that is silent holds up its own pubends and no others (`topics`)

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

from gapless.client.telemetry import start_batch
from gapless.core.token import Token
from gapless.spark.arrow_batches import ArrowBatches
from gapless.spark.batch_ends import BatchEnds
from gapless.spark.options import parse_options
from gapless.spark.schema import check_schema
from gapless.spark.slices import Slice, find_cuts, open_client, plan, read_slice, resolve_start
from gapless.spark.subscription_lease import SubscriptionLease, token_of
from gapless.spark.topics import ANSWER_S, LOOK_S, HostPolls, find_topics, positions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.trace import Span
    from pyspark.sql.types import StructType

    from gapless.client.subscription_options import Start
    from gapless.spark.subscription_lease import Offset
    from gapless.sync import Client

POLL_S = 0.05
"""How often brokers are asked whether there is something new, while `latestOffset` waits."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One in the process of a query, which decides; copies of it on executors, which read."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = parse_options(options, is_stream=True)
        check_schema(schema, self.options)
        self.batches = ArrowBatches(schema, self.options)
        self._begin()

    def _begin(self) -> None:
        self._clients: list[Client] = []  # with all patience, and with little
        self._topics: tuple[str, ...] = ()
        self._looked_s = 0.0  # for topics
        self._initial: Offset | None = None
        self._lease = SubscriptionLease(self.options)
        self._last_commit: Token | None = None  # as far as Spark has told
        self._hosts = HostPolls(self.options)
        self._ends = BatchEnds(self.options, self._hosts.is_silent)
        self._target: Token | None = None  # with a trigger that ends: where
        self._latest = Token()
        self._moved_s = time.monotonic()
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
            token = self._lease.begin(self._client, self._find_topics(), start)
            if place is not None:  # it counts also if the subscription was there before
                positions = positions_of(self._client, self._topics)
                token = resolve_start(place, positions, gaps=self.options.gaps)
                token = Token({name: max(tick, 1) for name, tick in token})
            self._initial = self._lease.offset(token)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's
        limit = self.options.events_max
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's
        positions = positions_of(self._client, self._find_topics())  # with patience: from all hosts
        self._target = Token({name: high for name, (_, high) in positions.items()})

    def latestOffset(  # noqa: N802 - Spark's
        self, start: Offset, limit: ReadLimit
    ) -> Offset:
        """Acknowledge `start`, then wait a little for what is new."""
        token = token_of(start)
        self._acknowledge(start, token)
        events_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        deadline_s = time.monotonic() + self.options.long_poll_ms / 1e3
        while True:
            settled = self._target or self._settled()
            end = self._ends.advance(self._poller, self._topics, token, settled, events_max)
            now_s = time.monotonic()
            if end == token and (self._target or now_s >= self._moved_s + self.options.idle_s):
                end = token.join(settled)
            if end != token or now_s >= deadline_s:
                break
            time.sleep(POLL_S)
        if end == token:
            return start
        self._moved_s = now_s
        return self._lease.offset(end)

    def reportLatestOffset(self) -> Offset | None:  # noqa: N802 - Spark's
        """For Spark's progress reports: what is settled, as far as we know."""
        return dict(self._latest) or None

    def _settled(self) -> Token:
        settled = self._hosts.settled(self._poller, self._find_topics())
        self._latest = self._latest.join(settled)
        return settled

    def _find_topics(self) -> tuple[str, ...]:
        """The topics, looked for again now and then if they are given by a pattern."""
        is_due = self.options.topic_pattern and time.monotonic() >= self._looked_s + LOOK_S
        if not self._topics or is_due:
            self._topics = find_topics(self._client, self.options)
            self._looked_s = time.monotonic()
        return self._topics

    # --- what -----------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._span = start_batch(self.options.topic, self.options.subscription)
        begin, goal = self._ends.without_silence(token_of(start)), token_of(end)
        topics, cuts, parts = self._find_topics(), None, self.options.partitions_min
        if parts > 1:
            cuts = find_cuts(self._client, topics, self.options.condition, (begin, goal), parts)
        return plan(topics, begin, goal, cuts)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, Slice):
            yield from read_slice(partition, self.batches, self.options)

    # --- the subscription -----------------------------------------------------------------------

    @property
    def _client(self) -> Client:
        return self._connected()[0]

    @property
    def _poller(self) -> Client:
        return self._connected()[1]

    def _connected(self) -> list[Client]:
        if not self._clients:
            patiences = self.options.patience_s, min(ANSWER_S, self.options.patience_s)
            self._clients = [open_client(self.options, each).__enter__() for each in patiences]
        return self._clients

    def _acknowledge(self, start: Offset, token: Token) -> None:
        """Say what Spark has committed; the last batch only when there is another one."""
        self._lease.hold(self._client, self._find_topics(), start)
        if token != self._last_commit:
            done = self._last_commit if self.options.keeps_last_batch else token
            self._last_commit = token
            if done is not None:
                self._lease.acknowledge(self._client, done)
            if self._span is not None:
                self._span.end()

    def commit(self, end: Offset) -> None:
        """Nothing: `latestOffset` has said so already, and says so also after the last batch."""

    def stop(self) -> None:
        self._lease.stop()
        for client in self._clients:
            client.close()
        self._clients = []
