"""Transactions: many events published all at once or not at all, by one connection or by many.

Theory of operation
    A stager hands over the events of one part, pipelined like a named publisher: it keeps what has
    no answer and sends it again, and the broker recognises repeats by their place in the part. The
    first batch goes alone and the rest follows once it is durable. So the broker can tell a part
    that is gone (expired, or aborted) from a part that is new. A commit names parts. All requests
    may be repeated without harm. Nobody may go on with a part whose stager crashed, for the events
    may differ; that is why each part gets a new name unless the caller gives one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from gapless.client import arguments
from gapless.client.publisher import Publisher, UnconfirmedBatch
from gapless.client.requests import ask_for
from gapless.client.unheard import UnheardNotice
from gapless.core.client_messages import Done
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.identity import ProducerName, PubendName, PublisherName, TopicName
from gapless.core.ticks import Tick
from gapless.core.transaction_messages import (
    Abort,
    Commit,
    Committed,
    ProducerPosition,
    ProducerQuery,
    Stage,
)
from gapless.wire.events import encode_events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gapless.client.channel import Channel
    from gapless.core.errors import GaplessError
    from gapless.core.events import Value
    from gapless.core.messages import Message
    from gapless.wire.framing import Bytes

UNHEARD = UnheardNotice()
"""For transactions, which many processes commit: told once for each topic and process."""


STAGE_EVENTS_MAX = 4_096
STAGE_BYTES_MAX = 1 << 20
"""Limits of one message of events that were handed over encoded."""

STAGES_MAX = 4
"""Such messages without an answer; beyond it `send_encoded` waits."""


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """A transaction is published for good, with its events next to each other from `first_tick` on.

    `repeated`: it was committed before, and nothing has changed. If later transactions were
    committed since, its place is forgotten: `first_tick` and `count` are -1.
    """

    pubend: PubendName
    first_tick: Tick
    count: int
    repeated: bool


class Stager(Publisher):
    """Hands over the events of one part; use it with `async with`, which flushes at the end."""

    def __init__(
        self, channel: Channel, topic: TopicName, producer: ProducerName, number: int, part: str
    ) -> None:
        super().__init__(channel, topic, PublisherName(producer))
        self.producer = producer
        self.transaction = number
        self.part = part
        self._is_begun = False

    @property
    def count(self) -> int:
        """Events handed over so far; durable after `flush`."""
        return self.sequence

    async def send_encoded(self, events: Sequence[bytes]) -> None:
        """Hand over many encoded events at once, without publisher and sequence."""
        for piece in _pieces(events):
            if self._error or self._channel.problem or len(self._batches) >= STAGES_MAX:
                await self._wait_for_turn()
            self._pack()
            self._fresh = piece
            self.sequence += len(piece)
            self._unconfirmed += len(piece)
            self._pack()
            await self._let_go()

    async def _wait_for_turn(self) -> None:
        await self._wait_until(lambda: len(self._batches) < STAGES_MAX)
        if (error := self._error or self._channel.problem) is not None:
            raise error

    def _number(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> Iterable[bytes]:
        return encode_events(events)

    async def _ask_sequence(self) -> int:
        return 0

    def _send(self, batch: UnconfirmedBatch) -> None:
        if batch.sequence and not self._is_begun:
            return  # it follows when the first is durable
        super()._send(batch)

    def _message(self, batch: UnconfirmedBatch, request: int) -> Message:
        place = (self.producer, self.transaction, self.part, batch.sequence)
        return Stage(self.topic, request, *place, EventBatch(batch.events))

    def _answered(self, batch: UnconfirmedBatch, answer: Message | GaplessError, turn: int) -> None:
        if not isinstance(answer, Done):
            super()._answered(batch, answer, turn)
            return
        self._confirm(batch)
        if not self._is_begun:
            self._is_begun = True
            for each in self._batches:
                self._send(each)

    def forget(self, abort: Abort) -> None:
        """Tell the broker once that the events are not wanted."""
        self._channel.send(abort)


def _pieces(events: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The events in order, in pieces within the limits of one message, or of a single event."""
    start = size = 0
    for index, event in enumerate(events):
        size += len(event)
        if index > start and (size > STAGE_BYTES_MAX or index - start >= STAGE_EVENTS_MAX):
            yield list(events[start:index])
            start, size = index, len(event)
    if events:
        yield list(events[start:])


