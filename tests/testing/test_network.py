"""An application, with the shipped client, in a simulated network."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.testing import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable

CHAIN = """
[[cell]]
name = "host"
links = ["relay"]
brokers = [{ name = "host", listen = "127.0.0.1:1" }]
[[cell]]
name = "relay"
brokers = [{ name = "r1", listen = "127.0.0.1:2" }, { name = "r2", listen = "127.0.0.1:3" }]
[[cell]]
name = "edge"
links = ["relay"]
subscribers = true
brokers = [{ name = "edge", listen = "127.0.0.1:4" }]
[[topic]]
name = "trades"
pubends = ["host"]
"""
LAST = 60


async def consume(url: str, found: list[int]) -> None:
    async with (
        gapless.connect(url, patience_s=120) as client,
        client.subscribe("trades", "price > 5", name="desk") as subscription,
    ):
        async for delivery in subscription:
            assert isinstance(delivery, gapless.Event)
            found.append(int(delivery.attributes["price"]))
            if found[-1] == LAST:
                return


async def feed(network: SimulatedNetwork, strike: Callable[[int], None]) -> list[int]:
    found: list[int] = []
    reader = asyncio.create_task(consume(network.url("edge"), found))
    await asyncio.sleep(1)
    async with (
        gapless.connect(network.url("host"), patience_s=120) as client,
        client.publisher("trades", name="feed") as publisher,
    ):
        for price in range(LAST + 1):
            await publisher.send({"price": price})
            strike(price)
            await asyncio.sleep(0.1)
    await reader
    return found


def strikes(network: SimulatedNetwork) -> Callable[[int], None]:
    blows: dict[int, Callable[[], None]] = {
        5: lambda: network.crash("r1"),
        10: lambda: network.crash("edge", back_after_s=2),
        20: lambda: network.crash("host", back_after_s=3),
        30: lambda: network.drop_clients("edge"),
        35: lambda: network.cut("edge", "r2"),
        40: lambda: network.restart("r1"),
        45: lambda: network.mend("edge", "r2"),
        50: lambda: network.freeze_clients("edge"),
        55: lambda: network.thaw_clients("edge"),
    }
    return lambda price: blows.get(price, lambda: None)()


def test_a_consumer_misses_nothing_whatever_fails() -> None:
    network = SimulatedNetwork(CHAIN, seed=3)
    assert network.run(feed(network, strikes(network))) == list(range(6, LAST + 1))
    assert network.now_s > LAST * 0.1


def test_the_same_seed_takes_the_same_course_and_another_a_different_one() -> None:
    digests = []
    for seed in (1, 1, 2):
        network = SimulatedNetwork(CHAIN, seed=seed)
        network.run(feed(network, strikes(network)))
        digests.append(network.trace.digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_frozen_connection_is_given_up_and_made_anew() -> None:
    network = SimulatedNetwork(CHAIN)
    lines: list[str] = []

    def strike(price: int) -> None:
        if price == 10:
            network.freeze_clients("edge")  # and never thawed
            lines.append(f"{network.now_s:.1f}")

    assert network.run(feed(network, strike)) == list(range(6, LAST + 1))
    assert len(lines) == 1


def test_one_broker_is_enough_and_topics_are_made_as_always() -> None:
    async def main(url: str) -> object:
        async with gapless.connect(url) as client:
            await client.create_topic("t")
            async with client.subscribe("t") as subscription:
                await client.publish("t", {"i": 1}, b"body")
                event = await anext(subscription)
                assert isinstance(event, gapless.Event)
                return event.attributes["i"], event.body

    network = SimulatedNetwork()
    assert network.run(main(network.url())) == (1, b"body")


def test_an_hour_takes_no_time() -> None:
    network = SimulatedNetwork()
    begin_s = time.process_time()
    network.run(asyncio.sleep(600))
    assert network.now_s == pytest.approx(600, abs=0.01)
    assert time.process_time() - begin_s < 60


def test_a_program_that_never_ends_is_told_so() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    network = SimulatedNetwork()
    with pytest.raises(TimeoutError, match="not ended after 5 simulated seconds"):
        network.run(main(), limit_s=5)


def test_a_broker_that_is_down_or_unknown_is_an_error_as_always() -> None:
    async def main(url: str) -> None:
        async with gapless.connect(url, patience_s=1):
            pass

    network = SimulatedNetwork(CHAIN)
    network.crash("edge")
    assert not network.is_up("edge")
    with pytest.raises(gapless.LinkError, match="no broker answers at edge"):
        network.run(main(network.url("edge")))
    with pytest.raises(gapless.LinkError, match="no broker 'nowhere'"):
        network.run(main("gapless://nowhere"))
    with pytest.raises(gapless.UsageError, match="no broker 'nowhere'"):
        network.crash("nowhere")


def test_threads_have_no_place_in_a_simulation() -> None:
    async def main() -> None:
        await asyncio.to_thread(time.monotonic)

    with pytest.raises(RuntimeError, match="one thread"):
        SimulatedNetwork().run(main())
