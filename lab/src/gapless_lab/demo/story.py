"""The story of the demo: what happens when, to five brokers, a feed, four desks and a lake.

Theory of operation
    The desks subscribe before the feed begins, so each is owed every trade that matches. The steps
    are at fixed parts of the time that the feed runs. At the end one more event is published on its
    own; a desk whose position has passed that one has been handed all it will ever get of the feed,
    so that nothing can come twice later either.
    The lake is filled by a Spark driver, whose virtual machine starts while the brokers do: the log
    is held for it before the feed begins. A second one starts as soon as it has, and stands by,
    for a virtual machine takes its time. The first is killed when it has written something, and no
    sooner than its part of the time; at the end the second goes on until it has come past the same
    event, and then audits the journals of the desks by what the lake has. Without Spark all of this
    is left out.
    `stay` keeps the network after the story for a person at the console. Trades go on, and a broker
    that ends is started again. The journals are not kept any more.

Invariants
    I1  after `async with` no process and no task is left
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Self

from gapless.broker.admin.network_console import AdminClient, NetworkConsole, open_console
from gapless.client.client import connect
from gapless.client.delivery import Silence
from gapless.testing.processes.brokers import Processes, cell, topic
from gapless.testing.witnesses import PATIENCE_S, Bell
from gapless_lab.demo.lake import LakeQuery, why_no_spark
from gapless_lab.demo.market import BODY, TOPIC, Account, Desk, Feed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from gapless.pipelines.verdict import Verdict

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
LAKE_BROKER = "east"
CONSOLE_BROKER = "host"
DRIVER = "the Spark driver"
TRADES_PER_S = 250
LOOK_S = 0.02
SETTLE_S = 60.0
"""How long the end may take; what has not come by then counts as missing."""

STAY_TRADES_PER_S = 20
DOWN_S = 8.0
"""How long a broker stays down that a person has killed: long enough to be seen."""


class Story:
    """One demo: `async with` it, and `play` it once. The rest may be looked at meanwhile."""

    def __init__(
        self, seed: int, seconds: float, folder: Path | None = None, *, has_spark: bool = True
    ) -> None:
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
        self.lake: LakeQuery | None = None
        """There is one if there is Spark, and from `play` on."""
        self.verdicts: list[Verdict] = []
        self._lake_account: Account | None = None
        self._has_spark = has_spark
        self.is_over = False
        self.begin_s = time.monotonic()
        self._brokers = Processes(*NETWORK, folder=folder, has_admin=True)
        self._tell: Callable[[str], None] = print
        self._console = AsyncExitStack()
        self.console_url = ""  # once the brokers are up

    @property
    def is_right(self) -> bool:
        accounts = all(each.is_right for each in self.accounts().values())
        is_audited = self.lake is None or len(self.verdicts) == len(self.desks)
        return accounts and is_audited and all(each.is_clean for each in self.verdicts)

    def accounts(self) -> dict[str, Account]:
        """By subscriber, when all is over."""
        found = {desk.name: desk.account(self.feed.trades) for desk in self.desks}
        return found if self._lake_account is None else {**found, "lake": self._lake_account}

    async def __aenter__(self) -> Self:
        await self._brokers.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._console.aclose()
            for desk in self.desks:
                await desk.leave()
            if self.lake is not None:
                await self.lake.close()
        finally:
            await self._brokers.__aexit__()

    async def play(self, tell: Callable[[str], None]) -> None:
        """`tell` is called with each thing that happens."""
        self._tell = tell
        try:
            await self._wake_spark()
            tell("starting five brokers, a process each")
            await self._start(*ROLES)
            await self._open_console()
            tell(f"the console of all brokers, for a browser: {self.console_url}")
            for desk in self.desks:
                await desk.come(self._brokers.url(desk.broker))
            tell("four subscribers are connected; the feed begins")
            async with self._lake_filling() as filled, self._feeding():
                await self._happenings()
            tell(f"the feed is over: {len(self.feed.trades):,} trades are on stable storage")
            bell = await self._settle()
            await filled
            await self._close_lake(bell)
        finally:
            self.is_over = True

    async def _open_console(self) -> None:
        """One page for the whole network, which it finds from one broker."""
        found = NetworkConsole([str(self._brokers.admin(CONSOLE_BROKER))], AdminClient())
        opened = open_console(await self._console.enter_async_context(found), ("127.0.0.1", 0))
        self._console.push_async_callback(opened.close)
        self.console_url = f"http://{opened.address}/"

    # --- afterwards ------------------------------------------------------------------------------

    async def stay(self, tell: Callable[[str], None]) -> None:
        """Keep the network open until SIGINT or SIGTERM; start again each broker that ends."""
        self._tell = tell
        loop, is_over = asyncio.get_running_loop(), asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, is_over.set)
        victim = self._brokers.running["relay-1"].pid
        tell(f"The network stays, with {STAY_TRADES_PER_S} trades a second: {self.console_url}")
        tell(f"Kill a broker, and watch it heal: kill -9 {victim}   (relay-1; Ctrl-C ends all)")
        trading = asyncio.create_task(self._trade())
        healing = [asyncio.create_task(self._heal(name)) for name in ROLES]
        try:
            await is_over.wait()
        finally:
            for task in (trading, *healing):
                task.cancel()
            await asyncio.gather(trading, *healing, return_exceptions=True)
            await self._brokers.stop(*self._brokers.running)
        tell("all brokers have stopped")

    async def _trade(self) -> None:
        async with connect(self._brokers.url("host"), patience_s=PATIENCE_S) as client:
            while True:
                await client.publish(TOPIC, self.feed.trade(), BODY)
                for desk in self.desks:
                    desk.journal.sessions[-1].items.clear()
                await asyncio.sleep(1 / STAY_TRADES_PER_S)

    async def _heal(self, name: str) -> None:
        while True:
            code = await self._brokers.ended(name)
            self._tell(f"{name} ended with code {code}; it starts again in {DOWN_S:g} s")
            await asyncio.sleep(DOWN_S)
            await self._start(name)
            self._tell(f"to kill it again: kill -9 {self._brokers.running[name].pid}")

    async def _happenings(self) -> None:
        traveller, until = self.desks[3], self._parts()
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

    def _parts(self) -> Callable[[float], Awaitable[None]]:
        """Wait until this part of the time has passed since now."""
        begin_s = time.monotonic()

        async def until(part: float) -> None:
            await asyncio.sleep(max(0.0, begin_s + part * self.seconds - time.monotonic()))

        return until

    # --- the lake --------------------------------------------------------------------------------

    async def _wake_spark(self) -> None:
        lacks = await why_no_spark() if self._has_spark else ""
        if lacks:
            self._tell(f"{lacks}: the Spark part is left out")
        elif self._has_spark:
            self.lake = LakeQuery(TOPIC, self._brokers.folder / "lake")
            await self.lake.start()
            self._tell("a Spark driver starts: it will archive the feed into a lake")

    @asynccontextmanager
    async def _lake_filling(self) -> AsyncIterator[Awaitable[None]]:
        """Meanwhile; what it gives ends when the lake's query runs for the second time."""
        if self.lake is not None:
            await self.lake.prepare(self._brokers.url(LAKE_BROKER))
        filling = asyncio.create_task(self._fill_lake())
        try:
            yield filling
        except BaseException:
            filling.cancel()
            with suppress(asyncio.CancelledError):
                await filling
            raise

    async def _fill_lake(self) -> None:
        lake, until = self.lake, self._parts()
        if lake is None:
            return
        lake.archive(self._brokers.url(LAKE_BROKER))
        await lake.stand_by()
        await lake.wait_for("events")
        self._tell("the lake has its first Parquet file")
        await until(0.45)
        number = lake.number
        await lake.kill()
        self.killed.append(DRIVER)
        self._tell(f"kill -9 {number}: {DRIVER} is gone, with {lake.archived:,} trades in the lake")
        self._tell("a second Spark driver, which stood by, takes over")
        lake.take_over()
        lake.archive(self._brokers.url(LAKE_BROKER))
        await lake.wait_for("events")
        self._tell("it goes on from the checkpoint of the first")

    async def _close_lake(self, bell: Mapping[str, int]) -> None:
        lake = self.lake
        if lake is None:
            return
        await lake.finish(bell)
        events = await asyncio.to_thread(lake.events, self.feed.name)
        lake.archived = len(events)  # what is really there: of the trades, without the bell
        self._lake_account = Account.of("", self.feed.trades, events)
        self._tell("the lake has everything; Spark audits what the subscribers wrote down")
        file = await asyncio.to_thread(write_journals, lake.folder, self.desks)
        self.verdicts = await lake.audit(file)

    # --- the desks -------------------------------------------------------------------------------

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

    async def _settle(self) -> Mapping[str, int]:
        """What comes after the closing bell."""
        bell = Bell(TOPIC)
        late = await bell.settled(self._brokers.url("host"), self.desks, SETTLE_S)
        for desk in late:
            self._tell(f"after {SETTLE_S:g} s {desk.journal.label} still waits")
        if not late:
            self._tell("every subscriber has all that was published before the closing bell")
        return bell.token


def write_journals(folder: Path, desks: Sequence[Desk]) -> Path:
    """What each was handed, line by line, and what `gapless pipeline audit` is given."""
    from gapless.cli.deliveries import show_json

    listed = []
    for desk in desks:
        sessions = desk.journal.sessions
        lines = [
            show_json(item)
            for session in sessions
            for item in session.items
            if not isinstance(item, Silence)
        ]
        (folder / f"{desk.name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
        listed.append(
            f"[[subscription]]\nname = {json.dumps(desk.name)}\n"
            f"condition = {json.dumps(desk.condition)}\njournals = ['{desk.name}.jsonl']\n"
            f"start = '{json.dumps(dict(sessions[0].start))}'\n"
        )
    file = folder / "audit.toml"
    file.write_text("\n".join(listed), encoding="utf-8")
    return file
