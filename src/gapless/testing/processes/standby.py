"""A broker that outlives its machine, struck again and again: two processes, one store, clients.

Theory of operation
    Two processes serve one name with one store, each with a folder and a port of its own. A named
    publisher numbers its events; a named subscriber takes them. Both use the public client and have
    both addresses. A *blow* strikes the holder, or its store; then the next receipt is waited for,
    and for how long receipts paused is measured. At the end every event must have come once, in
    order, without a gap.

    Each process is `gapless serve --name p --store URL --listen HOST:PORT --data FOLDER`. It holds
    our end of its standard input and ends when that closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.core.errors import GaplessError
from gapless.core.events import Event
from gapless.testing.processes.postgres import PostgresCluster, PostgresServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gapless.storage.replica.store import StoreState

NAME = "p"
TOPIC = "t"
BLOWS = ("kill", "hang", "delete", "stop", "swap", "store")
"""kill -9 at the holder; SIGSTOP and later SIGCONT; kill -9 and its folder deleted; SIGTERM;
`gapless hand-over`; PostgreSQL crashes and is back a second later."""
FAIL_OVER = "primary"
"""PostgreSQL's primary is killed and its synchronous standby promoted; needs a cluster."""
HANG_S = 6.0
"""Longer than a lease: another process has the name when this one goes on."""
WINDOW = 200
PAUSE_AFTER, PAUSE_S = 20, 0.05
"""At most 400 events a second: a soak is not there to keep a machine busy."""
LOOK_S = 0.02
WAIT_S = 180.0
PROGRAM = (
    "import os, sys, threading;"
    "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start();"
    "from gapless.cli import main; main()"
)
"""`gapless`, which ends with us."""


