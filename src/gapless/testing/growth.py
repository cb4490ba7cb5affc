"""Networks that change while they run: brokers come, and brokers go.

Theory of operation
    Each broker has a network file. A new file comes to the brokers one by one, at drawn instants;
    a broker that gets it starts again with it, as `gapless reload` does. Brokers whose files differ
    do not speak to each other: their links are refused. So a reload is, to the protocols, a crash
    and a cut that ends.
    One cell of subscribers comes to the network during the run; or it is there, is drained, goes
    when no named subscription is left there, and comes back in the end. The clients and the
    checkers are those of `run`, for the network with that cell.

`FAULTS` are protocols that are broken on purpose; each must be found.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gapless.core.effects import Delete
from gapless.core.identity import BrokerName, Instant
from gapless.node.directory.registry import FLOORS
from gapless.node.node import Node
from gapless.node.subscriptions.recall import HEARD, heard_of_all
from gapless.testing.options import draw_options
from gapless.testing.run import make_world, node_maker, outcome
from gapless.testing.trace import Trace
from gapless.testing.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.identity import CellName, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.node.network import Network
    from gapless.testing.options import Options
    from gapless.testing.process import Machine
    from gapless.testing.run import Outcome

DOWN_MAX = 50_000
"""How long a broker that reads a new file is away, in microseconds, at most."""

DRAIN_LOOK = 20_000
"""How often it is looked whether a broker has given everything away."""

FAULTS = ("files not compared",)


class ChangingWorld(World):
    """A world whose brokers have network files of their own; none: the broker is not to run."""

    def prepare(self, options: Options, cell: CellName, own: random.Random, fault: str) -> None:
        """Draw when the cell comes; call it before the run."""
        self._small = small = self.network.without(cell)
        makers = {each.digest: node_maker(options, network=each) for each in (small, self.network)}
        self._guest, self._own = self.network.members(cell)[0], own
        is_there = own.random() < 0.5
        first = self.network if is_there else small
        self._files: dict[BrokerName, Network | None] = dict.fromkeys(self.processes, first)
        self._are_files_compared = fault != "files not compared"
        self._end = Instant(self.now + options.duration)

        def make(name: BrokerName, store: Store, now: Instant) -> Machine:
            file = self._files[name]
            assert file is not None
            return makers[file.digest](name, store, now)

        self.make = make
        self._spread = own.choice((1_000, 100_000, options.duration // 4))
        begin = own.randrange(options.duration // 2)
        if is_there:
            self.after(begin, self._drain)
        else:
            self._files[self._guest] = None
            self.after(begin, self._spread_file, self.network)
        for name, process in self.processes.items():
            is_new = self._files[name] is None
            note = Delete(FLOORS, HEARD) if is_new else heard_of_all(first)
            process.disk.volume.commit([note])

    def _spread_file(self, file: Network) -> None:
        for name in self.processes:
            if name in file.cell_of:
                self.after(self._own.randrange(self._spread), self._read, name, file)

    def _drain(self) -> None:
        """Drain the guest until no named subscription is left there; then it goes."""
        process = self.processes[self._guest]
        if self.now >= self._end:
            return
        if isinstance(process.node, Node) and not process.node.durable.drain.is_on:
            self.watch.record.drained.add(self._guest)
            process.drive(Node.drain)
        if isinstance(process.node, Node) and process.node.durable.drain.is_finished(process.now):
            self.say(f"{self._guest} goes")
            self.reached["a broker was drained and removed"] += 1
            process.crash()
            self._files[self._guest] = None
            self._spread_file(self._small)
        else:
            self.after(DRAIN_LOOK, self._drain)

    def _read(self, name: BrokerName, file: Network) -> None:
        """Start a broker with this file, or start it again."""
        if self._files[name] is file or (self.now >= self._end and file is self._small):
            return
        self._files[name] = file
        self.say(f"{name} reads a file of {len(file.cells)} cells")
        self.reached["a broker read another network file"] += 1
        self.processes[name].crash()
        self.after(1 + self.dice.randrange(DOWN_MAX), self.restart, name)

    def restart(self, name: BrokerName) -> None:
        if self._files[name] is not None:
            super().restart(name)

    def send(self, sender: BrokerName, to: PeerName, message: Message) -> None:
        ours, theirs = self._files[sender], self._files.get(BrokerName(to))
        is_refused = to in self.processes and ours is not theirs
        if is_refused and self._are_files_compared:
            self.reached["brokers with different files did not speak"] += 1
        else:
            super().send(sender, to, message)

    def heal(self) -> None:
        for name in self.processes:
            self._read(name, self.network)
        super().heal()


def simulate_growth(
    seed: int, *, out: Callable[[str], object] | None = None, fault: str = ""
) -> Outcome:
    """Play one seed to its end, or to the first violation; `fault`: one of `FAULTS`."""
    number = 0
    while not (cells := free_cells(draw_options(number, random.Random(f"{seed} {number}")))):
        number += 1
    dice = random.Random(f"{seed} {number}")
    options = draw_options(number, dice)
    own = random.Random(f"growth of {seed}")
    trace = Trace(out)
    for line in options.lines() if out is not None else ():
        out(line)  # type: ignore[misc]  # not None in this loop
    world = make_world(options, dice, trace, node_maker(options), ChangingWorld)
    assert isinstance(world, ChangingWorld)
    world.prepare(options, own.choice(cells), own, fault)
    return outcome(seed, world, options, trace)


def free_cells(options: Options) -> list[CellName]:
    """The cells that a network can do without: they host subscribers alone, and lead nowhere."""
    network = options.network
    hosts = {pubend.host for pubend in network.pubends.values()}
    leaves = [each for each in network.cells if each.subscribers]
    return [
        each.name
        for each in leaves
        if len(leaves) > 1
        and len(network.neighbours(each.name)) == 1
        and each.brokers[0].name not in hosts
    ]
