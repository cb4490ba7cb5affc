"""Where a session's messages come from: gapless subscriptions, read by tasks.

Theory of operation
    `SharedFeed`: an anonymous subscription that all clean sessions with the same rights and
    condition share; each event is decoded once, and handed to every member. A member that cannot
    keep up is not waited for: the session drops QoS 0, and ends where QoS 1 or 2 pile up.
    `Source`: the named subscription of one filter of one durable session. It is read while the
    client is connected and has room; what the client has finished is acknowledged, in order, so a
    crash brings again what was not.
    `Group`: the named subscription of a shared filter. Each event goes to the next member that has
    room; what a member that leaves has not answered goes to another.

Invariants
    I1  a token is acknowledged only when every event below it is finished (`Tracker`)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from gapless.client.delivery import Gap
from gapless.core.errors import GaplessError
from gapless.core.events import Event
from gapless.core.token import Token
from gapless.doors.mqtt.mapping import message_of
from gapless.doors.mqtt.session import Key, MqttEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.client.client import Client
    from gapless.client.delivery import Delivery
    from gapless.doors.clients import SharedClient
    from gapless.doors.mqtt.session import MqttSession, Queued, TopicSubscription

ACKNOWLEDGE_S = 0.25
"""How often finished events are acknowledged at the broker."""


class Receiver(Protocol):
    """A session and its driver, as far as a source knows them."""

    @property
    def session(self) -> MqttSession: ...
    def deliver(self, event: MqttEvent, subscription: TopicSubscription) -> None: ...
    def tell_gap(self, gap: Gap) -> None: ...
    def fail(self, error: GaplessError) -> None: ...
    async def wait_room(self) -> None: ...


class EventTaker(Protocol):
    """What a source hands events to: a session, or a group."""

    is_open: asyncio.Event
    """Set when the client knows that it has subscribed."""

    async def take(self, event: MqttEvent) -> None:
        """Returns when there is room for another."""

    def tell_gap(self, gap: Gap) -> None: ...
    def fail(self, error: GaplessError) -> None: ...


class Tracker:
    """Which events of a subscription are finished, and the token that follows."""

    def __init__(self) -> None:
        self._open: dict[str, dict[int, bool]] = {}  # by pubend, in order of ticks
        self._done: dict[str, int] = {}
        self.released: list[Key] = []  # below the token, since `take_token`
        self.is_fresh = False

    def begin(self, key: Key) -> None:
        self._open.setdefault(key.pubend, {}).setdefault(key.tick, False)

    def knows(self, key: Key) -> bool:
        """Whether the event lies below the token: it is finished."""
        return key.tick < self._done.get(key.pubend, 0)

    def finish(self, key: Key) -> None:
        ticks = self._open.get(key.pubend)
        if ticks is None or key.tick not in ticks:
            return
        ticks[key.tick] = True
        for tick in list(ticks):
            if not ticks[tick]:
                break
            del ticks[tick]
            self._done[key.pubend] = tick + 1
            self.released.append(Key(key.topic, key.pubend, tick))
            self.is_fresh = True

    def take_token(self) -> tuple[Token, list[Key]]:
        self.is_fresh = False
        released, self.released = self.released, []
        return Token(self._done), released


class SharedFeed:
    """An anonymous subscription of many sessions."""

    def __init__(self, client: Client, topic: str, condition: str) -> None:
        self.topic = topic
        self.condition = condition
        self.members: dict[Receiver, dict[str, tuple[TopicSubscription, Mapping[str, int]]]] = {}
        self._client = client
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run())

    async def begun(self) -> None:
        """Wait until the broker has it; raises why not."""
        await asyncio.shield(self._begun)

    @property
    def is_over(self) -> bool:
        return self._task.done()

    def join(
        self, host: Receiver, subscription: TopicSubscription, since: Mapping[str, int]
    ) -> None:
        """Hand events to this session too, but those up to the ticks in `since`."""
        self.members.setdefault(host, {})[subscription.filter] = (subscription, since)

    def leave(self, host: Receiver, name: str) -> bool:
        """True: nobody is left."""
        own = self.members.get(host, {})
        own.pop(name, None)
        if not own:
            self.members.pop(host, None)
        return not self.members

    async def _run(self) -> None:
        try:
            subscription = self._client.subscribe(self.topic, self.condition, interruption="gap")
            async with subscription:
                self._begun.set_result(None)
                async for batch in subscription.batches():
                    for delivery in batch:
                        self._hand_out(delivery)
        except GaplessError as error:
            if not self._begun.done():
                self._begun.set_exception(error)
                self._begun.exception()
                return
            for host in list(self.members):
                host.fail(error)

    def _hand_out(self, delivery: Delivery) -> None:
        if isinstance(delivery, Gap):
            for host in list(self.members):
                host.tell_gap(delivery)
        elif isinstance(delivery, Event):
            event = event_of(delivery)
            for host, own in list(self.members.items()):
                for subscription, since in list(own.values()):
                    if delivery.tick > since.get(delivery.pubend, 0):
                        host.deliver(event, subscription)

    async def close(self) -> None:
        await _end(self._task)


class Source:
    """A named subscription, read for one session or for a group."""

    def __init__(self, client: Client, name: str, topic: str, condition: str) -> None:
        self.name = name
        self.topic = topic
        self.tracker = Tracker()
        self.on_release: Callable[[list[Key]], None] | None = None
        self._client = client
        self._condition = condition
        self._task: asyncio.Task[None] | None = None
        self._acknowledging: asyncio.Task[None] | None = None

    @property
    def is_read(self) -> bool:
        return self._task is not None and not self._task.done()

    async def begin(self, taker: EventTaker, client: Client) -> None:
        """Attach, and hand out to `taker` from now on; raises why it cannot."""
        await self.end()
        self._client = client
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(taker, begun))
        await begun

    async def _run(self, taker: EventTaker, begun: asyncio.Future[None]) -> None:
        subscription = self._client.subscribe(self.topic, self._condition, name=self.name)
        try:
            async with subscription:
                begun.set_result(None)
                await taker.is_open.wait()
                async for batch in subscription.batches():
                    for delivery in batch:
                        await self._hand_over(delivery, taker)
        except GaplessError as error:
            if not begun.done():
                begun.set_exception(error)
            else:
                taker.fail(error)

    async def _hand_over(self, delivery: Delivery, taker: EventTaker) -> None:
        if isinstance(delivery, Gap):
            taker.tell_gap(delivery)
        elif isinstance(delivery, Event):
            event = event_of(delivery)
            if not self.tracker.knows(event.key):
                self.tracker.begin(event.key)
                await taker.take(event)

    def finish(self, key: Key) -> None:
        self.tracker.finish(key)
        if self.tracker.is_fresh and self._acknowledging is None:
            self._acknowledging = asyncio.create_task(self._acknowledge_soon())

    async def _acknowledge_soon(self) -> None:
        await asyncio.sleep(ACKNOWLEDGE_S)
        self._acknowledging = None
        await self.acknowledge()

    async def acknowledge(self) -> None:
        """Let the broker release what is finished."""
        if self.tracker.is_fresh:
            token, released = self.tracker.take_token()
            try:
                await self._client.acknowledge(self.name, token)
            except GaplessError:  # later, with what follows; a repeat is recognised
                self.tracker.released[:0] = released
                return
            if self.on_release is not None:
                self.on_release(released)

    async def end(self) -> None:
        """Read no more; the subscription itself lives on."""
        if self._acknowledging is not None:
            self._acknowledging.cancel()
            self._acknowledging = None
        await self.acknowledge()
        if self._task is not None:
            task, self._task = self._task, None
            await _end(task)


class SessionTaker:
    """Hands the events of a source to its session."""

    def __init__(self, host: Receiver, subscription: TopicSubscription) -> None:
        self.is_open = asyncio.Event()
        self.subscription = subscription
        self.fail = host.fail
        self.tell_gap = host.tell_gap
        self._host = host

    async def take(self, event: MqttEvent) -> None:
        host = self._host
        while not host.session.has_room:
            await host.wait_room()
        host.deliver(event, self.subscription)


class Group:
    """A shared subscription: each event to one member."""

    def __init__(self, source: Source, client: SharedClient) -> None:
        self.client = client
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.source = source
        self.members: dict[Receiver, TopicSubscription] = {}
        self._order: list[Receiver] = []
        self._room = asyncio.Event()
        self._returned: list[Queued] = []

    def join(self, host: Receiver, subscription: TopicSubscription) -> None:
        if host not in self.members:
            self._order.append(host)
        self.members[host] = subscription
        self._room.set()

    def leave(self, host: Receiver) -> None:
        if self.members.pop(host, None) is not None:
            self._order.remove(host)

    def wake(self) -> None:
        self._room.set()

    def give_back(self, items: list[Queued]) -> None:
        """A member has gone: its unanswered messages are for others."""
        self._returned += items
        self._room.set()
        asyncio.get_running_loop().call_soon(self._redistribute)

    def _redistribute(self) -> None:
        while self._returned and (host := self._next()) is not None:
            item = self._returned.pop(0)
            if item.key is not None:
                host.deliver(MqttEvent(item.key, item.message, {}), self.members[host])

    def _next(self) -> Receiver | None:
        for place, host in enumerate(self._order):
            if host.session.has_room:
                del self._order[place]
                self._order.append(host)
                return host
        return None

    async def take(self, event: MqttEvent) -> None:
        while True:
            self._redistribute()
            host = self._next()
            if host is not None:
                host.deliver(event, self.members[host])
                return
            self._room.clear()
            await self._room.wait()

    def tell_gap(self, gap: Gap) -> None:
        for host in list(self.members):
            host.tell_gap(gap)

    def fail(self, error: GaplessError) -> None:
        for host in list(self.members):
            host.fail(error)


def event_of(event: Event) -> MqttEvent:
    key = Key(event.topic, event.pubend, event.tick)
    message = message_of(event.attributes, event.body, event.topic)
    return MqttEvent(key, message, event.attributes)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, GaplessError):
        await task
