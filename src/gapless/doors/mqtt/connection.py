"""The sockets of MQTT clients: TCP, TLS or WebSocket, one object for each connection.

Theory of operation
    Bytes become frames, and frames packets of the version that CONNECT names. Until the door has
    admitted the client, further packets wait. A packet that breaks a rule ends the connection; a
    client of version 5 is told the reason code first.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, cast

from gapless.doors.mqtt import websocket
from gapless.doors.mqtt.packets import (
    ConnectError,
    ConnectPacket,
    Kind,
    PacketError,
    Splitter,
    connack,
    decode,
)

if TYPE_CHECKING:
    from gapless.doors.mqtt.host import Host

CONNECT_S = 10.0
"""How long a client may take for its CONNECT."""

WRITE_BYTES_MAX = 4 << 20
"""Unsent bytes of a connection; beyond it messages of QoS 0 to a session that ends with it are
dropped, and the client is told. Others wait at the broker."""

WAITING_MAX = 1_000
"""Packets that wait while the client is being admitted; beyond it the connection is not read."""


PUBACK = Kind.PUBACK << 4
PUBACKS, LENGTHS = bytes([PUBACK]) * (1 << 16), b"\2" * (1 << 16)


class Gate(Protocol):
    """The door, as far as a connection knows it."""

    def begin(self, connection: MqttConnection) -> bool: ...
    def lose(self, connection: MqttConnection, host: Host | None) -> None: ...
    async def admit(self, connection: MqttConnection, packet: ConnectPacket) -> Host | None: ...


class MqttConnection(asyncio.Protocol):
    """A client that speaks MQTT over a stream."""

    def __init__(self, door: Gate) -> None:
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._splitter = Splitter()
        self._version = 0
        self._host: Host | None = None
        self._admitting: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._patience: asyncio.TimerHandle | None = None
        self.is_closed = False

    # --- asyncio ---------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES_MAX)
        loop = asyncio.get_running_loop()
        if self._door.begin(self):
            self._patience = loop.call_later(CONNECT_S, self.close)
        else:
            self.close()

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        if self._host is not None:
            self._host.set_slow(is_slow=True)

    def resume_writing(self) -> None:
        if self._host is not None:
            self._host.set_slow(is_slow=False)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_closed = True
        if self._patience is not None:
            self._patience.cancel()
        self._door.lose(self, self._host)

    # --- for the host ----------------------------------------------------------------------------

    @property
    def certificate(self) -> dict[str, Any] | None:
        assert self._transport is not None
        return self._transport.get_extra_info("peercert")  # type: ignore[no-any-return]

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self.is_closed:
            self._transport.write(data)

    def close(self) -> None:
        """Send what is there, and end."""
        self.is_closed = True
        if self._transport is not None:
            self._transport.close()

    def hold(self, *, back: bool) -> None:
        """Read nothing, or go on reading."""
        if self._transport is None or self._transport.is_closing():
            return
        if back:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- packets ---------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        try:
            if self._host is not None and data[0] == PUBACK and self._take_pubacks(data):
                return
            for first, body in self._splitter.feed(data):
                if self.is_closed:
                    return
                if self._admitting is not None:
                    self._waiting.append((first, body))
                    if len(self._waiting) == WAITING_MAX:
                        self.hold(back=True)
                else:
                    self._on_frame(first, body)
        except PacketError as error:
            self._refuse(error)

    def _take_pubacks(self, data: bytes) -> bool:
        """Bytes that are nothing but short PUBACKs, as a busy subscriber sends them."""
        count, rest = divmod(len(data), 4)
        if rest or self._splitter.is_waiting or self.is_closed:
            return False
        if data[::4] != PUBACKS[:count] or data[1::4] != LENGTHS[:count]:
            return False
        numbers = struct.unpack(f">{count * '2xH'}", data)
        if 0 in numbers:
            return False
        assert self._host is not None
        self._host.answered(numbers)
        return True

    def _on_frame(self, first: int, body: bytes) -> None:
        if self._host is not None:
            self._host.receive(decode(first, body, self._version))
            return
        if first >> 4 != Kind.CONNECT:
            raise PacketError(0x82, "the first packet is a CONNECT")
        packet = decode(first, body, 0)
        assert isinstance(packet, ConnectPacket)
        self._version = packet.version
        self._admitting = asyncio.create_task(self._admit(packet))

    async def _admit(self, packet: ConnectPacket) -> None:
        try:
            self._host = await self._door.admit(self, packet)
        finally:
            self._admitting = None
        if self._patience is not None:
            self._patience.cancel()
        if self._host is None:
            self.close()
            return
        if self.is_closed:
            self._door.lose(self, self._host)
            return
        was_held = len(self._waiting) >= WAITING_MAX
        try:
            while self._waiting and not self.is_closed:
                self._on_frame(*self._waiting.popleft())
        except PacketError as error:
            self._refuse(error)
        if was_held:
            self.hold(back=False)

    def _refuse(self, error: PacketError) -> None:
        host = self._host
        if host is not None and host.peer is self:
            host.perform(host.session.refuse(error, time.time()))
        elif isinstance(error, ConnectError) and error.code:
            self.write(connack(5, error.code, present=False))
        self.close()


class WebSocketConnection(MqttConnection):
    """A client that speaks MQTT over WebSocket."""

    def __init__(self, door: Gate) -> None:
        super().__init__(door)
        self._request = b""
        self._frames: websocket.WebSocketFrames | None = None

    def data_received(self, data: bytes) -> None:
        try:
            if self._frames is None:
                rest = self._shake_hands(data)
                if rest is None:
                    return
                data = rest
            assert self._frames is not None
            taken, replies, is_over = self._frames.feed(data)
        except websocket.WebSocketError:
            self.close()
            return
        if replies:
            super().write(replies)
        if taken:
            self._take(taken)
        if is_over:
            self.close()

    def _shake_hands(self, data: bytes) -> bytes | None:
        """What follows the request; None: it is not whole."""
        self._request += data
        head, end, rest = self._request.partition(b"\r\n\r\n")
        if not end:
            if len(self._request) > websocket.REQUEST_BYTES_MAX:
                raise websocket.WebSocketError("the request is too long")
            return None
        try:
            super().write(websocket.answer(head))
        except websocket.WebSocketError:
            super().write(websocket.REFUSAL)
            raise
        self._frames, self._request = websocket.WebSocketFrames(), b""
        return rest

    def write(self, data: bytes) -> None:
        super().write(websocket.frame(data))
