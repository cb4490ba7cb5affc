"""A soak: a real network under load, struck again and again, and its clients' journals judged.

Theory of operation
    Five brokers, each a process; every link between them, and of every client, goes through a
    proxy. A cycle is one blow drawn from the seed: brokers are killed with -9 or hang, links are
    cut, stall or break without a word, a subscriber leaves. After a while it is mended; then a bell
    is rung, and the next cycle begins when every subscriber has come past it. So each cycle also
    shows that the network recovers, and which blow it does not recover from.
    At the end the log of the host is read from its disk, and the simulator's checkers compare it
    with what the publishers sent and were told, and with what each subscriber was handed. An
    auditor that subscribed and never comes keeps the log whole until then.

Invariants
    I1  the same seed gives the same blows; when they fall depends on the machine
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.node.network import parse_network
from gapless.testing.journals import judge
from gapless.testing.processes.brokers import Processes, cell, topic
from gapless.testing.processes.proxy import Proxy
from gapless.testing.record import Violation
from gapless.testing.witnesses import Bell, Source, Witness, read_log

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from gapless.core.events import Attributes

TOPIC = "soak"
HOST, RELAYS, EDGES = "host", ("relay-1", "relay-2"), ("east", "west")
BROKERS = (HOST, *RELAYS, *EDGES)
NETWORK = (
    cell("host", [HOST], "relays"),
    cell("relays", RELAYS),
    *(cell(edge, [edge], "relays", subscribers=True) for edge in EDGES),
    topic(TOPIC, HOST),
)
LINKS = [
    (dialler, dialled)  # the one whose name sorts first dials
    for relay in RELAYS
    for dialler, dialled in (sorted((other, relay)) for other in (HOST, *EDGES))
] + [RELAYS]
KIND_COUNT = 8
EVENTS_PER_S = 100.0
DOWN_S = 1.0
"""How long a blow lasts, at most."""

RECOVERY_S = 90.0
"""How long until all have come past the bell; then the network counts as broken."""

KILLS = tuple(f"kill {name}" for name in BROKERS)
BLOWS = (
    *KILLS,
    "kill relay-1 relay-2",
    "kill host west",
    *(f"hang {name}" for name in BROKERS),
    *(
        f"{how} {dialler}:{dialled}"
        for how in ("cut", "stall", "half")
        for dialler, dialled in LINKS
    ),
    *(f"{how} client:{name}" for how in ("cut", "stall", "half") for name in (HOST, *EDGES)),
    *(f"leave {number}" for number in range(3)),
)


@dataclass
class SoakSummary:
    """What a soak came to."""

    seed: int
    cycles: int = 0
    blows: Counter[str] = field(default_factory=Counter)
    published: int = 0
    deliveries: int = 0
    slowest_s: float = 0.0
    slowest: str = ""
    problem: str = ""


class Soak:
    """One soak; `run` it once."""

    def __init__(self, seed: int, folder: Path | None = None) -> None:
        self.summary = SoakSummary(seed)
        self._dice = random.Random(seed)
        self._brokers = Processes(*NETWORK, folder=folder)
        self._proxies: dict[str, Proxy] = {}
        self._bell = Bell(TOPIC)
        self._sources = [Source(TOPIC, name, EVENTS_PER_S, make_event) for name in ("one", "two")]
        self.witnesses = [
            Witness(TOPIC, "kind < 4", label="keeps its token"),
            Witness(TOPIC, "kind IN (1, 3)", label="lets the broker keep it", tokens="broker"),
            Witness(TOPIC, "kind >= 2", label="goes to any broker", tokens="broker"),
            Witness(TOPIC, label="anonymous", is_named=False),
        ]
        self._homes = [("west",), ("east",), ("west", "east"), ("east",)]

    async def run(
        self, blows: Sequence[str], tell: Callable[[int, float, str], None]
    ) -> SoakSummary:
        """Strike these one after the other; `tell` is called with each and the time it took."""
        async with self._brokers, AsyncExitStack() as stack:
            await self._set_up(stack)
            for blow in blows:
                begin_s = time.monotonic()
                late = await self._cycle(blow)
                took_s = time.monotonic() - begin_s
                tell(self.summary.cycles, took_s, blow)
                if took_s > self.summary.slowest_s:
                    self.summary.slowest_s, self.summary.slowest = took_s, blow
                if late:
                    waiting = ", ".join(each.journal.label for each in late)
                    self.summary.problem = f"after {blow!r} these wait for ever: {waiting}"
                    return self.summary
            await self._judge()
        return self.summary

    # --- set-up ----------------------------------------------------------------------------------

    async def _set_up(self, stack: AsyncExitStack) -> None:
        for dialler, dialled in LINKS:
            proxy = await self._proxy(stack, f"{dialler}:{dialled}", dialled)
            self._brokers.detours.setdefault(dialler, {})[dialled] = proxy.address
        for name in (HOST, *EDGES):
            await self._proxy(stack, f"client:{name}", name)
        await self._brokers.start(*BROKERS)
        auditor = Witness(TOPIC, label="auditor")
        await auditor.come(self._url("east"))
        await auditor.leave()
        for number, witness in enumerate(self.witnesses):
            stack.push_async_callback(witness.leave)
            await self._come(number)
        for source in self._sources:
            stack.push_async_callback(source.cancel)
            source.start(self._url(HOST))

    async def _proxy(self, stack: AsyncExitStack, name: str, target: str) -> Proxy:
        proxy = Proxy(lambda: self._brokers.address(target), self.summary.seed)
        self._proxies[name] = await stack.enter_async_context(proxy)
        return proxy

    def _url(self, *names: str) -> str:
        return f"gapless://{','.join(self._proxies[f'client:{name}'].address for name in names)}"

    async def _come(self, number: int) -> None:
        await self.witnesses[number].come(self._url(*self._homes[number]))

    # --- blows -----------------------------------------------------------------------------------

    async def _cycle(self, blow: str) -> list[Witness]:
        """Strike, wait, mend; who has not recovered."""
        how, _, whom = blow.partition(" ")
        self.summary.cycles += 1
        self.summary.blows[how] += 1
        async with self._struck(how, whom):
            await asyncio.sleep(self._dice.uniform(0.0, DOWN_S))
        return await self._bell.settled(self._url(HOST), self.witnesses, RECOVERY_S)

    @asynccontextmanager
    async def _struck(self, how: str, whom: str) -> AsyncIterator[None]:
        """Do it; undo it at the end."""
        match how:
            case "kill":
                self._brokers.kill(*whom.split())
                yield
                await self._brokers.start(*whom.split())
            case "hang":
                self._brokers.hang(whom)
                yield
                self._brokers.wake(whom)
            case "leave":
                await self.witnesses[int(whom)].leave()
                yield
                await self._come(int(whom))
            case _:
                proxy = self._proxies[whom]
                {"cut": proxy.cut, "stall": proxy.stall, "half": proxy.half_open}[how]()
                yield
                proxy.mend()

    # --- the end ---------------------------------------------------------------------------------

    async def _judge(self) -> None:
        for source in self._sources:
            await source.stop()
        late = await self._bell.settled(self._url(HOST), self.witnesses, RECOVERY_S)
        for witness in self.witnesses:
            await witness.leave()
        await self._brokers.stop(*BROKERS)
        self.summary.published = sum(len(each.journal.sent) for each in self._sources)
        if late:
            self.summary.problem = f"{late[0].journal.label} never got the end"
            return
        pubend = f"{TOPIC}/0"
        try:
            self.summary.deliveries = judge(
                parse_network("".join(NETWORK)),
                {pubend: read_log(self._brokers.folder / HOST, pubend)},
                [self._bell.journal, *(each.journal for each in self._sources)],
                [each.journal for each in self.witnesses],
            )
        except Violation as violation:
            self.summary.problem = str(violation)


def make_event(number: int) -> tuple[Attributes, bytes]:
    return {"i": number, "kind": number % KIND_COUNT}, b"x" * 100


def draw(seed: int, count: int, among: Sequence[str] = BLOWS) -> list[str]:
    """So many blows: each once before any comes again, in an order that the seed gives."""
    dice, drawn = random.Random(seed), list[str]()
    while len(drawn) < count:
        drawn += dice.sample(among, len(among))
    return drawn[:count]
