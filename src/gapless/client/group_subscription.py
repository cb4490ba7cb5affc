"""A member of a group: many clients share one named subscription, each event goes to one of them.

Theory of operation
    The broker hands this member events, as many as it may have in hand. The application takes them
    one by one. An event that was taken is in the application's hand until it is finished or
    rejected; to ask for the next one finishes the one before. What is finished without an answer is
    gathered: until it is some, the application waits, or the event loop turns.
    An application that rejects an event gets none of its key until the broker has handed the
    rejected one out again: what was handed to this member of the same key goes back with it, also
    what arrives before the broker knows (`TakenBack`).
    When the connection is lost, the broker hands out to others what this member had. So events that
    were not taken are dropped, and events that were taken are not in hand any more: to finish them
    is refused. The member joins again by itself.

Invariants
    I1  an event is queued, or in the application's hand, and not both
    I2  nothing of an earlier connection is queued or in hand
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING

from gapless.client import arguments
from gapless.client.base_subscription import BaseSubscription
from gapless.client.delivery import Gap
from gapless.client.errors import RefusedError
from gapless.client.telemetry import trace_delivery
from gapless.core.client_messages import Done, Refused, Subscribed
from gapless.core.errors import GaplessError, UsageError, WireError
from gapless.core.events import Event
from gapless.core.group_messages import Finish, Handed, Reject, TakenBack
from gapless.core.share_key import share_key
from gapless.wire.events import decode_events

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from types import TracebackType

    from gapless.client.channel import Channel
    from gapless.client.subscription_options import SubscriptionOptions
    from gapless.core.identity import PubendName
    from gapless.core.messages import Message
    from gapless.core.ticks import Span, Tick
    from gapless.core.token import Token

    Place = tuple[PubendName, Tick]

REASON_MAX = 200
"""Characters of a reason that are sent: what a broker keeps."""

FINISHED_MAX = 8
"""Events that are finished together, at most."""

NOT_IN_HAND = (
    "Finish or reject an event once, before you ask for the next. If its connection was lost, it "
    "comes again, to this member or another."
)


class GroupSubscription(BaseSubscription):
    """Made by `Client.subscribe` with `share_by`; use it with `async with` and `async for`."""

    def __init__(self, channel: Channel, options: SubscriptionOptions) -> None:
        super().__init__(channel, options)
        assert options.share is not None
        self._share_by = options.share.share_by
        self._queue: deque[Event | Gap] = deque()
        self._in_hand: dict[Place, Event] = {}
        self._current: Event | None = None  # asking for the next one finishes it
        self._attempts: dict[Place, int] = {}
        self._rejected: dict[Place, Hashable] = {}  # and not yet taken back
        self._finished: dict[PubendName, list[Tick]] = {}  # to be told to the broker
        self._flush: asyncio.Handle | None = None

    # --- for applications ------------------------------------------------------------------------

    async def __anext__(self) -> Event | Gap:
        if (item := await self.take()) is None:
            raise StopAsyncIteration
        return item

    async def take(self, *, finishes: bool = True) -> Event | Gap | None:
        """The next event for this member; the one before is finished by that, unless `finishes` is
        false: then finish it yourself. None: the subscription was closed."""
        if not finishes:
            self._current = None
        elif self._current is not None and self.finish_later(self._current):
            await asyncio.sleep(0)  # it leaves with the turn of the loop, and more comes in
        while not self._queue:
            self._send_finished()
            if self._error is not None:
                raise self._error
            if self._is_over:
                return None
            await self._wait()
        item = self._queue.popleft()
        if isinstance(item, Event):
            self._current = self._in_hand[item.pubend, item.tick] = item
            trace_delivery((item,))
        return item

    def attempts(self, event: Event) -> int:
        """How often members had this event in hand before and did not finish it."""
        return self._attempts.get((event.pubend, event.tick), 0)

    async def finish(self, event: Event) -> None:
        """The event is done: it never comes again. Durable when this returns.

        `RefusedError`: it is not in hand, or the connection broke meanwhile; it may come again."""
        place = self._take_out(event)
        self._send_finished()
        number, ticks = self._home.number, (place[1],)
        await self._ask(lambda request: Finish(number, place[0], ticks, request))

    async def reject(self, event: Event, *, delay_s: float = 0.0, reason: str = "") -> None:
        """Give the event back: after `delay_s` it comes again, to this member or another, and
        events with the same key wait behind it. Durable when this returns. After `attempts_max`
        attempts it becomes a dead letter with this reason.

        `RefusedError`: it is not in hand, or the connection broke meanwhile; it comes again."""
        delay = round(arguments.seconds("delay_s", delay_s, may_be_zero=True) * 1_000_000)
        text = str(reason)[:REASON_MAX]
        place = self._take_out(event)
        self._send_finished()
        number, ticks = self._home.number, (place[1],)
        key = self._key(event)

        def message(request: int) -> Reject:
            return Reject(number, place[0], ticks, request, delay, text)

        await self._ask(message, lambda: self._give_back(place, key))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        """Without an error, the event that was taken last is finished. With one, it is rejected: it
        comes again, and counts as attempted."""
        try:
            current = self._current
            if current is not None and self._is_live and not self._is_over:
                with suppress(TimeoutError, GaplessError):  # then it comes again
                    async with asyncio.timeout(self._channel.patience_s):
                        if kind is None:
                            await self.finish(current)
                        elif issubclass(kind, Exception):
                            await self.reject(current, reason=f"{kind.__name__}: {error}")
        finally:
            await self.close()

    async def close(self) -> None:
        """Leave the group. What was not finished goes to other members."""
        self._send_finished()
        await super().close()
        self._let_go()
        self.end(None)

    # --- what an application might look for ------------------------------------------------------

    @property
    def token(self) -> Token:
        """A group has none: its progress is at its broker."""
        raise UsageError("a group has no token", "Finish its events; its broker remembers them.")

    async def acknowledge(self) -> None:
        """A group acknowledges nothing as a whole: finish each event."""
        raise UsageError("a group has no token to acknowledge", "Use finish(event).")

    # --- in hand ----------------------------------------------------------------------------------

    def _take_out(self, event: Event) -> Place:
        """The event is not in the application's hand any more."""
        if not isinstance(event, Event):
            raise UsageError(f"{event!r:.80} is no event", "Give an event of this subscription.")
        place = event.pubend, event.tick
        if self._in_hand.pop(place, None) is None:
            raise RefusedError(f"event {event.tick} of {event.pubend} is not in hand", NOT_IN_HAND)
        if self._current is not None and (self._current.pubend, self._current.tick) == place:
            self._current = None
        self._attempts.pop(place, None)
        return place

    def finish_later(self, event: Event) -> bool:
        """Finish an event without waiting for the answer; whether the broker is told now."""
        place = event.pubend, event.tick
        if self._current is event:
            self._current = None
        self._attempts.pop(place, None)
        if self._in_hand.pop(place, None) is None:
            return False  # it was finished or rejected, or its connection is lost
        ticks = self._finished.setdefault(event.pubend, [])
        ticks.append(event.tick)
        if len(ticks) >= FINISHED_MAX:  # so that more is on its way before all of it is taken
            self._send_finished()
            return True
        if self._flush is None:
            self._flush = self._loop.call_soon(self._send_finished)
        return False

    def _send_finished(self) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        finished, self._finished = self._finished, {}
        for pubend, ticks in finished.items():
            self._channel.send(Finish(self._home.number, pubend, tuple(ticks)))

    def _give_back(self, place: Place, key: Hashable) -> None:
        """An event was rejected: what is queued of its key goes back, too."""
        if key is None:
            return
        self._rejected[place] = key
        kept: deque[Event | Gap] = deque()
        returned: dict[PubendName, list[Tick]] = {}
        for item in self._queue:
            if isinstance(item, Event) and self._key(item) == key:
                returned.setdefault(item.pubend, []).append(item.tick)
                self._attempts.pop((item.pubend, item.tick), None)
            else:
                kept.append(item)
        self._queue = kept
        for pubend, ticks in returned.items():
            self._channel.send(Reject(self._home.number, pubend, tuple(ticks), counts=False))

    def _key(self, event: Event) -> Hashable:
        return share_key(event.attributes, self._share_by)

    def _let_go(self) -> None:
        """Forget what this connection brought."""
        self._queue = deque(item for item in self._queue if isinstance(item, Gap))
        self._in_hand.clear()
        self._current = None
        self._attempts.clear()
        self._rejected.clear()
        self._finished.clear()

    async def _ask(
        self, make: Callable[[int], Message], then: Callable[[], None] | None = None
    ) -> None:
        """Send a request about an event, and wait until it is carried out."""
        future: asyncio.Future[Message | GaplessError] = self._loop.create_future()

        def answer(got: Message | GaplessError) -> None:
            if not future.done():
                future.set_result(got)

        self._channel.send(make(self._channel.request(answer)))
        if then is not None:
            then()
        match await future:
            case Done():
                return
            case Refused(problem=problem, remedy=remedy):
                raise RefusedError(problem, remedy)
            case GaplessError() as error:
                problem = f"{error.problem}, before the broker had confirmed it: it may come again"
                raise RefusedError(problem, NOT_IN_HAND)
            case other:
                raise WireError(f"the broker answered {type(other).__name__}")

    # --- what the inbox calls --------------------------------------------------------------------

    def hand(self, message: Handed | TakenBack) -> None:
        """The broker hands out events, or knows of a rejection."""
        if isinstance(message, TakenBack):
            for tick in message.ticks:
                self._rejected.pop((message.pubend, tick), None)  # type: ignore[arg-type]
            return
        ticks: tuple[Tick, ...] = message.ticks  # type: ignore[assignment]
        events = decode_events(message.events, self.topic, repeat(message.pubend), ticks)
        for tick, number in zip(ticks, message.attempts, strict=False):
            self._attempts[message.pubend, tick] = number
        self._queue += events
        for place, key in list(self._rejected.items()):
            self._give_back(place, key)
        self._wake()

    def start(self, _: Subscribed) -> None:
        self._has_started = self._is_live = True

    def lose(self, pubend: PubendName, span: Span) -> None:
        self._queue.append(Gap(self.topic, pubend, span))
        self._wake()

    def interrupt(self, _: GaplessError) -> None:
        self._is_live = False
        self._let_go()
        if self._home.is_redirected:
            self._home.come_back()
            self._resume_if_up()

    def relocate(self) -> None:
        """The group is at another broker: follow."""
        self._is_live = False
        self._let_go()
        self._home.ask_anew()
        self._loop.call_soon(self._resume_if_up)
