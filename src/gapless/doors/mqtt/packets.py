"""MQTT packets: bytes to packets and back, for versions 3.1, 3.1.1 and 5.0.

Theory of operation
    `Splitter` cuts a byte stream into frames: the first byte and the bytes behind the length.
    `decode` makes a packet of a frame. It checks everything that one packet alone can break: flags,
    lengths, UTF-8, reserved bits, which properties a packet may have, how often, and their ranges.
    A packet that breaks a rule is a `PacketError` with the reason code that the sender is told:
    0x81 where bytes do not form a packet, 0x82 where the packet is formed well and not allowed.
    Version 3 packets differ by their properties alone, which they do not have.

Invariants
    I1  whatever the bytes are, `decode` returns a packet or raises `PacketError`
    I2  `decode(encode(packet))` is the packet; a test holds it for all packets that a client sends
    I3  a `Splitter` gives the same frames however the stream is cut

Source: OASIS MQTT 5.0 and 3.1.1. Deviation: control characters in texts are refused, as the
standard allows; an empty protocol name or a wrong one ends the connection without an answer.
Cost: a PUBLISH of QoS 1 without properties took 8 µs to decode on busy cores; decision 0043
compares.
"""

from __future__ import annotations

import re
from enum import IntEnum
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PACKET_BYTES_MAX = 2_000_000
"""The longest packet that is read, as clients are told: an event has at most 1 MiB, and
its topic and properties come on top."""

MALFORMED, PROTOCOL_ERROR = 0x81, 0x82
UNSAID = 0
"""The code of an error whose sender is told nothing: the connection just ends."""

BAD_CLIENT = 0x85
TOO_LARGE = 0x95
ALIAS_INVALID, UNSUPPORTED_VERSION = 0x94, 0x84
FOREVER = 0xFFFFFFFF
"""A session expiry interval that never ends."""

_SHORT, _LONG = Struct("!H"), Struct("!I")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef\ufffe\uffff]")


class Kind(IntEnum):
    """The packet types."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


class PacketError(Exception):
    """A packet breaks a rule; `code` is the reason code for its sender."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ConnectError(PacketError):
    """A CONNECT breaks a rule, or is of a version that there is not: a CONNACK says so."""


class Property(NamedTuple):
    """A property: its form, and the packets that may have it."""

    number: int
    name: str
    form: str  # byte, flag, short, long, varint, binary, text, pair
    packets: tuple[int, ...]
    least: int = 0


WILL = 0
"""Stands for the properties of a will in `Property.packets`."""

_ANSWERS = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP, Kind.SUBACK, Kind.UNSUBACK)
_C, _P, _A, _D, _X = Kind.CONNECT, Kind.PUBLISH, Kind.CONNACK, Kind.DISCONNECT, Kind.AUTH
PROPERTIES = (
    Property(0x01, "payload_format", "flag", (_P, WILL)),
    Property(0x02, "message_expiry", "long", (_P, WILL)),
    Property(0x03, "content_type", "text", (_P, WILL)),
    Property(0x08, "response_topic", "text", (_P, WILL)),
    Property(0x09, "correlation_data", "binary", (_P, WILL)),
    Property(0x0B, "subscription_identifier", "varint", (_P, Kind.SUBSCRIBE), 1),
    Property(0x11, "session_expiry", "long", (_C, _A, _D)),
    Property(0x12, "assigned_client", "text", (_A,)),
    Property(0x13, "server_keep_alive", "short", (_A,)),
    Property(0x15, "authentication_method", "text", (_C, _A, _X)),
    Property(0x16, "authentication_data", "binary", (_C, _A, _X)),
    Property(0x17, "request_problem", "flag", (_C,)),
    Property(0x18, "will_delay", "long", (WILL,)),
    Property(0x19, "request_response", "flag", (_C,)),
    Property(0x1A, "response_information", "text", (_A,)),
    Property(0x1C, "server_reference", "text", (_A, _D)),
    Property(0x1F, "reason_string", "text", (_A, *_ANSWERS, _D, _X)),
    Property(0x21, "receive_maximum", "short", (_C, _A), 1),
    Property(0x22, "topic_alias_maximum", "short", (_C, _A)),
    Property(0x23, "topic_alias", "short", (_P,)),
    Property(0x24, "maximum_qos", "flag", (_A,)),
    Property(0x25, "retain_available", "flag", (_A,)),
    Property(
        0x26,
        "user",
        "pair",
        (_C, _A, _P, WILL, *_ANSWERS, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, _D, _X),
    ),
    Property(0x27, "maximum_packet", "long", (_C, _A), 1),
    Property(0x28, "wildcard_available", "flag", (_A,)),
    Property(0x29, "identifiers_available", "flag", (_A,)),
    Property(0x2A, "shared_available", "flag", (_A,)),
)
_BY_NUMBER = {each.number: each for each in PROPERTIES}
_BY_NAME = {each.name: each for each in PROPERTIES}

