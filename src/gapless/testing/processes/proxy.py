"""A TCP proxy that does to a link what networks do to it: cut, stall, delay, half-open, garbage.

Theory of operation
    Each connection that comes is joined to one of our own to the target, and two tasks carry bytes,
    one each way. All faults act on the proxy as a whole, on what is open and on what comes later,
    until `mend`.

    cut        connections are reset, new ones too
    stall      connections stay open and nothing passes; what waits passes later, unharmed
    half_open  the target's side is closed and nobody tells the other: it waits for ever
    garble     the next bytes that pass are replaced by others
    delay_s    how long bytes take, each way

Bounds: one chunk of `CHUNK_BYTES` for each way of a connection; the rest waits in the kernel.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from gapless.broker.listener import stop_listening

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES = 1 << 16


@dataclass(eq=False, slots=True)
class Joint:
    """One connection through the proxy: our own to the target."""

    far: asyncio.StreamWriter
    is_half_open: bool = False


class Proxy:
    """Stands between those who dial `address` and the target; use it with `async with`."""

    def __init__(self, target: Callable[[], str], seed: int = 0) -> None:
        """`target`: asked for each connection anew, since it may come and go."""
        self.address = ""
        self.delay_s = 0.0
        self.bytes_passed = 0
        self._target = target
        self._dice = random.Random(seed)
        self._is_cut = False
        self._is_garbling = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._joints: set[Joint] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        return len(self._joints)

    # --- faults ----------------------------------------------------------------------------------

    def cut(self) -> None:
        self._is_cut = True
        for task in self._tasks:
            task.cancel()

    def stall(self) -> None:
        self._flowing.clear()

    def half_open(self) -> None:
        """Of what is open now; new connections pass."""
        for joint in self._joints:
            joint.is_half_open = True
            joint.far.transport.abort()

    def garble(self) -> None:
        self._is_garbling = True

    def mend(self) -> None:
        self._is_cut = False
        self.delay_s = 0.0
        self._flowing.set()

    # --- carrying --------------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._is_cut:
                await self._join(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # a cut, or one of the two ended
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target().rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        joint = Joint(far_writer)
        self._joints.add(joint)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, far_writer))
                group.create_task(self._carry(far_reader, writer))
        except* OSError:
            pass
        finally:
            self._joints.discard(joint)
            far_writer.transport.abort()
        if joint.is_half_open:
            await asyncio.get_running_loop().create_future()  # until it is cut

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one of the two ends, which ends both ways."""
        while data := await reader.read(CHUNK_BYTES):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            await self._flowing.wait()
            if self._is_garbling:
                self._is_garbling = False
                data = self._dice.randbytes(len(data))
            self.bytes_passed += len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError("the other end closed it")

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._is_cut = True
        await stop_listening(self._server)
        await asyncio.sleep(0)  # connections that came last begin
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports that were aborted close now
