"""The world: a network of brokers on one stage, with links and clients between them.

Brokers are made by `make`, so that the same world plays real nodes, faulty ones and stand-ins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, ClientName
from gapless.node.subscriptions.recall import heard_of_all
from gapless.testing.clock import Clock
from gapless.testing.links import CLEAN, Connection, LinkOptions, Links
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.process import Process
from gapless.testing.stage import Stage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from gapless.core.identity import Instant, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.node.network import Network
    from gapless.testing.links import Client
    from gapless.testing.process import Machine
    from gapless.testing.trace import Trace
    from gapless.testing.watch import Watch
    from gapless.wire.codec import Codec


RESTART_DELAY_MAX = 400_000
"""How long a broker whose disk failed stays away, in microseconds, at most."""


def known_volume(network: Network, identity: bytes = b"") -> MemoryVolume:
    """The disk of a broker to which its network is not new: it has heard of all names."""
    volume = MemoryVolume(identity=identity)
    volume.commit([heard_of_all(network)])
    return volume


class World(Stage):
    """One network of brokers and their clients, played from dice."""

    def __init__(
        self,
        network: Network,
        make: Callable[[BrokerName, Store, Instant], Machine],
        dice: random.Random,
        trace: Trace,
        watch: Watch,
        *,
        links: LinkOptions = CLEAN,
        offsets: Mapping[BrokerName, int] | None = None,
        codec: Codec | None = None,
        check_every: int = 1,
    ) -> None:
        super().__init__(dice, trace, watch, codec)
        self.network = network
        self.check_every = check_every
        self.restart_delay_max = RESTART_DELAY_MAX
        self.processes: dict[BrokerName, Process] = {}
        self.links = Links(self, self.processes, links)
        self.make = make
        for cell in network.cells:
            for broker in cell.brokers:
                clock = Clock((offsets or {}).get(broker.name, 0))
                volume = known_volume(network, broker.name.encode())
                self.processes[broker.name] = Process(self, self, broker.name, clock, volume)

    def start(self) -> None:
        """Start every broker that is down."""
        for name in self.processes:
            self.restart(name)

    def restart(self, name: BrokerName) -> None:
        process = self.processes[name]
        if not process.is_up:
            process.start(self.make)

    def restart_delay(self) -> int:
        return 1_000 + self.dice.randrange(self.restart_delay_max)

    def crashed(self, name: BrokerName, down_for: int | None) -> None:
        """A broker has stopped; it is started again after `down_for`, if that is given."""
        self.links.break_off_clients(name)
        if down_for is not None:
            self.after(down_for, self.restart, name)

    def send(self, sender: BrokerName, to: PeerName, message: Message) -> None:
        """Take what a broker sends on its way: to another broker, or down a client's connection."""
        message = self.on_the_wire(message)
        receiver = BrokerName(to)
        if receiver in self.processes:
            self.links.send(sender, receiver, message)
        elif connection := self.links.connections.get(ClientName(to)):
            connection.deliver(message)

    def connect(self, name: ClientName, client: Client, broker: BrokerName) -> Connection | None:
        """A connection for this client; None while the broker is down."""
        process = self.processes[broker]
        return Connection(self, self.links, name, client, process) if process.is_up else None

    def heal(self) -> None:
        """No faults any more: clean links, good disks, steady clocks, every broker up."""
        self.say("heal")
        self.links.heal()
        for process in self.processes.values():
            process.disk.heal()
        self.start()