T = TypeVar("T")
Properties = dict[str, Any]
"""By name; "user" and, in a PUBLISH, "subscription_identifier" are lists."""

NONE: Properties = {}


class Will(msgspec.Struct, frozen=True):
    """What is published when the client goes without a DISCONNECT."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties


class ConnectPacket(msgspec.Struct, frozen=True):
    """The first packet of a client. `version` is 3 (3.1), 4 (3.1.1) or 5."""

    version: int
    client: str
    clean: bool
    keep_alive: int
    will: Will | None = None
    user: str | None = None
    password: bytes | None = None
    properties: Properties = NONE


class PublishPacket(msgspec.Struct, frozen=True, gc=False):
    """A message. `packet` is 0 for QoS 0."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet: int = 0
    properties: Properties = NONE


class AnswerPacket(msgspec.Struct, frozen=True, gc=False):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: Kind
    packet: int
    code: int = 0
    properties: Properties = NONE


class TopicFilter(msgspec.Struct, frozen=True):
    """A topic filter of a SUBSCRIBE, with its options."""

    filter: str
    qos: int
    no_local: bool = False
    as_published: bool = False
    handling: int = 0


class SubscribePacket(msgspec.Struct, frozen=True):
    """Topic filters that the client wants."""

    packet: int
    filters: tuple[TopicFilter, ...]
    properties: Properties = NONE


class UnsubscribePacket(msgspec.Struct, frozen=True):
    """Topic filters that the client wants no more."""

    packet: int
    filters: tuple[str, ...]
    properties: Properties = NONE


class PingPacket(msgspec.Struct, frozen=True):
    """PINGREQ."""


class DisconnectPacket(msgspec.Struct, frozen=True):
    """The end of the connection, in order."""

    code: int = 0
    properties: Properties = NONE


Packet = (
    ConnectPacket
    | PublishPacket
    | AnswerPacket
    | SubscribePacket
    | UnsubscribePacket
    | PingPacket
    | DisconnectPacket
)


class Splitter:
    """Cuts a stream into frames."""

    def __init__(self, packet_bytes_max: int = PACKET_BYTES_MAX) -> None:
        self.packet_bytes_max = packet_bytes_max
        self._rest = b""

    @property
    def is_waiting(self) -> bool:
        """Whether a packet has begun and is not whole."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Each whole frame: its first byte, and what follows its length."""
        if self._rest:
            data = self._rest + data
        at, end = 0, len(data)
        try:
            if data and data[at] < 0x10:
                raise PacketError(PROTOCOL_ERROR, "there is no packet of type 0")
            while end - at >= 2:
                size, begin = data[at + 1], at + 2
                if size >= 0x80:
                    size, begin = self._long(data, at, end)
                    if not begin:
                        return
                if size > self.packet_bytes_max:
                    raise PacketError(TOO_LARGE, f"a packet of {size} bytes is too long")
                if begin + size > end:
                    return
                first, body = data[at], data[begin : begin + size]
                at = begin + size
                yield first, body
        finally:
            self._rest = data[at:]

    @staticmethod
    def _long(data: bytes, at: int, end: int) -> tuple[int, int]:
        """A length of several bytes, and where the packet goes on; 0: it is not there yet."""
        size = data[at + 1] & 0x7F
        for place in range(1, 4):
            begin = at + 1 + place
            if begin >= end:
                return 0, 0
            size |= (data[begin] & 0x7F) << 7 * place
            if data[begin] < 0x80:
                if not data[begin]:
                    raise PacketError(MALFORMED, "the length has a needless byte")
                return size, begin + 1
        raise PacketError(UNSAID, "the length has more than four bytes")


