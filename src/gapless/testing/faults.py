"""Faults that come at some instant and pass: cuts, stalls, crashes, bad disks, jumping clocks.

A disk is lost in one respect only, what its host knew of subscriptions (`lost_stamp`): so checkers
need not know of loss, and every event that is filtered away after it is found. Or it is lost as a
whole (`lost_disk`): a broker of any role finds an empty one, or a copy of some time ago.

Each kind that the options turned on strikes at its own rate, at instants drawn as it goes, until
the safety phase is over. What has a duration (a cut, a stall, a full disk) ends by itself after a
drawn while, or at the latest when the world is healed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gapless.propagation.stamp import STAMPS
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.options import LOST_DISK, LOST_STAMP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import BrokerName, Instant
    from gapless.testing.options import Options
    from gapless.testing.world import World

SECOND = 1_000_000
LOST_DISK_DOWN_MIN = 100_000
"""A broker that lost its disk is down for longer than clocks of good brokers differ."""


class Client(Protocol):
    """What faults do to a client."""

    def hang_up(self) -> None: ...


class Faults:
    """Strikes until `end`."""

    def __init__(
        self,
        world: World,
        options: Options,
        clients: Sequence[Client],
        end: Instant,
    ) -> None:
        self._world = world
        self._options = options
        self._clients = clients
        self._end = end
        self._disks = 0
        self._lasts_max = 4 * options.config.dead_after
        self._pairs = list(neighbours(world))
        self._hosts = sorted({pubend.host for pubend in world.network.pubends.values()})
        self._relays = [
            broker.name
            for cell in world.network.cells
            for broker in cell.brokers
            if not cell.subscribers and broker.name not in self._hosts
        ]
        world.restart_delay_max = self._lasts_max
        for kind, rate in options.fault_rates.items():
            self._next(kind, rate)

    def _next(self, kind: str, rate: float) -> None:
        world = self._world
        delay = int(world.dice.expovariate(rate) * SECOND)
        if world.now + delay < self._end:
            world.after(delay, self._strike, kind, rate)

    def _strike(self, kind: str, rate: float) -> None:
        getattr(self, f"_{kind}")()
        self._next(kind, rate)

    def _lasts(self) -> int:
        return 1 + self._world.dice.randrange(self._lasts_max)

    def _broker(self) -> BrokerName:
        """Any broker; every other time one that hosts pubends, for there is most to lose."""
        chosen = self._world.dice.choice(list(self._world.processes))
        return self._host() if self._world.dice.random() < 0.5 else chosen

    def _host(self) -> BrokerName:
        return self._world.dice.choice(self._hosts)

    def _cut(self) -> None:
        if not self._pairs:
            return
        links, (one, other) = self._world.links, self._world.dice.choice(self._pairs)
        both = self._world.dice.random() < 0.5
        self._world.say(f"cut {one}{'-' if both else '->'}{other}")
        for pair in ((one, other), (other, one))[: 1 + both]:
            links.cut(*pair)
            self._world.after(self._lasts(), links.mend, *pair)

    def _stall(self) -> None:
        if not self._pairs:
            return
        dice, links, pair = (
            self._world.dice,
            self._world.links,
            self._world.dice.choice(self._pairs),
        )
        self._world.say(f"stall {pair[0]}->{pair[1]}")
        links.stall(*pair, swallows=dice.random() < 0.5)
        self._world.after(self._lasts(), links.release, *pair)

    def _crash(self) -> None:
        process = self._world.processes[self._broker()]
        down_for = self._lasts()
        process.crash(down_for)
        relies_on_clock = not {LOST_STAMP, LOST_DISK}.isdisjoint(self._options.fault_rates)
        is_wrong = self._world.dice.random() < 0.3 and not relies_on_clock
        if is_wrong:  # its clock comes up wrong: from before the crash
            process.jump(-self._world.dice.randrange(2 * down_for))

    def _lost_stamp(self) -> None:
        """A host, and some relays so that nobody remembers for it."""
        dice, processes = self._world.dice, self._world.processes
        host = processes[self._host()]
        host.crash(self._lasts())
        host.disk.lose(STAMPS)
        self._world.reached["a host lost what it knew of subscriptions"] += 1
        for name in self._relays:
            if dice.random() < 0.5:
                processes[name].crash(self._lasts())

    def _lost_disk(self) -> None:
        """Copy a disk now; some time later the broker finds the copy, or nothing at all."""
        name = self._broker()
        self._disks += 1
        identity = f"{name} {self._disks}".encode()
        copy = self._world.processes[name].disk.volume.copy(identity)
        if self._world.dice.random() < 0.5:
            copy = MemoryVolume(identity=identity)
        self._world.after(self._lasts(), self._replace, name, copy)

    def _replace(self, name: BrokerName, volume: MemoryVolume) -> None:
        process = self._world.processes[name]
        if process.is_up and self._world.now < self._end:
            kind = "an older copy" if volume.tables() else "an empty disk"
            self._world.say(f"{name} finds {kind}")
            self._world.reached[f"a broker found {kind}"] += 1
            process.crash(LOST_DISK_DOWN_MIN + self._lasts())
            process.disk.replace(volume)
            self._world.watch.replaced(process)

    def _full_disk(self) -> None:
        disk = self._world.processes[self._broker()].disk
        disk.fill()
        self._world.after(self._lasts(), disk.make_room)

    def _failed_sync(self) -> None:
        self._world.processes[self._broker()].disk.sync_fails = True

    def _clock_jump(self) -> None:
        self._world.processes[self._broker()].jump(self._jump())

    def _jump(self) -> int:
        limit = self._options.clock_jump_max
        return self._world.dice.randint(-limit, limit)

    def _hang_up(self) -> None:
        if self._clients:
            self._world.dice.choice(self._clients).hang_up()


def neighbours(world: World) -> list[tuple[BrokerName, BrokerName]]:
    """Every pair of brokers that have a link, in both directions."""
    network = world.network
    return [
        (one, other)
        for cell in network.cells
        for near in (cell.name, *network.neighbours(cell.name))
        for one in network.members(cell.name)
        for other in network.members(near)
        if one != other
    ]
