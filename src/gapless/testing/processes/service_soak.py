"""A soak of a service that stores nothing: reliable topics on a tree, multicast topics on a ring.

Theory of operation
    Each broker is a process. *Feeds* publish events with ascending numbers, one at a time; a number
    whose publication was not answered is *uncertain*. *Readers* subscribe at other brokers; one
    that is interrupted subscribes again. A cycle is one blow drawn from the seed: one or two
    brokers are killed with -9 or hang, and come back. The next cycle begins when every reader has
    got something of every feed that was published after that. So each cycle shows that the network
    recovers.
    What a reader gets is judged as it comes. Of each feed, within one subscription, the numbers
    ascend, and none is left out unless it was uncertain or the reader was told of a gap meanwhile.
    Multicast topics without order promise less: there numbers only ascend.

Invariants
    I1  the same seed gives the same blows; when they fall depends on the machine
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.core.errors import GaplessError
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes, cell
from gapless.testing.processes.soak import DOWN_S, RECOVERY_S, SoakSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path
    from typing import Any, Literal

    from gapless.client.client import Client
    from gapless.client.delivery import Delivery

EVERY_S = 0.05
"""A feed publishes so often."""
LOOK_S = 0.05
PATIENCE_S = 120.0
"""How long a client waits for its broker, which may be down for a while."""


class ServiceNetwork(NamedTuple):
    """What a soak of a service runs on."""

    text: tuple[str, ...]
    """The network file."""
    brokers: tuple[str, ...]
    feeds: tuple[str, ...]
    """Brokers that events are published at, and others that they are read at."""
    readers: tuple[str, ...]
    struck: tuple[str, ...]
    topics: tuple[tuple[str, bool], ...]
    """Each with whether it has an order."""
    service: Literal["reliable", "multicast"]

    @property
    def blows(self) -> tuple[str, ...]:
        """One broker, or two at once."""
        pairs = zip(self.struck, (*self.struck[1:], self.struck[0]), strict=True)
        return (
            *(f"{how} {name}" for how in ("kill", "hang") for name in self.struck),
            *(f"kill {one} {other}" for one, other in pairs),
        )


def tree_network(count: int = 8) -> ServiceNetwork:
    """A tree of brokers, each but the first below that with half its number."""
    names = tuple(f"t{number}" for number in range(count))
    text = [
        cell(name, [name], names[(n - 1) // 2] if n else "", subscribers=True)
        for n, name in enumerate(names)
    ]
    feeds, readers = (names[0], names[-1]), (names[-2], names[-3])
    struck = tuple(name for name in names if name not in (*feeds, *readers))
    return ServiceNetwork(tuple(text), names, feeds, readers, struck, (("soak", True),), "reliable")


def ring_network(count: int = 24) -> ServiceNetwork:
    """Brokers around the first; in the ring all are equal, and more than a leaf set has."""
    names = tuple(f"r{number:02}" for number in range(count))
    text = [
        cell(name, [name], names[0] if n else "", subscribers=True) for n, name in enumerate(names)
    ]
    feeds, readers = names[1:3], (*names[3:6], names[-1])
    struck = tuple(name for name in names[1:] if name not in (*feeds, *readers))
    topics = (("ordered", True), ("plain", False))
    return ServiceNetwork(tuple(text), names, feeds, readers, struck, topics, "multicast")


NETWORKS = {"reliable": tree_network, "multicast": ring_network}
"""By service, what makes its network of so many brokers."""


class Feed:
    """Publishes events with ascending numbers to one topic."""

    def __init__(self, name: str, topic: str) -> None:
        self.name = name
        self.number = 0
        self.uncertain: set[int] = set()
        self._topic = topic

    async def run(self, client: Client) -> None:
        while True:
            self.number += 1
            self.uncertain.add(self.number)
            with suppress(GaplessError):
                await client.publish(self._topic, {"feed": self.name, "i": self.number})
                self.uncertain.discard(self.number)
            await asyncio.sleep(EVERY_S)


class Reader:
    """Reads one topic, and judges what comes."""

    def __init__(self, label: str, topic: str, feeds: dict[str, Feed], *, is_whole: bool) -> None:
        self.label = label
        self.last: dict[str, int] = {}
        """By feed, the last number of this subscription."""
        self.deliveries = self.gaps = 0
        self.problem = ""
        self._topic = topic
        self._feeds = feeds
        self._is_whole = is_whole
        self._told: set[str] = set()  # feeds of which nothing has come since a gap was told

    async def run(self, client: Client, *, tells_gaps: bool) -> None:
        """Until it is cancelled; interrupted, it subscribes again, and begins anew."""
        wish = {"interruption": "gap"} if tells_gaps else {}
        while True:
            self.last.clear()
            with suppress(GaplessError):
                async with client.subscribe(self._topic, **wish) as subscription:  # type: ignore[call-overload]
                    async for each in subscription:
                        self.take(each)
            await asyncio.sleep(LOOK_S)

    def wanted(self) -> dict[str, int]:
        """By feed, the next number that will be published."""
        return {name: feed.number + 1 for name, feed in self._feeds.items()}

    def has(self, numbers: dict[str, int]) -> bool:
        """Has it come as far, or further?"""
        return all(self.last.get(name, 0) >= number for name, number in numbers.items())

    def take(self, item: Delivery) -> None:
        if isinstance(item, Gap):
            self.gaps += 1
            self._told |= self._feeds.keys()
        if not isinstance(item, Event):
            return
        self.deliveries += 1
        name, number = str(item.attributes["feed"]), item.attributes["i"]
        assert isinstance(number, int)
        before = self.last.get(name)
        self.last[name] = number
        is_told = name in self._told
        self._told.discard(name)
        if before is None:
            return
        if number <= before:
            self.problem = f"{self.label} got {name} {number} after {before}"
        missing = set(range(before + 1, number)) - self._feeds[name].uncertain
        if missing and self._is_whole and not is_told:
            self.problem = f"{self.label} never got {name} {min(missing)}, and was not told"


class ServiceSoak:
    """One soak; `run` it once."""

    def __init__(self, seed: int, network: ServiceNetwork, folder: Path | None = None) -> None:
        self.summary = SoakSummary(seed)
        self._network = network
        self._dice = random.Random(seed)
        self._brokers = Processes(*network.text, folder=folder)
        self._feeds: list[Feed] = []
        self._readers: list[Reader] = []

    async def run(
        self, blows: Sequence[str], tell: Callable[[int, float, str], None]
    ) -> SoakSummary:
        """Strike these one after the other; `tell` is called with each and the time it took."""
        async with self._brokers, asyncio.TaskGroup() as group:
            await self._brokers.start(*self._network.brokers)
            tasks = [group.create_task(each) for each in await self._clients()]
            await self._recovered()
            for blow in blows:
                begin_s = time.monotonic()
                late = await self._cycle(blow)
                took_s = time.monotonic() - begin_s
                self._note(blow, took_s, late)
                tell(self.summary.cycles, took_s, blow)
                if self.summary.problem:
                    break
            for task in tasks:
                task.cancel()
        self.summary.published = sum(each.number for each in self._feeds)
        self.summary.deliveries = sum(each.deliveries for each in self._readers)
        return self.summary

    async def _clients(self) -> list[Coroutine[Any, Any, None]]:
        network = self._network
        async with connect(self._brokers.url(network.brokers[0]), patience_s=PATIENCE_S) as client:
            for topic, is_ordered in network.topics:
                ordered = {"ordered": is_ordered} if network.service == "multicast" else {}
                await client.create_topic(topic, network.service, **ordered)  # type: ignore[arg-type]
        calls: list[Coroutine[Any, Any, None]] = []
        for topic, is_ordered in network.topics:
            feeds = {at: Feed(at, topic) for at in network.feeds}
            self._feeds += feeds.values()
            for at in network.readers:
                reader = Reader(f"{topic} at {at}", topic, feeds, is_whole=is_ordered)
                self._readers.append(reader)
                calls.append(self._read(at, reader))
            calls += [self._feed(at, feed) for at, feed in feeds.items()]
        return calls

    async def _read(self, at: str, reader: Reader) -> None:
        async with connect(self._brokers.url(at), patience_s=PATIENCE_S) as client:
            await reader.run(client, tells_gaps=self._network.service == "multicast")

    async def _feed(self, at: str, feed: Feed) -> None:
        async with connect(self._brokers.url(at), patience_s=PATIENCE_S) as client:
            await feed.run(client)

    # --- cycles ----------------------------------------------------------------------------------

    async def _cycle(self, blow: str) -> list[Reader]:
        """Strike, wait, mend; who has not recovered."""
        how, *whom = blow.split()
        self.summary.cycles += 1
        self.summary.blows[how] += 1
        if how == "kill":
            self._brokers.kill(*whom)
        else:
            for name in whom:
                self._brokers.hang(name)
        await asyncio.sleep(self._dice.uniform(0.0, DOWN_S))
        if how == "kill":
            await self._brokers.start(*whom)
        else:
            for name in whom:
                self._brokers.wake(name)
        return await self._recovered()

    async def _recovered(self) -> list[Reader]:
        """Wait until each reader has something of now of all its feeds; who has not in time."""
        wanted = [(each, each.wanted()) for each in self._readers]
        end_s = time.monotonic() + RECOVERY_S
        while True:
            late = [each for each, numbers in wanted if not each.has(numbers)]
            if not late or time.monotonic() > end_s or any(r.problem for r in self._readers):
                return late
            await asyncio.sleep(LOOK_S)

    def _note(self, blow: str, took_s: float, late: list[Reader]) -> None:
        if took_s > self.summary.slowest_s:
            self.summary.slowest_s, self.summary.slowest = took_s, blow
        problems = [each.problem for each in self._readers if each.problem]
        if problems:
            self.summary.problem = problems[0]
        elif late:
            waiting = ", ".join(each.label for each in late)
            self.summary.problem = f"after {blow!r} these wait for ever: {waiting}"