class _Reader:
    """Takes values from the front of a packet's bytes."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.end = len(data)

    def byte(self) -> int:
        if self.at >= self.end:
            raise PacketError(MALFORMED, "the packet is too short")
        self.at += 1
        return self.data[self.at - 1]

    def short(self) -> int:
        at = self.at
        if at + 2 > self.end:
            raise PacketError(MALFORMED, "the packet is too short")
        self.at = at + 2
        return self.data[at] << 8 | self.data[at + 1]

    def long(self) -> int:
        at = self.at
        if at + 4 > self.end:
            raise PacketError(MALFORMED, "the packet is too short")
        self.at = at + 4
        return int(_LONG.unpack_from(self.data, at)[0])

    def varint(self) -> int:
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if shift and not byte:
                    raise PacketError(MALFORMED, "a number has a needless byte")
                return value
        raise PacketError(MALFORMED, "a number has more than four bytes")

    def binary(self) -> bytes:
        size = self.short()
        at = self.at
        if at + size > self.end:
            raise PacketError(MALFORMED, "the packet is too short")
        self.at = at + size
        return self.data[at : at + size]

    def text(self) -> str:
        try:
            text = self.binary().decode()
        except UnicodeDecodeError:
            raise PacketError(MALFORMED, "a text is not UTF-8") from None
        if not text.isprintable() and _CONTROL.search(text):
            raise PacketError(MALFORMED, "a text has control characters")
        return text

    def packet(self, code: int = PROTOCOL_ERROR) -> int:
        number = self.short()
        if not number:
            raise PacketError(code, "a packet identifier is not 0")
        return number

    def rest(self) -> bytes:
        at, self.at = self.at, self.end
        return self.data[at:]

    def finish(self) -> None:
        if self.at != self.end:
            raise PacketError(MALFORMED, "the packet is too long")

    def properties(self, of: int) -> Properties:
        size = self.varint()
        if not size:
            return NONE
        end, whole = self.at + size, self.end
        if end > whole:
            raise PacketError(MALFORMED, "the properties are longer than the packet")
        self.end = end
        found: Properties = {}
        while self.at < end:
            self._property(of, found)
        for name in found:
            if of not in _BY_NAME[name].packets:
                raise PacketError(_blame(of), f"{name} is no property of this packet")
        self.end = whole
        return found

    def _property(self, of: int, found: Properties) -> None:
        known = _BY_NUMBER.get(self.varint())
        if known is None:
            raise PacketError(MALFORMED, "there is no such property")
        name = known.name
        match known.form:
            case "pair":
                value: Any = (self.text(), self.text())
            case "text":
                value = self.text()
            case "binary":
                value = self.binary()
            case "varint":
                value = self.varint()
            case "long":
                value = self.long()
            case "short":
                value = self.short()
            case _:
                value = self.byte()
                if value > 1:
                    raise PacketError(PROTOCOL_ERROR, f"{name} is 0 or 1")
        if known.form == "pair":
            found.setdefault(name, []).append(value)
            return
        if name in found:
            raise PacketError(PROTOCOL_ERROR, f"{name} is there twice")
        if known.least and value < known.least:
            raise PacketError(_blame(of), f"{name} is not 0")
        found[name] = value


def _blame(of: int) -> int:
    """The reason code for a property that is not allowed: wishes with one are called malformed."""
    return MALFORMED if of in (Kind.SUBSCRIBE, Kind.UNSUBSCRIBE) else PROTOCOL_ERROR


def decode(first: int, body: bytes, version: int) -> Packet:
    """The packet of a frame. `version`: of the connection's CONNECT, 0 before it has come."""
    kind, flags = first >> 4, first & 0x0F
    if kind == Kind.PUBLISH:
        return _publish(flags, body, version)
    if kind == Kind.CONNECT:
        return _connect(flags, body)
    read = _READERS.get(kind)
    if kind == Kind.PINGRESP and body and not flags:
        raise PacketError(UNSAID, "a client does not send this")
    if read is None:
        odd = flags and kind in (Kind.SUBACK, Kind.UNSUBACK, Kind.PINGRESP)
        raise PacketError(MALFORMED if odd else PROTOCOL_ERROR, "a client does not send this")
    wanted = 2 if kind in (Kind.PUBREL, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE) else 0
    if flags != wanted and version != 3:
        raise PacketError(MALFORMED, "the flags of the packet are wrong")
    return read(kind, _Reader(body), version)


