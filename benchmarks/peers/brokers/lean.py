"""The lean clients' common part: one connection, bytes in and out, no more than needed."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from benchmarks.peers.adapter import HOST, Client

if TYPE_CHECKING:
    from benchmarks.peers.adapter import Setting

SEND_BYTES_HIGH = 256 << 10


class LeanClient(Client, asyncio.Protocol):
    """A subclass cuts what comes into messages with `feed`, and appends to `out` what to send."""

    def __init__(self, setting: Setting, name: str) -> None:
        Client.__init__(self, setting, name)
        self.out: list[bytes] = []
        self.is_closing = False
        self.gone = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._writable = asyncio.Event()
        self._writable.set()
        self._waiter: asyncio.Future[Any] | None = None
        self._answers: deque[Any] = deque()

    @abstractmethod
    def feed(self, data: bytes) -> int:
        """Take whole messages from the front; how many bytes that were."""

    async def dial(self) -> None:
        await asyncio.get_running_loop().create_connection(lambda: self, HOST, self.setting.port)

    # --- the transport's side --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=SEND_BYTES_HIGH)

    def connection_lost(self, error: Exception | None) -> None:
        self._writable.set()
        self.gone.set()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ConnectionError("connection lost"))
        if not self.is_closing:
            self.on_lost()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        used = self.feed(data)
        self._rest = data[used:] if used < len(data) else b""

    # --- for subclasses --------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    async def flush(self) -> None:
        if self.out:
            self.send(b"".join(self.out))
            self.out.clear()
        await self._writable.wait()
        if self.gone.is_set():
            raise ConnectionError("connection lost")

    async def answer(self) -> Any:
        """What `answered` is given next: for requests while setting up."""
        if self._answers:
            return self._answers.popleft()
        if self.gone.is_set():
            raise ConnectionError("connection lost")
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            return await asyncio.wait_for(self._waiter, 30)
        finally:
            self._waiter = None

    def answered(self, value: object = None) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(value)
        else:
            self._answers.append(value)

    def fail(self, why: str) -> None:
        """The broker refused something: say so, and treat it as a lost connection."""
        assert self._transport is not None
        if not self.is_closing:
            print(f"{self.setting.peer} {self.name}: {why[:200]}", flush=True)
        self._transport.abort()

    async def shut(self) -> None:
        self.is_closing = True
        if self._transport is not None and not self.gone.is_set():
            self._transport.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(self.gone.wait(), 2)
