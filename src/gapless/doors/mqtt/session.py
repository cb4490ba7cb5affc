"""One MQTT session: packets and deliveries in, actions out; no sockets, no clock, no disk.

Theory of operation
    A session belongs to a client identifier. It has a connection or none. While it has one,
    `receive` takes the client's packets and `deliver` the messages of its subscriptions; both
    return actions for the driver. `fire` is due at `deadline`: keep-alive, delayed will, expiry.
    Incoming. A message is handed on with `StoreMessage`; the driver says `stored` when the broker
    has it on stable storage, and then PUBACK or PUBREC leaves. Of QoS 2 the packet identifier is
    remembered from PUBLISH to PUBREL: a repeat is answered, and not stored again.
    Outgoing. Messages of QoS 1 and 2 take a packet identifier each; at most `window` are sent and
    not answered, the others wait in order, first those that had an identifier before. An event that
    several subscriptions of the session want is sent once, with the highest QoS and all
    identifiers. It comes from the session's own named subscription, which takes what any of its
    filters takes; from a group of the broker, for one filter; or, to a session that ends with its
    connection, from a feed that many sessions share. Many such sessions get the same bytes:
    `take_batch`.
    Durable sessions. What must outlive a crash is written before the packet that depends on it
    leaves: `PersistFacts(writes, then)`. Before a PUBLISH of QoS 2: which packet identifier the
    event has. Before its PUBREL: that it is released. Before PUBCOMP: that its number is free.
    After a restart the named subscription brings every event again that was not finished; an event
    with an identifier goes out under it, a released one does not go out.

Invariants (checked by `check`)
    I1  packet identifiers in use are distinct and 1..65535
    I2  at most `window` messages of QoS 1 and 2 are sent and not answered
    I3  messages wait only while the window is full
    I4  a session without a connection has no aliases, and waits for nothing but its deadlines

Source: OASIS MQTT 5.0, chapters 3 and 4.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gapless.doors.mqtt import packets
from gapless.doors.mqtt.mapping import LEVELS_MAX, MqttMessage, matches
from gapless.doors.mqtt.packets import (
    FOREVER,
    NONE,
    PROTOCOL_ERROR,
    AnswerPacket,
    ConnectPacket,
    DisconnectPacket,
    Kind,
    PacketError,
    PingPacket,
    PublishPacket,
    SubscribePacket,
    UnsubscribePacket,
    answer_bytes,
    publish_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.events import Value
    from gapless.doors.mqtt.packets import Packet, Properties
    from gapless.filters import Filter

RECEIVE_MAXIMUM = 20
"""Messages of QoS 1 and 2 that a client may send before the first is answered."""

ALIASES_MAX = 10
"""Topic aliases of a client; a higher one ends the connection."""

KEEP_ALIVE_MAX_S = 60
"""The longest keep-alive of version 5; a client that asks for more is told this one."""

WINDOW_MAX = 1_000
"""Unanswered messages to a client that sets no lower maximum."""

QUEUE_MAX = 20_000
"""Messages of QoS 1 and 2 that wait for the window; beyond it the session's connection ends."""

MERGES_MAX = 10_000
"""Events remembered because another subscription of the session brings them too."""

WITH_WILL = 0x04
TAKEN_OVER, KEEP_ALIVE, QUOTA = 0x8E, 0x8D, 0x97
RECEIVE_EXCEEDED, ALIAS_INVALID, TOPIC_INVALID = 0x93, 0x94, 0x90


class Key(NamedTuple):
    """The identity of an event."""

    topic: str
    pubend: str
    tick: int


class MqttEvent(NamedTuple):
    """An event of a gapless topic, as a message. `source`: what brought it and is told when it is
    finished, the session's own named subscription (OWN) or a group, by its filter; None: a feed."""

    key: Key
    message: MqttMessage
    attributes: Mapping[str, Value]
    source: str | None = None


OWN = ""
"""The source of events that the session's own named subscription has brought."""


