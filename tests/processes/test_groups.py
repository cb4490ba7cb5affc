"""A group of real processes: members and their broker are killed, and every event is done."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from gapless.client.client import connect
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes, cell, topic
from tests.broker.stage import ONE, run, wait_until

ROOT = Path(__file__).parents[2]
MEMBERS, KEYS, EVENTS = 3, 7, 400
MEMBER_KILLS, BROKER_KILLS = 6, 2


class Members:
    """The processes of a group, and what they have written."""

    def __init__(self, url: str, path: Path) -> None:
        self._command = [sys.executable, "-m", "tests.processes.group_member", url, str(path)]
        self._path = path
        self.processes = [self._start() for _ in range(MEMBERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, cwd=ROOT)

    def replace(self, index: int) -> None:
        """Kill one, and start another."""
        self.stop(index)
        self.processes[index] = self._start()

    def stop(self, index: int) -> None:
        self.processes[index].send_signal(signal.SIGKILL)
        self.processes[index].wait()

    def lines(self) -> list[list[str]]:
        text = self._path.read_text() if self._path.exists() else ""
        return [line.split() for line in text.splitlines()]

    async def wait_for(self, count: int) -> None:
        """Until this many different events were taken."""
        await wait_until(lambda: len({line[2] for line in self.lines()}) >= count)


def check(lines: list[list[str]]) -> None:
    """Everything was taken, in order by key; what was done was not taken again."""
    done: set[int] = set()
    taken: dict[str, list[int]] = defaultdict(list)
    for what, key, text, _ in lines:
        number = int(text)
        if what == "done":
            done.add(number)
            continue
        assert number not in done, f"{number} comes again"
        expected = {each for each in range(EVENTS) if f"k{each % KEYS}" == key and each < number}
        assert expected <= set(taken[key]), f"{number} comes before others of {key}"
        assert not any(each > number and each in done for each in taken[key]), f"{number} is late"
        taken[key].append(number)
    assert {each for some in taken.values() for each in some} == set(range(EVENTS))
    repeats = sum(len(some) - len(set(some)) for some in taken.values())
    assert repeats <= MEMBER_KILLS + BROKER_KILLS * MEMBERS


def test_members_and_their_broker_are_killed_and_every_event_is_done_in_order(
    tmp_path: Path,
) -> None:
    dice = random.Random(3)

    async def main() -> None:
        async with Processes(ONE, folder=tmp_path / "brokers") as brokers:
            await brokers.start("b")
            async with connect(brokers.url("b"), patience_s=60) as client:
                async with client.subscribe("t", name="group", share_by="key"):
                    pass  # now it exists, and counts
                members = Members(brokers.url("b"), tmp_path / "lines")
                try:
                    async with client.publisher("t", name="orders") as publisher:
                        for number in range(EVENTS):
                            await publisher.send({"key": f"k{number % KEYS}", "number": number})
                        for blow in range(MEMBER_KILLS):
                            await members.wait_for((blow + 1) * EVENTS // 10)
                            members.replace(dice.randrange(MEMBERS))
                            if blow < BROKER_KILLS:
                                brokers.kill("b")
                                await brokers.start("b")
                        await publisher.flush()
                    await members.wait_for(EVENTS)
                finally:
                    for index in range(MEMBERS):
                        members.stop(index)
        check(members.lines())

    run(main())


THREE = "\n".join(
    (
        cell("hub", ["h"], subscribers=True),
        cell("left", ["l"], "hub", subscribers=True),
        cell("right", ["r"], "hub", subscribers=True),
        topic("t", "h"),
    )
)


def test_a_member_may_connect_to_any_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with Processes(THREE, folder=tmp_path) as brokers:
            await brokers.start("h", "l", "r")
            async with (
                connect(brokers.url("l"), patience_s=60) as one,
                connect(brokers.url("r"), patience_s=60) as other,
                one.subscribe("t", name="group", share_by="key") as first,
                other.subscribe("t", name="group", share_by="key") as second,
                connect(brokers.url("h")) as client,
            ):
                assert first.address == second.address == brokers.address("l")
                for key in ("a", "b"):
                    await client.publish("t", {"key": key})
                taken = [await first.take(), await second.take()]
                keys = [each.attributes["key"] for each in taken if isinstance(each, Event)]
                assert sorted(map(str, keys)) == ["a", "b"]

    run(main())
