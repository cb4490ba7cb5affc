"""A subscription over several topics: one token, and the order of each publisher, or one order.

Theory of operation
    It has a part for each topic, which is a subscription by itself (`parts`): it begins, comes back
    and moves alone, and the token is that of all parts together. The part that has the user's
    name is made first; when the process ends before the last one is made, the same request makes
    the rest. Before a new one is made, each topic is tried without a name: what would be refused
    is refused before anything is made.
    What the parts have is handed out in turns. A turn is planned when the application asks for
    more, in the thread of the loop, and taken in any thread.
    In total order each part is in total order by itself, so the parts are merged by tick, and
    where topics share a tick, by the name of the pubend: the same for every subscriber. An item
    waits until no other part can have one before it. A part that has nothing is asked to say up to
    where that is true (`Acknowledge.awaited`). Each part has a connection of its own: what waits
    takes no credit from the part that it waits for.

Invariants
    I1  what is planned is loaded: taking it needs nothing of the loop
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from gapless.client.delivered_events import as_batches
from gapless.client.delivery import Gap, Silence
from gapless.client.errors import RefusedError
from gapless.client.parts import find_parts
from gapless.client.subscription import Subscription
from gapless.core.client_messages import Acknowledge
from gapless.core.errors import UsageError
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType

    from gapless.client.channel import Channel
    from gapless.client.delivery import Delivery, Ticket
    from gapless.client.reconnection import ReconnectingChannel
    from gapless.client.subscription_options import SubscriptionOptions
    from gapless.core.events import Event
    from gapless.core.identity import BrokerName, PubendName

    Place = tuple[int, str]

AWAIT_S = 0.25
"""How often a part that has nothing is asked again how far that is true."""

OLD = "Update the brokers: those before 0.2.0 know no subscriptions over several topics."


class SubscriptionPart(Subscription):
    """The part of one topic."""

    def __init__(self, channel: Channel, options: SubscriptionOptions) -> None:
        super().__init__(channel, options)
        self._asked: Place = (0, "")  # the tick that was asked about, and where
        self._asked_s = 0.0

    @property
    def is_over(self) -> bool:
        return self._is_over

    def loaded(self) -> Sequence[Delivery]:
        """What has come and was not taken, as far as it is loaded; nothing is: all is taken."""
        return self._backlog.look() if self.advance() else ()

    def has_all_before(self, place: Place) -> bool:
        """Can nothing come any more that stands before this place? Nothing waits here."""
        received = self._backlog.received()
        return all((received.get(name), name) > place for name in self._since)

    def expect(self, tick: int) -> None:
        """Ask how far it is true that nothing comes; again if there was no answer for a while."""
        now_s, asked = self._loop.time(), (tick, f"{self._channel.session} {self.address}")
        if self._is_live and (asked != self._asked or now_s >= self._asked_s + AWAIT_S):
            self._asked, self._asked_s = asked, now_s
            self._channel.send(Acknowledge(self._home.number, {}, awaited=tick))

    def add(
        self,
        pubend: PubendName | None,
        events: Sequence[Event],
        through: int,
        ticket: Ticket | None,
    ) -> None:
        super().add(pubend, events, through, ticket)
        if self.order == "total":
            self._wake()  # another part may wait for this position


class JointSubscription:
    """Made by `Client.subscribe` with several topics; use it with `async with` and `async for`."""

    def __init__(self, channel: ReconnectingChannel, parts: Sequence[SubscriptionOptions]) -> None:
        self.topics: tuple[str, ...] = tuple(each.topic for each in parts)
        self.acknowledges_each = False
        self._options = parts
        self._client = channel
        self._is_total = parts[0].order == "total"
        self._twins: list[ReconnectingChannel] = []
        self._parts: list[SubscriptionPart] = []
        self._turns: deque[tuple[SubscriptionPart, int]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    # --- for applications ------------------------------------------------------------------------

    @property
    def token(self) -> Token:
        """By pubend, of all topics: everything below this tick was taken, or did not match, or was
        lost."""
        token = Token()
        for part in self._parts:
            token = token.join(part.token)
        return token

    @property
    def address(self) -> str:
        """The address of the broker of its first topic."""
        return self._parts[0].address if self._parts else self._client.address

    @property
    def unreached(self) -> tuple[BrokerName, ...]:
        """Of reliable topics: brokers that are not reached."""
        return tuple(sorted({broker for part in self._parts for broker in part.unreached}))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        while True:
            item = self.pop()
            if item is not None:
                return item
            if not await self.wait_ready():
                raise StopAsyncIteration

    def pop(self) -> Delivery | None:
        """The next item, if there is one; may be called from another thread."""
        if not self._turns:
            return None
        part, count = self._turns[0]
        if count > 1:
            self._turns[0] = part, count - 1
        else:
            self._turns.popleft()
        return part.pop()

    def pop_all(self) -> list[Delivery]:
        """All items that there are; may be called from another thread."""
        items: list[Delivery] = []
        while (item := self.pop()) is not None:
            items.append(item)
        return items

    async def wait_ready(self) -> bool:
        """Call what was taken finished, and wait for more. False: the subscription is over."""
        if not self._parts:
            raise UsageError(
                "the subscription has not begun",
                "Use `async with client.subscribe(…) as subscription`; with gapless.sync, `with`.",
            )
        while not self._turns:
            if blocked := self._plan():
                again = self._loop.call_later(AWAIT_S, self._wake, None)
            if self._turns or any(part.is_over for part in self._parts):
                break
            await self._wait()
            if blocked:
                again.cancel()
        return bool(self._turns)

    async def take(self) -> list[Delivery]:
        """All that has come, at least one; empty when the subscription is over."""
        while not (batch := self.pop_all()) and await self.wait_ready():
            ...
        return batch

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """What iteration gives, in lists: each is all that has come."""
        while batch := await self.take():
            yield batch

    async def arrow_batches(self) -> AsyncIterator[Any]:
        """What iteration gives, as `pyarrow.RecordBatch`es, each of one topic. A `Gap`, or a
        `Silence` where you asked for it, stands between the batches by itself."""
        while taken := await self.take():
            start = 0
            for end in range(1, len(taken) + 1):
                if end == len(taken) or taken[end].topic != taken[start].topic:
                    for item in as_batches(taken[start:end]):
                        yield item
                    start = end

    async def acknowledge(self) -> None:
        """Let the brokers release everything below the token; durable when this returns."""
        await asyncio.gather(*(part.acknowledge() for part in self._parts))

    async def reached(self) -> None:
        """Wait until `unreached` is empty, or the subscription is over."""
        await asyncio.gather(*(part.reached() for part in self._parts))

    # --- beginning and end -----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._parts:
            raise UsageError("a subscription is entered once", "Make another: client.subscribe(…).")
        try:
            is_made = await self._try_topics()
            for options in self._options:
                await self._enter(options)
                if not is_made:
                    await self._check_made()
                    is_made = True
        except BaseException:
            await self.close()
            raise
        return self

    async def _enter(self, options: SubscriptionOptions) -> None:
        channel: ReconnectingChannel = self._client
        if self._is_total:
            channel = self._client.open_twin()
            self._twins.append(channel)
        part = SubscriptionPart(channel, options)
        part.on_ready = self._wake
        self._parts.append(part)
        await part.__aenter__()

    async def _try_topics(self) -> bool:
        """Is it made, or nothing to be made? Otherwise refuse here what would be refused later."""
        first = self._options[0]
        if first.name is None or not first.topics:
            return True
        try:
            found = await find_parts(self._client, first.name)
        except RefusedError:  # there is none, or it is not ours: the first part tells
            for options in self._options:
                anonymous = replace(
                    options, name=None, token=None, earliest=False, instant=None, tokens="client",
                    topics=(), order="publisher",
                )  # fmt: skip
                async with Subscription(self._client, anonymous):
                    ...
            return False
        if tuple(found) != first.topics:
            has = f"topics {', '.join(found)}" if found else "one topic"
            problem = f"subscription {first.name!r} is on {has}"
            remedy = "Give the same topics, use another name, or unsubscribe it first."
            raise RefusedError(problem, remedy)
        return True

    async def _check_made(self) -> None:
        """A broker of an earlier version has made a subscription of the first topic alone."""
        name = self._options[0].name
        assert name is not None
        if not await find_parts(self._client, name):
            raise RefusedError(f"subscription {name!r} is on topic {self.topics[0]!r} alone", OLD)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        try:
            for part in self._parts:
                await part.__aexit__(kind, error, trace)
        finally:
            await self.close()

    async def close(self) -> None:
        """End it here, and drop what was not taken. A named subscription lives on at its brokers,
        and only what is finished counts as consumed."""
        self._turns.clear()
        for part in self._parts:
            await part.close()
        twins, self._twins = self._twins, []
        for twin in twins:
            await self._client.end_twin(twin)

    # --- waiting and planning --------------------------------------------------------------------

    async def _wait(self) -> None:
        if self._waiter is not None:
            raise UsageError("another task waits for this subscription", "Read it in one of them.")
        self._waiter = self._loop.create_future()
        for part in self._parts:
            part.tell_consumed()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self, _: object) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _plan(self) -> bool:
        """Plan what is taken next; whether something waits for another part."""
        loaded = {part: part.loaded() for part in self._parts}
        if self._is_total:
            return self._merge(loaded)
        self._turns.extend((part, len(items)) for part, items in loaded.items() if items)
        return False

    def _merge(self, loaded: dict[SubscriptionPart, Sequence[Delivery]]) -> bool:
        """Plan up to the first item that may not be handed out yet."""
        heads = {part: 0 for part, items in loaded.items() if items}
        idle = [part for part, items in loaded.items() if not items]
        while heads:
            part = min(heads, key=lambda each: place_of(loaded[each][heads[each]]))
            place = place_of(loaded[part][heads[part]])
            late = [each for each in idle if not each.has_all_before(place)]
            for each in late:
                each.expect(place[0] + 1)
            if late:
                return not self._turns
            if self._turns and self._turns[-1][0] is part:
                self._turns[-1] = part, self._turns[-1][1] + 1
            else:
                self._turns.append((part, 1))
            heads[part] += 1
            if heads[part] == len(loaded[part]):
                return False  # what it has beyond is loaded when all of this is taken
        return False


def place_of(item: Delivery) -> Place:
    """Where an item stands in the total order; what says how far all is silent stands first."""
    if isinstance(item, Silence):
        return 0, ""
    return (item.span.start if isinstance(item, Gap) else item.tick), item.pubend