class PackedEvents:
    """Events of a feed, packed once for all sessions that take them with the same options.

    All sessions get the same packet identifiers, so that they get the same bytes. `pack` is None
    where a session has to look at each event for itself.
    """

    def __init__(self, events: list[MqttEvent], first: int) -> None:
        self.events = events
        self.clients = {each.message.client for each in events}
        self.first_tick = {each.key.pubend: each.key.tick for each in reversed(events)}
        self._numbers = [(first + place) % 0xFFFF + 1 for place in range(len(events))]
        self._may_be_equal = all(each.message.expires_s is None for each in events)
        self._packed: dict[tuple[bool, int, bool, int], PackedBytes | None] = {}

    def pack(self, version: int, subscription: TopicSubscription) -> PackedBytes | None:
        is_five = version == 5
        identifier = subscription.identifier if is_five else 0
        key = (is_five, subscription.qos, subscription.as_published, identifier)
        if key not in self._packed:
            self._packed[key] = self._pack(version, subscription) if self._may_be_equal else None
        return self._packed[key]

    def _pack(self, version: int, subscription: TopicSubscription) -> PackedBytes | None:
        parts: list[bytes] = []
        sent: dict[int, Outgoing] = {}
        for number, event in zip(self._numbers, self.events, strict=True):
            message = event.message
            qos = min(message.qos, subscription.qos)
            if qos > 1:
                return None
            if qos:
                sent[number] = ANSWERED_ONCE
            properties = message.properties
            if subscription.identifier:
                given = [subscription.identifier]
                properties = {**properties, "subscription_identifier": given}
            retain = message.retain and subscription.as_published
            parts.append(
                publish_bytes(
                    PublishPacket(
                        message.topic,
                        message.payload,
                        qos,
                        retain,
                        False,
                        number if qos else 0,
                        properties,
                    ),
                    version,
                )
            )
        return PackedBytes(b"".join(parts), max(map(len, parts)), sent)


class PackedBytes(NamedTuple):
    """PUBLISH packets, the longest of them, and which identifiers are to be answered."""

    data: bytes
    longest: int
    sent: dict[int, Outgoing]


# --- actions -------------------------------------------------------------------------------------


class SendBytes(NamedTuple):
    """Bytes for the client."""

    data: bytes


class Close(NamedTuple):
    """The end of the connection, after what was sent."""


class StoreMessage(NamedTuple):
    """Publish this message at the broker; then call `stored`. `packet` is 0 for QoS 0. The answer
    is for the connection that the message came on, and no other."""

    message: MqttMessage
    packet: int
    connection: SessionConnection


class WishFilters(NamedTuple):
    """Begin these subscriptions; then call `subscribed`."""

    packet: SubscribePacket


class DropFilters(NamedTuple):
    """End these subscriptions; then call `unsubscribed`."""

    packet: UnsubscribePacket


class FinishDelivery(NamedTuple):
    """The client has the event."""

    key: Key
    source: str


class PersistFacts(NamedTuple):
    """Write these facts (None: delete); when they are durable, carry out `then`."""

    writes: tuple[tuple[str, str, bytes | None], ...]
    then: tuple[Action, ...]


class Testament(NamedTuple):
    """Publish the will."""

    message: MqttMessage


class End(NamedTuple):
    """The session is over: forget it and its subscriptions."""


Action = (
    SendBytes
    | Close
    | StoreMessage
    | WishFilters
    | DropFilters
    | FinishDelivery
    | PersistFacts
    | Testament
    | End
)


# --- state ---------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class TopicSubscription:
    """A topic filter of a session, with its options. `where` is the client's own condition."""

    filter: str
    qos: int
    no_local: bool = False
    as_published: bool = False
    identifier: int = 0
    where: str = ""
    topic: str = ""  # the gapless topic that it began with
    condition: Filter | None = None
    levels: list[str] = field(init=False)
    group: str = field(init=False)  # of a shared subscription, else ""

    def __post_init__(self) -> None:
        text = self.filter
        self.group = ""
        if text.startswith("$share/"):
            _, self.group, text = text.split("/", 2)
        self.levels = text.split("/")

    @property
    def plain(self) -> str:
        """The filter without the name of a group."""
        return "/".join(self.levels)

    def takes(self, topic: str, attributes: Mapping[str, Value]) -> bool:
        if not matches(self.levels, topic):
            return False
        return self.condition is None or self.condition.matches(attributes)


@dataclass(slots=True, kw_only=True)
class SessionConnection:
    """What lives as long as one connection."""

    version: int
    window: int
    packet_bytes_max: int
    aliases_max: int
    keep_alive_s: float
    heard_s: float
    tells_problems: bool
    will: MqttMessage | None = None
    will_delay_s: float = 0
    aliases: dict[int, str] = field(default_factory=dict)  # of the client
    own_aliases: dict[str, int] = field(default_factory=dict)
    unanswered: int = 0  # incoming messages of QoS 1, and of QoS 2 before PUBREC
    is_resuming: bool = False
    """The session has come back, and not all was answered yet. paho sends everything then that it
    was given while it was away, whatever the receive maximum says."""


