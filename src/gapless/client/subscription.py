"""A subscription: what matches, as a sequence to iterate over, gapless or with gaps that are told.

Theory of operation
    What comes goes into a backlog; the application takes it from there, which moves the token.
    An anonymous subscription lives as long as its connection. When that is lost, what has come is
    still handed out; then iteration fails with `SubscriptionInterruptedError`, or, if that is
    wanted, it is made anew, and the span between both positions is a `Gap`.
    A named one is durable: on the next connection it goes on from what has come, and nobody
    notices; if the process ends, all that was not taken comes again to who shows its token.
    If that is at another broker it goes on from what is acknowledged: the new broker takes that as
    its word. What was taken beyond it comes again and is dropped (`residence`).
    Where the broker keeps the token, what the application has finished is acknowledged by itself.

Invariants
    I1  nothing counts for it before its `Subscribed` on the present connection (`_is_live`)
    I2  acknowledged <= token
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from gapless.client.backlog import Backlog
from gapless.client.delivery import finish
from gapless.client.errors import LinkError, RefusedError, SubscriptionInterruptedError
from gapless.client.residence import Residence
from gapless.client.step import Stepping
from gapless.core.client_messages import (
    Acknowledge,
    Done,
    Refused,
    Subscribed,
    Unsubscribe,
)
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.identity import PubendName
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gapless.client.carrier import Carrier
    from gapless.client.delivery import Delivery, Ticket
    from gapless.client.wish import Wish
    from gapless.core.client_messages import Order, Subscribe
    from gapless.core.events import Event
    from gapless.core.identity import BrokerName, TopicName
    from gapless.core.messages import Message
    from gapless.core.ticks import Span

ACKNOWLEDGE_S = 0.25
"""How often what is finished is acknowledged, where the broker keeps the token."""


class Subscription(Stepping):
    """Made by `Client.subscribe`; use it with `async with` and `async for`."""

    def __init__(self, client: Carrier, wish: Wish) -> None:
        self.wish = wish
        self.topic: TopicName = wish.topic
        self.order: Order = wish.order
        self.tells_silence = wish.silence
        self._residence = Residence(client, wish, self)
        self._backlog = Backlog(
            wish.topic, finish, in_total=wish.order == "total", silence=wish.silence
        )
        self._is_live = False
        self.behind = set()  # pubends of which it gets deliveries of its own
        self.unreached: tuple[BrokerName, ...] = ()
        self._settled: dict[PubendName | None, int] = {}  # of what the inbox notes for all: known
        self._first = Token()  # where it began
        self._acknowledged = Token()
        self._told = Token()  # acknowledged on this connection
        self._is_over = False
        self._error: GaplessError | None = None
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None  # of who iterates
        self._changes: set[asyncio.Future[Message | GaplessError]] = set()  # of who acknowledges
        self._timer: asyncio.TimerHandle | None = None

    # --- for applications ------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            item = self._backlog.pop()
            if item is not None:
                return item
            if not await self.wait_ready():
                raise StopAsyncIteration

    def pop(self) -> Delivery | None:
        """The next item if it is at hand; may be called from another thread."""
        return self._backlog.pop()

    def pop_all(self) -> list[Delivery]:
        """All that is at hand; may be called from another thread."""
        return self._backlog.pop_all()

    async def wait_ready(self) -> bool:
        """All that was taken is finished: wait for more. False: the subscription is over."""
        while not (is_ready := self._advance()) and not self._is_over:
            await self._wait()
        return is_ready

    def _advance(self) -> bool:
        """All that was taken is finished: whether there is more at hand; its error at the end."""
        self.fall_out()
        while not self._backlog.has_items:
            self._take_silence()
            if not self._backlog.load():
                if self._error is not None:
                    raise self._error
                return False
            if self._backlog.is_empty:
                self._carrier.tell_consumed()  # we keep up: let the broker know
        return True

    async def take(self) -> list[Delivery]:
        """All that has come, at least one; empty when the subscription is over."""
        while not (batch := self.pop_all()) and await self.wait_ready():
            ...
        return batch

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """The same in lists, each with all that has come."""
        while batch := await self.take():
            yield batch

    async def acknowledge(self) -> None:
        """Everything up to the token may be released; durable when this returns."""
        if self.wish.name is None:
            raise UsageError("an anonymous subscription acknowledges nothing", "Give it a name.")
        self._take_silence()
        token = self.token
        while not await self._acknowledge(token):
            ...

    async def reached(self) -> None:
        """Until nothing is missed any more that is published at `unreached` brokers, or behind
        them; or until it is over. Only subscriptions of reliable topics begin before that."""
        while self.unreached and not self._is_over:
            await self._next_answer(None)

    async def __aenter__(self) -> Self:
        self._residence.begin()
        try:
            deadline_s = self._loop.time() + self._carrier.patience_s
            while not await self._subscribe(deadline_s):
                pass
        except BaseException:
            await self.close()
            raise
        if self._keeps_no_token:
            self._timer = self._loop.call_later(ACKNOWLEDGE_S, self._acknowledge_finished)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and self._keeps_no_token and self._is_live and not self._is_over:
                with suppress(TimeoutError, GaplessError):  # then it comes again next time
                    async with asyncio.timeout(self._carrier.patience_s):
                        await self._acknowledge(self.token)
        finally:
            await self.close()

    async def close(self) -> None:
        """End it; what has come and was not taken is dropped. A named one lives on at its broker,
        and only what is finished counts as consumed."""
        self.fall_out()
        if self._timer is not None:
            self._acknowledge_finished()
            self._timer.cancel()
            self._timer = None
        if number := self._residence.number:
            self._residence.leave()
            self._carrier.send(Unsubscribe(number))
        self._backlog.drop()
        self._carrier.tell_consumed()
        self.end(None)

    @property
    def _keeps_no_token(self) -> bool:
        return self.wish.name is not None and self.wish.tokens == "broker"

    # --- taking and waiting ----------------------------------------------------------------------

    async def _wait(self) -> None:
        self._residence.check_entered()
        self._carrier.tell_consumed()
        if self._waiter is not None:
            raise UsageError("another task waits for this subscription", "Read it in one of them.")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self.on_ready is not None:
            self.on_ready(self)
        elif self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # --- acknowledging ---------------------------------------------------------------------------

    async def _acknowledge(self, token: Token) -> bool:
        """False if the connection broke, so that it is to be said again."""
        while not self._is_live:
            if self._is_over:
                raise self._error or LinkError("the subscription is closed", "Subscribe again.")
            await self._carrier.wait_up()
            if not self._is_live:
                await self._next_answer(None)
        answer = await self._next_answer(token)
        if isinstance(answer, Refused):
            raise RefusedError(answer.problem, answer.remedy)
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
                request = self._carrier.request(answer)
                self._carrier.send(Acknowledge(self._residence.number, dict(token), request))
            return await future
        finally:
            self._changes.discard(future)

    def _acknowledge_finished(self) -> None:
        """Now and then, unasked; nobody waits for the answer."""
        self._timer = self._loop.call_later(ACKNOWLEDGE_S, self._acknowledge_finished)
        self._take_silence()  # one that waits has finished that too
        token = self._finished()
        if self._is_live and not token <= self._told:
            self._note(token)
            self._carrier.send(Acknowledge(self._residence.number, dict(token)))

    def _note(self, token: Token) -> None:
        self._told = self._told.join(token)
        self._acknowledged = self._acknowledged.join(token)

    # --- what the inbox calls --------------------------------------------------------------------

    def start(self, message: Subscribed) -> None:
        """It counts from here; if it did before, what lies in between is a gap."""
        if not self._backlog.has_started:
            self._first = self._acknowledged = Token(message.start)
        self._is_live = True
        self._since = message.start
        self.behind = set(message.behind)
        self._settled = dict(self._carrier.inbox.positions(self.topic, self.order))
        self._residence.settle(message)
        for name, span in self._backlog.start(message.start):
            self.lose(PubendName(name), span)
        self._tell_change()

    def set_behind(self, pubend: PubendName, *, is_behind: bool) -> None:
        """What was said to all others counts for it up to here, or from here on."""
        self.fall_out()
        self._take_silence()
        self.behind = self.behind | {pubend} if is_behind else self.behind - {pubend}
        if not is_behind:
            self._settled = dict(self._carrier.inbox.positions(self.topic, self.order))

    def set_unreached(self, brokers: tuple[BrokerName, ...]) -> None:
        self.unreached = brokers
        self._tell_change()

    def add(
        self, pubend: PubendName | None, events: list[Event], through: int, ticket: Ticket | None
    ) -> None:
        self.fall_out()
        if not self._is_live:  # what comes is for others
            if ticket is not None:
                finish(ticket)
            return
        self._settled[pubend] = max(through, self._settled.get(pubend, 0))
        if self._backlog.add(pubend, events, through, ticket):
            self._wake()

    def settle(self) -> None:
        """What came told of silence, and the application wants to hear of it."""
        if self._take_silence():
            self._wake()

    def _take_silence(self) -> bool:
        """Move on to where all who are not behind are; whether there is something new to take."""
        is_new = False
        if self._is_live and self._lane is None:
            for pubend, through in self._carrier.inbox.positions(self.topic, self.order).items():
                if through > self._settled.get(pubend, 0) and pubend not in self.behind:
                    self._settled[pubend] = through
                    is_new |= self._backlog.add(pubend, [], through, None)
        return is_new

    def lose(self, pubend: PubendName, span: Span) -> None:
        self.fall_out()
        self._take_silence()  # what is known to be silent is not lost
        if self.wish.earliest and span.start <= self._first.get(pubend):  # it begins after that
            self.add(pubend, [], span.end, None)
        elif self._backlog.add_gap(pubend, span):
            self._wake()

    def end(self, error: GaplessError | None) -> None:
        self.fall_out()
        if not self._is_over:
            self._is_over = True
            self._is_live = False
            self._error = error
        self._tell_change()
        self._wake()

    def interrupt(self, error: GaplessError) -> None:
        self.fall_out()
        self._take_silence()
        self._is_live = False
        self._told = Token()
        if self.wish.name is None and not self.wish.goes_on and self._backlog.has_started:
            self._residence.leave()
            self.end(SubscriptionInterruptedError(f"the subscription ended: {error.problem}"))
        elif self._residence.is_elsewhere:
            self._residence.come_back()
            self._resume_if_up()

    def relocate(self) -> None:
        """It goes on at another broker, where someone has taken it before we came: follow."""
        self.fall_out()
        self._take_silence()
        self._is_live = False
        self._told = Token()
        self._residence.lose()
        self._loop.call_soon(self._resume_if_up)

    def resume(self) -> None:
        """A new connection is up: go on from what has come, or start anew, after a gap."""
        if not self._backlog.has_started or self._is_over or self._is_live:
            return
        if not self._residence.may_ask():
            return
        request = self._carrier.request(self._answered)
        self._carrier.send(self._message(request))

    def _resume_if_up(self) -> None:
        """Else the inbox will do it."""
        if self._carrier.is_up:
            self.resume()

    def _tell_change(self) -> None:
        for future in self._changes:
            if not future.done():
                future.set_result(self._error or LinkError("the subscription has changed"))

    # --- starting --------------------------------------------------------------------------------

    def _message(self, request: int) -> Subscribe:
        received = self._backlog.received() if self._backlog.has_started else None
        return self._residence.message(request, received, self._acknowledged)

    async def _subscribe(self, deadline_s: float) -> bool:
        """Ask for it; False if it is to be asked for again: the connection broke, or "later"."""
        match await self._carrier.ask(self._message):
            case Subscribed() as subscribed:
                self._residence.check(subscribed)
                return True
            case Refused(problem=problem, remedy=remedy) as refused:
                pause_s = self._residence.refused(refused)
                if pause_s is None or self._loop.time() >= deadline_s:
                    raise RefusedError(problem, remedy)
                await asyncio.sleep(pause_s)
                return False
            case LinkError() if self._loop.time() < deadline_s:
                return False
            case GaplessError() as error:
                raise error
            case other:
                raise WireError(f"the broker answered {type(other).__name__} to a Subscribe")

    def _answered(self, answer: Message | GaplessError) -> None:
        """Of a restart; if the connection broke again, `resume` follows."""
        if not isinstance(answer, Refused):
            return
        try:
            pause_s = self._residence.refused(answer)
        except GaplessError as error:  # it cannot go where it was sent
            self.end(error)
            return
        if pause_s is not None:
            self._loop.call_later(pause_s, self._resume_if_up)
            return
        self._residence.leave()
        self.end(SubscriptionInterruptedError(answer.problem, answer.remedy))
