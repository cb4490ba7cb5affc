"""A session's driver: carries out its actions, and calls it with what came of them.

Theory of operation
    A host lives as long as its session. Actions that need the broker (publish, subscribe,
    unsubscribe) go through one queue, in order, so a SUBSCRIBE sees what was published before it.
    Messages that wait there are published together: one request and one sync for many.
    QoS 2 from a durable session is published under a named publisher. Its number is written to the
    journal before the message is sent to the broker: after a crash the broker says how many numbers
    it has, and a packet identifier whose number is missing there is forgotten: its repeat counts.
    What a packet depends on is durable before the packet leaves, and only its own connection gets
    it: `PersistFacts`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from gapless.client.errors import LinkError
from gapless.core.errors import EventError, FilterError, GaplessError
from gapless.doors.mqtt.mapping import MqttMessage, attributes_of, condition_of, gapless_topic
from gapless.doors.mqtt.packets import PacketError
from gapless.doors.mqtt.session import (
    Close,
    DropFilters,
    End,
    FinishDelivery,
    MqttSession,
    PersistFacts,
    SendBytes,
    StoreMessage,
    Testament,
    TopicSubscription,
    WishFilters,
)
from gapless.doors.mqtt.sources import SessionTaker, Source
from gapless.filters import Filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.client.client import Client
    from gapless.client.delivery import Gap, Receipt
    from gapless.client.publisher import Publisher
    from gapless.doors.clients import SharedClient
    from gapless.doors.mqtt import packets
    from gapless.doors.mqtt.journal import DoorJournal
    from gapless.doors.mqtt.retained import Retained
    from gapless.doors.mqtt.session import Action, Key, MqttEvent
    from gapless.doors.mqtt.sources import Group, SharedFeed

BATCH_EVENTS_MAX = 256
BATCH_BYTES_MAX = 1 << 20
WORK_MAX = 2_000
"""Actions in the queue; beyond it the connection is not read until half of them are done."""

WRITE_BYTES_MAX = 4 << 20
"""Unsent bytes of a connection; beyond it messages of QoS 0 are dropped, and the client is told."""

NOT_AUTHORIZED, OTHER_PROBLEM, QUOTA = 0x87, 0x83, 0x97
NO_SUBSCRIPTION = 0x11
OWN_TOPICS = ("$SYS", "$gapless", "$share")
GAP_TOPIC = "$gapless/gap"


class Peer(Protocol):
    """The connection of a client."""

    @property
    def unsent_bytes(self) -> int: ...
    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...
    def hold(self, *, back: bool) -> None: ...


class SharedState(Protocol):
    """What all sessions of a door share: the door."""

    claims: frozenset[str]
    json_payload: bool
    tasks: set[asyncio.Task[None]]
    journal: DoorJournal
    retained: Retained
    own: Client

    def log(self, what: str, error: Exception) -> None: ...
    def end(self, host: Host) -> None: ...
    def facts_of(self, client: str) -> list[tuple[str, str]]: ...
    def take_unsure(self, client: str) -> dict[int, tuple[int, str]]: ...
    def doubt(self, client: str, packet: int, number: int, topic: str) -> None: ...
    def count_received(self, count: int) -> None: ...
    def note(self, topic: str, message: MqttMessage, receipt: Receipt | None) -> None: ...
    def positions(self) -> Mapping[str, int]: ...
    def send_retained(self, host: Host, subscription: TopicSubscription) -> None: ...
    def leave_feed(self, feed: SharedFeed, host: Host, name: str) -> None: ...
    async def read_claims(self) -> None: ...
    async def feed(self, client: Client, topic: str, condition: str) -> SharedFeed: ...
    async def group(
        self, key: tuple[str, str, str], topic: str, condition: str, client: SharedClient
    ) -> Group: ...
    async def leave_group(self, group: Group, name: str, host: Host) -> None: ...
    async def end_subscription(self, name: str) -> None: ...


class Host:
    """See the module docstring."""

    def __init__(self, door: SharedState, session: MqttSession, owner: str) -> None:
        self.session = session
        self.owner = owner
        self.peer: Peer | None = None
        self.is_over = False
        self._door = door
        self._shared_client: SharedClient | None = None
        self._holds_client = False
        self._sources: dict[str, Source] = {}
        self._takers: dict[str, SessionTaker] = {}
        self._feeds: dict[str, SharedFeed] = {}
        self._groups: dict[str, Group] = {}
        self._publishers: dict[str, Publisher] = {}
        self._work: deque[StoreMessage | WishFilters | DropFilters] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_held = False

    @property
    def client(self) -> Client:
        return self.shared_client.client

    @property
    def shared_client(self) -> SharedClient:
        assert self._shared_client is not None
        return self._shared_client

    # --- connections -----------------------------------------------------------------------------

    def attach(
        self,
        peer: Peer,
        packet: packets.ConnectPacket,
        *,
        present: bool,
        assigned: bool,
    ) -> None:
        """A connection is admitted: answer, and go on."""
        self.peer = peer
        now_s = time.time()
        self.perform(self.session.connect(packet, now_s, present=present, assigned=assigned))
        if self.session.is_durable:
            self._door.journal.write([self.record()])
        if self.session.subscriptions:
            self._begin_task(self._resume(peer))

    async def _resume(self, peer: Peer) -> None:
        """Read the subscriptions of a session that has come back."""
        try:
            for subscription in list(self.session.subscriptions.values()):
                await self._begin(subscription)
                if self.peer is not peer:
                    return
                self._open(subscription)
        except GaplessError as error:
            self.fail(error)

    async def detach(self) -> None:
        """The connection is gone: stop reading, so that the broker keeps what comes."""
        self.peer = None
        for name, group in list(self._groups.items()):
            group.leave(self)
            group.give_back(self.session.unsend(name))
        for name, feed in list(self._feeds.items()):
            self._door.leave_feed(feed, self, name)
        self._feeds.clear()
        for task in list(self._tasks):
            task.cancel()
        for source in self._sources.values():
            await source.end()
        if self._worker is not None:
            await asyncio.wait((self._worker,))  # it finishes what the client has sent
        for publisher in self._publishers.values():
            await publisher.__aexit__(asyncio.CancelledError, None, None)
        self._publishers.clear()

    async def forget(self) -> None:
        """The session is over: end its named subscriptions and forget what was written."""
        self.is_over = True
        await self.detach()
        names = [source.name for source in self._sources.values()]
        facts = self._door.facts_of(self.session.client)
        if facts:
            await self._door.journal.write([(table, key, None) for table, key in facts])
        for name, group in self._groups.items():
            await self._door.leave_group(group, name, self)
        for name in names:
            await self._door.end_subscription(name)
        self.let_go()

    def let_go(self) -> None:
        """Hold the client to the broker no longer: it is closed when nobody uses it."""
        if self._holds_client:
            self._holds_client = False
            self.shared_client.end()

    def record(self) -> tuple[str, str, bytes]:
        """The session as it is written."""
        session = self.session
        subscriptions = [
            {
                "filter": each.filter,
                "qos": each.qos,
                "no_local": each.no_local,
                "as_published": each.as_published,
                "identifier": each.identifier,
                "where": each.where,
            }
            for each in session.subscriptions.values()
        ]
        text = {"owner": self.owner, "expiry": session.expiry_s, "subscriptions": subscriptions}
        return "session", session.client, json.dumps(text).encode()

    # --- actions ---------------------------------------------------------------------------------

    def receive(self, packet: packets.Packet) -> None:
        self.perform(self.session.receive(packet, time.time()))
        if self.session.has_room:
            self._wake()

    def fire(self, now_s: float) -> None:
        self.perform(self.session.fire(now_s))

    def fail(self, error: GaplessError) -> None:
        """A subscription cannot go on: the client learns it by the end of its connection."""
        if self.session.connection is not None:
            code = code_of(error)
            self.perform(self.session.refuse(PacketError(code, str(error)), time.time()))

    def perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case SendBytes(data):
                    if self.peer is not None:
                        self.peer.write(data)
                case FinishDelivery(key, filters):
                    self._finish(key, filters)
                case StoreMessage() | WishFilters() | DropFilters():
                    self._add_work(action)
                case PersistFacts(writes, then):
                    self._persist(writes, then)
                case Close():
                    if self.peer is not None:
                        self.peer.close()
                case Testament(message):
                    self._begin_task(self._publish_will(message), outlives=True)
                case End():
                    self._door.end(self)

    def _finish(self, key: Key, filters: tuple[str, ...]) -> None:
        for name in filters:
            if name in self._sources:
                self._sources[name].finish(key)
            elif name in self._groups:
                self._groups[name].source.finish(key)
                self._groups[name].wake()

    def _persist(
        self, writes: tuple[tuple[str, str, bytes | None], ...], then: tuple[Action, ...]
    ) -> None:
        peer, client = self.peer, self.session.client
        written = self._door.journal.write(
            [(table, f"{key} {client}", value) for table, key, value in writes]
        )

        def go_on(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and future.exception() is None:
                if self.peer is peer:
                    self.perform(then)
            elif self.peer is peer and peer is not None:
                peer.close()  # what depends on it is not said

        written.add_done_callback(go_on)

    def _begin_task(self, work: object, *, outlives: bool = False) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)  # type: ignore[arg-type]
        keep = self._door.tasks if outlives else self._tasks
        keep.add(task)
        task.add_done_callback(keep.discard)

    async def _publish_will(self, message: MqttMessage) -> None:
        expiry = message.properties.get("message_expiry")
        expires_s = None if expiry is None else time.time() + expiry
        kept = {name: each for name, each in message.properties.items() if name != "message_expiry"}
        will = MqttMessage(
            message.topic,
            message.payload,
            message.qos,
            message.retain,
            kept,
            expires_s,
            message.client,
        )
        try:
            await self._publish(gapless_topic(will.topic, self._door.claims), [will])
        except GaplessError as error:
            self._door.log("a will was refused", error)

    # --- room ------------------------------------------------------------------------------------

    async def wait_room(self) -> None:
        self._room.clear()
        await self._room.wait()

    def _wake(self) -> None:
        self._room.set()
        for group in self._groups.values():
            group.wake()

    def deliver(self, event: MqttEvent, subscription: TopicSubscription) -> None:
        peer = self.peer
        if (
            peer is not None
            and not min(event.message.qos, subscription.qos)
            and peer.unsent_bytes > WRITE_BYTES_MAX
        ):
            self.session.dropped += 1
            self._finish(event.key, (subscription.filter,))
            return
        self.perform(self.session.deliver(event, subscription, time.time()))
        if self.session.dropped and peer is not None and peer.unsent_bytes < WRITE_BYTES_MAX // 2:
            count, self.session.dropped = self.session.dropped, 0
            self._tell({"dropped": count}, "messages of QoS 0 were dropped: the client was slow")

    def tell_gap(self, gap: Gap) -> None:
        span = {"start": gap.span.start, "end": gap.span.end}
        self._tell({"topic": gap.topic, "pubend": gap.pubend, "gap": span}, "events were lost")

    def _tell(self, what: Mapping[str, object], why: str) -> None:
        text = json.dumps({**what, "why": why})
        message = MqttMessage(
            GAP_TOPIC, text.encode(), 0, False, {"content_type": "application/json"}
        )
        anything = TopicSubscription(filter=GAP_TOPIC, qos=0)
        if self.session.connection is not None:
            self.perform(self.session.deliver_retained(message, anything, time.time()))

    def send_message(self, message: MqttMessage, subscription: TopicSubscription) -> None:
        """A retained message, or a figure of `$SYS`."""
        if self.session.connection is not None:
            self.perform(self.session.deliver_retained(message, subscription, time.time()))

    # --- work ------------------------------------------------------------------------------------

    def _add_work(self, action: StoreMessage | WishFilters | DropFilters) -> None:
        self._work.append(action)
        if len(self._work) > WORK_MAX and self.peer is not None and not self._is_held:
            self._is_held = True
            self.peer.hold(back=True)
        if self._worker is None:
            self._worker = asyncio.create_task(self._run_work())

    async def _run_work(self) -> None:
        try:
            while self._work:
                match self._work[0]:
                    case StoreMessage():
                        await self._store(self._take_batch())
                    case WishFilters(packet):
                        self._work.popleft()
                        await self._subscribe(packet)
                    case DropFilters(packet):
                        self._work.popleft()
                        await self._unsubscribe(packet)
                if self._is_held and len(self._work) < WORK_MAX // 2:
                    self._is_held = False
                    if self.peer is not None:
                        self.peer.hold(back=False)
        except GaplessError as error:
            dropped = [each for each in self._work if isinstance(each, StoreMessage)]
            self._work.clear()
            for item in dropped:
                self.session.settle(item.packet, is_stored=False)
            self._door.log("a client's request failed", error)
            self.fail(error)
        finally:
            self._worker = None

    def _take_batch(self) -> list[StoreMessage]:
        """Messages from the front of the queue that can be published together."""
        claims, size = self._door.claims, 0
        batch: list[StoreMessage] = []
        while self._work and len(batch) < BATCH_EVENTS_MAX and size < BATCH_BYTES_MAX:
            item = self._work[0]
            if not isinstance(item, StoreMessage):
                break
            kind = (gapless_topic(item.message.topic, claims), self._is_exact(item))
            if not batch:
                first = kind
            elif kind != first:
                break
            batch.append(item)
            size += len(item.message.payload)
            self._work.popleft()
        return batch

    def _is_exact(self, item: StoreMessage) -> bool:
        return item.message.qos == 2 and self.session.is_durable

    # --- publishing ------------------------------------------------------------------------------

    async def _store(self, batch: list[StoreMessage]) -> None:
        first = batch[0]
        topic = gapless_topic(first.message.topic, self._door.claims)
        try:
            for item in batch:
                self._check(item.message)
            if self._is_exact(first):
                await self._publish_once(topic, batch)
            else:
                await self._publish(topic, [each.message for each in batch])
        except LinkError:
            for item in batch:  # what has a number is settled when the client is back
                if self.session.incoming.get(item.packet) is None:
                    self.session.settle(item.packet, is_stored=False)
            raise
        except GaplessError as error:
            if len(batch) == 1:
                self._refuse(first, error)
                return
            for item in batch:
                await self._store([item])
            return
        for item in batch:
            self.perform(self.session.stored(item))

    def _check(self, message: MqttMessage) -> None:
        if message.topic.startswith("$") and message.topic.split("/")[0] in OWN_TOPICS:
            raise GaplessError(f"not allowed to publish on {message.topic!r}", "Use another topic.")
        if message.retain:
            self._door.retained.check_room(message)

    def _refuse(self, item: StoreMessage, error: GaplessError) -> None:
        self.perform(self.session.stored(item, code_of(error), str(error)))

    async def _publish(self, topic: str, messages: list[MqttMessage]) -> list[Receipt]:
        door = self._door
        events = [
            (attributes_of(each, json_payload=door.json_payload), each.payload) for each in messages
        ]
        receipts = await self.client.publish_many(topic, events)
        door.count_received(len(messages))
        for message, receipt in zip(messages, receipts, strict=True):
            door.note(topic, message, receipt)
        return receipts

    async def _publish_once(self, topic: str, batch: list[StoreMessage]) -> None:
        """QoS 2 of a durable session: under numbers that are written first."""
        publisher = await self._publisher(topic)
        number, session, door = publisher.sequence, self.session, self._door
        facts = []
        for place, item in enumerate(batch):
            session.incoming[item.packet] = number + place
            value = f"{number + place} {topic}".encode()
            facts.append(("in", f"{item.packet} {session.client}", value))
        await door.journal.write(facts)
        try:
            await publisher.send_many(
                (attributes_of(each.message, json_payload=door.json_payload), each.message.payload)
                for each in batch
            )
            await publisher.flush()
        except LinkError:
            del self._publishers[topic]
            for place, item in enumerate(batch):
                door.doubt(session.client, item.packet, number + place, topic)
            raise
        door.count_received(len(batch))
        for item in batch:
            door.note(topic, item.message, None)

    async def _publisher(self, topic: str) -> Publisher:
        found = self._publishers.get(topic)
        if found is None:
            name = publisher_name(self.session.client)
            found = self.client.publisher(topic, name=name, linger_s=0)
            await found.__aenter__()
            self._publishers[topic] = found
        return found

    async def prepare(self, client: SharedClient) -> None:
        """After a crash, before the client is answered: ask the broker which messages of QoS 2 it
        has. A packet identifier whose message is missing is forgotten, so that a repeat counts."""
        client.begin()
        self.let_go()
        self._shared_client, self._holds_client = client, True
        session = self.session
        for packet, (number, topic) in self._door.take_unsure(session.client).items():
            publisher = await self._publisher(topic)
            if session.incoming.get(packet) == number:
                session.settle(packet, is_stored=number < publisher.sequence)

    # --- subscribing -----------------------------------------------------------------------------

    async def _subscribe(self, packet: packets.SubscribePacket) -> None:
        peer, session = self.peer, self.session
        if peer is None:
            return
        await self._door.read_claims()
        where = dict(packet.properties.get("user", [])).get("where", "")
        codes, problems, begun = bytearray(), [], []
        for each in packet.filters:
            subscription = TopicSubscription(
                filter=each.filter,
                qos=each.qos,
                no_local=each.no_local,
                as_published=each.as_published,
                identifier=packet.properties.get("subscription_identifier", 0),
                where=where,
            )
            try:
                await self._begin(subscription)
            except GaplessError as error:
                codes.append(code_of(error))
                problems.append(str(error))
                continue
            is_new = each.filter not in session.subscriptions
            session.subscriptions[each.filter] = subscription
            codes.append(each.qos)
            begun.append((subscription, each.handling == 0 or (each.handling == 1 and is_new)))
        if session.is_durable:
            await self._door.journal.write([self.record()])
        if self.peer is not peer:
            return
        self.perform(session.subscribed(packet.packet, bytes(codes), "; ".join(problems)))
        for subscription, with_retained in begun:
            self._open(subscription)
            if with_retained and not subscription.group:
                self._door.send_retained(self, subscription)

    async def _begin(self, subscription: TopicSubscription) -> None:
        """Make sure that the broker has it; nothing is delivered before `_open`."""
        name, plain, where = subscription.filter, subscription.plain, subscription.where
        if subscription.levels[0] in OWN_TOPICS:
            return
        if where:
            subscription.condition = Filter.parse(where)
        topic = gapless_topic(plain, self._door.claims)
        condition = condition_of(plain, where, topic)
        if subscription.group:
            key = (subscription.group, plain, where)
            self._groups[name] = await self._door.group(key, topic, condition, self.shared_client)
        elif subscription.qos and (self.session.is_durable or name in self._sources):
            self._leave_feed(name)
            await self._begin_source(subscription, topic, condition)
        else:
            await self._end_source(name)
            feed = await self._door.feed(self.client, topic, condition)
            if self._feeds.get(name) is not feed:
                self._leave_feed(name)
                self._feeds[name] = feed

    async def _begin_source(
        self, subscription: TopicSubscription, topic: str, condition: str
    ) -> None:
        filter_text = subscription.filter
        name = subscription_name(self.session.client, filter_text, subscription.where)
        source = self._sources.get(filter_text)
        taker = self._takers.get(filter_text)
        if source is not None and source.name != name:
            await self._end_source(filter_text)
            source = None
        if source is not None and taker is not None and source.is_read:
            taker.subscription = subscription
            return
        if source is None:
            source = Source(self.client, name, topic, condition)
            source.on_release = self._released
        taker = SessionTaker(self, subscription)
        await source.begin(taker, self.client)
        self._sources[filter_text], self._takers[filter_text] = source, taker

    def _released(self, keys: list[Key]) -> None:
        self.perform(self.session.released(keys))

    def _open(self, subscription: TopicSubscription) -> None:
        """The client knows of it: deliver."""
        name = subscription.filter
        if name in self._takers:
            self._takers[name].is_open.set()
        elif name in self._groups:
            self._groups[name].join(self, subscription)
        elif name in self._feeds:
            self._feeds[name].join(self, subscription, self._door.positions())

    async def _unsubscribe(self, packet: packets.UnsubscribePacket) -> None:
        codes = bytearray()
        for name in packet.filters:
            found = self.session.subscriptions.pop(name, None)
            codes.append(NO_SUBSCRIPTION if found is None else 0)
            self._leave_feed(name)
            await self._end_source(name)
            if (group := self._groups.pop(name, None)) is not None:
                group.leave(self)
                await self._door.leave_group(group, name, self)
        if self.session.is_durable:
            await self._door.journal.write([self.record()])
        self.perform(self.session.unsubscribed(packet.packet, bytes(codes)))

    def _leave_feed(self, name: str) -> None:
        feed = self._feeds.pop(name, None)
        if feed is not None:
            self._door.leave_feed(feed, self, name)

    async def _end_source(self, filter_text: str) -> None:
        source = self._sources.pop(filter_text, None)
        self._takers.pop(filter_text, None)
        if source is not None:
            await source.end()
            await self._door.end_subscription(source.name)

    def restore_source(self, subscription: TopicSubscription, topic: str) -> None:
        """After a restart: the session has this named subscription, though nobody reads it."""
        name = subscription_name(self.session.client, subscription.filter, subscription.where)
        condition = condition_of(subscription.plain, subscription.where, topic)
        source = Source(self._door.own, name, topic, condition)
        source.on_release = self._released
        self._sources[subscription.filter] = source


def code_of(error: GaplessError) -> int:
    """The reason code for an error of the broker."""
    if "not allowed" in error.problem or "not admitted" in error.problem:
        return NOT_AUTHORIZED
    if isinstance(error, EventError) or "room" in error.problem or "at most" in error.remedy:
        return QUOTA
    if isinstance(error, FilterError):
        return OTHER_PROBLEM
    return OTHER_PROBLEM


def subscription_name(client: str, filter_text: str, where: str) -> str:
    """The name of a session's named subscription at the broker."""
    digest = hashlib.sha256(f"{filter_text}\0{where}".encode()).hexdigest()[:16]
    return f"mqtt:{short(client)}:{digest}"


def group_name(group: str, filter_text: str, where: str) -> str:
    digest = hashlib.sha256(f"{group}\0{filter_text}\0{where}".encode()).hexdigest()[:16]
    return f"mqtt-share:{short(group)}:{digest}"


def publisher_name(client: str) -> str:
    return f"mqtt:{short(client)}"


def short(text: str) -> str:
    """The text where it fits into a name, else a part of it and a digest."""
    if len(text.encode()) <= 128 and text.isprintable():
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{''.join(c for c in text if c.isprintable())[:24]}~{digest}"
