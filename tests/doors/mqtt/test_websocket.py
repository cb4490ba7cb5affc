"""WebSocket: frames in any pieces, and no strangers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.doors.mqtt import websocket
from gapless.doors.mqtt.websocket import WebSocketError, WebSocketFrames, frame, unmask

REQUEST = b"\r\n".join(
    (
        b"GET /mqtt HTTP/1.1",
        b"Host: x",
        b"Upgrade: websocket",
        b"Connection: Upgrade",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        b"Sec-WebSocket-Protocol: other, mqtt",
    )
)


def masked(data: bytes, code: int = websocket.BINARY, *, last: bool = True) -> bytes:
    """A client's frame."""
    made = bytearray(frame(data, code))
    head = len(made) - len(data)
    made[1] |= 0x80
    if not last:
        made[0] &= 0x7F
    mask = b"\x01\x02\x03\x04"
    return bytes(made[:head]) + mask + unmask(data, mask)


def test_the_handshake_is_that_of_the_standard() -> None:
    answer = websocket.answer(REQUEST)
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in answer
    assert b"Sec-WebSocket-Protocol: mqtt" in answer


def test_another_request_is_refused() -> None:
    with pytest.raises(WebSocketError):
        websocket.answer(b"GET / HTTP/1.1\r\nHost: x")


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(1, 9))
def test_messages_come_through_in_any_pieces(messages: list[bytes], size: int) -> None:
    data, frames, taken = b"".join(map(masked, messages)), WebSocketFrames(), b""
    for at in range(0, len(data), size):
        taken += frames.feed(data[at : at + size])[0]
    assert taken == b"".join(messages)


def test_fragments_pings_and_the_end() -> None:
    data = (
        masked(b"ab", last=False)
        + masked(b"p", websocket.PING)
        + masked(b"cd", websocket.CONTINUATION)
        + masked(b"\x03\xe8", websocket.CLOSE)
    )
    taken, replies, is_over = WebSocketFrames().feed(data)
    assert (taken, is_over) == (b"abcd", True)
    assert replies == frame(b"p", websocket.PONG) + frame(b"\x03\xe8", websocket.CLOSE)


@pytest.mark.parametrize(
    "data",
    [
        frame(b"unmasked"),
        masked(b"x", websocket.TEXT),
        masked(b"x", websocket.CONTINUATION),
        b"\xc2\x81",
        b"\x82\xff" + b"\xff" * 8,
        masked(b"x", 9, last=False),
    ],
)
def test_what_is_not_websocket_is_refused(data: bytes) -> None:
    with pytest.raises(WebSocketError):
        WebSocketFrames().feed(data)
