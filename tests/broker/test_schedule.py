"""Schedule: time is counted by hand here, so that turns and slices are what the test says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gapless.broker.schedule import FORGOTTEN_S, SHARE_S, TURN_S, Schedule
from tests.broker.stage import run

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGE_S = SHARE_S * 0.6


class Clock:
    """Stands still but for work."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Peer:
    """Its messages each take some time, and stand in `log` by its name when they are worked off."""

    def __init__(self, name: str, clock: Clock, log: list[str]) -> None:
        self.name = name
        self.clock = clock
        self.log = log
        self.inbox: list[float] = []
        self.is_held = False

    def work(self, is_over: Callable[[], bool]) -> bool:
        while self.inbox:
            self.clock.now_s += self.inbox.pop(0)
            self.log.append(self.name)
            if is_over():
                break
        return bool(self.inbox)

    def wait_turn(self) -> None:
        self.is_held = True

    def go_on(self) -> None:
        self.is_held = False


async def turns_of(schedule: Schedule, log: list[str]) -> list[list[str]]:
    """What is worked off in each further turn of the loop, until nobody waits."""
    turns = []
    while len(schedule):
        before = len(log)
        await asyncio.sleep(0)
        turns.append(log[before:])
    return turns


def test_a_client_that_asks_for_much_is_served_a_share_at_a_time() -> None:
    async def main() -> None:
        clock, log = Clock(), list[str]()
        schedule, peer = Schedule(clock), Peer("a", clock, log)
        peer.inbox = [MESSAGE_S] * 9
        schedule.serve(peer)
        assert len(log) == 2
        assert peer.is_held
        turns = await turns_of(schedule, log)
        assert [len(each) for each in turns] == [2, 2, 2, 1]
        assert not peer.is_held

    run(main())


def test_all_clients_together_take_no_more_than_a_turn_and_a_share() -> None:
    async def main() -> None:
        clock, log = Clock(), list[str]()
        schedule = Schedule(clock)
        peers = [Peer(str(n), clock, log) for n in range(100)]
        begin_s = clock.now_s
        for peer in peers:
            peer.inbox = [MESSAGE_S] * 4
            schedule.serve(peer)
        assert clock.now_s - begin_s <= TURN_S + 2 * SHARE_S
        assert all(peer.is_held for peer in peers)
        for turn in await turns_of(schedule, log):
            assert len(turn) * MESSAGE_S <= TURN_S + 2 * SHARE_S
        assert not any(peer.inbox or peer.is_held for peer in peers)

    run(main())


def test_who_asks_for_little_goes_before_those_who_ask_for_much() -> None:
    async def main() -> None:
        clock, log = Clock(), list[str]()
        schedule = Schedule(clock)
        heavy = [Peer(f"heavy {n}", clock, log) for n in range(20)]
        for peer in heavy:
            peer.inbox = [3 * SHARE_S] * 10
            schedule.serve(peer)
        while len(set(log)) < len(heavy):  # noqa: ASYNC110 - it is turns that are counted
            await asyncio.sleep(0)
        light = Peer("light", clock, log)
        light.inbox = [0.0]
        before = len(log)
        schedule.serve(light)
        if "light" not in log:
            await asyncio.sleep(0)
        assert log[before] == "light"
        await turns_of(schedule, log)
        assert all(log.count(peer.name) == 10 for peer in heavy), "nobody is forgotten"

    run(main())


def test_what_a_client_took_long_ago_does_not_count() -> None:
    async def main() -> None:
        clock, log = Clock(), list[str]()
        schedule, old, new = Schedule(clock), Peer("old", clock, log), Peer("new", clock, log)
        old.inbox = [TURN_S]
        schedule.serve(old)
        await turns_of(schedule, log)
        await asyncio.sleep(0)
        clock.now_s += 20 * FORGOTTEN_S
        new.inbox = [TURN_S] * 2
        schedule.serve(new)
        old.inbox = [TURN_S] * 2
        schedule.serve(old)
        before = len(log)
        await turns_of(schedule, log)
        assert log[before] == "old"

    run(main())


def test_who_is_gone_is_not_served() -> None:
    async def main() -> None:
        clock, log = Clock(), list[str]()
        schedule, peer = Schedule(clock), Peer("a", clock, log)
        peer.inbox = [SHARE_S] * 5
        schedule.serve(peer)
        schedule.leave(peer)
        await asyncio.sleep(0)
        assert log == ["a"]
        assert len(schedule) == 0

    run(main())
