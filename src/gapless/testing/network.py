"""A simulated network for an application's own tests: brokers, links and disks that fail on demand.

Theory of operation
    The brokers are the shipped ones (`gapless.node`), the client is the shipped one, byte by byte;
    simulated are time, links and disks. `run` plays an asyncio program to its end. Brokers are
    dialled by their names: `gapless.connect(network.url("edge"))`.
    All choices (delays, a client's waits) come from the seed: a test that fails once fails always.

Invariants
    I1  a crash keeps what was durable and loses everything else
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gapless.core.errors import UsageError
from gapless.core.identity import BrokerName, Instant
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.dispatch import KINDS
from gapless.node.network import Network, parse_network
from gapless.node.node import Node
from gapless.testing.clock import START
from gapless.testing.lines import Lines
from gapless.testing.links import CLEAN
from gapless.testing.loop import VirtualLoop
from gapless.testing.record import Record
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import check_events, decode_attributes, extend_event
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from gapless.core.effects import Write
    from gapless.core.identity import ClientName, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.links import LinkOptions
    from gapless.testing.process import Process

Result = TypeVar("Result")

ONE_BROKER = """
[[cell]]
name = "broker"
subscribers = true
brokers = [{ name = "broker", listen = "127.0.0.1:0" }]
"""
LIMIT_S = 3_600.0


class Unwatched(Watch):
    """The application judges by itself: nothing is recorded."""

    def committed(self, broker: Broker, writes: Iterable[Write]) -> None: ...
    def sent(self, broker: Broker, to: PeerName, message: Message) -> None: ...
    def received(self, broker: Broker, sender: PeerName, message: Message) -> None: ...
    def told(self, client: ClientName, message: Message) -> None: ...
    def gone(self, client: ClientName) -> None: ...


class SimulatedNetwork:
    """One network, from its start to the end of the last `run`.

    `network` is the text of a network file, or its path; without, there is one broker, "broker".
    `trace` is called with each line of what happens.
    """

    def __init__(
        self,
        network: str | Path | Network | None = None,
        *,
        seed: int = 1,
        config: Config | None = None,
        links: LinkOptions = CLEAN,
        trace: Callable[[str], object] | None = None,
    ) -> None:
        if isinstance(network, Path):
            network = network.read_text(encoding="utf-8")
        if not isinstance(network, Network):
            network = parse_network(network or ONE_BROKER)
        self.trace = Trace(trace)
        self._config = config or Config()
        self.world = World(
            network,
            self._make,
            random.Random(seed),
            self.trace,
            Unwatched(Record(network), []),
            links=links,
            codec=codec(*KINDS),
            check_every=20,
        )
        self._lines = Lines(self.world)
        self.world.start()

    def _make(self, name: BrokerName, store: Store, now: Instant) -> Node:
        return Node(
            name,
            self.world.network,
            store,
            now,
            config=self._config,
            encoding=EventEncoding(decode_attributes, check_events, extend=extend_event),
        )

    # --- running ---------------------------------------------------------------------------------

    def run(self, main: Coroutine[Any, Any, Result], limit_s: float = LIMIT_S) -> Result:
        """Play `main` to its end; its result. `TimeoutError` after `limit_s` simulated seconds:
        brokers never rest, so a program that waits for ever would be played for ever."""
        with asyncio.Runner(loop_factory=self._make_loop) as runner:
            return runner.run(self._limited(main, limit_s))

    def _make_loop(self) -> VirtualLoop:
        return VirtualLoop(self.world, self._lines.dial)

    async def _limited(self, main: Coroutine[Any, Any, Result], limit_s: float) -> Result:
        try:
            async with asyncio.timeout(limit_s) as limit:
                return await main
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(
                    f"it has not ended after {limit_s:g} simulated seconds"
                ) from None
            raise

    def url(self, *brokers: str) -> str:
        """Where `gapless.connect` finds these brokers; without names, all of them."""
        names = [self._process(each).name for each in brokers] or list(self.world.processes)
        return f"gapless://{','.join(names)}"

    @property
    def now_s(self) -> float:
        """Simulated seconds since the network was made."""
        return (self.world.now - START) / 1e6

    @property
    def brokers(self) -> list[str]:
        return list(self.world.processes)

    @property
    def dialled(self) -> list[str]:
        """Brokers that have clients now, one for each connection."""
        return [each.broker for each in self._lines.open]

    # --- faults ----------------------------------------------------------------------------------

    def crash(self, broker: str, back_after_s: float | None = None) -> None:
        """Stop a broker at once, as `kill -9` does. It starts again with its disk, after
        `back_after_s` or by `restart`."""
        back = None if back_after_s is None else round(back_after_s * 1e6)
        self._process(broker).crash(back)

    def restart(self, broker: str) -> None:
        """Start a broker that is down."""
        self.world.restart(self._process(broker).name)

    def is_up(self, broker: str) -> bool:
        return self._process(broker).is_up

    def cut(self, one: str, other: str) -> None:
        """Nothing passes between these two brokers, until `mend`."""
        for pair in self._both_ways(one, other):
            self.world.links.cut(*pair)

    def mend(self, one: str, other: str) -> None:
        for pair in self._both_ways(one, other):
            self.world.links.mend(*pair)

    def drop_clients(self, broker: str) -> None:
        """Break every client's connection to this broker; the broker goes on."""
        for line in self._lines.of(self._process(broker).name):
            line.break_off()

    def freeze_clients(self, broker: str) -> None:
        """The connections of its clients stay open and carry nothing, until `thaw_clients`."""
        for line in self._lines.of(self._process(broker).name):
            line.is_frozen = True

    def thaw_clients(self, broker: str) -> None:
        """Everything that waited goes on, in both directions."""
        for line in self._lines.of(self._process(broker).name):
            if line.is_frozen:
                line.thaw()

    def heal(self) -> None:
        """No faults any more: clean links, good disks, every broker up."""
        self.world.heal()

    def _process(self, name: str) -> Process:
        process = self.world.processes.get(BrokerName(name))
        if process is None:
            known = ", ".join(self.world.processes)
            raise UsageError(f"there is no broker {name!r} in this network", f"It has: {known}.")
        return process

    def _both_ways(self, one: str, other: str) -> list[tuple[BrokerName, BrokerName]]:
        first, second = self._process(one).name, self._process(other).name
        return [(first, second), (second, first)]