class Transaction:
    """One transaction on one connection: `async with` commits it, or aborts it on an exception."""

    def __init__(self, channel: Channel, stager: Stager) -> None:
        self._channel = channel
        self._stager = stager
        self.receipt: CommitReceipt | None = None
        """Set once it is committed."""

    @property
    def count(self) -> int:
        """Events handed over so far."""
        return self._stager.count

    async def send(self, attributes: Mapping[str, Value], body: Bytes = b"") -> int:
        """Hand one event over; returns its place in the transaction."""
        return await self._stager.send(attributes, body)

    async def send_many(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> None:
        """Hand many events over, in less time than one by one."""
        await self._stager.send_many(events)

    async def flush(self) -> None:
        """Wait until all that was sent is on stable storage; no subscriber sees it yet."""
        await self._stager.flush()

    async def __aenter__(self) -> Self:
        await self._stager.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        stager = self._stager
        name = (stager.topic, stager.producer, stager.transaction)
        has_ended = False
        try:
            await stager.__aexit__(kind, *rest)
            if kind is None:
                self.receipt = await commit(self._channel, *name, {stager.part: stager.count})
                has_ended = True
        finally:
            if stager.count and not has_ended:
                # Sent once and not waited for: a caller that failed or was cancelled should not
                # wait. If the commit happened all the same it stays; otherwise the events expire.
                stager.forget(Abort(name[0], 0, name[1], name[2]))


async def commit(
    channel: Channel,
    topic: TopicName,
    producer: ProducerName,
    number: int,
    parts: Sequence[str] | Mapping[str, int],
) -> CommitReceipt:
    names, counts = checked_parts(parts)
    done = await ask_for(
        channel,
        lambda request: Commit(topic, request, producer, number, names, counts),
        Committed,
        about(topic, producer),
    )
    if done.unheard:
        UNHEARD.tell(topic)
    return CommitReceipt(done.pubend, Tick(done.first_tick), done.count, done.repeated)


def about(topic: TopicName, producer: ProducerName) -> str:
    """The key under which the client remembers the broker of a producer."""
    return f"produce {topic} {producer}"


def checked(topic: str, producer: str, number: int = 0) -> tuple[TopicName, ProducerName, int]:
    return arguments.topic(topic), arguments.producer(producer), arguments.count("id", number)


def checked_parts(
    parts: Sequence[str] | Mapping[str, int],
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The names, each once, and how many events each part has, if given."""
    if isinstance(parts, str):
        raise UsageError(f"parts={parts!r:.80} is one text", "Give a list of names.")
    names = tuple(arguments.name("parts", each) for each in parts)
    if len(set(names)) != len(names):
        raise UsageError("parts names a part twice", "Give each part once.")
    if not isinstance(parts, Mapping):
        return names, ()
    return names, tuple(arguments.count("parts", each) for each in parts.values())


class TransactionRequests:
    """The requests about transactions that a client has."""

    channel: Channel

    def transaction(
        self,
        topic: str,
        *,
        producer: str,
        id: int,  # noqa: A002 - what users call it
    ) -> Transaction:
        """Events that are published together or not at all: `async with`, `send`.

        A clean end commits, an exception aborts. Ids of a producer ascend: an id that is not above
        the last committed one counts as a repeat, and changes nothing.
        """
        return Transaction(
            self.channel, Stager(self.channel, *checked(topic, producer, id), uuid4().hex)
        )

    def stage(
        self,
        topic: str,
        *,
        producer: str,
        id: int,  # noqa: A002
        part: str | None = None,
    ) -> Stager:
        """One part of a transaction that another process commits: `async with`, `send`, `flush`.

        Tell that process its `part` and `count`. If you give `part`, use that name only once.
        """
        given = uuid4().hex if part is None else arguments.name("part", part)
        return Stager(self.channel, *checked(topic, producer, id), given)

    async def commit(
        self,
        topic: str,
        *,
        producer: str,
        id: int,  # noqa: A002
        parts: Sequence[str] | Mapping[str, int],
    ) -> CommitReceipt:
        """Publish exactly these parts, in this order; other staged parts are dropped.

        With `{part: count}` the broker refuses unless each part is whole. A repeat is harmless.
        """
        return await commit(self.channel, *checked(topic, producer, id), parts)

    async def abort(
        self,
        topic: str,
        *,
        producer: str,
        id: int,  # noqa: A002
        part: str | None = None,
    ) -> None:
        """Drop what was staged, or one part of it. What is committed stays; that is no error."""
        topic_name, name, number = checked(topic, producer, id)
        given = None if part is None else arguments.text("part", part)
        await ask_for(
            self.channel,
            lambda request: Abort(topic_name, request, name, number, given),
            Done,
            about(topic_name, name),
        )

    async def last_committed(self, topic: str, *, producer: str) -> int | None:
        """The id of the producer's last committed transaction; None if there is none."""
        topic_name, name, _ = checked(topic, producer)
        answer = await ask_for(
            self.channel,
            lambda request: ProducerQuery(topic_name, request, name),
            ProducerPosition,
            about(topic_name, name),
        )
        return answer.transaction
