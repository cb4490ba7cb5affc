"""Where a session's messages come from: gapless subscriptions, read by tasks.

Theory of operation
    `SharedFeed`: an anonymous subscription that all clean sessions with the same rights and
    condition share; each event is decoded and packed once, and handed to every member. A member
    that cannot keep up is not waited for: the session drops QoS 0, and ends where QoS 1 or 2 pile
    up.
    `SessionSource`: the named subscription of a durable session to one gapless topic. Its condition
    is that of any of the session's filters there; it is altered when they change. It is read while
    the client is connected and has room; what the client has finished is acknowledged, in order, so
    a crash brings again what was not.
    `GroupSource`: a session's membership in a group of the broker, for one shared filter. The
    broker hands it as many events as the session's window has room for; what was not finished when
    it leaves goes to other members, at whatever broker.

Invariants
    I1  a token is acknowledged only when every event below it is finished (`Tracker`)
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Protocol

from gapless.client.delivery import Gap
from gapless.client.errors import RefusedError
from gapless.core.errors import GaplessError
from gapless.core.events import Event
from gapless.core.token import Token
from gapless.doors.mqtt.mapping import message_of
from gapless.doors.mqtt.session import OWN, Key, MqttEvent, PackedEvents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gapless.client.client import Client
    from gapless.client.delivery import Delivery
    from gapless.client.group_subscription import GroupSubscription
    from gapless.doors.mqtt.session import MqttSession, TopicSubscription

ACKNOWLEDGE_S = 0.25
"""How often finished events are acknowledged at the broker."""

SHARE_BY = "mqtt_share"
"""The attribute that groups share by: no event has it, so any member gets any event."""


class Receiver(Protocol):
    """A session and its driver, as far as a source knows them."""

    @property
    def session(self) -> MqttSession: ...
    def deliver(
        self, events: Sequence[MqttEvent], subscription: TopicSubscription | None
    ) -> None: ...
    def deliver_batch(self, batch: PackedEvents, subscription: TopicSubscription) -> None: ...
    def tell_gap(self, gap: Gap) -> None: ...
    def tell_released(self, keys: list[Key]) -> None: ...
    def fail(self, error: GaplessError) -> None: ...
    async def wait_room(self) -> int:
        """How many events the session has room for, as soon as it has."""


class Tracker:
    """Which events of a subscription are finished, and the token that follows."""

    def __init__(self) -> None:
        self._open: dict[str, dict[int, bool]] = {}  # by pubend, in order of ticks
        self._done: dict[str, int] = {}
        self.released: list[Key] = []  # below the token, since `take_token`
        self.is_fresh = False

    def begin(self, key: Key) -> bool:
        """An event comes. False: it lies below the token, so it is finished."""
        if key.tick < self._done.get(key.pubend, 0):
            return False
        self._open.setdefault(key.pubend, {}).setdefault(key.tick, False)
        return True

    def finish(self, key: Key) -> None:
        ticks = self._open.get(key.pubend)
        if ticks is None or key.tick not in ticks:
            return
        ticks[key.tick] = True
        for tick in list(takewhile(ticks.__getitem__, ticks)):
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
        self._count = 0

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
                    for part in parts(batch, None):
                        self._hand_out(part)
        except GaplessError as error:
            if not self._begun.done():
                self._begun.set_exception(error)
                self._begun.exception()
                return
            for host in list(self.members):
                host.fail(error)

    def _hand_out(self, part: Gap | list[MqttEvent]) -> None:
        if isinstance(part, Gap):
            for host in list(self.members):
                host.tell_gap(part)
            return
        batch = PackedEvents(part, self._count)
        self._count += len(part)
        for host, own in list(self.members.items()):
            for subscription, since in list(own.values()):
                if any(tick <= since.get(pubend, 0) for pubend, tick in batch.first_tick.items()):
                    fresh = [each for each in part if each.key.tick > since.get(each.key.pubend, 0)]
                    host.deliver(fresh, subscription)
                else:
                    host.deliver_batch(batch, subscription)

    async def close(self) -> None:
        await _end(self._task)


class SessionSource:
    """The named subscription of a session to one gapless topic."""

    def __init__(self, host: Receiver, topic: str, name: str) -> None:
        self.topic = topic
        self.name = name
        self.is_open = asyncio.Event()  # when the client knows that it has subscribed
        self._host = host
        self._client: Client | None = None
        self._condition = ""
        self._tracker = Tracker()
        self._task: asyncio.Task[None] | None = None
        self._acknowledging: asyncio.Task[None] | None = None

    async def begin(self, client: Client, condition: str) -> None:
        """Take what this condition says from now on; raises why it cannot."""
        if self._task is not None and not self._task.done():
            if condition != self._condition:
                await client.alter_subscription(self.name, condition=condition)
                self._condition = condition
            return
        await self.end()
        self._client, self._condition = client, condition
        try:
            await self._attach(client)
        except RefusedError as error:
            if " with condition " not in error.problem:
                raise
            await client.alter_subscription(self.name, condition=condition)
            await self._attach(client)

    async def _attach(self, client: Client) -> None:
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(client, begun))
        await begun

    async def _run(self, client: Client, begun: asyncio.Future[None]) -> None:
        subscription = client.subscribe(self.topic, self._condition, name=self.name)
        try:
            async with subscription:
                begun.set_result(None)
                await self.is_open.wait()
                async for batch in subscription.batches():
                    for part in parts(batch, OWN):
                        if isinstance(part, Gap):
                            self._host.tell_gap(part)
                        else:
                            await self._hand_over(part)
        except GaplessError as error:
            if not begun.done():
                begun.set_exception(error)
            else:
                self._host.fail(error)

    async def _hand_over(self, events: list[MqttEvent]) -> None:
        host = self._host
        fresh = [each for each in events if self._tracker.begin(each.key)]
        while fresh:
            room = await host.wait_room()
            host.deliver(fresh[:room], None)
            del fresh[:room]

    def finish(self, key: Key) -> None:
        self._tracker.finish(key)
        if self._tracker.is_fresh and self._acknowledging is None:
            self._acknowledging = asyncio.create_task(self._acknowledge_soon())

    async def _acknowledge_soon(self) -> None:
        await asyncio.sleep(ACKNOWLEDGE_S)
        self._acknowledging = None
        await self._acknowledge()

    async def _acknowledge(self) -> None:
        """Let the broker release what is finished."""
        if self._tracker.is_fresh and self._client is not None:
            token, released = self._tracker.take_token()
            try:
                await self._client.acknowledge(self.name, token)
            except GaplessError:  # later, with what follows; a repeat is recognised
                self._tracker.released[:0] = released
                return
            self._host.tell_released(released)

    async def end(self) -> None:
        """Read no more; the subscription itself lives on."""
        if self._acknowledging is not None:
            self._acknowledging.cancel()
            self._acknowledging = None
        await self._acknowledge()
        if self._task is not None:
            task, self._task = self._task, None
            await _end(task)


class GroupSource:
    """A session's membership in a group of the broker."""

    def __init__(self, host: Receiver, subscription: TopicSubscription, name: str) -> None:
        self.subscription = subscription
        self.name = name
        self.is_open = asyncio.Event()
        self._host = host
        self._in_hand: dict[Key, Event] = {}
        self._group: GroupSubscription | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self, client: Client, condition: str, window: int) -> None:
        """Join; raises why it cannot."""
        topic = self.subscription.topic
        group = client.subscribe(
            topic, condition, name=self.name, share_by=SHARE_BY, in_hand_max=window
        )
        await group.__aenter__()
        self._group = group
        self._task = asyncio.create_task(self._run(group))

    async def _run(self, group: GroupSubscription) -> None:
        host = self._host
        try:
            await self.is_open.wait()
            while (item := await group.take(finishes=False)) is not None:
                if isinstance(item, Gap):
                    host.tell_gap(item)
                    continue
                event = event_of(item, self.subscription.filter)
                self._in_hand[event.key] = item
                await host.wait_room()
                host.deliver([event], self.subscription)
        except GaplessError as error:
            host.fail(error)

    def finish(self, key: Key) -> None:
        item = self._in_hand.pop(key, None)
        if item is not None and self._group is not None:
            self._group.finish_later(item)

    async def end(self) -> None:
        """Leave: what is not finished goes to other members."""
        group, self._group = self._group, None
        if self._task is not None:
            await _end(self._task)
        if group is not None:
            await group.close()
        self._in_hand.clear()
        self._host.session.unsend(self.subscription.filter)


def parts(batch: Sequence[Delivery], source: str | None) -> Iterator[Gap | list[MqttEvent]]:
    """Gaps, and the events between them."""
    events: list[MqttEvent] = []
    for each in batch:
        if isinstance(each, Event):
            events.append(event_of(each, source))
        elif isinstance(each, Gap):
            if events:
                yield events
                events = []
            yield each
    if events:
        yield events


def event_of(event: Event, source: str | None) -> MqttEvent:
    key = Key(event.topic, event.pubend, event.tick)
    message = message_of(event.attributes, event.body, event.topic)
    return MqttEvent(key, message, event.attributes, source)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError, GaplessError):
        await task
