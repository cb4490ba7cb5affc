"""The proxy does to a connection what it says, and no more."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gapless.testing.processes.proxy import Proxy
from tests.broker.stage import run, served, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ENDED = (ConnectionError, asyncio.IncompleteReadError)


class Echo:
    """Sends everything back; notes how many connections ended."""

    def __init__(self) -> None:
        self.ended = 0
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except OSError:
            pass
        finally:
            self.ended += 1
            writer.transport.abort()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    async with served(echo.serve) as echo.address, Proxy(lambda: echo.address) as proxy:
        yield echo, proxy


class Peer:
    """A connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, text: bytes) -> bytes:
        self.writer.write(text)
        return await self.reader.readexactly(len(text))


@asynccontextmanager
async def dialled(proxy: Proxy) -> AsyncIterator[Peer]:
    host, port = proxy.address.split(":")
    peer = Peer(*await asyncio.open_connection(host, int(port)))
    try:
        yield peer
    finally:
        peer.writer.transport.abort()
        await asyncio.gather(peer.writer.wait_closed(), return_exceptions=True)


def test_bytes_pass_both_ways_and_are_counted() -> None:
    async def main() -> None:
        async with proxied() as (echo, proxy):
            async with dialled(proxy) as peer:
                assert await peer.ask(b"x" * 300_000) == b"x" * 300_000
                assert (proxy.connections, proxy.bytes_passed) == (1, 600_000)
            await wait_until(lambda: echo.ended == 1)

    run(main())


def test_a_cut_ends_what_is_open_and_what_comes_until_it_is_mended() -> None:
    async def main() -> None:
        async with proxied() as (echo, proxy):
            async with dialled(proxy) as peer:
                await peer.ask(b"hello")
                proxy.cut()
                with pytest.raises(ENDED):
                    await peer.ask(b"hello")
            await wait_until(lambda: echo.ended == 1)
            async with dialled(proxy) as again:
                with pytest.raises(ENDED):
                    await again.ask(b"hello")
            proxy.mend()
            async with dialled(proxy) as mended:
                assert await mended.ask(b"hello") == b"hello"

    run(main())


def test_a_stall_holds_everything_back_and_loses_nothing() -> None:
    async def main() -> None:
        async with proxied() as (echo, proxy), dialled(proxy) as peer:
            await peer.ask(b"hello")
            passed = proxy.bytes_passed
            proxy.stall()
            asking = asyncio.create_task(peer.ask(b"again"))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not asking.done()
            assert proxy.bytes_passed == passed
            proxy.mend()
            assert await asking == b"again"
            assert echo.ended == 0

    run(main())


def test_half_open_ends_the_target_and_tells_the_other_nothing() -> None:
    async def main() -> None:
        async with proxied() as (echo, proxy), dialled(proxy) as peer:
            await peer.ask(b"hello")
            proxy.half_open()
            await wait_until(lambda: echo.ended == 1)
            peer.writer.write(b"is anybody there?")
            reading = asyncio.create_task(peer.reader.read(1))
            async with dialled(proxy) as fresh:
                assert await fresh.ask(b"hello") == b"hello", "new connections pass"
            assert not reading.done()
            reading.cancel()

    run(main())


def test_garble_replaces_the_next_bytes_only() -> None:
    async def main() -> None:
        async with proxied() as (_, proxy), dialled(proxy) as peer:
            proxy.garble()
            assert await peer.ask(b"hello, world") != b"hello, world"
            assert await peer.ask(b"hello, world") == b"hello, world"

    run(main())
