"""Why an event came or did not: each planted cause is named, as the simulator's oracle has it.

The oracle is what the test knows from outside: receipts, what the application got, the condition
evaluated by hand, which fault was planted. It shares no code with the explanation.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import gapless
from gapless.client.why import Explanation, explain, parse_event
from gapless.core.errors import UsageError
from gapless.node.durable.why import way_of_event
from gapless.testing import SimulatedNetwork
from gapless.wire.events import decode_attributes
from tests.broker.stage import THREE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gapless.client.client import Client
    from gapless.client.delivery import Receipt

NETWORK = f"""{THREE}[[topic]]
name = "short"
pubends = ["p"]
retention_bytes = 20_000
[[topic]]
name = "other"
pubends = ["p"]
[[topic]]
name = "fast"
service = "reliable"
"""
SETTLE_S = 20.0
"""Simulated seconds in which everything that can arrive has arrived."""


class Town:
    """A simulated network, and what every broker of it that is up says of an event."""

    def __init__(self) -> None:
        self.network = SimulatedNetwork(NETWORK)

    def why(self, topic: str, pubend: str, tick: int, name: str) -> Explanation:
        answers: dict[str, Any] = {}
        for broker in self.network.brokers:
            process = self.network._process(broker)
            answers[broker] = None
            if process.is_up:
                durable = process.node.durable  # type: ignore[union-attr]
                answers[broker] = way_of_event(
                    durable, decode_attributes, topic, pubend, tick, name
                )
        return explain(answers, topic, pubend, tick, name)

    def of(self, receipt: Receipt, name: str = "desk", topic: str = "t") -> Explanation:
        return self.why(topic, receipt.pubend, receipt.tick, name)

    def client(self, broker: str) -> Client:
        return gapless.connect(self.network.url(broker))


async def settle() -> None:
    await asyncio.sleep(SETTLE_S)


async def make(client: Client, condition: str = "n > 5", topic: str = "t") -> None:
    async with client.subscribe(topic, condition, name="desk"):
        pass


def play(main: Callable[[Town], Coroutine[Any, Any, None]]) -> None:
    town = Town()
    town.network.run(main(town))


def test_a_topic_that_nobody_knows() -> None:
    async def main(town: Town) -> None:
        assert town.why("nowhere", "nowhere/0", 5, "desk").verdict == "no such topic"

    play(main)


def test_a_topic_that_stores_nothing() -> None:
    async def main(town: Town) -> None:
        found = town.why("fast", "fast/0", 5, "desk")
        assert found.verdict == "not stored"
        assert "reliable" in found.reason

    play(main)


def test_a_pubend_that_the_topic_does_not_have() -> None:
    async def main(town: Town) -> None:
        found = town.why("t", "t/9", 5, "desk")
        assert found.verdict == "no such pubend"
        assert "t/0" in found.reason

    play(main)


def test_a_subscription_that_nobody_has() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            receipt = await feed.publish("t", {"n": 9})
            assert town.of(receipt).verdict == "no such subscription"
            await make(client)
            receipt = await feed.publish("t", {"n": 9})
            assert town.of(receipt).verdict != "no such subscription"
            await client.unsubscribe("desk")
            assert town.of(receipt).verdict == "no such subscription", "it was ended"

    play(main)


def test_a_subscription_to_another_topic() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            await make(client, topic="other")
            found = town.of(await feed.publish("t", {"n": 9}))
            assert found.verdict == "another topic"
            assert "'other'" in found.reason

    play(main)


def test_an_event_that_was_never_published() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            await make(client)
            before = await feed.publish("t", {"n": 9})
            await settle()
            after = await feed.publish("t", {"n": 9})
            between = (before.tick + after.tick) // 2
            assert town.why("t", before.pubend, between, "desk").verdict == "not published"

    play(main)


def test_an_event_without_a_receipt() -> None:
    """Somebody names a tick that the pubend has not come to: nobody has a receipt for it."""

    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            await make(client)
            receipt = await feed.publish("t", {"n": 9})
            ahead = receipt.tick + (3_600_000_000 << 10)
            assert town.why("t", receipt.pubend, ahead, "desk").verdict == "not durable yet"

    play(main)


def test_an_event_from_before_the_subscription_began() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            async with client.subscribe("t", name="keeper"):  # so that it is not released
                pass
            receipt = await feed.publish("t", {"n": 9})
            await settle()
            await make(client)
            assert town.of(receipt).verdict == "began later"
            assert town.of(receipt, "keeper").verdict == "waiting"

    play(main)


@pytest.mark.parametrize(
    ("attributes", "part"),
    [
        ({"n": 5, "s": "x"}, "n > 5 is FALSE: n is 5"),
        ({"s": "x"}, "n > 5 is UNKNOWN: n is missing"),
        ({"n": "9", "s": "x"}, "n > 5 is UNKNOWN: n is '9'"),
        ({"n": 9, "s": "y"}, "s = 'x' is FALSE: s is 'y'"),
    ],
)
def test_an_event_that_the_condition_does_not_take(attributes: dict[str, Any], part: str) -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            condition = "n > 5 AND s = 'x'"
            await make(client, condition)
            receipt = await feed.publish("t", attributes)
            await settle()
            found = town.of(receipt)
            assert found.verdict == "filtered"
            assert part in found.reason
            assert not gapless.Filter.parse(condition).matches(attributes)

    play(main)


def test_an_event_that_was_released_by_the_limits_of_its_topic() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            await make(client, topic="short")
            receipt = await feed.publish("short", {"n": 9}, b"x" * 1_000)
            for _ in range(40):
                await feed.publish_many("short", [({"n": 9}, b"x" * 1_000)] * 5)
            await settle()
            assert town.of(receipt, topic="short").verdict == "released"
            async with client.subscribe("short", "n > 5", name="desk") as subscription:
                assert isinstance(await anext(subscription), gapless.Gap)

    play(main)


@pytest.mark.parametrize("fault", ["cut near the host", "cut near the home", "relay down"])
def test_an_event_that_is_stuck_on_its_way(fault: str) -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            await make(client)
            await settle()
            match fault:
                case "cut near the host":
                    town.network.cut("p", "r")
                case "cut near the home":
                    town.network.cut("r", "s")
                case _:
                    town.network.crash("r")
            receipt = await feed.publish("t", {"n": 9})
            await asyncio.sleep(5)
            found = town.of(receipt)
            assert found.verdict == "on its way"
            assert ("do not answer: r" in found.reason) == (fault == "relay down")
            assert ("has not reached r" in found.reason) == (fault == "cut near the host")
            town.network.heal()
            await settle()
            assert town.of(receipt).verdict == "waiting", "it has arrived, and nobody is there"

    play(main)


def test_a_host_that_is_down_leaves_the_answer_open() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            await make(client)
            receipt = await feed.publish("t", {"n": 1})
            await settle()
            town.network.crash("p")
            found = town.of(receipt)
            assert found.verdict in ("unknown", "filtered"), "a cache may still have the event"
            assert "do not answer: p" in found.reason

    play(main)


def test_an_event_that_waits_is_sent_and_is_acknowledged() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            await make(client)
            receipt = await feed.publish("t", {"n": 9})
            await settle()
            assert town.of(receipt).verdict == "waiting"
            assert "No client is attached" in town.of(receipt).reason
            async with client.subscribe("t", "n > 5", name="desk") as subscription:
                event = await anext(subscription)
                assert isinstance(event, gapless.Event)
                assert (event.pubend, event.tick) == (receipt.pubend, receipt.tick)
                await settle()
                found = town.of(receipt)
                assert found.verdict == "sent"
                assert "the client, which has not acknowledged it" in found.reason
                steps = {step.broker: step.what for step in found.steps}
                assert "logged it" in steps["p"]
                assert "recorded it for the subscription" in steps["s"]
                await subscription.acknowledge()
                assert town.of(receipt).verdict == "acknowledged"
            await settle()
            assert town.of(receipt).verdict == "acknowledged", "also after it was released"

    play(main)


def test_a_client_that_does_not_consume_is_told_apart() -> None:
    async def main(town: Town) -> None:
        async with (
            town.client("p") as feed,
            town.client("s") as client,
            client.subscribe("t", "n > 5", name="desk"),
        ):
            receipt = await feed.publish("t", {"n": 9})
            await settle()
            found = town.of(receipt)
            assert found.verdict == "sent"
            assert "1 events wait there to be consumed" in found.reason

    play(main)


def test_the_condition_that_the_subscription_had_then_decides() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            async with client.subscribe("t", name="keeper"):  # so that nothing is released
                pass
            await make(client, "n > 5")
            old_only, new_only = (
                await feed.publish("t", {"n": 9}),
                await feed.publish("t", {"n": 1}),
            )
            await settle()
            await client.alter_subscription("desk", condition="n < 5")
            later, last = await feed.publish("t", {"n": 9}), await feed.publish("t", {"n": 2})
            await settle()
            assert town.of(old_only).verdict == "waiting"
            before = town.of(new_only)
            assert before.verdict == "filtered"
            assert "that it had then" in before.reason
            assert "n > 5 is FALSE: n is 1" in before.reason
            assert "n < 5 is FALSE: n is 9" in town.of(later).reason
            async with client.subscribe("t", "n < 5", name="desk") as subscription:
                for receipt in (old_only, last):
                    event = await anext(subscription)
                    assert isinstance(event, gapless.Event)
                    assert event.tick == receipt.tick
                await settle()
                await subscription.acknowledge()
            await settle()
            assert town.of(old_only).verdict == "acknowledged"
            assert town.of(new_only).verdict == "filtered"
            for n in (100, 200):  # the first condition is forgotten: it counts for nothing any more
                await client.alter_subscription("desk", condition=f"n < {n}")
            assert town.of(old_only).verdict == "acknowledged", "it was recorded"
            assert town.of(new_only).verdict == "unknown"

    play(main)


def test_an_event_of_a_group_waits_is_in_hand_comes_back_and_is_finished() -> None:
    async def main(town: Town) -> None:
        async with town.client("p") as feed, town.client("s") as client:
            async with client.subscribe("t", name="keeper"):
                pass
            async with client.subscribe("t", name="desk", share_by="n") as member:
                first = await feed.publish("t", {"n": 1})
                event = await anext(member)
                assert isinstance(event, gapless.Event)
                found = town.of(first)
                assert found.verdict == "sent"
                assert "a member" in found.reason
                await member.reject(event, reason="no ink", delay_s=600)
                await asyncio.sleep(1)
                found = town.of(first)
                assert found.verdict == "waiting"
                assert "no ink" in found.reason
                second = await feed.publish("t", {"n": 2})
                event = await anext(member)
                assert isinstance(event, gapless.Event)
                await member.finish(event)
                await asyncio.sleep(1)
                assert town.of(second).verdict == "acknowledged", "though the first is not"
            await settle()
            assert town.of(first).verdict == "waiting"

    play(main)


@pytest.mark.parametrize("text", ["", "t/0", "t/0:", ":5", "t/0:five"])
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="PUBEND:TICK"):
        parse_event(text)
