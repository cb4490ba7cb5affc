"""The door's memory on disk: sessions, packet identifiers of QoS 2, retained messages.

It is a volume of its own in the broker's folder. Writes of one turn of the event loop share a sync.
Events are not here: they are in the log of their topic. docs/how-to/mqtt.md says what that means
for a network of several brokers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gapless.core.effects import Delete, Put
from gapless.storage.disk import DiskVolume
from gapless.storage.group import GroupCommit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gapless.core.effects import Write

Fact = tuple[str, str, bytes | None]
"""Table, key, value; None: delete it."""

KEY_BYTES_MAX = 1_000


class DoorJournal:
    """Facts that survive a crash once they are written. Call it from the loop's thread."""

    def __init__(self, folder: Path) -> None:
        self._volume = DiskVolume(folder)
        self._group = GroupCommit(self._volume)
        self._loop = asyncio.get_running_loop()
        self._fresh: list[tuple[Sequence[Write], Callable[[BaseException | None], None]]] = []

    def facts(self, table: str) -> Mapping[str, bytes]:
        return self._volume.items(table)

    def write(self, facts: Sequence[Fact]) -> asyncio.Future[None]:
        """A future that is done when these facts are durable."""
        future: asyncio.Future[None] = self._loop.create_future()
        writes = [
            Delete(table, key) if value is None else Put(table, key, value)
            for table, key, value in facts
        ]

        def tell(error: BaseException | None) -> None:
            self._loop.call_soon_threadsafe(_resolve, future, error)

        if not self._fresh:
            self._loop.call_soon(self._flush)
        self._fresh.append((writes, tell))
        return future

    def _flush(self) -> None:
        fresh, self._fresh = self._fresh, []
        if fresh:
            self._group.submit_each(fresh)

    async def close(self) -> None:
        """Write what is queued, and close."""
        self._flush()
        await asyncio.to_thread(self._group.close)
        await asyncio.to_thread(self._volume.close)


def _resolve(future: asyncio.Future[None], error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