def _publish(flags: int, body: bytes, version: int) -> PublishPacket:
    qos = flags >> 1 & 3
    if qos == 3 or (not qos and flags & 8 and version != 3):
        raise PacketError(MALFORMED, "QoS and DUP contradict each other")
    reader = _Reader(body)
    topic = reader.text()
    if "+" in topic or "#" in topic:
        raise PacketError(MALFORMED, "a topic has no wildcards")
    packet = reader.packet() if qos else 0
    properties = reader.properties(Kind.PUBLISH) if version == 5 else NONE
    if properties:
        if "subscription_identifier" in properties:
            raise PacketError(PROTOCOL_ERROR, "a client gives no subscription identifier")
        _check_response(properties)
        if properties.get("topic_alias") == 0:
            raise PacketError(ALIAS_INVALID, "a topic alias is not 0")
    if not topic and "topic_alias" not in properties:
        raise PacketError(MALFORMED if version == 5 else PROTOCOL_ERROR, "there is no topic")
    return PublishPacket(
        topic, reader.rest(), qos, bool(flags & 1), bool(flags & 8), packet, properties
    )


def _check_response(properties: Properties) -> None:
    answer = properties.get("response_topic", "?")
    if not answer or "+" in answer or "#" in answer:
        raise PacketError(PROTOCOL_ERROR, "a response topic is a topic, without wildcards")


_LEVELS = {("MQIsdp", 3): 3, ("MQTT", 4): 4, ("MQTT", 5): 5}


def _connect(flags: int, body: bytes) -> ConnectPacket:
    reader = _Reader(body)
    protocol = reader.text()
    if protocol not in ("MQTT", "MQIsdp"):
        raise PacketError(PROTOCOL_ERROR, "the protocol is not MQTT")
    level = reader.byte()
    version = _LEVELS.get((protocol, level & 0x7F))
    if version is None:
        raise ConnectError(UNSUPPORTED_VERSION, f"there is no protocol level {level}")
    try:
        return _connect_of(reader, flags, version)
    except PacketError as error:
        if version != 5:
            raise
        raise ConnectError(error.code, str(error)) from None


def _blaming(code: int, read: Callable[[], T]) -> T:
    """What is read, or an error with this reason code. A wrong proof is told nothing."""
    try:
        return read()
    except PacketError as error:
        raise PacketError(code, str(error)) from None


def _connect_of(reader: _Reader, flags: int, version: int) -> ConnectPacket:
    bits = reader.byte()
    if (flags and version != 3) or (bits & 1 and version != 3):
        raise PacketError(MALFORMED, "reserved bits are not 0")
    has_will, will_qos, will_retain = bits & 4, bits >> 3 & 3, bool(bits & 32)
    if will_qos == 3 or (not has_will and (will_qos or will_retain)):
        raise PacketError(MALFORMED, "the bits of the will contradict each other")
    if version != 5 and bits & 64 and not bits & 128:
        raise PacketError(MALFORMED, "a password needs a user name")
    keep_alive = reader.short()
    properties = reader.properties(Kind.CONNECT) if version == 5 else NONE
    if "authentication_data" in properties and "authentication_method" not in properties:
        raise PacketError(PROTOCOL_ERROR, "authentication data need a method")
    client = _blaming(BAD_CLIENT, reader.text)
    will = None
    if has_will:
        will_properties = reader.properties(WILL) if version == 5 else NONE
        topic = reader.text()
        if not topic or "+" in topic or "#" in topic:
            raise PacketError(MALFORMED, "the topic of the will is not good")
        _check_response(will_properties)
        will = Will(topic, reader.binary(), will_qos, will_retain, will_properties)
    user = _blaming(UNSAID, reader.text) if bits & 128 else None
    password = _blaming(UNSAID, reader.binary) if bits & 64 else None
    reader.finish()
    clean = bool(bits & 2)
    return ConnectPacket(version, client, clean, keep_alive, will, user, password, properties)


CODES = {
    Kind.PUBACK: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    Kind.PUBREC: {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99},
    Kind.PUBREL: {0x00, 0x92},
    Kind.PUBCOMP: {0x00, 0x92},
    Kind.DISCONNECT: {
        *(0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99),
    },
}
"""The reason codes that a client may give."""


def _answer(kind: int, reader: _Reader, version: int) -> AnswerPacket:
    packet = reader.packet()
    code, properties = _code(kind, reader, version)
    reader.finish()
    return AnswerPacket(Kind(kind), packet, code, properties)


def _code(kind: int, reader: _Reader, version: int) -> tuple[int, Properties]:
    """A reason code and properties, either of which may be missing."""
    if version != 5 or reader.at == reader.end:
        return 0, NONE
    code = reader.byte()
    if code not in CODES[Kind(kind)]:
        ends = kind == Kind.DISCONNECT
        raise PacketError(
            UNSAID if ends else PROTOCOL_ERROR, "a client does not give this reason code"
        )
    return code, reader.properties(kind) if reader.at < reader.end else NONE


