"""WebSocket for MQTT: the server's half of RFC 6455, as far as MQTT needs it.

Theory of operation
    `answer` reads the HTTP request and makes its answer. Then `WebSocketFrames` turns what comes
    into MQTT bytes: binary messages, whole or in fragments, whose borders mean nothing to MQTT.
    A ping is answered; a text message, an unmasked frame or a wrong length ends the connection.

Source: RFC 6455; OASIS MQTT 5.0, chapter 6.
"""

from __future__ import annotations

import base64
import hashlib
from struct import Struct

KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
REQUEST_BYTES_MAX = 16 << 10
MESSAGE_BYTES_MAX = 4 << 20
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
_SHORT, _LONG = Struct("!H"), Struct("!Q")


class WebSocketError(Exception):
    """The other end does not speak WebSocket; the connection ends."""


def answer(request: bytes) -> bytes:
    """The answer to a whole request; `WebSocketError` if it asks for something else."""
    lines = request.split(b"\r\n")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    key = headers.get(b"sec-websocket-key")
    offered = [each.strip() for each in headers.get(b"sec-websocket-protocol", b"").split(b",")]
    is_upgrade = headers.get(b"upgrade", b"").lower() == b"websocket"
    if not lines[0].startswith(b"GET ") or not is_upgrade or key is None:
        raise WebSocketError("this port is for MQTT over WebSocket")
    proof = base64.b64encode(hashlib.sha1(key + KEY, usedforsecurity=False).digest())
    chosen = next((each for each in (b"mqtt", b"mqttv3.1") if each in offered), None)
    return b"\r\n".join(
        (
            b"HTTP/1.1 101 Switching Protocols",
            b"Upgrade: websocket",
            b"Connection: Upgrade",
            b"Sec-WebSocket-Accept: " + proof,
            *((b"Sec-WebSocket-Protocol: " + chosen,) if chosen else ()),
            b"",
            b"",
        )
    )


REFUSAL = (
    b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: close\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 37\r\n\r\nthis port is for MQTT over WebSocket\n"
)


def frame(data: bytes, code: int = BINARY) -> bytes:
    """One unmasked frame, as a server sends it."""
    size = len(data)
    if size < 126:
        head = bytes((0x80 | code, size))
    elif size < 1 << 16:
        head = bytes((0x80 | code, 126)) + _SHORT.pack(size)
    else:
        head = bytes((0x80 | code, 127)) + _LONG.pack(size)
    return head + data


class WebSocketFrames:
    """The frames of a client, in any pieces."""

    def __init__(self) -> None:
        self._rest = b""
        self._in_message = False

    def feed(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """MQTT bytes, bytes to answer, and whether the client has ended the connection."""
        self._rest += data
        taken: list[bytes] = []
        replies: list[bytes] = []
        while (found := self._next()) is not None:
            code, is_last, payload = found
            if code == CLOSE:
                replies.append(frame(payload[:2], CLOSE))
                return b"".join(taken), b"".join(replies), True
            if code == PING:
                replies.append(frame(payload, PONG))
            elif code in (BINARY, CONTINUATION):
                if (code == CONTINUATION) != self._in_message:
                    raise WebSocketError("fragments are out of order")
                self._in_message = not is_last
                taken.append(payload)
            elif code != PONG:
                raise WebSocketError("MQTT comes in binary messages")
        return b"".join(taken), b"".join(replies), False

    def _next(self) -> tuple[int, bool, bytes] | None:
        rest = self._rest
        if len(rest) < 2:
            return None
        code, size, at = rest[0] & 0x0F, rest[1] & 0x7F, 2
        if rest[0] & 0x70 or not rest[1] & 0x80:
            raise WebSocketError("a client's frames are masked and have no extensions")
        if code >= 8 and (size > 125 or not rest[0] & 0x80):
            raise WebSocketError("a control frame is short and whole")
        if size >= 126:
            form = _SHORT if size == 126 else _LONG
            if len(rest) < at + form.size:
                return None
            size = int(form.unpack_from(rest, at)[0])
            at += form.size
        if size > MESSAGE_BYTES_MAX:
            raise WebSocketError("a frame is too long")
        end = at + 4 + size
        if len(rest) < end:
            return None
        mask = rest[at : at + 4]
        self._rest = rest[end:]
        return code, bool(rest[0] & 0x80), unmask(rest[at + 4 : end], mask)


def unmask(data: bytes, mask: bytes) -> bytes:
    """The payload without its mask; a mask twice is none."""
    if not data:
        return data
    whole = (mask * (len(data) // 4 + 1))[: len(data)]
    return (int.from_bytes(data, "big") ^ int.from_bytes(whole, "big")).to_bytes(len(data), "big")
