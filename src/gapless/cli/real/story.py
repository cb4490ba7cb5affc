"""The story of the demo: what happens when, to five brokers, a feed and four desks.

Theory of operation
    The desks subscribe before the feed begins, so each is owed every trade that matches. The steps
    are at fixed parts of the time that the feed runs. At the end one more event is published on its
    own; a desk whose position has passed that one has been handed all it will ever get of the feed,
    so that nothing can come twice later either.

Invariants
    I1  however it ends, no process and no task is left
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gapless.cli.real.market import TOPIC, Desk, Feed
from gapless.cli.real.processes import Processes, cell, topic
from gapless.cli.real.witnesses import Bell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

ROLES = {
    "host": "hosts the feed: its log is the only copy",
    "relay-1": "relays, in a cell with relay-2",
    "relay-2": "relays, in a cell with relay-1",
    "west": "hosts subscribers",
    "east": "hosts subscribers",
}
NETWORK = (
    cell("host", ["host"], "relays"),
    cell("relays", ["relay-1", "relay-2"]),
    cell("west", ["west"], "relays", subscribers=True),
    cell("east", ["east"], "relays", subscribers=True),
    topic(TOPIC, "host"),
)
TRADES_PER_S = 250
LOOK_S = 0.02
SETTLE_S = 30.0
"""How long the end may take; what has not come by then counts as missing."""


class Story:
    """One demo; `play` it once. The rest may be looked at meanwhile."""

    def __init__(self, seed: int, seconds: float, folder: Path | None = None) -> None:
        self.seed = seed
        self.seconds = seconds
        self.feed = Feed(seed, TRADES_PER_S)
        self.desks = [
            Desk("tech", "symbol IN ('IBM', 'SAP')", "west"),
            Desk("big-lots", "volume >= 900", "west"),
            Desk("bargains", "price < 20 AND side = 'sell'", "east"),
            Desk("traveller", "symbol LIKE '%M%'", "east"),
        ]
        self.states = dict.fromkeys(ROLES, "down")
        self.killed: list[str] = []
        self.is_over = False
        self.begin_s = time.monotonic()
        self._brokers = Processes(*NETWORK, folder=folder)
        self._tell: Callable[[str], None] = print

    @property
    def is_right(self) -> bool:
        return all(desk.account(self.feed.trades).is_right for desk in self.desks)

    async def play(self, tell: Callable[[str], None]) -> None:
        """`tell` is called with each thing that happens."""
        self._tell = tell
        async with self._brokers:
            tell("starting five brokers, a process each")
            await self._start(*ROLES)
            try:
                for desk in self.desks:
                    await desk.come(self._brokers.url(desk.broker))
                tell("four subscribers are connected; the feed begins")
                async with self._feeding():
                    await self._happenings()
                tell(f"the feed is over: {len(self.feed.trades):,} trades are on stable storage")
                await self._settle()
            finally:
                self.is_over = True
                for desk in self.desks:
                    await desk.leave()

    async def _happenings(self) -> None:
        begin_s, traveller = time.monotonic(), self.desks[3]

        async def until(part: float) -> None:
            await asyncio.sleep(max(0.0, begin_s + part * self.seconds - time.monotonic()))

        await until(0.15)
        await traveller.leave()
        self._tell("traveller disconnects; its subscription stays")
        await until(0.25)
        self._kill("relay-1")
        await until(0.40)
        await self._start("relay-1")
        await until(0.50)
        await self._return(traveller)
        await until(0.60)
        self._kill("west")
        await until(0.75)
        await self._start("west")
        await until(1.0)

    async def _return(self, desk: Desk) -> None:
        before, begin_s = desk.received, time.monotonic()
        owed = desk.account(self.feed.trades).matched
        await desk.come(self._brokers.url(desk.broker))
        self._tell(f"{desk.name} returns: {owed - before:,} of its trades came meanwhile")
        while desk.received < owed and time.monotonic() < begin_s + SETTLE_S:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)
        self._tell(f"{desk.name} has them all, {time.monotonic() - begin_s:.1f} s later")

    def _kill(self, name: str) -> None:
        number = self._brokers.running[name].pid
        self._brokers.kill(name)
        self.killed.append(name)
        self.states[name] = "killed"
        self._tell(f"kill -9 {number}: {name} is gone, in the middle of the feed")

    async def _start(self, *names: str) -> None:
        self.states |= dict.fromkeys(names, "starting")
        await self._brokers.start(*names)
        self.states |= dict.fromkeys(names, "ready")
        is_first = len(names) > 1
        self._tell("all brokers are ready" if is_first else f"{names[0]} is back, with its disk")

    @asynccontextmanager
    async def _feeding(self) -> AsyncIterator[None]:
        self.feed.start(self._brokers.url("host"))
        try:
            yield
            await self.feed.stop()
        finally:
            await self.feed.cancel()

    async def _settle(self) -> None:
        late = await Bell(TOPIC).settled(self._brokers.url("host"), self.desks, SETTLE_S)
        for desk in late:
            self._tell(f"after {SETTLE_S:g} s {desk.journal.label} still waits")
        if not late:
            self._tell("every subscriber has all that was published before the closing bell")