def _subscribe(kind: int, reader: _Reader, version: int) -> SubscribePacket:
    packet = reader.packet(MALFORMED)
    properties = reader.properties(kind) if version == 5 else NONE
    filters: list[TopicFilter] = []
    while reader.at < reader.end or not filters:
        text, bits = _filter(reader), reader.byte()
        qos, handling = bits & 3, bits >> 4 & 3
        if qos == 3 or bits & 0xC0 or (version != 5 and bits > 2):
            raise PacketError(MALFORMED, "the options of a filter are not good")
        if handling == 3:
            raise PacketError(MALFORMED, "retain handling is 0, 1 or 2")
        no_local = bool(bits & 4)
        if no_local and text.startswith("$share/"):
            raise PacketError(PROTOCOL_ERROR, "a shared subscription is never without local")
        filters.append(TopicFilter(text, qos, no_local, bool(bits & 8), handling))
    return SubscribePacket(packet, tuple(filters), properties)


def _unsubscribe(kind: int, reader: _Reader, version: int) -> UnsubscribePacket:
    packet = reader.packet(MALFORMED)
    properties = reader.properties(kind) if version == 5 else NONE
    filters = [_filter(reader)]
    while reader.at < reader.end:
        filters.append(_filter(reader))
    return UnsubscribePacket(packet, tuple(filters), properties)


def _filter(reader: _Reader) -> str:
    text = reader.text()
    if not is_filter(text):
        shared = text.startswith("$share/") and "#" not in text[:-1]
        raise PacketError(PROTOCOL_ERROR if shared else MALFORMED, "a topic filter is not good")
    return text


def is_filter(text: str) -> bool:
    """Whether `+` and `#` stand alone on their levels, and `#` on the last."""
    if not text:
        return False
    if "#" not in text and "+" not in text and not text.startswith("$share/"):
        return True
    levels = text.split("/")
    if levels[0] == "$share":
        if len(levels) < 3 or not levels[1] or "+" in levels[1] or "#" in levels[1]:
            return False
        levels = levels[2:]
        if levels == [""]:
            return False
    return all(
        each == "+" or (each == "#" and place == len(levels) - 1) or not set("+#") & set(each)
        for place, each in enumerate(levels)
    )


def _ping(_: int, reader: _Reader, version: int) -> PingPacket:
    if reader.end:
        raise PacketError(UNSAID, "a ping has no content")
    return PingPacket()


def _disconnect(kind: int, reader: _Reader, version: int) -> DisconnectPacket:
    code, properties = _code(kind, reader, version)
    reader.finish()
    return DisconnectPacket(code, properties)


_READERS: dict[int, Callable[[int, _Reader, int], Packet]] = {
    Kind.PUBACK: _answer,
    Kind.PUBREC: _answer,
    Kind.PUBREL: _answer,
    Kind.PUBCOMP: _answer,
    Kind.SUBSCRIBE: _subscribe,
    Kind.UNSUBSCRIBE: _unsubscribe,
    Kind.PINGREQ: _ping,
    Kind.DISCONNECT: _disconnect,
}


# --- writing -------------------------------------------------------------------------------------

PONG = bytes((Kind.PINGRESP << 4, 0))


def varint(value: int) -> bytes:
    """A variable byte integer."""
    if value < 0x80:
        return bytes((value,))
    made = bytearray()
    while value >= 0x80:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def frame(first: int, *parts: bytes) -> bytes:
    """A whole packet: first byte, length, and the rest."""
    body = b"".join(parts)
    return bytes((first,)) + varint(len(body)) + body


def text_bytes(text: str) -> bytes:
    data = text.encode()
    return _SHORT.pack(len(data)) + data


def binary_bytes(data: bytes) -> bytes:
    return _SHORT.pack(len(data)) + data


_FORMS: dict[str, Callable[[Any], bytes]] = {
    "text": text_bytes,
    "binary": binary_bytes,
    "varint": varint,
    "long": _LONG.pack,
    "short": _SHORT.pack,
    "flag": lambda value: bytes((value,)),
}


def property_bytes(properties: Properties) -> bytes:
    """Properties with their length in front."""
    if not properties:
        return b"\0"
    made = []
    for name, value in properties.items():
        known = _BY_NAME[name]
        number = bytes((known.number,))
        if known.form == "pair":
            made += [number + text_bytes(key) + text_bytes(text) for key, text in value]
        elif isinstance(value, list):
            made += [number + varint(each) for each in value]
        else:
            made.append(number + _FORMS[known.form](value))
    body = b"".join(made)
    return varint(len(body)) + body


