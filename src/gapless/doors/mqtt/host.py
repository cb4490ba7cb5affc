"""A session's driver: carries out its actions, and calls it with what came of them.

Theory of operation
    A host lives as long as its session. Actions that need the broker (publish, subscribe,
    unsubscribe) go through one queue, in order, so a SUBSCRIBE sees what was published before it.
    Messages that wait there are published together: one request and one sync for many.
    QoS 2 from a durable session is published under a named publisher. Its number is written to the
    journal before the message is sent to the broker: after a crash the broker says how many numbers
    it has, and a packet identifier whose number is missing there is forgotten: its repeat counts.
    The door asks the same when publishing fails for whatever reason: what was sent may be stored.
    A message is refused for a reason that stays. For any other the connection ends, without a
    reason code: some clients take a message with a code for done, and some end with the code.
    What a packet depends on is durable before the packet leaves, and only its own connection gets
    it: `PersistFacts`.
    Subscriptions. Those of a durable session are one named subscription for each gapless topic;
    its condition is altered when filters come and go. A shared one makes the session a member of a
    group of the broker. The group is the door's own, since a group has members of several
    principals; an anonymous subscription that takes nothing proves that this client may subscribe,
    and ends when it no longer may.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from gapless.client.errors import LinkError, RefusedError
from gapless.core.errors import EventError, FilterError, GaplessError
from gapless.doors.mqtt.mapping import MqttMessage, attributes_of, condition_of, gapless_topic
from gapless.doors.mqtt.packets import FOREVER, UNSAID, PacketError
from gapless.doors.mqtt.session import (
    OWN,
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
from gapless.doors.mqtt.sources import GroupSource, SessionSource
from gapless.filters import Filter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gapless.client.client import Client
    from gapless.client.delivery import Gap, Receipt
    from gapless.client.publisher import Publisher
    from gapless.core.events import Value
    from gapless.doors.clients import SharedClient
    from gapless.doors.mqtt import packets
    from gapless.doors.mqtt.gathering import Gathering
    from gapless.doors.mqtt.journal import DoorJournal
    from gapless.doors.mqtt.retained import Retained
    from gapless.doors.mqtt.session import Action, Key, MqttEvent, PackedEvents
    from gapless.doors.mqtt.sources import SharedFeed

BATCH_EVENTS_MAX = 256
BATCH_BYTES_MAX = 1 << 20
WORK_MAX = 2_000
"""Actions in the queue; beyond it the connection is not read until half of them are done."""

NOTHING = "1 = 0"
"""The condition of the anonymous subscription by which a client proves its right to subscribe."""

NOT_AUTHORIZED, OTHER_PROBLEM, QUOTA = 0x87, 0x83, 0x97
NO_SUBSCRIPTION, TAKEN_OVER = 0x11, 0x8E
KEPT = ("filter", "qos", "no_local", "as_published", "identifier", "where", "topic")
"""What is written of a subscription."""

GROUP = "mqtt-share:"
"""How the names of groups begin."""

LATER = ("ry again", "again later", " runs", "publisher again")
"""What the broker says where the same request may succeed later."""

OWN_TOPICS = ("$SYS", "$gapless", "$share")
GAP_TOPIC = "$gapless/gap"


class Peer(Protocol):
    """The connection of a client."""

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
    gathering: Gathering
    own: Client

    def log(self, what: str, error: Exception) -> None: ...
    def end(self, host: Host) -> None: ...
    def tell_session(self, host: Host) -> None: ...
    def facts_of(self, client: str) -> list[tuple[str, str]]: ...
    def unsure(self, client: str) -> dict[int, tuple[int, str]]: ...
    def doubt(self, client: str, packet: int, number: int, topic: str) -> None: ...
    def count_received(self, count: int) -> None: ...
    def note(self, topic: str, message: MqttMessage, receipt: Receipt | None) -> None: ...
    def positions(self) -> Mapping[str, int]: ...
    def send_retained(self, host: Host, subscription: TopicSubscription) -> None: ...
    def leave_feed(self, feed: SharedFeed, host: Host, name: str) -> None: ...
    async def read_claims(self) -> None: ...
    async def feed(self, client: Client, topic: str, condition: str) -> SharedFeed: ...
    async def end_subscription(self, name: str) -> None: ...
    async def end_groups(self, shared: Iterable[TopicSubscription]) -> None: ...


class Host:
    """See the module docstring."""

    def __init__(self, door: SharedState, session: MqttSession, owner: str) -> None:
        self.session = session
        self.owner = owner
        self.serial = secrets.token_hex(4)
        self.moves = 0  # from door to door
        self.peer: Peer | None = None
        self.is_over = False
        self._door = door
        self._shared_client: SharedClient | None = None
        self._holds_client = False
        self._sources: dict[str, SessionSource] = {}  # by gapless topic
        self._members: dict[str, GroupSource] = {}  # by filter, as the next
        self._feeds: dict[str, SharedFeed] = {}
        self._publishers: dict[str, Publisher] = {}
        self._work: deque[StoreMessage | WishFilters | DropFilters] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._detaching: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()  # one at a time begins and ends subscriptions
        self._is_held = False
        self._is_slow = False
        self._dropped = 0  # messages of QoS 0 that the connection had no room for

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
            self._write_record()
        if self.session.subscriptions:
            self._begin_task(self._resume(peer))

    async def _resume(self, peer: Peer) -> None:
        """Read the subscriptions of a session that has come back."""
        async with self._changing:  # a client may subscribe again at once
            subscriptions = list(self.session.subscriptions.values())
            problems = await self._begin(subscriptions)
        for error in problems.values():
            self.fail(error)
            return
        if self.peer is peer:
            for subscription in subscriptions:
                self._open(subscription)

    def detach(self) -> asyncio.Task[None]:
        """The connection is gone: stop reading, so that the broker keeps what comes. The next
        connection waits for the end of it (`prepare`)."""
        self.peer = None
        self._is_slow = False
        if self._detaching is None or self._detaching.done():
            self._detaching = asyncio.create_task(self._stop())
        return self._detaching

    async def _stop(self) -> None:
        for name, feed in list(self._feeds.items()):
            self._door.leave_feed(feed, self, name)
        self._feeds.clear()
        for task in list(self._tasks):
            task.cancel()
        members, self._members = self._members, {}
        for member in members.values():
            await member.end()
        for source in self._sources.values():
            await source.end()
        if self._worker is not None:
            await asyncio.wait((self._worker,))  # it finishes what the client has sent
        for topic in list(self._publishers):
            await self._end_publisher(topic)

    async def forget(self, *, is_moved: bool = False) -> None:
        """The session is over, or goes on at another door: forget what was written, and end its
        named subscriptions unless they go on."""
        self.is_over = True
        await self.detach()
        facts = self._door.facts_of(self.session.client)
        if facts:
            await self._door.journal.write([(table, key, None) for table, key in facts])
        for name in () if is_moved else self._names():
            await self._door.end_subscription(name)
        await self._door.end_groups(e for e in self.session.subscriptions.values() if e.group)
        self.let_go()

    def _names(self) -> list[str]:
        """The named subscriptions of the session."""
        topics = {each.topic for each in self.session.subscriptions.values() if not each.group}
        return [subscription_name(self.session.client, self.serial, each) for each in topics]

    def let_go(self) -> None:
        """Hold the client to the broker no longer: it is closed when nobody uses it."""
        if self._holds_client:
            self._holds_client = False
            self.shared_client.end()

    def record(self) -> tuple[str, str, bytes]:
        """The session as it is written."""
        session = self.session
        subscriptions = [
            {name: getattr(each, name) for name in KEPT} for each in session.subscriptions.values()
        ]
        text = {
            "owner": self.owner,
            "serial": self.serial,
            "moves": self.moves,
            "expiry": session.expiry_s,
            "subscriptions": subscriptions,
        }
        return "session", session.client, json.dumps(text).encode()

    def restore(self, fields: Mapping[str, Any]) -> None:
        """The session as it was written, here or at another door."""
        session, self.serial, self.moves = self.session, fields["serial"], fields["moves"]
        session.expiry_s = expiry = fields["expiry"]
        session.ends_s = None if expiry >= FOREVER else time.time() + expiry
        for each in fields["subscriptions"]:
            made = TopicSubscription(**each)
            if made.where:
                made.condition = Filter.parse(made.where)
            session.subscriptions[made.filter] = made

    def _write_record(self) -> asyncio.Future[None]:
        record = self.record()
        self._door.tell_session(self)
        return self._door.journal.write([record])

    # --- actions ---------------------------------------------------------------------------------

    def receive(self, packet: packets.Packet) -> None:
        self.perform(self.session.receive(packet, time.time()))
        self._wake()

    def answered(self, packets: Iterable[int]) -> None:
        """PUBACKs of the client."""
        actions = self.session.answered(packets, time.time())
        if actions:
            self.perform(actions)
        self._wake()

    def fire(self, now_s: float) -> None:
        self.perform(self.session.fire(now_s))

    def fail(self, error: GaplessError) -> None:
        """A subscription cannot go on: the client learns it by the end of its connection."""
        if self.session.connection is not None:
            code = UNSAID if may_pass(error) else code_of(error)
            self.perform(self.session.refuse(PacketError(code, str(error)), time.time()))

    def perform(self, actions: Iterable[Action]) -> None:
        data: list[bytes] = []
        for action in actions:
            if isinstance(action, SendBytes):
                data.append(action.data)
                continue
            if data and not isinstance(action, FinishDelivery):
                self._write(data)
                data = []
            match action:
                case FinishDelivery(key, source):
                    self._finish(key, source)
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
        if data:
            self._write(data)

    def _write(self, data: list[bytes]) -> None:
        if self.peer is not None:
            self.peer.write(b"".join(data))

    def _finish(self, key: Key, source: str) -> None:
        if source in self._members:
            self._members[source].finish(key)
        elif source == OWN and key.topic in self._sources:
            self._sources[key.topic].finish(key)

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

    async def wait_room(self) -> int:
        while self._is_slow or not self.session.room:
            self._room.clear()
            await self._room.wait()
        return self.session.room

    def _wake(self) -> None:
        if self.session.room:
            self._room.set()

    def set_slow(self, *, is_slow: bool) -> None:
        """The connection takes no more bytes for now, or takes some again."""
        self._is_slow = is_slow
        if is_slow:
            return
        self._wake()
        if self._dropped:
            count, self._dropped = self._dropped, 0
            self._tell({"dropped": count}, "messages of QoS 0 were dropped: the client was slow")

    def deliver(self, events: Sequence[MqttEvent], subscription: TopicSubscription | None) -> None:
        now_s, session = time.time(), self.session
        actions: list[Action] = []
        for event in events:
            if self._is_slow and event.source is None and self._is_loose(event, subscription):
                self._dropped += 1
                continue
            actions += session.deliver(event, subscription, now_s)
        self.perform(actions)

    def _is_loose(self, event: MqttEvent, subscription: TopicSubscription | None) -> bool:
        return not event.message.qos or (subscription is not None and not subscription.qos)

    def deliver_batch(self, batch: PackedEvents, subscription: TopicSubscription) -> None:
        """Events of a feed."""
        data = None if self._is_slow else self.session.take_batch(batch, subscription)
        if data is None:
            self.deliver(batch.events, subscription)
        elif self.peer is not None:
            self.peer.write(data)

    def tell_released(self, keys: list[Key]) -> None:
        self.perform(self.session.released(keys))

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
            self._work.clear()
            self.session.forget_unsent()  # the client sends it again
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
        except GaplessError as error:
            if may_pass(error) or code_of(error) == TAKEN_OVER:
                raise
            stored = await self._settle() if self._is_exact(first) else set[int]()
            for item in batch:
                if item.packet in stored:
                    self.perform(self.session.stored(item))
                elif len(batch) == 1:
                    self._refuse(item, error)
                else:
                    await self._store([item])
            return
        self.perform([action for item in batch for action in self.session.stored(item)])

    def _check(self, message: MqttMessage) -> None:
        if message.topic.startswith("$") and message.topic.split("/")[0] in OWN_TOPICS:
            raise GaplessError(f"not allowed to publish on {message.topic!r}", "Use another topic.")
        if message.retain:
            self._door.retained.check_room(message)

    def _refuse(self, item: StoreMessage, error: GaplessError) -> None:
        self.perform(self.session.stored(item, code_of(error), str(error)))

    async def _publish(self, topic: str, messages: list[MqttMessage]) -> list[Receipt]:
        door = self._door
        events: list[tuple[Mapping[str, Value], bytes]] = [
            (attributes_of(each, json_payload=door.json_payload), each.payload) for each in messages
        ]
        receipts = await door.gathering.publish(self.client, topic, events)
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
        except GaplessError:
            await self._end_publisher(topic)
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

    async def _end_publisher(self, topic: str) -> None:
        publisher = self._publishers.pop(topic)
        await publisher.__aexit__(asyncio.CancelledError, None, None)

    async def prepare(self, client: SharedClient) -> None:
        """Before the client is answered: let the last connection end, and settle what a crash has
        left open."""
        if self._detaching is not None:
            await asyncio.wait((self._detaching,))
        client.begin()
        self.let_go()
        self._shared_client, self._holds_client = client, True
        await self._settle()
        self.session.forget_unsent()

    async def _settle(self) -> set[int]:
        """Ask the broker which messages of QoS 2 it has, of those that the door is not sure of: the
        packet identifiers of these. Of the others the number is forgotten, so that a repeat
        counts."""
        session, unsure = self.session, self._door.unsure(self.session.client)
        stored, missing = set[int](), set[int]()
        for packet, (number, topic) in list(unsure.items()):
            publisher = await self._publisher(topic)  # may fail: then it is as unsure as before
            if session.incoming.get(packet) == number:
                (stored if number < publisher.sequence else missing).add(packet)
        if missing:  # or the number, when another message has it, would say that they are stored
            facts = [("in", f"{packet} {session.client}", None) for packet in missing]
            await self._door.journal.write(facts)
        session.settle(stored, missing)
        unsure.clear()
        return stored

    # --- subscribing -----------------------------------------------------------------------------

    async def _subscribe(self, packet: packets.SubscribePacket) -> None:
        peer = self.peer
        if peer is None:
            return
        await self._door.read_claims()
        async with self._changing:
            await self._begin_filters(packet, peer)

    async def _begin_filters(self, packet: packets.SubscribePacket, peer: Peer) -> None:
        session = self.session
        where = dict(packet.properties.get("user", [])).get("where", "")
        before = dict(session.subscriptions)
        fresh = [
            TopicSubscription(
                filter=each.filter,
                qos=each.qos,
                no_local=each.no_local,
                as_published=each.as_published,
                identifier=packet.properties.get("subscription_identifier", 0),
                where=where,
            )
            for each in packet.filters
        ]
        for each in fresh:  # known before the broker has it: its first event may come at once
            known = before.get(each.filter)
            each.topic = known.topic if known else gapless_topic(each.plain, self._door.claims)
            session.subscriptions[each.filter] = each
        problems = await self._begin(fresh)
        passing = next(filter(may_pass, problems.values()), None)
        for name in problems:
            session.subscriptions.pop(name, None)
            if name in before:
                session.subscriptions[name] = before[name]
        if passing is not None:
            raise passing  # the client asks again on its next connection
        if session.is_durable:
            await self._write_record()
        if self.peer is not peer:
            return
        codes = bytes(code_of(problems[e.filter]) if e.filter in problems else e.qos for e in fresh)
        reasons = "; ".join(dict.fromkeys(map(str, problems.values())))
        self.perform(session.subscribed(packet.packet, codes, reasons))
        for each, given in zip(fresh, packet.filters, strict=True):
            if each.filter not in problems:
                self._open(each)
                is_new = given.handling == 1 and each.filter not in before
                if (given.handling == 0 or is_new) and not each.group:
                    self._door.send_retained(self, each)

    async def _begin(self, fresh: Sequence[TopicSubscription]) -> dict[str, GaplessError]:
        """Make sure that the broker has these; nothing is delivered before `_open`. By filter: why
        it cannot be."""
        problems: dict[str, GaplessError] = {}
        own: dict[str, list[str]] = {}  # by gapless topic, what the named subscription gets
        for each in fresh:
            try:
                if each.where:
                    each.condition = Filter.parse(each.where)
                if each.levels[0] in OWN_TOPICS:
                    continue
                if each.group:
                    await self._join(each)
                elif self.session.is_durable or each.topic in self._sources:
                    own.setdefault(each.topic, []).append(each.filter)
                else:
                    condition = condition_of(each.plain, each.where, each.topic)
                    await self._join_feed(each, condition)
            except GaplessError as error:
                problems[each.filter] = error
        for topic, filters in own.items():
            try:
                await self._set_source(topic)
            except GaplessError as error:
                problems |= dict.fromkeys(filters, error)
        return problems

    async def _join(self, subscription: TopicSubscription) -> None:
        """Become a member of the group of a shared filter."""
        name, plain, where = subscription.filter, subscription.plain, subscription.where
        await self._join_feed(subscription, NOTHING)
        if (before := self._members.pop(name, None)) is not None:
            await before.end()
        member = GroupSource(self, subscription, group_name(subscription.group, plain, where))
        condition = condition_of(plain, where, subscription.topic)
        window = self.session.connection.window if self.session.connection is not None else 1
        await member.begin(self._door.own, condition, window)
        self._members[name] = member

    async def _join_feed(self, subscription: TopicSubscription, condition: str) -> None:
        name = subscription.filter
        feed = await self._door.feed(self.client, subscription.topic, condition)
        if self._feeds.get(name) is not feed:
            self._leave_feed(name)
            self._feeds[name] = feed

    async def _set_source(self, topic: str) -> None:
        """Give the named subscription to a gapless topic the condition of all filters there; end it
        if there are none."""
        wanted = sorted(
            condition_of(each.plain, each.where, topic)
            for each in self.session.subscriptions.values()
            if each.topic == topic and not each.group and each.levels[0] not in OWN_TOPICS
        )
        name = subscription_name(self.session.client, self.serial, topic)
        source = self._sources.get(topic)
        if not wanted:
            if source is not None:
                await self._sources.pop(topic).end()
            await self._door.end_subscription(name)
            return
        condition = wanted[0] if len(wanted) == 1 else " OR ".join(f"({each})" for each in wanted)
        source = source or SessionSource(self, topic, name)
        await source.begin(self.client, condition)
        self._sources[topic] = source

    def _open(self, subscription: TopicSubscription) -> None:
        """The client knows of it: deliver."""
        name = subscription.filter
        if name in self._members:
            self._members[name].is_open.set()
        if name in self._feeds:
            self._feeds[name].join(self, subscription, self._door.positions())
        elif subscription.topic in self._sources:
            self._sources[subscription.topic].is_open.set()

    async def _unsubscribe(self, packet: packets.UnsubscribePacket) -> None:
        codes, topics = bytearray(), dict[str, None]()
        for name in packet.filters:
            found = self.session.drop(name)
            codes.append(NO_SUBSCRIPTION if found is None else 0)
            self._leave_feed(name)
            if (member := self._members.pop(name, None)) is not None:
                await member.end()
                await self._door.end_groups([member.subscription])
            elif found is not None and found.topic in self._sources:
                topics[found.topic] = None
        async with self._changing:
            for topic in topics:
                await self._set_source(topic)
        if self.session.is_durable:
            await self._write_record()
        self.perform(self.session.unsubscribed(packet.packet, bytes(codes)))

    def _leave_feed(self, name: str) -> None:
        feed = self._feeds.pop(name, None)
        if feed is not None:
            self._door.leave_feed(feed, self, name)


def may_pass(error: GaplessError) -> bool:
    """Whether the same request may succeed later: a broker is down or busy, or the name of the
    publisher has to be opened again."""
    if code_of(error) == NOT_AUTHORIZED:
        return False
    if isinstance(error, LinkError):
        return True
    return isinstance(error, RefusedError) and any(each in error.remedy for each in LATER)


def code_of(error: GaplessError) -> int:
    """The reason code for an error of the broker."""
    if "was taken over" in error.problem:
        return TAKEN_OVER
    if "not allowed" in error.problem or "not admitted" in error.problem:
        return NOT_AUTHORIZED
    if isinstance(error, EventError) or "room" in error.problem or "at most" in error.remedy:
        return QUOTA
    if isinstance(error, FilterError):
        return OTHER_PROBLEM
    return OTHER_PROBLEM


def subscription_name(client: str, serial: str, topic: str) -> str:
    """The name of a session's named subscription to a gapless topic. The serial number tells the
    session from an earlier one of the same client, which may still be known at another broker."""
    return f"mqtt:{short(client)}:{serial}:{short(topic)}"


def group_name(group: str, filter_text: str, where: str) -> str:
    digest = hashlib.sha256(f"{group}\0{filter_text}\0{where}".encode()).hexdigest()[:16]
    return f"{GROUP}{short(group)}:{digest}"


def publisher_name(client: str) -> str:
    return f"mqtt:{short(client)}"


def short(text: str) -> str:
    """The text where it fits into a name, else a part of it and a digest."""
    if len(text.encode()) <= 128 and text.isprintable():
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return f"{''.join(c for c in text if c.isprintable())[:24]}~{digest}"
