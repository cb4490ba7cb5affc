"""A named publisher: pipelined, and exactly once over lost connections and broker restarts.

Theory of operation
    Events are numbered 0, 1, 2, … under the publisher's name and sent in batches, many of them
    before the first receipt is back. New events leave at the end of the loop's turn, unless a batch
    has just left. Then they linger for a moment (`linger_s`), or until they fill a batch, until no
    batch is on its way any more, or until a caller waits for their receipt. (A caller that waits
    for events on their way does not hurry new ones.) While many batches are on their way, new
    events wait for the next receipt. The more there is to send, the larger the batches, and the
    less each event costs at both ends.
    Events without a receipt are kept. After a new connection, or after a refusal that says "later",
    all of them are sent again in order, and the broker recognises by the numbers what it has.
    A publisher that uses a name again first asks for its next number. The broker gives a term with
    it, under which all events are sent. A publisher that had the name before may not know that: the
    broker refuses for good what it still sends under an older term, and it fails.
    Only one broker takes the events of a name; any other redirects to it.

Invariants
    I1  batches without receipt are kept in order, without holes: the last ends at `sequence`
    I2  at most `window_events_max` events have no receipt, and `WINDOW_BYTES_MAX` bytes and a batch
    I3  new events leave within `linger_s`, or there are batches whose receipt lets them go
    I4  a call that is cancelled while it waits has sent nothing of what it still held
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self, TypeVar

from gapless.client import arguments
from gapless.client.errors import RefusedError
from gapless.client.event_loop import draw
from gapless.client.requests import HOPS_MAX, ask_with_retries
from gapless.client.telemetry import current_context, find_tracer, publishing, with_context
from gapless.client.unheard import UnheardNotice
from gapless.core.client_messages import (
    OPENING_MAX,
    Publish,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Refused,
)
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.events import EventBatch
from gapless.wire.events import encode_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gapless.client.channel import Channel
    from gapless.core.events import Value
    from gapless.core.identity import PublisherName, TopicName
    from gapless.core.messages import Message
    from gapless.wire.framing import Bytes

WINDOW_EVENTS_MAX = 4_096
"""Events without receipt; beyond it `send` waits."""

WINDOW_BYTES_MAX = 32 << 20
"""Bytes of events without receipt; beyond it `send` waits."""

BATCH_EVENTS_MAX = 256
BATCH_BYTES_MAX = 512 << 10
BATCHES_EARLY_MAX = 8
"""Batches on their way; beyond it only a full one is sent before a receipt has come."""

LINGER_S = 0.004
"""How long after a batch the next may gather, while that batch has no receipt and no caller waits.
An event that is sent after a longer pause leaves at once."""

TABLE_ROWS_MAX = 8_192
"""Rows of a table that are encoded at a time; a caller's task keeps the loop so long."""

Item = TypeVar("Item")

RETRY_S, RETRY_LONGEST_S = 0.01, 0.5


@dataclass(slots=True, eq=False)
class UnconfirmedBatch:
    """Events that are on their way, from number `sequence` on."""

    sequence: int
    events: tuple[bytes, ...]
    size: int  # of those, in bytes


