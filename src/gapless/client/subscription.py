"""A subscription: the events that match, to iterate over, gapless or with gaps that are told.

Theory of operation
    Arriving events go into a backlog; the application takes them from there, which moves the token.
    An anonymous subscription lives as long as its connection. When that is lost, the application
    still gets what has arrived; then iteration fails with `SubscriptionInterruptedError`. With
    `interruption="gap"` the client subscribes anew instead, and the span between both positions is
    a `Gap`.
    A named subscription is durable: on the next connection it goes on from what has arrived, and
    the application does not notice. If the process ends, all that was not taken comes again to the
    client that shows the token. At another broker it goes on from what is acknowledged, for the new
    broker knows nothing else; what was taken beyond that comes again and is dropped (`home`).
    Where the broker keeps the token, what the application has finished is acknowledged by itself:
    from time to time, or (`acknowledges_each`) each event when the application asks for the next
    one, which it gets when that is durable.
    Subscriptions that are read together (`joint_reader`) may share a backlog. One may join when it
    is live, lags nowhere, has an idle backlog, and gets nothing any more that it has received
    before; from then on its position is that of the shared backlog. It leaves before anything
    happens that is about it alone, and takes along what waits for it. A subscription that hands out
    silences never joins: they are about each one alone.

Invariants
    I1  acknowledged <= token
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from gapless.client.backlog import Backlog
from gapless.client.base_subscription import BaseSubscription
from gapless.client.delivered_events import as_batches
from gapless.client.delivery import finish
from gapless.client.errors import LinkError, RefusedError, SubscriptionInterruptedError
from gapless.core.client_messages import (
    Acknowledge,
    AlterationNoted,
    Done,
    Refused,
    Subscribed,
)
from gapless.core.errors import GaplessError, UsageError
from gapless.core.identity import PubendName
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from gapless.client.channel import Channel, ChannelInbox
    from gapless.client.delivery import Delivery, Ticket
    from gapless.client.shared_backlog import SharedBacklog
    from gapless.client.subscription_options import SubscriptionOptions
    from gapless.core.client_messages import Subscribe, SubscriptionAltered
    from gapless.core.events import Event
    from gapless.core.identity import BrokerName
    from gapless.core.messages import Message
    from gapless.core.ticks import Span

ACKNOWLEDGE_S = 0.25
"""How often what is finished is acknowledged, where the broker keeps the token."""


ARROW_EVENTS_MAX = 65_536
"""The most events of a batch of columns."""


class Subscription(BaseSubscription):
    """Made by `Client.subscribe`; use it with `async with` and `async for`."""

    def __init__(self, channel: Channel, options: SubscriptionOptions) -> None:
        super().__init__(channel, options)
        self._backlog = Backlog(
            options.topic,
            finish,
            in_total=options.order == "total" and options.name is None,
            silence=options.silence,
        )
        self.lags: set[str] = set()  # pubends where it catches up, by messages of its own
        self.on_ready: Callable[[Subscription], None] | None = None
        """Called when there is something to take, beside the task that iterates."""
        self._shared: SharedBacklog | None = None  # instead of its own backlog
        self._since: Mapping[str, int] = {}  # where it counts from on this connection
        self.unreached: tuple[BrokerName, ...] = ()
        self._settled: dict[PubendName | None, int] = {}  # the inbox's positions, as far as used
        self._first = Token()  # where it began
        self._acknowledged = Token()
        self._sent_token = Token()  # acknowledged on this connection
        self._changes: set[asyncio.Future[Message | GaplessError]] = set()  # of acknowledgements
        self._timer: asyncio.TimerHandle | None = None
        self.acknowledges_each = options.acknowledges_each
        self._is_unacknowledged = False  # was something handed out that is to be acknowledged?

    # --- for applications ------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        """By pubend: everything below this tick was taken, or did not match, or was lost."""
        if self._shared is None:
            return self._backlog.token()
        return self._backlog.token(self._shared.taken((self.topic, self.order)))

    async def __anext__(self) -> Delivery:
        await self._acknowledge_last()
        while True:
            item = self._backlog.pop()
            if item is not None:
                self._is_unacknowledged = True
                return item
            if not await self.wait_ready():
                raise StopAsyncIteration

    def pop(self) -> Delivery | None:
        """The next item, if there is one; may be called from another thread."""
        return self._backlog.pop()

    def pop_all(self) -> list[Delivery]:
        """All items that there are; may be called from another thread."""
        return self._backlog.pop_all()

    async def wait_ready(self) -> bool:
        """Call what was taken finished, and wait for more. False: the subscription is over."""
        while not (is_ready := self.advance()) and not self._is_over:
            await self._wait()
        return is_ready

    def advance(self) -> bool:
        """Call what was taken finished. True: there is more. At the end it raises its error."""
        self.leave_shared()
        while not self._backlog.has_items:
            self._take_silence()
            if not self._backlog.load():
                if self._error is not None:
                    raise self._error
                return False
            if self._backlog.is_empty:
                self._channel.tell_consumed()  # we keep up: let the broker know
        return True

    async def take(self) -> list[Delivery]:
        """All that has come, at least one; empty when the subscription is over."""
        await self._acknowledge_last()
        while not (batch := self.pop_all()) and await self.wait_ready():
            ...
        self._is_unacknowledged = True
        return batch

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """What iteration gives, in lists: each is all that has come."""
        while batch := await self.take():
            yield batch

    async def arrow_batches(self) -> AsyncIterator[Any]:
        """What iteration gives, as `pyarrow.RecordBatch`es of the events that have come, in order.

        `gapless.client.columns.SCHEMA` has the columns. A `Gap`, or a `Silence` where you asked for
        it, stands between the batches by itself."""
        self._backlog.events_max = ARROW_EVENTS_MAX
        while True:
            await self._acknowledge_last()
            taken = self._backlog.pop_encoded()
            self._is_unacknowledged = bool(taken)
            for item in as_batches(taken):
                yield item
            if not taken and not await self.wait_ready():
                return

    async def acknowledge(self) -> None:
        """Let the broker release everything below the token; durable when this returns."""
        if self.options.name is None:
            raise UsageError("an anonymous subscription acknowledges nothing", "Give it a name.")
        self._take_silence()
        token = self.token
        while not await self._acknowledge(token):
            ...

    async def reached(self) -> None:
        """Wait until `unreached` is empty, or the subscription is over.

        Only a subscription of a reliable topic begins while some brokers are unreached: it misses
        what is published at those brokers, or behind them."""
        while self.unreached and not self._is_over:
            await self._next_answer(None)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        if self._keeps_no_token:
            self._timer = self._loop.call_later(ACKNOWLEDGE_S, self._acknowledge_finished)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._keeps_no_token and self._is_live and not self._is_over:
                with suppress(TimeoutError, GaplessError):  # then it comes again next time
                    async with asyncio.timeout(self._channel.patience_s):
                        await self._acknowledge(self.token)
        finally:
            await self.close()

    async def close(self) -> None:
        """End it here, and drop what was not taken. A named subscription lives on at its broker,
        and only what is finished counts as consumed."""
        self.leave_shared()
        if self._timer is not None:
            self._acknowledge_finished()
            self._timer.cancel()
            self._timer = None
        await super().close()
        self._backlog.drop()
        self._channel.tell_consumed()
        self.end(None)

    @property
    def _keeps_no_token(self) -> bool:
        return self.options.name is not None and self.options.tokens == "broker"

    # --- taking and waiting ----------------------------------------------------------------------

    async def _wait(self) -> None:
        self.tell_consumed()
        await super()._wait()

    def tell_consumed(self) -> None:
        """The application waits for more."""
        self._channel.tell_consumed()

    def _wake(self) -> None:
        if self.on_ready is not None:
            self.on_ready(self)
        super()._wake()  # an application that has left the reader waits by itself

    # --- a shared backlog ------------------------------------------------------------------------

    @property
    def inbox(self) -> ChannelInbox:
        return self._channel.inbox

    def take_available(self) -> list[Delivery] | None:
        """All that has come, which may be nothing; None when the subscription is over."""
        if self.advance():
            return self._backlog.pop_all()
        if self._is_over:
            return None
        self._home.check_entered()
        return []

    def join_shared(self, shared: SharedBacklog) -> None:
        """Go on with the position of the shared backlog, if that is right for it."""
        if self.tells_silence or not self._is_live or self.lags:
            return
        self._take_silence()
        positions = self.inbox.positions(self.topic, self.order)
        common = positions.get(None, 0)
        for name, tick in self._backlog.received():
            place = PubendName(name)
            if tick > max(common, positions.get(place, 0), self._since.get(name, 0)):
                return
        if self._backlog.is_idle:
            self._shared = shared
            shared.join(self._home.number, self)

    def leave_shared(self) -> None:
        """Go on alone, from where the shared backlog is, with what waits there for it."""
        shared = self._shared
        if shared is None:
            return
        place = (self.topic, self.order)
        self._shared = None
        self._backlog.take_over(shared.finished(place), shared.taken(place))
        for pubend, events, through, ticket in shared.leave(self._home.number, place):
            self._backlog.add(pubend, events, through, ticket)
        self._wake()

    # --- acknowledging ---------------------------------------------------------------------------

    async def _acknowledge_last(self) -> None:
        """Where each event is acknowledged alone: what was handed out last is finished now."""
        if self.acknowledges_each and self._is_unacknowledged:
            await self.acknowledge()
            self._is_unacknowledged = False

    async def _acknowledge(self, token: Token) -> bool:
        """Acknowledge once. False: the connection broke, or the broker cannot yet: do it again."""
        while not self._is_live:
            if self._is_over:
                raise self._error or LinkError("the subscription is closed", "Subscribe again.")
            await self._channel.wait_up()
            if not self._is_live:
                await self._next_answer(None)
        answer = await self._next_answer(token)
        if isinstance(answer, Refused):
            if not answer.retry:
                raise RefusedError(answer.problem, answer.remedy)
            await asyncio.sleep(ACKNOWLEDGE_S)
        return isinstance(answer, Done)

    async def _next_answer(self, token: Token | None) -> Message | GaplessError:
        """Wait for the answer to an acknowledgement, or for any change of the subscription."""
        future: asyncio.Future[Message | GaplessError] = self._loop.create_future()

        def answer(got: Message | GaplessError) -> None:
            if not future.done():
                future.set_result(got)

        self._changes.add(future)
        try:
            if token is not None:
                self._note(token)
                request = self._channel.request(answer)
                self._channel.send(Acknowledge(self._home.number, dict(token), request))
            return await future
        finally:
            self._changes.discard(future)

    def _acknowledge_finished(self) -> None:
        """Acknowledge from time to time; nobody waits for the answer."""
        self._timer = self._loop.call_later(ACKNOWLEDGE_S, self._acknowledge_finished)
        self._take_silence()  # an application that waits has finished that too
        token = self._finished()
        if self._is_live and not token <= self._sent_token:
            self._note(token)
            self._channel.send(Acknowledge(self._home.number, dict(token)))

    def _finished(self) -> Token:
        """The token without what may still be worked on."""
        if self._shared is None:
            return self._backlog.finished()
        return self._backlog.finished(self._shared.finished((self.topic, self.order)))

    def _note(self, token: Token) -> None:
        self._sent_token = self._sent_token.join(token)
        self._acknowledged = self._acknowledged.join(token)

    # --- what the inbox calls --------------------------------------------------------------------

    def start(self, message: Subscribed) -> None:
        """It counts from here on. If it counted before, the span in between is a gap."""
        if not self._has_started:
            self._first = self._acknowledged = Token(message.start)
        self._has_started = self._is_live = True
        self._since = message.start
        self.lags = set(message.behind)
        self._settled = dict(self._channel.inbox.positions(self.topic, self.order))
        self._home.settle(message)
        for name, span in self._backlog.start(message.start):
            self.lose(PubendName(name), span)
        self._tell_change()

    def set_behind(self, pubend: PubendName, *, is_behind: bool) -> None:
        """Messages to all subscriptions count for it up to here, or from here on."""
        self.leave_shared()
        self._take_silence()
        self.lags = self.lags | {pubend} if is_behind else self.lags - {pubend}
        if not is_behind:
            self._settled = dict(self._channel.inbox.positions(self.topic, self.order))

    def set_condition(self, message: SubscriptionAltered) -> None:
        """It has another condition, from some ticks on: say that we know."""
        self._home.note(message.altered, message.condition, message.former)
        self._channel.send(AlterationNoted(message.subscription, message.altered))

    def set_unreached(self, brokers: tuple[BrokerName, ...]) -> None:
        self.unreached = brokers
        self._tell_change()

    def add(
        self,
        pubend: PubendName | None,
        events: Sequence[Event],
        through: int,
        ticket: Ticket | None,
    ) -> None:
        self.leave_shared()
        if not self._is_live:  # it is for other subscriptions
            if ticket is not None:
                finish(ticket)
            return
        self._settled[pubend] = max(through, self._settled.get(pubend, 0))
        if self._backlog.add(pubend, events, through, ticket):
            self._wake()

    def settle(self) -> None:
        """A message told of silence: hand that out."""
        if self._take_silence():
            self._wake()

    def _take_silence(self) -> bool:
        """Move on to the common position of the inbox; whether there is something new to take."""
        is_new = False
        if self._is_live and self._shared is None:
            for pubend, through in self._channel.inbox.positions(self.topic, self.order).items():
                if through > self._settled.get(pubend, 0) and pubend not in self.lags:
                    self._settled[pubend] = through
                    is_new |= self._backlog.add(pubend, [], through, None)
        return is_new

    def lose(self, pubend: PubendName, span: Span) -> None:
        self.leave_shared()
        self._take_silence()  # what is known to be silent is not lost
        if self.options.earliest and span.start <= self._first.get(pubend):  # it begins after that
            self.add(pubend, [], span.end, None)
        elif self._backlog.add_gap(pubend, span):
            self._wake()

    def end(self, error: GaplessError | None) -> None:
        self.leave_shared()
        super().end(error)

    def interrupt(self, error: GaplessError) -> None:
        self.leave_shared()
        self._take_silence()
        self._is_live = False
        self._sent_token = Token()
        if self.options.name is None and not self.options.resumes and self._has_started:
            self._home.leave()
            self.end(SubscriptionInterruptedError(f"the subscription ended: {error.problem}"))
        elif self._home.is_redirected:
            self._home.come_back()
            self._resume_if_up()

    def relocate(self) -> None:
        """It goes on at another broker, where it was moved before this client came: follow."""
        self.leave_shared()
        self._take_silence()
        self._is_live = False
        self._sent_token = Token()
        self._home.lose()
        self._loop.call_soon(self._resume_if_up)

    def _tell_change(self) -> None:
        for future in self._changes:
            if not future.done():
                future.set_result(self._error or LinkError("the subscription has changed"))

    # --- starting --------------------------------------------------------------------------------

    def _message(self, request: int) -> Subscribe:
        received = self._backlog.received() if self._has_started else None
        return self._home.message(request, received, self._acknowledged)
