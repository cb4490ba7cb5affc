"""A broker with an MQTT door in this process, and clients that speak packet by packet."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from gapless.broker.broker import Broker
from gapless.broker.networks import SINGLE, single_network
from gapless.broker.settings import Settings
from gapless.client.client import connect
from gapless.doors.mqtt.packets import (
    AnswerPacket,
    ConnectPacket,
    DisconnectPacket,
    Kind,
    PublishPacket,
    SubscribePacket,
    TopicFilter,
    UnsubscribePacket,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gapless.client.client import Client

QUIET_S = 0.3
"""How long nothing may come before a test says that nothing comes."""


class Got(NamedTuple):
    """A packet from the server. For a PUBLISH: `topic`, `payload` and so on are set."""

    kind: int
    flags: int
    body: bytes
    packet: int = 0
    topic: str = ""
    payload: bytes = b""
    properties: dict[str, Any] = {}  # noqa: RUF012

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def code(self) -> int:
        """The reason code of CONNACK, DISCONNECT, PUBACK and the like."""
        if self.kind == Kind.CONNACK:
            return self.body[1]
        if self.kind == Kind.DISCONNECT:
            return self.body[0] if self.body else 0
        return self.body[2] if len(self.body) > 2 else 0


TYPES = {
    0x01: "byte", 0x02: "long", 0x03: "text", 0x08: "text", 0x09: "binary", 0x0B: "varint",
    0x11: "long", 0x12: "text", 0x13: "short", 0x1C: "text", 0x1F: "text", 0x21: "short",
    0x22: "short", 0x23: "short", 0x26: "pair", 0x27: "long",
}  # fmt: skip
NAMES = {
    0x01: "payload_format", 0x02: "message_expiry", 0x03: "content_type", 0x08: "response_topic",
    0x09: "correlation_data", 0x0B: "identifiers", 0x11: "session_expiry", 0x12: "client",
    0x13: "keep_alive", 0x1C: "server", 0x1F: "reason", 0x21: "receive_maximum",
    0x22: "alias_maximum", 0x23: "alias", 0x26: "user", 0x27: "packet_maximum",
}  # fmt: skip


class Bytes:
    """A reader of its own, so that the door's is not tested by itself."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        taken, self.data = self.data[:size], self.data[size:]
        assert len(taken) == size
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def text(self) -> str:
        return self.take(self.number(2)).decode()

    def varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.number(1)
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def properties(self) -> dict[str, Any]:
        inner, found = Bytes(self.take(self.varint())), dict[str, Any]()
        while inner.data:
            number = inner.varint()
            match TYPES[number]:
                case "byte":
                    found[NAMES[number]] = inner.number(1)
                case "short":
                    found[NAMES[number]] = inner.number(2)
                case "long":
                    found[NAMES[number]] = inner.number(4)
                case "text":
                    found[NAMES[number]] = inner.text()
                case "binary":
                    found[NAMES[number]] = inner.take(inner.number(2))
                case "varint":
                    found.setdefault(NAMES[number], []).append(inner.varint())
                case _:
                    found.setdefault(NAMES[number], []).append((inner.text(), inner.text()))
        return found


