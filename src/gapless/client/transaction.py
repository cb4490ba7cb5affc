"""Transactions: many events published all at once or not at all, by one connection or by many.

Theory of operation
    A stager hands events of one part over, pipelined like a named publisher: what has no answer is
    kept and sent again, and its place in the part says whether it was there before. The first batch
    goes alone; once it is durable the rest follows, so that a part which is gone (expired, or
    aborted) is told from one that has not come yet. A commit names parts; it and all else may be
    repeated without harm. A part that was staged by one who crashed must not be gone on with, for
    its events may differ: that is why a part gets a name of its own unless it is given one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from gapless.client import arguments
from gapless.client.publisher import Publisher, UnconfirmedBatch
from gapless.client.requests import ask_for
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


STAGE_EVENTS_MAX = 4_096
STAGE_BYTES_MAX = 1 << 20
"""What goes into one message of events that are handed over encoded."""

STAGES_MAX = 4
"""Such messages without an answer; beyond it `send_encoded` waits."""


@dataclass(frozen=True, slots=True)
class CommitReceipt:
    """A transaction is published for good: its events stand side by side from `first_tick` on.

    `repeated`: it was committed before, and nothing has changed. If others were committed since,
    its place is forgotten: `first_tick` and `count` are -1.
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
        """Hand over many events at once that are encoded, without publisher and sequence."""
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

    def _encode(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> Iterable[bytes]:
        return encode_events(events)

    async def _ask_sequence(self) -> int:
        return 0

    def _send(self, batch: UnconfirmedBatch) -> None:
        if batch.sequence and not self._is_begun:
            return  # it follows the first
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
        """Say once, to whom the events were sent, that they are not wanted."""
        self._channel.send(abort)


def _pieces(events: Sequence[bytes]) -> Iterator[list[bytes]]:
    """In order, each within the limits of one message, or a single event."""
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
        """What came of it, once it is committed."""

    @property
    def count(self) -> int:
        """Events handed over so far."""
        return self._stager.count

    async def send(self, attributes: Mapping[str, Value], body: Bytes = b"") -> int:
        """Hand one event over; returns its place in the transaction."""
        return await self._stager.send(attributes, body)

    async def send_many(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> None:
        """The same for each of these, in less time than one by one."""
        await self._stager.send_many(events)

    async def flush(self) -> None:
        """Until all that was sent is on stable storage; nobody sees it yet."""
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
                # Said once and not waited for: whoever has failed, or was cancelled, need not. What
                # is committed all the same stays so; and in doubt it expires.
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
    return CommitReceipt(done.pubend, Tick(done.first_tick), done.count, done.repeated)


def about(topic: TopicName, producer: ProducerName) -> str:
    """All requests of a producer go to one broker."""
    return f"produce {topic} {producer}"


def checked(topic: str, producer: str, number: int = 0) -> tuple[TopicName, ProducerName, int]:
    return arguments.topic(topic), arguments.producer(producer), arguments.count("id", number)


def checked_parts(
    parts: Sequence[str] | Mapping[str, int],
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Their names, each once, and how many events each has, if that is given."""
    if isinstance(parts, str):
        raise UsageError(f"parts={parts!r:.80} is one text", "Give a list of names.")
    names = tuple(arguments.name("parts", each) for each in parts)
    if len(set(names)) != len(names):
        raise UsageError("parts names a part twice", "Give each part once.")
    if not isinstance(parts, Mapping):
        return names, ()
    return names, tuple(arguments.count("parts", each) for each in parts.values())


class Transactions:
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

        A clean end commits, an exception aborts. Ids of a producer ascend; one that is not above
        the last committed is taken for a repeat, and changes nothing.
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
        """One part of a transaction that someone else commits: `async with`, `send`, `flush`.

        Tell whoever commits its `part` and `count`. A name that is given must be used only once.
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
        """Publish exactly these parts, in this order; whatever else was staged is dropped.

        Give `{part: count}` to have it refused unless each part is whole. A repeat is answered.
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
        """Drop what was staged, or one part of it. What is committed stays: that is no error."""
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