@dataclass(slots=True)
class Outgoing:
    """A message that the client has not answered finally. `key` is None if nobody is told."""

    packet: int
    qos: int
    key: Key | None
    source: str  # that is told
    content: (
        tuple[MqttMessage, bool, tuple[int, ...]] | None
    )  # None: after a restart, until it comes
    is_released: bool = False
    is_sent: bool = False  # on this connection


ANSWERED_ONCE = Outgoing(0, 1, None, OWN, None, is_sent=True)
"""A message of QoS 1 to a session that ends with its connection: it is never sent again."""


class Queued(NamedTuple):
    """A message that waits for the window."""

    message: MqttMessage
    qos: int
    retain: bool
    identifiers: tuple[int, ...]
    key: Key | None
    source: str


class MqttSession:
    """See the module docstring."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.expiry_s = 0
        self.subscriptions: dict[str, TopicSubscription] = {}
        self.outgoing: dict[int, Outgoing] = {}
        self.incoming: dict[int, int | None] = {}
        """QoS 2, from PUBLISH to PUBREL: the number under which the message was published."""
        self.connection: SessionConnection | None = None
        self.will: tuple[float, MqttMessage] | None = None
        """A delayed will, and when it is due."""
        self.ends_s: float | None = None
        self._storing: dict[int, SessionConnection] = {}  # QoS 2, and which connection is answered
        self.dropped = 0  # messages of QoS 0 that the connection had no room for
        self._queue: deque[Queued] = deque()
        self._again_soon: deque[Outgoing] = deque()  # of an earlier connection, not sent on this
        self._flying = 0  # messages of QoS 1 and 2 that were sent on this connection
        self._events: dict[Key, Outgoing | None] = {}  # None: done, and may come again
        self._awaited: dict[Key, set[str]] = {}  # filters whose feeds will bring an event again
        self._last = 0

    # --- what the driver asks --------------------------------------------------------------------

    @property
    def is_durable(self) -> bool:
        return self.expiry_s > 0

    @property
    def room(self) -> int:
        """How many further messages would leave at once."""
        if self._queue or self._again_soon:
            return 0
        return max(0, self._window - self._flying)

    @property
    def deadline_s(self) -> float | None:
        own = self.connection
        if own is not None:
            return own.heard_s + 1.5 * own.keep_alive_s if own.keep_alive_s else None
        due = [self.ends_s] if self.ends_s is not None else []
        if self.will is not None:
            due.append(self.will[0])
        return min(due, default=None)

    # --- a connection begins and ends ------------------------------------------------------------

    def connect(
        self, packet: ConnectPacket, now_s: float, *, present: bool, assigned: bool = False
    ) -> list[Action]:
        """Answer a CONNECT that the driver has admitted, and send again what was not answered."""
        given = packet.properties
        if packet.version == 5:
            self.expiry_s = given.get("session_expiry", 0)
        else:
            self.expiry_s = 0 if packet.clean else FOREVER
        keep_alive = packet.keep_alive
        if packet.version == 5:
            keep_alive = min(keep_alive, KEEP_ALIVE_MAX_S)
        own = SessionConnection(
            version=packet.version,
            window=min(given.get("receive_maximum", WINDOW_MAX), WINDOW_MAX),
            packet_bytes_max=given.get("maximum_packet", 1 << 28),
            aliases_max=given.get("topic_alias_maximum", 0),
            keep_alive_s=keep_alive,
            heard_s=now_s,
            tells_problems=bool(given.get("request_problem", 1)),
            is_resuming=present,
        )
        if packet.will is not None:
            own.will = _message_of_will(packet.will, self.client)
            own.will_delay_s = packet.will.properties.get("will_delay", 0)
        self.connection, self.will, self.ends_s = own, None, None
        properties: Properties = {}
        if packet.version == 5:
            if keep_alive != packet.keep_alive:
                properties["server_keep_alive"] = keep_alive
            if assigned:
                properties["assigned_client"] = self.client
            properties |= {
                "topic_alias_maximum": ALIASES_MAX,
                "maximum_packet": packets.PACKET_BYTES_MAX,
                "receive_maximum": RECEIVE_MAXIMUM,
            }
        present = present and packet.version != 3
        answer = packets.connack(packet.version, 0, present=present, properties=properties)
        if len(answer) > own.packet_bytes_max:
            return [Close()]
        actions: list[Action] = [SendBytes(answer)]
        self._flying = 0
        for each in self.outgoing.values():
            each.is_sent = False
        for each in list(self.outgoing.values()):
            if each.is_released:
                actions.append(self._answer(Kind.PUBREL, each.packet))
            elif each.content is not None:
                actions += self._send_again(each, now_s)
        return actions

    def lose(self, now_s: float) -> list[Action]:
        """The connection is gone without a DISCONNECT."""
        return self._part(now_s, with_will=True)

    def take_over(self, now_s: float) -> list[Action]:
        """Another connection of the same client begins: this one ends, and says so."""
        return [*self._refuse(TAKEN_OVER), *self._part(now_s, with_will=True)]

    def stop(self) -> list[Action]:
        """The broker is stopping."""
        return self._refuse(0x8B)

    def _part(self, now_s: float, *, with_will: bool) -> list[Action]:
        own = self.connection
        if own is None:
            return []
        self.connection = None
        self._queue.clear()  # named subscriptions bring them again
        self._again_soon.clear()
        actions: list[Action] = []
        if with_will and own.will is not None:
            if own.will_delay_s and self.expiry_s:
                self.will = (now_s + own.will_delay_s, own.will)
            else:
                actions.append(Testament(own.will))
        if not self.expiry_s:
            return [*actions, End()]
        self.ends_s = None if self.expiry_s == FOREVER else now_s + self.expiry_s
        return actions

    def discard(self) -> list[Action]:
        """A new session takes the place of this one: a will that was put off is due."""
        will = [Testament(self.will[1])] if self.will is not None else []
        self.will = None
        return [*will, End()]

    def fire(self, now_s: float) -> list[Action]:
        """What is due."""
        due = self.deadline_s
        if due is None or now_s < due:
            return []
        if self.connection is not None:
            return [*self._refuse(KEEP_ALIVE), *self._part(now_s, with_will=True)]
        actions: list[Action] = []
        is_over = self.ends_s is not None and now_s >= self.ends_s
        if self.will is not None and (is_over or now_s >= self.will[0]):
            actions.append(Testament(self.will[1]))
            self.will = None
        return [*actions, End()] if is_over else actions

    def _refuse(self, code: int) -> list[Action]:
        own = self.connection
        if own is not None and own.version == 5 and code != packets.UNSAID:
            return [SendBytes(packets.disconnect_bytes(code)), Close()]
        return [Close()]

    # --- packets ---------------------------------------------------------------------------------

    def receive(self, packet: Packet, now_s: float) -> list[Action]:
        """What the client has sent. `PacketError`: end the connection, for this reason."""
        own = self.connection
        assert own is not None
        own.heard_s = now_s
        match packet:
            case PublishPacket():
                return self._on_publish(packet, own, now_s)
            case AnswerPacket(kind=Kind.PUBACK):
                return self.answered((packet.packet,), now_s)
            case AnswerPacket(kind=Kind.PUBREC):
                return self._on_pubrec(packet, now_s)
            case AnswerPacket(kind=Kind.PUBREL):
                return self._on_pubrel(packet)
            case AnswerPacket():
                return self._on_pubcomp(packet, now_s)
            case SubscribePacket():
                if any(each.filter.count("/") >= LEVELS_MAX for each in packet.filters):
                    raise PacketError(packets.MALFORMED, f"a filter has over {LEVELS_MAX} levels")
                return [WishFilters(packet)]
            case UnsubscribePacket():
                return [DropFilters(packet)]
            case PingPacket():
                return [SendBytes(packets.PONG)]
            case DisconnectPacket():
                return self._on_disconnect(packet, now_s)
            case ConnectPacket():
                raise PacketError(PROTOCOL_ERROR, "a second CONNECT")

    def refuse(self, error: PacketError, now_s: float) -> list[Action]:
        """End the connection because of what the client has sent."""
        return [*self._refuse(error.code), *self._part(now_s, with_will=True)]

    def _on_publish(
        self, packet: PublishPacket, own: SessionConnection, now_s: float
    ) -> list[Action]:
        topic, alias = packet.topic, packet.properties.get("topic_alias")
        if alias is not None:
            if alias > ALIASES_MAX:
                raise PacketError(ALIAS_INVALID, "a topic alias is above the maximum")
            if topic:
                own.aliases[alias] = topic
            elif (topic := own.aliases.get(alias, "")) == "":
                raise PacketError(PROTOCOL_ERROR, "a topic alias is not known")
        if topic.count("/") >= LEVELS_MAX:
            raise PacketError(TOPIC_INVALID, f"a topic has at most {LEVELS_MAX} levels")
        if packet.qos == 2 and packet.packet in self.incoming:
            if packet.packet in self._storing:
                self._storing[packet.packet] = own  # answered when it is stored
                return []
            return [self._answer(Kind.PUBREC, packet.packet)]
        if packet.qos:
            count = own.unanswered + len(self.incoming)
            if own.version == 5 and count >= RECEIVE_MAXIMUM and not own.is_resuming:
                raise PacketError(RECEIVE_EXCEEDED, "more messages than the receive maximum")
            own.unanswered += packet.qos == 1
            if packet.qos == 2:
                self.incoming[packet.packet] = None
                self._storing[packet.packet] = own
        message = _message_of(packet, topic, self.client, now_s)
        return [StoreMessage(message, packet.packet, own)]

    def stored(self, item: StoreMessage, code: int = 0, problem: str = "") -> list[Action]:
        """The broker has the message, or has refused it (`code` of 0x80 and above)."""
        own, qos, packet = item.connection, item.message.qos, item.packet
        if qos == 2:
            own = self._storing.pop(packet, own)
            if code >= 0x80:
                self.incoming.pop(packet, None)
        if own is not self.connection or not qos:
            return []
        own.unanswered -= qos == 1
        own.is_resuming = own.is_resuming and bool(own.unanswered or self._storing)
        kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
        if code >= 0x80 and own.version != 5:
            return [] if qos == 1 else [self._answer(kind, packet)]
        return [self._answer(kind, packet, code, problem)]

    def settle(self, stored: Iterable[int], missing: Iterable[int]) -> None:
        """What became of messages of QoS 2 that the door was not sure of: a repeat of a stored one
        is answered; the others have no number any more."""
        for packet in stored:
            self._storing.pop(packet, None)
        for packet in missing:
            self.incoming[packet] = None

    def forget_unsent(self) -> None:
        """Nobody stores what has no number yet: a repeat counts as new."""
        for packet in [packet for packet, number in self.incoming.items() if number is None]:
            del self.incoming[packet]
            self._storing.pop(packet, None)

    def _on_pubrel(self, packet: AnswerPacket) -> list[Action]:
        self.incoming.pop(packet.packet, None)
        answer = self._answer(Kind.PUBCOMP, packet.packet)
        if not self.is_durable:
            return [answer]
        return [PersistFacts((("in", str(packet.packet), None),), (answer,))]

    def answered(self, packets: Iterable[int], now_s: float) -> list[Action]:
        """PUBACKs."""
        assert self.connection is not None
        self.connection.heard_s = now_s
        actions: list[Action] = []
        for packet in packets:
            found = self.outgoing.get(packet)
            if found is None:
                continue
            if found is ANSWERED_ONCE and not self._queue:
                del self.outgoing[packet]
                self._flying -= 1
                continue
            if found.qos != 1:
                raise PacketError(PROTOCOL_ERROR, "PUBACK for a message of QoS 2")
            actions += self._complete(packet, found, now_s)
        return actions

    def _on_pubrec(self, packet: AnswerPacket, now_s: float) -> list[Action]:
        found = self.outgoing.get(packet.packet)
        if found is None:
            return [] if packet.code >= 0x80 else [self._answer(Kind.PUBREL, packet.packet)]
        if found.qos != 2:
            raise PacketError(PROTOCOL_ERROR, "PUBREC for a message of QoS 1")
        if packet.code >= 0x80:
            return self._complete(packet.packet, found, now_s)
        was_released, found.is_released = found.is_released, True
        answer = self._answer(Kind.PUBREL, packet.packet)
        if self._is_kept(found):
            return [PersistFacts((self._record(found),), (answer,))]
        if found.key is None or found.source == OWN or was_released:
            return [answer]
        return [answer, FinishDelivery(found.key, found.source)]  # the member has it for good

    def _on_pubcomp(self, packet: AnswerPacket, now_s: float) -> list[Action]:
        found = self.outgoing.get(packet.packet)
        if found is None:
            return []
        if found.qos != 2 or not found.is_released:
            raise PacketError(PROTOCOL_ERROR, "PUBCOMP before PUBREL")
        return self._complete(packet.packet, found, now_s)

    def _on_disconnect(self, packet: DisconnectPacket, now_s: float) -> list[Action]:
        given = packet.properties.get("session_expiry")
        if given is not None:
            if given and not self.expiry_s:
                raise PacketError(PROTOCOL_ERROR, "a session that ends cannot be prolonged")
            self.expiry_s = given
        return [Close(), *self._part(now_s, with_will=packet.code == WITH_WILL)]

    # --- subscriptions ---------------------------------------------------------------------------

    def subscribed(self, packet: int, codes: bytes, problem: str = "") -> list[Action]:
        """The outcome of each filter."""
        own = self.connection
        if own is None:
            return []
        if own.version != 5:
            codes = bytes(min(128, code) for code in codes)
        return [SendBytes(packets.suback(own.version, packet, codes, self._reason(problem)))]

    def drop(self, name: str) -> TopicSubscription | None:
        """Take a subscription out; None: there is none of this filter."""
        for key, awaited in list(self._awaited.items()):
            awaited.discard(name)
            if not awaited:
                del self._awaited[key]
        return self.subscriptions.pop(name, None)

    def unsubscribed(self, packet: int, codes: bytes) -> list[Action]:
        own = self.connection
        return [] if own is None else [SendBytes(packets.unsuback(own.version, packet, codes))]

    def _reason(self, problem: str) -> Properties:
        own = self.connection
        if not problem or own is None or own.version != 5 or not own.tells_problems:
            return NONE
        return {"reason_string": _as_text(problem)}

    # --- deliveries ------------------------------------------------------------------------------

    def take_batch(self, batch: PackedEvents, subscription: TopicSubscription) -> bytes | None:
        """The bytes of a whole batch of a feed; None: deliver its events one by one."""
        own = self.connection
        if (
            own is None
            or len(self.subscriptions) != 1
            or own.aliases_max
            or self._queue
            or self._again_soon
            or self._awaited
            or (subscription.no_local and self.client in batch.clients)
        ):
            return None
        packed = batch.pack(own.version, subscription)
        if packed is None or packed.longest > own.packet_bytes_max:
            return None
        if packed.sent:
            room = own.window - self._flying
            if len(packed.sent) > room or not self.outgoing.keys().isdisjoint(packed.sent):
                return None
            self.outgoing.update(packed.sent)
            self._flying += len(packed.sent)
        return packed.data

    def deliver(
        self, event: MqttEvent, subscription: TopicSubscription | None, now_s: float
    ) -> list[Action]:
        """An event for one subscription, or for all that take it (None)."""
        key, message, _, source = event
        if source == OWN and key in self._events:
            return self._again(event, now_s)
        wanted = self._wanted(event, subscription)
        if source is None and self._is_repeat(key, subscription, wanted):
            return []
        if message.client == self.client:
            wanted = [each for each in wanted if not each.no_local]
        finished: list[Action] = [] if source is None else [FinishDelivery(key, source)]
        if not wanted or self.connection is None or message.has_expired(now_s):
            return finished
        item = self._item(event, wanted)
        if not item.qos:
            sent = self._packed(message, 0, item.retain, item.identifiers, now_s)
            return [*sent, *finished]
        return self._admit(item, now_s)

    def _wanted(self, event: MqttEvent, first: TopicSubscription | None) -> list[TopicSubscription]:
        """The subscriptions that this event is for. A shared one is never merged."""
        if first is not None and (first.group or len(self.subscriptions) == 1):
            return [first]
        topic, attributes = event.message.topic, event.attributes
        return [
            each
            for each in self.subscriptions.values()
            if not each.group and each.takes(topic, attributes)
        ]

    def _is_repeat(
        self, key: Key, first: TopicSubscription | None, wanted: list[TopicSubscription]
    ) -> bool:
        """Whether another feed has brought the event: each feed of a session brings it."""
        assert first is not None
        awaited = self._awaited.get(key)
        if awaited is None:
            if len(wanted) <= 1:
                return False
            if len(self._awaited) >= MERGES_MAX:
                del self._awaited[next(iter(self._awaited))]
            self._awaited[key] = {each.filter for each in wanted if each is not first}
            return False
        awaited.discard(first.filter)
        if not awaited:
            del self._awaited[key]
        return True

    def _item(self, event: MqttEvent, wanted: list[TopicSubscription]) -> Queued:
        key, message, _, source = event
        return Queued(
            message,
            min(message.qos, max(each.qos for each in wanted)),
            message.retain and any(each.as_published for each in wanted),
            tuple(each.identifier for each in wanted if each.identifier),
            None if source is None else key,
            source or OWN,
        )

    def _again(self, event: MqttEvent, now_s: float) -> list[Action]:
        """The event is under way already, or done: it comes again because the client or the broker
        has come back."""
        found = self._events[event.key]
        if found is None:
            return [FinishDelivery(event.key, OWN)]
        if found.content is not None or found.is_released:
            return []
        wanted = self._wanted(event, None)
        item = self._item(event, wanted) if wanted else None
        retain, identifiers = (item.retain, item.identifiers) if item is not None else (False, ())
        found.content = (event.message, retain, identifiers)
        return self._send_again(found, now_s)

    def _send_again(self, item: Outgoing, now_s: float) -> list[Action]:
        """Under the number that it had on an earlier connection, as soon as there is room."""
        if self._again_soon or self._flying >= self._window:
            self._again_soon.append(item)
            return []
        return self._send(item, now_s, dup=True)

    def deliver_retained(
        self, message: MqttMessage, subscription: TopicSubscription, now_s: float
    ) -> list[Action]:
        """A retained message for a new subscription."""
        if message.has_expired(now_s):
            return []
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        qos = min(message.qos, subscription.qos)
        if not qos:
            return self._packed(message, 0, True, identifiers, now_s)
        return self._admit(Queued(message, qos, True, identifiers, None, OWN), now_s)

    def _admit(self, item: Queued, now_s: float) -> list[Action]:
        if self.room:
            return self._begin(item, now_s)
        if len(self._queue) >= QUEUE_MAX:
            return [*self._refuse(QUOTA), *self._part(now_s, with_will=True)]
        self._queue.append(item)
        return []

    def _begin(self, item: Queued, now_s: float) -> list[Action]:
        """Give a message its packet identifier, and send it."""
        while True:
            self._last = self._last % 0xFFFF + 1
            if self._last not in self.outgoing:
                break
        content = (item.message, item.retain, item.identifiers)
        made = Outgoing(self._last, item.qos, item.key, item.source, content)
        self.outgoing[self._last] = made
        if item.key is not None and item.source == OWN:
            self._events[item.key] = made
        sent = self._send(made, now_s, dup=False)
        return [PersistFacts((self._record(made),), tuple(sent))] if self._is_kept(made) else sent

    def _is_kept(self, item: Outgoing) -> bool:
        """Whether the packet identifier of a message outlives a crash."""
        is_own = item.key is not None and item.source == OWN
        return is_own and item.qos == 2 and self.is_durable and item.packet in self.outgoing

    def _record(self, item: Outgoing) -> tuple[str, str, bytes]:
        assert item.key is not None
        topic, pubend, tick = item.key
        text = f"{item.packet} {int(item.is_released)}"
        return "out", f"{tick} {pubend} {topic}", text.encode()

    def recover(self, key: Key, packet: int, *, is_released: bool) -> None:
        """A record of an earlier life: the event has this packet identifier."""
        made = Outgoing(packet, 2, key, OWN, None, is_released)
        self.outgoing[packet] = self._events[key] = made
        self._last = max(self._last, packet)  # the record lives on when the identifier is free

    def _complete(self, packet: int, found: Outgoing, now_s: float) -> list[Action]:
        """The client has answered finally: tell it, and send what waited for the window."""
        del self.outgoing[packet]
        self._flying -= found.is_sent
        actions: list[Action] = []
        if found.key is not None:
            if found.source == OWN:
                if found.qos == 2 and self.is_durable:
                    self._events[found.key] = None  # until the broker has released it: `released`
                else:
                    del self._events[found.key]
            if not (found.is_released and found.source != OWN):  # it was told with PUBREL
                actions.append(FinishDelivery(found.key, found.source))
        while self._again_soon and self._flying < self._window:
            late = self._again_soon.popleft()
            if self.outgoing.get(late.packet) is late and not late.is_released:
                actions += self._send(late, now_s, dup=True)
        while self._queue and self._flying < self._window:
            item = self._queue.popleft()
            if item.message.has_expired(now_s):
                if item.key is not None:
                    actions.append(FinishDelivery(item.key, item.source))
                continue
            actions += self._begin(item, now_s)
        return actions

    @property
    def _window(self) -> int:
        return self.connection.window if self.connection is not None else 0

    def released(self, keys: Iterable[Key]) -> list[Action]:
        """The broker brings these events never again."""
        known = [key for key in keys if self._events.get(key, key) is None]
        for key in known:
            del self._events[key]
        if not known:
            return []
        writes = tuple(("out", f"{key.tick} {key.pubend} {key.topic}", None) for key in known)
        return [PersistFacts(writes, ())]

    def unsend(self, source: str) -> None:
        """Forget what a group has brought and the client has not answered: its broker hands it out
        again."""
        for packet, each in list(self.outgoing.items()):
            if each.key is not None and each.source == source and not each.is_released:
                del self.outgoing[packet]
                self._flying -= each.is_sent

    # --- encoding --------------------------------------------------------------------------------

    def _answer(self, kind: Kind, packet: int, code: int = 0, problem: str = "") -> SendBytes:
        own = self.connection
        version = own.version if own is not None else 4
        return SendBytes(
            answer_bytes(AnswerPacket(kind, packet, code, self._reason(problem)), version)
        )

    def _send(self, item: Outgoing, now_s: float, *, dup: bool) -> list[Action]:
        assert item.content is not None
        message, retain, identifiers = item.content
        if not dup and message.has_expired(now_s):
            return self._complete(item.packet, item, now_s)
        item.is_sent = True
        self._flying += 1
        sent = self._packed(message, item.qos, retain, identifiers, now_s, item.packet, dup=dup)
        return sent or self._complete(item.packet, item, now_s)

    def _packed(
        self,
        message: MqttMessage,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        now_s: float,
        packet: int = 0,
        *,
        dup: bool = False,
    ) -> list[Action]:
        """A PUBLISH; nothing if the client takes no packet of its length."""
        own = self.connection
        assert own is not None
        topic, properties = message.topic, message.properties
        if own.version == 5:
            if message.expires_s is not None or identifiers or own.aliases_max:
                properties = dict(properties)
            if message.expires_s is not None:
                properties["message_expiry"] = max(0, math.ceil(message.expires_s - now_s))
            if identifiers:
                properties["subscription_identifier"] = list(identifiers)
            if own.aliases_max:
                topic = _aliased(own, topic, properties)
        made = PublishPacket(topic, message.payload, qos, retain, dup, packet, properties)
        data = publish_bytes(made, own.version)
        if len(data) > own.packet_bytes_max:
            return []
        return [SendBytes(data)]

    # --- invariants ------------------------------------------------------------------------------

    def check(self) -> None:
        own = self.connection
        assert all(0 < number <= 0xFFFF for number in chain(self.outgoing, self.incoming)), "I1"
        assert all(each.packet in (0, number) for number, each in self.outgoing.items()), "I1"
        if own is not None:
            sent = [each for each in self.outgoing.values() if each.is_sent]
            assert len(sent) == self._flying <= own.window, "I2"
            assert not (self._queue or self._again_soon) or self._flying == own.window, "I3"
        else:
            assert not self._queue, "I4"
            assert not self._again_soon, "I4"


def _aliased(own: SessionConnection, topic: str, properties: Properties) -> str:
    """The topic, or an empty one where the client knows its alias."""
    alias = own.own_aliases.get(topic)
    if alias is not None:
        properties["topic_alias"] = alias
        return ""
    if len(own.own_aliases) < own.aliases_max:
        own.own_aliases[topic] = properties["topic_alias"] = len(own.own_aliases) + 1
    return topic


KEPT = ("payload_format", "content_type", "response_topic", "correlation_data", "user")


def _message_of(packet: PublishPacket, topic: str, client: str, now_s: float) -> MqttMessage:
    given = packet.properties
    if not given:
        return MqttMessage(topic, packet.payload, packet.qos, packet.retain, NONE, None, client)
    kept = {name: given[name] for name in KEPT if name in given}
    expiry = given.get("message_expiry")
    expires_s = None if expiry is None else now_s + expiry
    return MqttMessage(topic, packet.payload, packet.qos, packet.retain, kept, expires_s, client)


def _message_of_will(will: packets.Will, client: str) -> MqttMessage:
    """A will; its expiry counts from when it is published, so it waits in the properties."""
    kept = {name: will.properties[name] for name in KEPT if name in will.properties}
    if "message_expiry" in will.properties:
        kept["message_expiry"] = will.properties["message_expiry"]
    return MqttMessage(will.topic, will.payload, will.qos, will.retain, kept, None, client)


def _as_text(problem: str) -> str:
    """A reason string: one line, and short."""
    return " ".join(problem.split())[:1000]