class Peer:
    """A client that does what it is told, and nothing by itself."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int
    ) -> None:
        self.version = version
        self._reader, self._writer = reader, writer
        self._packet = 0
        self.connack = Got(0, 0, b"")
        self.held: list[Got] = []  # read while another packet was waited for

    # --- bytes -----------------------------------------------------------------------------------

    def send(self, packet: Any) -> None:
        data = packet if isinstance(packet, bytes) else encode(packet, self.version)
        self._writer.write(data)

    async def read(self) -> Got | None:
        """The next packet; None at the end of the connection."""
        try:
            first = (await self._reader.readexactly(1))[0]
            size, shift = 0, 0
            while True:
                byte = (await self._reader.readexactly(1))[0]
                size |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    break
            body = await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return self._parse(first >> 4, first & 15, body)

    def _parse(self, kind: int, flags: int, body: bytes) -> Got:
        rest = Bytes(body)
        if kind == Kind.PUBLISH:
            topic = rest.text()
            packet = rest.number(2) if flags & 6 else 0
            properties = rest.properties() if self.version == 5 else {}
            return Got(kind, flags, body, packet, topic, rest.data, properties)
        if kind == Kind.CONNACK and self.version == 5:
            return Got(kind, flags, body, properties=Bytes(body[2:]).properties())
        if kind == Kind.DISCONNECT or kind == Kind.PINGRESP or kind == Kind.CONNACK:
            return Got(kind, flags, body)
        packet = rest.number(2)
        properties = {}
        if kind in (Kind.SUBACK, Kind.UNSUBACK) and self.version == 5:
            properties = rest.properties()
        elif self.version == 5 and len(body) > 3:
            properties = Bytes(body[3:]).properties()
        return Got(kind, flags, rest.data if kind in (9, 11) else body, packet, "", b"", properties)

    async def expect(self, kind: Kind) -> Got:
        """The next packet of this kind; others are held for later."""
        for place, each in enumerate(self.held):
            if each.kind == kind:
                return self.held.pop(place)
        while True:
            got = await self.read()
            assert got is not None, f"the connection ended before {kind.name}"
            if got.kind == kind:
                return got
            self.held.append(got)

    async def quiet(self) -> None:
        """Nothing comes."""
        assert not self.held, self.held
        try:
            async with asyncio.timeout(QUIET_S):
                got = await self.read()
        except TimeoutError:
            return
        raise AssertionError(f"{got} came")

    async def ended(self) -> int:
        """The connection ends: the reason code of its DISCONNECT, or -1."""
        code = -1
        while (got := await self.read()) is not None:
            if got.kind == Kind.DISCONNECT:
                code = got.code
        return code

    def cut(self) -> None:
        """Go without a word."""
        self._writer.transport.abort()

    async def leave(self, code: int = 0, **properties: Any) -> None:
        """DISCONNECT, and wait until the server has closed the connection."""
        self.send(DisconnectPacket(code, properties))
        assert await self.ended() == -1

    # --- what clients do -------------------------------------------------------------------------

    def number(self) -> int:
        self._packet += 1
        return self._packet

    async def subscribe(
        self,
        *filters: str | TopicFilter,
        qos: int = 2,
        **properties: Any,
    ) -> Got:
        given = tuple(TopicFilter(each, qos) if isinstance(each, str) else each for each in filters)
        self.send(SubscribePacket(self.number(), given, properties))
        return await self.expect(Kind.SUBACK)

    async def unsubscribe(self, *filters: str) -> Got:
        self.send(UnsubscribePacket(self.number(), filters))
        return await self.expect(Kind.UNSUBACK)

    async def publish(
        self, topic: str, payload: bytes = b"x", qos: int = 1, *, retain: bool = False, **more: Any
    ) -> Got | None:
        """Publish, and wait for all answers."""
        packet = self.number() if qos else 0
        self.send(PublishPacket(topic, payload, qos, retain, False, packet, more))
        if qos == 0:
            return None
        if qos == 1:
            return await self.expect(Kind.PUBACK)
        received = await self.expect(Kind.PUBREC)
        if received.code < 0x80:
            self.send(AnswerPacket(Kind.PUBREL, packet))
            await self.expect(Kind.PUBCOMP)
        return received

    async def receive(self) -> Got:
        """The next message, answered."""
        got = await self.expect(Kind.PUBLISH)
        if got.qos == 1:
            self.send(AnswerPacket(Kind.PUBACK, got.packet))
        elif got.qos == 2:
            self.send(AnswerPacket(Kind.PUBREC, got.packet))
            assert (await self.expect(Kind.PUBREL)).packet == got.packet
            self.send(AnswerPacket(Kind.PUBCOMP, got.packet))
        return got


class Place:
    """A broker with an open door."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.door: Any = broker.doors.opened["mqtt"]
        self._peers: list[Peer] = []

    async def dial(self, version: int = 5) -> Peer:
        """A connection without a CONNECT."""
        host, port = self.broker.doors.addresses["mqtt"].rsplit(":", 1)
        peer = Peer(*await asyncio.open_connection(host, int(port)), version)
        self._peers.append(peer)
        return peer

    async def join(
        self, client: str = "", version: int = 5, *, clean: bool = True, **more: Any
    ) -> Peer:
        """A connected client. `more`: `will`, `keep_alive`, `user`, `password`, properties."""
        peer = await self.dial(version)
        own = {name: more.pop(name) for name in ("will", "user", "password") if name in more}
        peer.send(
            ConnectPacket(version, client, clean, more.pop("keep_alive", 0), **own, properties=more)
        )
        peer.connack = await peer.expect(Kind.CONNACK)
        return peer

    @asynccontextmanager
    async def native(self) -> AsyncIterator[Client]:
        async with connect(self.broker.url) as client:
            yield client

    def close(self) -> None:
        for peer in self._peers:
            peer.cut()


@asynccontextmanager
async def place(folder: Path, *topics: str, json_payload: bool = False) -> AsyncIterator[Place]:
    at = "127.0.0.1:0"
    settings = Settings(
        data=folder, listen=at, admin=None, mqtt=at, mqtt_ws=at, mqtt_json=json_payload
    )
    async with Broker(SINGLE, single_network(topics), settings) as broker:
        made = Place(broker)
        try:
            yield made
        finally:
            made.close()
