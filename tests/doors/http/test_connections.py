"""Connections of the door: bounded in number and time, and none keeps others out."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from gapless.doors.http import app, connections
from tests.broker.stage import make_broker, run, wait_until
from tests.doors.http.caller import Caller, read_answer

if TYPE_CHECKING:
    from pathlib import Path


def test_idle_connections_make_room_and_busy_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 4)

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker, AsyncExitStack() as stack:
            caller = Caller.of(broker)
            streams = [
                await stack.enter_async_context(caller.stream("/topics/t/subscribe"))
                for _ in range(3)
            ]
            for _ in range(5):  # each begins to ask, and does not go on
                _, writer = await caller.open()
                stack.callback(writer.close)
                writer.write(b"GET /to")
            assert (await caller.get("/topics")).status == 200
            await caller.publish("t", {"n": 1})
            for stream in streams:
                assert (await stream.next()).json["attributes"] == {"n": 1}
            fourth = await stack.enter_async_context(caller.stream("/topics/t/subscribe"))
            await fourth.begin()
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await caller.get("/topics")  # all are busy

    run(main())


def test_a_connection_that_says_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "IDLE_S", 0.05)

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            reader, writer = await caller.open()
            writer.write(b"GET / HTTP/1.1\r\nHost:")
            assert await read_to_end(reader) == b""
            writer.close()

    run(main())


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


def test_a_body_that_does_not_come_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "BODY_S", 0.05)

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            reader, writer = await caller.open()
            length = {"Content-Type": "application/json", "Content-Length": "9"}
            writer.write(caller.head("POST", "/topics/t/events", length))
            assert (await read_answer(reader)).status == 408
            writer.close()

    run(main())


def test_streams_have_a_bound_and_requests_still_get_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "STREAMS_MAX", 1)

    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            async with caller.stream("/topics/t/subscribe") as reader:
                await reader.begin()
                for path in ("/topics/t/subscribe", "/topics/t/events?wait=1"):
                    refused = await caller.get(path)
                    assert refused.status == 503, path
                    assert refused.headers["retry-after"]
                assert (await caller.get("/topics")).status == 200
            door: Any = broker.doors.opened["http"]
            await wait_until(lambda: door._app._streams == 0)
            async with caller.stream("/topics/t/subscribe") as reader:
                await reader.begin()

    run(main())


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: \xff\xfe\r\n\r\n",
        b"GET /topics/t/subscribe HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: \xff\r\n\r\n",
        b"GET /topics/t/subscribe HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
        b"Connection: Upgrade\r\n\r\n",
    ],
)
def test_whatever_bytes_come_others_are_served(tmp_path: Path, sent: bytes) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, http="127.0.0.1:0") as broker:
            caller = Caller.of(broker)
            reader, writer = await caller.open()
            writer.write(sent)
            writer.write_eof()
            first = await asyncio.wait_for(reader.readline(), 20)
            assert first == b"" or int(first.split()[1]) < 500
            assert (await caller.get("/topics")).status == 200
            writer.close()

    run(main())
