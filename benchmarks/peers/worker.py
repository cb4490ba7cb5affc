"""A process of clients, told over a pipe what to do.

Each command is a method `do_NAME`, whose answer goes back over the pipe. A thread reads it, so that
it can stay blocking while the event loop is at work.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from benchmarks.peers.adapter import load_peer
from benchmarks.peers.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from benchmarks.peers.adapter import Client, Setting

CLOSE_S = 3.0


class Worker:
    """Answers commands until it is told to quit."""

    def __init__(self, setting: Setting, counters: str) -> None:
        self.setting = setting
        self.peer = load_peer(setting.peer)
        self.slots = Counters(counters).slots
        self.loop = asyncio.get_running_loop()

    def clients(self) -> Sequence[Client]:
        raise NotImplementedError

    async def answer(self, pipe: Connection) -> None:
        commands: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

        def read() -> None:
            while True:
                try:
                    command = pipe.recv()
                except (EOFError, OSError):
                    command = ("quit", None)
                self.loop.call_soon_threadsafe(commands.put_nowait, command)
                if command[0] == "quit":
                    return

        threading.Thread(target=read, daemon=True).start()
        gc.freeze()
        while (command := await commands.get())[0] != "quit":
            try:
                pipe.send((True, await getattr(self, f"do_{command[0]}")(command[1])))
            except Exception:  # told to who asked
                pipe.send((False, f"{command[0]}: {traceback.format_exc()}"))
        for client in self.clients():
            with suppress(Exception):
                await asyncio.wait_for(client.close(), CLOSE_S)


def work(
    pipe: Connection, setting: Setting, kind: str, counters: str, plan: dict[str, Any]
) -> None:
    """The whole life of a worker process."""
    from benchmarks.peers.publishers import Publishers
    from benchmarks.peers.subscribers import Subscribers

    log = os.open(Path(setting.folder) / "workers.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)

    async def main() -> None:
        made = Publishers if kind == "publishers" else Subscribers
        await made(setting, counters, **plan).answer(pipe)

    uvloop.run(main())