def connack(version: int, code: int, *, present: bool, properties: Properties = NONE) -> bytes:
    """For version 5 `code` is a reason code, otherwise a return code."""
    tail = property_bytes(properties) if version == 5 else b""
    return frame(Kind.CONNACK << 4, bytes((present, code)), tail)


def publish_bytes(packet: PublishPacket, version: int) -> bytes:
    """A PUBLISH, from either side."""
    first = Kind.PUBLISH << 4 | packet.dup << 3 | packet.qos << 1 | packet.retain
    number = _SHORT.pack(packet.packet) if packet.qos else b""
    properties = property_bytes(packet.properties) if version == 5 else b""
    return frame(first, text_bytes(packet.topic), number, properties, packet.payload)


def answer_bytes(packet: AnswerPacket, version: int) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP, as short as can be."""
    first = packet.kind << 4 | (2 if packet.kind == Kind.PUBREL else 0)
    if version != 5 or (not packet.code and not packet.properties):
        return bytes((first, 2)) + _SHORT.pack(packet.packet)
    tail = property_bytes(packet.properties) if packet.properties else b""
    return frame(first, _SHORT.pack(packet.packet), bytes((packet.code,)), tail)


def suback(version: int, number: int, codes: bytes, properties: Properties = NONE) -> bytes:
    """The outcome of each filter of a SUBSCRIBE."""
    tail = property_bytes(properties) if version == 5 else b""
    return frame(Kind.SUBACK << 4, _SHORT.pack(number), tail, codes)


def unsuback(version: int, number: int, codes: bytes) -> bytes:
    """The outcome of each filter of an UNSUBSCRIBE; version 3 tells none."""
    return frame(Kind.UNSUBACK << 4, _SHORT.pack(number), b"\0" + codes if version == 5 else b"")


def disconnect_bytes(code: int, properties: Properties = NONE) -> bytes:
    """For version 5 only: a server of version 3 just closes."""
    tail = property_bytes(properties) if properties else b""
    return frame(Kind.DISCONNECT << 4, bytes((code,)), tail)


def encode(packet: Packet, version: int) -> bytes:
    """Any packet that a client sends."""
    match packet:
        case PublishPacket():
            return publish_bytes(packet, version)
        case AnswerPacket():
            return answer_bytes(packet, version)
        case ConnectPacket():
            return _connect_bytes(packet)
        case SubscribePacket(number, filters, properties):
            options = (
                text_bytes(each.filter)
                + bytes(
                    (each.qos | each.no_local << 2 | each.as_published << 3 | each.handling << 4,)
                )
                for each in filters
            )
            tail = property_bytes(properties) if version == 5 else b""
            return frame(Kind.SUBSCRIBE << 4 | 2, _SHORT.pack(number), tail, *options)
        case UnsubscribePacket(number, texts, properties):
            tail = property_bytes(properties) if version == 5 else b""
            return frame(
                Kind.UNSUBSCRIBE << 4 | 2, _SHORT.pack(number), tail, *map(text_bytes, texts)
            )
        case PingPacket():
            return bytes((Kind.PINGREQ << 4, 0))
        case DisconnectPacket(code, properties):
            first = Kind.DISCONNECT << 4
            if version != 5 or (not code and not properties):
                return bytes((first, 0))
            return frame(first, bytes((code,)), property_bytes(properties))


def _connect_bytes(packet: ConnectPacket) -> bytes:
    will, version = packet.will, packet.version
    bits = packet.clean << 1 | (packet.user is not None) << 7 | (packet.password is not None) << 6
    parts = [text_bytes("MQIsdp" if version == 3 else "MQTT")]
    if will is not None:
        bits |= 4 | will.qos << 3 | will.retain << 5
    parts += [bytes((version, bits)), _SHORT.pack(packet.keep_alive)]
    if version == 5:
        parts.append(property_bytes(packet.properties))
    parts.append(text_bytes(packet.client))
    if will is not None:
        if version == 5:
            parts.append(property_bytes(will.properties))
        parts += [text_bytes(will.topic), binary_bytes(will.payload)]
    if packet.user is not None:
        parts.append(text_bytes(packet.user))
    if packet.password is not None:
        parts.append(binary_bytes(packet.password))
    return frame(Kind.CONNECT << 4, *parts)