class Pair:
    """The two processes, by number; `with` kills what is left."""

    def __init__(self, url: str, folder: Path) -> None:
        self._store = url
        self._folder = folder
        self._ports = [free_port(), free_port()]
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """For clients."""
        return "gapless://" + ",".join(f"127.0.0.1:{port}" for port in self._ports)

    def start(self, *sides: int) -> None:
        for side in sides:
            if side in self._processes:
                continue
            command = [sys.executable, "-c", PROGRAM, "serve", "--name", NAME, "--topic", TOPIC]
            command += ["--store", self._store, "--listen", f"127.0.0.1:{self._ports[side]}"]
            command += ["--data", str(self.folder(side)), "--admin", "none"]
            with (self._folder / f"log-{side}").open("ab") as log:
                self._processes[side] = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log
                )

    def folder(self, side: int) -> Path:
        return self._folder / f"side-{side}"

    def log(self, side: int) -> str:
        return (self._folder / f"log-{side}").read_text()

    def signal(self, side: int, number: signal.Signals) -> None:
        self._processes[side].send_signal(number)

    def kill(self, side: int) -> None:
        self.signal(side, signal.SIGKILL)
        self.forget(side)

    def forget(self, side: int) -> None:
        """Wait for its end."""
        process = self._processes.pop(side)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def state(self) -> StoreState | None:
        from gapless.storage.replica.postgres import PostgresStore

        store = PostgresStore(self._store)
        try:
            return store.state(NAME)
        finally:
            store.close()

    def ask_for_hand_over(self) -> None:
        from gapless.storage.replica.postgres import PostgresStore

        store = PostgresStore(self._store)
        state = store.state(NAME)
        assert state is not None
        store.ask_for_hand_over(NAME, state.term)
        store.close()

    async def holder(self) -> int:
        """The side that has the lease, as soon as one has."""
        async with asyncio.timeout(WAIT_S):
            while True:
                with contextlib.suppress(GaplessError):
                    state = await asyncio.to_thread(self.state)
                    for side, process in self._processes.items():
                        ours = state is not None and state.holder.endswith(f":{process.pid}")
                        if ours and state is not None and state.lease_s > 0:
                            return side
                await asyncio.sleep(LOOK_S)

    def _check_alive(self) -> None:
        for side, process in self._processes.items():
            if process.poll() is not None:
                raise AssertionError(f"side {side} has ended by itself: {self.log(side)[-2000:]}")

    async def standby_is_level(self) -> None:
        """Until the other side has nearly all, and has said so since it began."""
        async with asyncio.timeout(WAIT_S):
            while True:
                self._check_alive()
                state = await asyncio.to_thread(self.state)
                numbers = {str(each.pid) for each in self._processes.values()}
                for each in state.standbys if state else ():
                    if each.process.rpartition(":")[2] in numbers and each.seen_s < 2.0:
                        return
                await asyncio.sleep(LOOK_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for side in list(self._processes):
            with contextlib.suppress(ProcessLookupError):
                self.signal(side, signal.SIGCONT)
            self.kill(side)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@dataclass
class Load:
    """A publisher that numbers its events, and a subscriber that takes them."""

    url: str
    sent: int = 0
    confirmed: int = 0
    confirmed_at_s: float = 0.0
    pause_s: float = 0.0
    """The longest time without a receipt since the last blow began."""
    delivered: list[int] = field(default_factory=list)
    gaps: int = 0
    is_over: bool = False

    async def publish(self) -> None:
        async with connect(self.url, patience_s=WAIT_S) as client:
            async with client.publisher(TOPIC, name="feed") as publisher:
                while not self.is_over:
                    await publisher.send({"n": self.sent}, b"x" * 100)
                    self.sent += 1
                    if self.sent - publisher.confirmed >= WINDOW:
                        await publisher.wait_confirmed(self.sent - WINDOW)
                    if publisher.confirmed > self.confirmed:
                        self.confirmed = publisher.confirmed
                        now_s = time.monotonic()
                        self.pause_s = max(self.pause_s, now_s - self.confirmed_at_s)
                        self.confirmed_at_s = now_s
                    await asyncio.sleep(PAUSE_S if self.sent % PAUSE_AFTER == 0 else 0)
            self.confirmed = publisher.confirmed

    async def subscribe(self) -> None:
        async with (
            connect(self.url, patience_s=WAIT_S) as client,
            client.subscribe(TOPIC, name="desk") as subscription,
        ):
            async for each in subscription:
                if isinstance(each, Gap):
                    self.gaps += 1
                elif isinstance(each, Event):
                    self.delivered.append(int(str(each.attributes["n"])))

    async def next_receipt(self) -> None:
        """Until something that is sent from now on is confirmed."""
        wanted = self.sent + 1
        async with asyncio.timeout(WAIT_S):
            while True:
                if self.confirmed >= wanted:
                    return
                await asyncio.sleep(LOOK_S)

    def verdict(self) -> str:
        """What is wrong; empty if nothing is."""
        if self.gaps:
            return f"{self.gaps} gaps were told"
        if self.confirmed != self.sent:
            return f"{self.sent} events were sent, {self.confirmed} confirmed"
        if self.delivered != list(range(self.sent)):
            missing = len(set(range(self.sent)) - set(self.delivered))
            doubled = len(self.delivered) - len(set(self.delivered))
            return f"of {self.sent} events {missing} are missing, {doubled} came twice"
        return ""


async def strike(blow: str, pair: Pair, server: PostgresServer | PostgresCluster) -> None:
    """One blow at whatever holds the name; both sides run again when it returns, or soon after."""
    side = await pair.holder()
    if blow == "kill":
        pair.kill(side)
    elif blow == "delete":
        pair.kill(side)
        shutil.rmtree(pair.folder(side))
    elif blow == "stop":
        pair.signal(side, signal.SIGTERM)
        await asyncio.to_thread(pair.forget, side)
    elif blow == "hang":
        pair.signal(side, signal.SIGSTOP)
    elif blow == "swap":
        await asyncio.to_thread(pair.ask_for_hand_over)
        async with asyncio.timeout(WAIT_S):
            while True:
                if await pair.holder() != side:
                    break
                await asyncio.sleep(LOOK_S)
    elif isinstance(server, PostgresCluster):
        await asyncio.to_thread(server.fail_over)
    else:
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(1.0)
        await asyncio.to_thread(server.start)


async def soak(
    blows: Iterable[str],
    pair: Pair,
    server: PostgresServer | PostgresCluster,
    tell: Callable[[str, float], None] = lambda blow, took_s: None,
) -> Load:
    """Strike while events flow; what the clients saw."""
    pair.start(0)
    await pair.holder()
    pair.start(1)
    load = Load(pair.url)
    tasks = [asyncio.create_task(load.publish()), asyncio.create_task(load.subscribe())]
    await load.next_receipt()
    for blow in blows:
        await pair.standby_is_level()
        side = await pair.holder()
        began_s = load.confirmed_at_s = time.monotonic()
        load.pause_s = 0.0
        await strike(blow, pair, server)
        await load.next_receipt()
        tell(blow, load.pause_s)
        if blow == "hang":
            await asyncio.sleep(max(0.0, began_s + HANG_S - time.monotonic()))
            pair.signal(side, signal.SIGCONT)
            await load.next_receipt()
        for each in tasks:
            if each.done():
                each.result()
        pair.start(0, 1)
    load.is_over = True
    await tasks[0]
    async with asyncio.timeout(WAIT_S):
        while len(load.delivered) < load.sent and not tasks[1].done():  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
    tasks[1].cancel()
    with suppress(asyncio.CancelledError):
        await tasks[1]
    return load


def main() -> None:
    """`python -m gapless.testing.processes.standby --help`."""
    import argparse
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from gapless.storage.replica.postgres import init

    parser = argparse.ArgumentParser(description="Strike a broker that has a store and a standby.")
    parser.add_argument("cycles", type=int, nargs="?", default=20, help="how many blows")
    kinds = ",".join((*BLOWS, FAIL_OVER))
    parser.add_argument("--blows", default=",".join(BLOWS), help=f"which, in turn: {kinds}")
    options = parser.parse_args()
    chosen = options.blows.split(",")
    if unknown := sorted(set(chosen) - {*BLOWS, FAIL_OVER}):
        parser.error(f"there is no blow {unknown[0]!r}; there are {kinds}")
    if {"store", FAIL_OVER} <= set(chosen):
        parser.error(f"store and {FAIL_OVER} need different servers: run them one after the other")
    blows = [chosen[number % len(chosen)] for number in range(options.cycles)]
    took: dict[str, list[float]] = {}

    def tell(blow: str, took_s: float) -> None:
        took.setdefault(blow, []).append(took_s)
        number = sum(map(len, took.values()))
        print(f"{number:4} {blow:7} receipts paused for {took_s:.2f} s", flush=True)

    made = PostgresCluster() if FAIL_OVER in chosen else PostgresServer()
    with TemporaryDirectory() as folder, made as server:
        init(server.url)
        with Pair(server.url, Path(folder)) as pair:
            try:
                load = asyncio.run(soak(blows, pair, server, tell))
            except BaseException:
                for side in (0, 1):
                    print(f"--- log of side {side}\n{pair.log(side)[-5_000:]}", file=sys.stderr)
                raise
    for blow, times in took.items():
        middle = statistics.median(times)
        print(f"{blow:7} {len(times)} times, median {middle:.2f} s, longest {max(times):.2f} s")
    problem = load.verdict()
    print(f"{load.sent} events, all receipted, each delivered once: {problem or 'good'}")
    sys.exit(1 if problem else 0)


if __name__ == "__main__":
    main()
