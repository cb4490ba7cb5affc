"""Multicast topics against real processes: trees whose brokers are killed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import gapless
from gapless.core.events import Event
from gapless.node.multicast.name_book import SPACE
from gapless.testing.processes.brokers import Processes, cell
from tests.broker.stage import run
from tests.children import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.client.client import Client
    from gapless.client.subscription import Subscription

NAMES = ("b0", "b1", "b2", "b3", "b4")
LINE = "".join(
    cell(name, [name], above, subscribers=True)
    for name, above in zip(NAMES, ("", *NAMES), strict=False)
)
"""Five brokers in a row: most of them are no neighbours."""

FAST = {"multicast_beat": 100_000, "multicast_children_max": 1}
"""One child each: the tree is a chain, so that there are brokers to be killed in its middle."""


def chain(root: str, found: dict[str, dict[str, Any]]) -> str:
    """A broker in the middle of the tree."""
    inner = [name for name, each in found.items() if each["forwarding"] and name != root]
    assert inner, found
    return inner[0]


def root_of(topic: str, names: tuple[str, ...] = NAMES) -> str:
    nodes = {SPACE.node_id(name): name for name in names}
    return nodes[SPACE.closest(SPACE.topic_id(topic, ""), nodes)]


class Town:
    """The brokers, a client at each, and a subscription of each."""

    def __init__(self, town: Processes, stack: AsyncExitStack) -> None:
        self.town = town
        self._stack = stack
        self.clients: dict[str, Client] = {}
        self.subscriptions: dict[str, Subscription] = {}

    async def connect(self, *names: str) -> None:
        for name in names:
            client = gapless.connect(self.town.url(name), patience_s=PATIENCE_S)
            self.clients[name] = await self._stack.enter_async_context(client)

    async def subscribe(self, topic: str) -> None:
        for name, client in self.clients.items():
            subscription = client.subscribe(topic)
            self.subscriptions[name] = await self._stack.enter_async_context(subscription)

    async def hear_of(self, topic: str, name: str) -> None:
        """One that has just joined is told a moment later which topics there are."""
        while topic not in [each.name for each in await self.clients[name].topics()]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def figures(self) -> dict[str, dict[str, Any]]:
        found = {name: await self.town.statistics(name) for name in self.town.running}
        return {name: each["services"]["multicast"] for name, each in found.items() if each}

    async def kill(self, name: str) -> None:
        await asyncio.to_thread(self.town.kill, name)
        self.clients.pop(name)
        self.subscriptions.pop(name)


async def take(subscription: Subscription, count: int) -> list[object]:
    got: list[object] = []
    while len(got) < count:
        item = await anext(subscription)
        assert isinstance(item, Event), item
        got.append(item.attributes["i"])
    return got


def test_an_ordered_topic_is_gapless_though_its_forwarder_and_its_root_are_killed(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            processes = Processes(LINE, folder=tmp_path, has_admin=True, config=FAST)
            town = Town(await stack.enter_async_context(processes), stack)
            await processes.start(*NAMES)
            await town.connect(*NAMES)
            await town.clients["b0"].create_topic("news", "multicast", ordered=True)
            await town.subscribe("news")
            root = root_of("news")
            found = await town.figures()
            middle = chain(root, found)
            source = next(name for name in NAMES if name not in (root, middle))
            for number in range(60):
                if number == 20:
                    await town.kill(middle)
                if number == 40:
                    await town.kill(root)
                await town.clients[source].publish("news", {"i": number})
            for name, subscription in town.subscriptions.items():
                assert await take(subscription, 60) == list(range(60)), name

    run(main())


def test_a_broker_joins_serves_comes_back_and_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            processes = Processes(LINE, folder=tmp_path, has_admin=True, config=FAST)
            town = Town(await stack.enter_async_context(processes), stack)
            await processes.start("b0", "b1", "b2")
            await town.connect("b0", "b2")
            await town.clients["b0"].create_topic("news", "multicast", ordered=True)
            await processes.start("x", join=processes.address("b1"))
            await town.connect("x")
            await town.hear_of("news", "x")
            await town.subscribe("news")
            numbers = iter(range(100))

            async def publish(*names: str) -> None:
                for name in names:
                    await town.clients[name].publish("news", {"i": next(numbers)})

            await publish("b0", "x", "b2")
            for subscription in town.subscriptions.values():
                assert await take(subscription, 3) == [0, 1, 2]
            await town.kill("x")
            await publish("b0", "b2")
            await processes.start("x", join=processes.address("b1"))
            await town.connect("x")
            await town.hear_of("news", "x")
            again = town.clients["x"].subscribe("news")
            town.subscriptions["x"] = await stack.enter_async_context(again)
            await publish("x")
            assert await take(town.subscriptions["x"], 1) == [5]
            await processes.stop("x")
            town.clients.pop("x")
            await publish("b2")
            for name in ("b0", "b2"):
                assert await take(town.subscriptions[name], 4) == [3, 4, 5, 6], name

    run(main())
