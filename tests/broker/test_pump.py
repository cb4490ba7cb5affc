"""The node is driven as its contract says: effects in order, told what it asked to be told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from gapless.broker import embedded
from gapless.broker.pump import CHECKED_MAX, Pump
from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, ClientName, Instant, SubscriptionName
from gapless.core.messages import Message, Ping, Pong
from gapless.core.portion import Portion
from tests.broker.stage import connected, run, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gapless.core.identity import PeerName
    from gapless.node.node import Node

CLIENT = ClientName("client:1")


class Machine:
    """Answers a ping by what its number says; notes what it is called with."""

    name = BrokerName("b")

    def __init__(self) -> None:
        self.deadline: Instant | None = None
        self.is_deadline_known = False
        self.calls: list[str] = []
        self.portions: list[Portion] = []
        self.size = 0

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        assert isinstance(message, Ping | Pong)
        self.calls.append(f"{sender} {type(message).__name__} {message.number}")
        if isinstance(message, Pong):
            return [Send(CLIENT, Ping(message.number + 100))]
        if message.number == 13:
            raise ProtocolError("unlucky")
        if message.number == 14:
            raise AssertionError("I1")
        if message.number == 15:
            return []
        last = Send(CLIENT, Ping(message.number))
        return [Tell(Pong(message.number)), Persist(()), last]

    def leave(self, now: Instant) -> list[Effect]:
        return []

    def fire(self, now: Instant) -> list[Effect]:
        self.calls.append("fire")
        self.deadline = None
        return []

    def check(self, portion: Portion) -> None:
        self.calls.append("check")
        self.portions.append(portion)


class World:
    """Where effects go."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.failures: list[BaseException] = []
        self.machine = Machine()
        self.pump = Pump(cast("Node", self.machine), self, self.failures.append, 0.0)

    def send(self, to: PeerName, message: Message) -> None:
        assert isinstance(message, Ping)
        self.log.append(f"send {message.number}")

    def persist(self, effect: Persist) -> None:
        self.log.append("persist")

    def flush(self) -> None:
        self.log.append("flush")

    def hurry(self, peers: Sequence[PeerName]) -> None:
        self.log.append(f"hurry {' '.join(peers)}")


def test_effects_are_carried_out_in_order_and_a_tell_is_a_call_of_its_own() -> None:
    async def main() -> None:
        world = World()
        world.pump.receive(CLIENT, Ping(1))
        assert world.machine.calls == ["client:1 Ping 1", "b Pong 1"]
        assert world.log == ["persist", "send 1", "send 101"]

    run(main())


def test_a_receipt_leaves_before_the_node_is_told_of_the_write() -> None:
    """The node then matches what was written, which takes longer than all else."""

    async def main() -> None:
        world = World()
        world.pump.carry_out([Send(CLIENT, Ping(7)), Tell(Pong(1)), Send(CLIENT, Ping(8))])
        assert world.log == ["send 7", f"hurry {CLIENT}", "send 8", "send 101"]

    run(main())


def test_all_that_one_turn_brings_is_flushed_once() -> None:
    async def main() -> None:
        world = World()
        for number in range(10):
            world.pump.receive(CLIENT, Ping(number))
        assert "flush" not in world.log
        await asyncio.sleep(0)
        assert world.log.count("flush") == 1

    run(main())


def test_a_message_that_changes_nothing_is_no_reason_to_flush() -> None:
    async def main() -> None:
        world = World()
        world.machine.is_deadline_known = True
        world.pump.receive(CLIENT, Ping(15))
        await asyncio.sleep(0)
        assert world.log == []
        world.machine.is_deadline_known = False  # it may have to be woken earlier
        world.pump.receive(CLIENT, Ping(15))
        await asyncio.sleep(0)
        assert world.log == ["flush"]

    run(main())


def test_a_protocol_error_is_the_callers_and_the_broker_goes_on() -> None:
    async def main() -> None:
        world = World()
        with pytest.raises(ProtocolError):
            world.pump.receive(CLIENT, Ping(13))
        world.pump.receive(CLIENT, Ping(1))
        assert world.failures == []
        assert world.log

    run(main())


def test_a_broken_invariant_stops_the_broker_for_good() -> None:
    async def main() -> None:
        world = World()
        world.pump.receive(CLIENT, Ping(14))
        world.pump.receive(CLIENT, Ping(1))
        assert [str(failure) for failure in world.failures] == ["I1"]
        assert world.log == []

    run(main())


def test_the_node_is_checked_and_fired_when_its_deadline_has_come() -> None:
    async def main() -> None:
        world = World()
        world.machine.deadline = Instant(0)
        world.pump.receive(CLIENT, Ping(1))
        await wait_until(lambda: "fire" in world.machine.calls)
        assert world.machine.calls[-2:] == ["check", "fire"]
        world.pump.stop()

    run(main())


def test_a_node_that_is_about_to_leave_is_fired_no_more_whatever_is_due() -> None:
    async def main() -> None:
        world = World()
        world.machine.deadline = Instant(0)
        world.pump.receive(CLIENT, Ping(1))
        await asyncio.sleep(0)  # a timer is set, which is due
        assert world.log[-1] == "flush"
        world.pump.leave()
        world.pump.receive(CLIENT, Ping(2))
        for _ in range(10):  # turns: a timer that is due would have its turn in the second
            await asyncio.sleep(0)
        assert world.log[-1] == "flush"
        assert "fire" not in world.machine.calls

    run(main())


def test_a_node_without_a_deadline_is_still_woken_to_notice_a_clock_set_back() -> None:
    async def main() -> None:
        world = World()
        world.pump.receive(CLIENT, Ping(1))
        await wait_until(lambda: "fire" in world.machine.calls)
        world.pump.stop()

    run(main())


def test_every_call_and_every_turn_is_measured() -> None:
    async def main() -> None:
        world = World()
        for number in (1, 2):
            world.pump.receive(CLIENT, Ping(number))
        await asyncio.sleep(0)
        with pytest.raises(ProtocolError):
            world.pump.receive(CLIENT, Ping(13))
        await asyncio.sleep(0)
        assert world.log[-1] == "flush"
        assert sum(world.pump.step_times.buckets) == world.pump.steps == 5
        assert sum(world.pump.turn_times.buckets) == world.log.count("flush") == 1
        assert min(world.pump.turn_times.longest_ns, world.pump.step_times.longest_ns) > 0
        world.pump.stop()

    run(main())


def test_a_large_node_is_checked_portion_by_portion() -> None:
    async def main() -> None:
        world = World()
        world.machine.size = 3 * CHECKED_MAX
        world.pump.receive(CLIENT, Ping(1))
        for number in range(4):
            world.machine.deadline = Instant(0)
            world.pump.receive(CLIENT, Ping(number))
            await wait_until(lambda: len(world.machine.portions) > number)  # noqa: B023
        assert world.machine.portions[:4] == [Portion(number, 4) for number in range(4)]

    run(main())


def test_a_broken_subscription_is_found_by_the_portion_that_has_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with embedded(["t"], tmp_path) as broker:
            async with connected(broker) as client:
                for number in range(5):
                    async with client.subscribe("t", name=f"desk-{number}"):
                        pass
            node = broker._pump.node
            portions = [Portion(number, 5) for number in range(5)]
            for portion in portions:
                node.check(portion)
            subscription = node.durable.subscriptions.get(SubscriptionName("desk-3"))
            assert subscription is not None
            condition = node.durable.named.filters.pop(subscription.number)
            with pytest.raises(AssertionError):
                any(map(node.check, portions))
            node.durable.named.filters[subscription.number] = condition

    run(main())