class Publisher:
    """Made by `Client.publisher`; use it with `async with`, which flushes at the end."""

    def __init__(
        self,
        channel: Channel,
        topic: TopicName,
        name: PublisherName,
        window_events_max: int = WINDOW_EVENTS_MAX,
        linger_s: float = LINGER_S,
    ) -> None:
        self.topic = topic
        self.name = name
        self.linger_s = arguments.seconds("linger_s", linger_s, may_be_zero=True)
        self.sequence = 0
        """The number of the next event: how many were sent under this name so far."""
        self._term = 0  # of our use of the name
        self._notice = UnheardNotice()
        self._channel = channel
        self._window_events_max = arguments.count("window_events_max", window_events_max, least=1)
        self._fresh: list[bytes] = []
        self._fresh_bytes = 0
        self._batches: deque[UnconfirmedBatch] = deque()
        self._unconfirmed = 0
        self._unconfirmed_bytes = 0  # of those in batches
        self._waiters: list[asyncio.Future[None]] = []
        self._awaited = 0  # the highest number of confirmed events that one of them waits for
        self._error: GaplessError | None = UsageError(  # it has no numbers yet
            "the publisher has not begun", "Use it with `async with`; with gapless.sync, `with`."
        )
        self._is_entered = False
        self._retry: asyncio.TimerHandle | None = None
        self._retry_s = RETRY_S
        self._stuck_since_s: float | None = None
        self._has_filled = False  # a full batch was just sent: it is to leave before more comes
        self._packing: asyncio.Handle | None = None
        self._packed_s = 0.0  # when a batch was made last
        self._moves = 0  # since the last receipt
        self._turn = 0  # counts how often all was sent again
        self._loop = asyncio.get_running_loop()

    # --- for applications ------------------------------------------------------------------------

    async def send(self, attributes: Mapping[str, Value], body: Bytes = b"") -> int:
        """Hand one event over; returns its number, not waiting for the receipt."""
        if self._has_filled:
            await self._let_go()
        if self._has_to_wait():
            await self._wait_for_room()
        self._add(((attributes, body),), self._encode)
        return self.sequence - 1

    def _encode(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> Iterable[bytes]:
        if find_tracer() is None:  # once for each `send`: it is to cost nothing
            return self._number(events)
        with publishing(self.topic):
            return self._number(with_context(events))

    def _number(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> Iterable[bytes]:
        return encode_events(events, self.name, self.sequence)

    def _sign(self, events: Iterable[bytes]) -> Iterable[bytes]:
        from gapless.wire.columnar import sign_events

        return sign_events(events, self.name, self.sequence)

    async def send_many(self, events: Iterable[tuple[Mapping[str, Value], Bytes]]) -> None:
        """Hand many events over, in less time than one by one."""
        rest = iter(events)
        for first in rest:
            if self._has_filled:
                await self._let_go()
            if self._has_to_wait():
                await self._wait_for_room()
            self._add(chain((first,), rest), self._encode)

    async def send_table(self, table: Any, *, body: str | None = None) -> None:
        """Hand over an event for each row of a `pyarrow.Table` or `RecordBatch`, in order.

        Each column is an attribute (boolean, integer, floating or text), a null an absent one;
        `body` names the column of bodies. A batch of `arrow_batches` is sent as what it was. A
        column of another type is refused before anything is sent."""
        from gapless.client.columns import event_columns
        from gapless.wire.columnar import encode_columns

        batches = table.to_batches() if hasattr(table, "to_batches") else [table]
        with publishing(self.topic):
            context = current_context()
            for rows in [event_columns(batch, body, context) for batch in batches]:
                for start in range(0, rows.count, TABLE_ROWS_MAX):
                    part = rows.slice(start, min(TABLE_ROWS_MAX, rows.count - start))
                    await self._send_rows(encode_columns(part, is_signed=True))

    async def _send_rows(self, events: Iterable[bytes]) -> None:
        encoded = iter(list(events))
        for first in encoded:
            if self._has_filled:
                await self._let_go()
            if self._has_to_wait():
                await self._wait_for_room()
            self._add(chain((first,), encoded), self._sign)

    async def flush(self) -> None:
        """Wait until everything sent so far is on stable storage."""
        self._pack()
        end = self.sequence
        await self._wait_until(lambda: self.confirmed >= end, end)

    @property
    def confirmed(self) -> int:
        """Every event below this number is on stable storage."""
        return self.sequence - self._unconfirmed

    async def wait_confirmed(self, beyond: int) -> int:
        """Wait until `confirmed` is above `beyond`, and return it."""
        await self._wait_until(lambda: self.confirmed > beyond, beyond + 1)
        return self.confirmed

    async def __aenter__(self) -> Self:
        if self._is_entered:
            raise UsageError("a publisher is entered once", "Make another of the same name.")
        self._is_entered = True
        self.sequence = await self._ask_sequence()
        self._error = None
        self._channel.listen(self._resume)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                await self.flush()
        finally:
            self._channel.unlisten(self._resume)
            self._fail(UsageError("the publisher has ended", "Make another of the same name."))
            for handle in (self._retry, self._packing):
                if handle is not None:
                    handle.cancel()

    # --- numbers ---------------------------------------------------------------------------------

    async def _ask_sequence(self) -> int:
        """Take the name over: its next number; 0 for a new name."""
        opening = 1 + draw(OPENING_MAX)

        def question(request: int) -> PublisherQuery:
            return PublisherQuery(request, self.topic, self.name, opening)

        while True:
            answer, channel = await ask_with_retries(self._channel, question)
            match answer:
                case PublisherPosition(sequence=sequence, term=term):
                    self._channel, self._term = channel, term
                    return sequence
                case Refused(problem=problem, remedy=remedy):
                    raise RefusedError(problem, remedy)
                case GaplessError():
                    pass  # the connection broke: ask again on the next
                case _:
                    raise WireError(f"the broker answered {type(answer).__name__} to a question")

    # --- sending, and sending again --------------------------------------------------------------

    def _has_to_wait(self) -> bool:
        return (
            self._unconfirmed >= self._window_events_max
            or self._unconfirmed_bytes >= WINDOW_BYTES_MAX
            or self._error is not None
            or self._channel.problem is not None
        )

    def _has_room(self) -> bool:
        return (
            self._unconfirmed < self._window_events_max
            and self._unconfirmed_bytes < WINDOW_BYTES_MAX
        )

    async def _wait_for_room(self) -> None:
        await self._wait_until(self._has_room)
        if (error := self._error or self._channel.problem) is not None:
            raise error

    def _add(
        self, events: Iterable[Item], encode: Callable[[Iterable[Item]], Iterable[bytes]]
    ) -> None:
        """Number and keep events, at least one, while there is room; send them if they fill a
        batch."""
        room = min(self._window_events_max - self._unconfirmed, BATCH_EVENTS_MAX - len(self._fresh))
        fresh, size, begin = self._fresh, self._fresh_bytes, len(self._fresh)
        try:
            for event in encode(islice(events, max(room, 1))):
                fresh.append(event)
                size += len(event)
                if size >= BATCH_BYTES_MAX:
                    break
        finally:
            self._fresh_bytes = size
            self.sequence += len(fresh) - begin
            self._unconfirmed += len(fresh) - begin
            self._pack_soon()
        if len(fresh) >= BATCH_EVENTS_MAX or size >= BATCH_BYTES_MAX:
            self._pack()
            self._has_filled = True

    def _pack_soon(self) -> None:
        if self._packing is not None or len(self._batches) >= BATCHES_EARLY_MAX:
            return
        due_s = self._packed_s + self.linger_s
        if self._is_awaited or not self._batches or due_s <= self._loop.time():
            self._packing = self._loop.call_soon(self._pack)
        else:
            self._packing = self._loop.call_at(due_s, self._pack)

    @property
    def _is_awaited(self) -> bool:
        """Does a caller wait for the receipt of new events?"""
        return self._awaited > self.sequence - len(self._fresh)

    def _linger_no_more(self) -> None:
        if self._packing is not None:
            self._packing.cancel()
            self._packing = self._loop.call_soon(self._pack)

    async def _let_go(self) -> None:
        """Let a full batch leave, and receipts in, before the caller goes on."""
        await self._channel.wait_writable()
        await asyncio.sleep(0)
        self._has_filled = False

    def _pack(self) -> None:
        """Make a batch of new events, and send it unless earlier ones must go first."""
        if self._packing is not None:
            self._packing.cancel()
            self._packing = None
        if not self._fresh:
            return
        self._packed_s = self._loop.time()
        events, self._fresh = tuple(self._fresh), []
        size, self._fresh_bytes = self._fresh_bytes, 0
        batch = UnconfirmedBatch(self.sequence - len(events), events, size)
        self._batches.append(batch)
        self._unconfirmed_bytes += size
        if self._retry is None:
            self._send(batch)

    def _send(self, batch: UnconfirmedBatch) -> None:
        """Without a connection there is no answer: `_resume` follows when one is up, and callers
        have to wait for that."""
        channel = self._channel
        if self._error is not None or not channel.is_up:
            self._wake()
            return
        turn = self._turn
        request = channel.request(lambda answer: self._answered(batch, answer, turn))
        channel.send(self._message(batch, request))

    def _message(self, batch: UnconfirmedBatch, request: int) -> Message:
        place = (self.name, batch.sequence, self._term)
        return Publish(self.topic, request, EventBatch(batch.events), *place)

    def _resume(self) -> None:
        """A connection is up, or a retry is due: send what has no receipt."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._channel.problem is not None:
            self._wake()
            return
        self._turn += 1
        for batch in self._batches:
            self._send(batch)

    def _answered(self, batch: UnconfirmedBatch, answer: Message | GaplessError, turn: int) -> None:
        match answer:
            case Receipt():
                if answer.unheard:
                    self._notice.tell(self.topic)
                self._confirm(batch)
            case _ if turn != self._turn or self._error is not None:
                pass  # everything was sent again since, or the publisher has ended
            case Refused(elsewhere=addresses) if addresses and self._moves < HOPS_MAX:
                self._move(addresses)
            case Refused(retry=True):
                self._try_later(answer)
            case Refused(problem=problem, remedy=remedy):
                self._fail(RefusedError(problem, remedy))
            case _:
                self._wake()  # the connection broke: `_resume` follows, if it comes back in time

    def _move(self, addresses: tuple[str, ...]) -> None:
        """The broker redirects: publish there."""
        self._moves += 1
        self._channel.unlisten(self._resume)
        try:
            self._channel = self._channel.other_brokers.at(addresses)
        except GaplessError as error:
            self._fail(error)
            return
        self._channel.listen(self._resume)
        self._resume()  # again when its connection is up, if it is still to come
        self._wake()  # callers have to wait for that channel from here on

    def _confirm(self, batch: UnconfirmedBatch) -> None:
        """A receipt came: this batch is durable, and all before it."""
        self._retry_s, self._stuck_since_s, self._moves = RETRY_S, None, 0
        while self._batches and self._batches[0].sequence <= batch.sequence:
            confirmed = self._batches.popleft()
            self._unconfirmed -= len(confirmed.events)
            self._unconfirmed_bytes -= confirmed.size
        if self._fresh:
            self._pack_soon()
        if not self._batches:
            self._linger_no_more()
        self._wake()

    def _try_later(self, refused: Refused) -> None:
        """The broker refuses for now: hold everything back for a moment, then send all in order."""
        if self._retry is not None:
            return
        now_s = self._loop.time()
        if self._stuck_since_s is None:
            self._stuck_since_s = now_s
            self._channel.report("retrying", refused.problem)
        if now_s - self._stuck_since_s > self._channel.patience_s:
            self._fail(RefusedError(refused.problem, refused.remedy))
            return
        self._retry = self._loop.call_later(self._retry_s, self._resume)
        self._retry_s = min(2 * self._retry_s, RETRY_LONGEST_S)

    def _fail(self, error: GaplessError) -> None:
        self._error = self._error or error
        self._wake()

    # --- waiting ---------------------------------------------------------------------------------

    async def _wait_until(self, is_reached: Callable[[], bool], number: int = 0) -> None:
        """Wait for receipts until this is reached; `number`: with that many confirmed events."""
        while not is_reached():
            if (error := self._error or self._channel.problem) is not None:
                raise error
            await self._channel.wait_up()
            if not is_reached():
                waiter = self._loop.create_future()
                self._waiters.append(waiter)
                self._awaited = max(self._awaited, number or self.confirmed + 1)
                if self._is_awaited:
                    self._linger_no_more()
                await waiter

    def _wake(self) -> None:
        waiters, self._waiters, self._awaited = self._waiters, [], 0
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
