"""One run of shipped clients: a seed becomes a network and its faults, and journals are judged.

Theory of operation
    As in `run`, everything is drawn from the seed: network, limits, links, faults. The
    clients are the shipped ones, on a loop of simulated time: publishers with a name that keep the
    rate up, and subscribers that come and go: anonymous ones, named ones that keep their token, and
    named ones that leave it to the broker, at one broker or at any. They write journals of what the
    library told them. Then everything is healed, and every subscriber must come past all that was
    logged. The simulator's checkers hold the journals against the logs (`journals`).
    An auditor that subscribed and never comes keeps all logs whole.

Invariants
    I1  the same seed takes the same course
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.identity import Instant
from gapless.testing.clock import START
from gapless.testing.faults import Faults
from gapless.testing.journals import judge
from gapless.testing.network import SimulatedNetwork
from gapless.testing.options import FAULTS, draw_options
from gapless.testing.record import Violation
from gapless.testing.run import Outcome
from gapless.testing.shapes import draw_network
from gapless.testing.witnesses import LOOK_S, JointWitness, Source, Witness
from gapless.testing.workload import draw_attributes, draw_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.core.events import Attributes
    from gapless.core.identity import PubendName
    from gapless.core.store import Store
    from gapless.node.network import Topic
    from gapless.testing.journals import SubscriberJournal
    from gapless.testing.options import Options

SECOND = 1_000_000
RECOVERY_S = 120.0
"""How long after the last fault everybody must have everything, in simulated seconds."""

DURATION = (5 * SECOND, 20 * SECOND)
"""Of the safety phase: a client's own timers are seconds, and it is to reconnect some times."""

RATES = (0.05, 0.2, 0.5)
"""Faults of one kind in a simulated second."""

EVENTS_PER_S_MAX = 30.0


class Absence(NamedTuple):
    """When a subscriber leaves, and for how long, in seconds."""

    after_s: float
    away_s: float


class Clients:
    """All connections, as far as faults are concerned."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network

    def hang_up(self) -> None:
        """One broker's clients are cut off, or their connections carry nothing for a while."""
        network, dice = self._network, self._network.world.dice
        broker = dice.choice(network.dialled or network.brokers)
        if dice.random() < 0.5:
            network.drop_clients(broker)
        else:
            network.freeze_clients(broker)
            network.world.after(dice.randrange(8 * SECOND), network.thaw_clients, broker)


class ClientRun:
    """One seed."""

    def __init__(self, seed: int, out: Callable[[str], object] | None = None) -> None:
        self._dice = random.Random(f"clients of {seed}")
        drawn = draw_network(random.Random(f"network of {seed}"))
        self.options: Options = draw_options(seed, random.Random(seed), drawn)
        # A client's queue of a few events is met by a named subscription that goes on, and by an
        # anonymous one that ends: which is right, and not what is looked for here.
        usual = type(self.options.config)()
        config = replace(self.options.config, client_queue_max=usual.client_queue_max)
        self.options = replace(
            self.options,
            config=config,
            duration=self._dice.randint(*DURATION),
            fault_rates=draw_rates(self._dice),
        )
        self.network = SimulatedNetwork(
            drawn, seed=seed, config=config, links=self.options.links, trace=out
        )
        for name, offset in self.options.offsets.items():
            self.network.world.processes[name].clock.offset = offset
        self._topics = self.network.world.network.topics
        self._sources: list[tuple[Source, str]] = []
        self._witnesses: list[tuple[Witness, str]] = []
        self._joints: list[tuple[JointWitness, str]] = []  # of all topics
        self._edges: list[str] = list(self.options.conditions)

    def play(self) -> int:
        """How many deliveries were right; `Violation` if anything is not."""
        try:
            self.network.run(self._main(), limit_s=1_000.0)
        except TimeoutError as error:
            raise Violation("everything ends", str(error)) from None
        publishers = [each.journal for each, _ in self._sources]
        journals = [each.journal for each, _ in self._witnesses]
        for joint, _ in self._joints:
            joint.check_order()
            journals += joint.journals
        return judge(self.network.world.network, self._logs(), publishers, journals)

    async def _main(self) -> None:
        dice, world = self._dice, self.network.world
        async with AsyncExitStack() as stack:
            for topic in self._topics:
                await self._audit(topic)
                for number in range(dice.randint(1, 2)):
                    self._draw_source(topic, number)
                for number in range(dice.randint(2, 4)):
                    self._draw_witness(topic, number)
            if len(self._topics) > 1:
                self._draw_joints()
            everyone: list[tuple[Witness, str]] = [*self._witnesses, *self._joints]
            for witness, url in everyone:
                stack.push_async_callback(witness.leave)
                await witness.come(url)
            for source, url in self._sources:
                stack.push_async_callback(source.cancel)
                source.start(url)
            end = Instant(world.now + self.options.duration)
            Faults(world, self.options, [Clients(self.network)], end)
            absences = [
                asyncio.create_task(self._stay_away(witness, url)) for witness, url in everyone
            ]
            await asyncio.sleep(self.options.duration / SECOND)
            self.network.heal()
            for broker in self.network.brokers:
                self.network.thaw_clients(broker)
            await asyncio.gather(*absences)
            for source, _ in self._sources:
                await source.stop()
            await self._settle()

    # --- who is there ----------------------------------------------------------------------------

    async def _audit(self, topic: Topic) -> None:
        auditor = Witness(topic.name, label=f"auditor of {topic.name}")
        await auditor.come(self.network.url(self._edges[0]))
        await auditor.leave()

    def _draw_source(self, topic: Topic, number: int) -> None:
        dice, label = self._dice, f"source {number} of {topic.name}"

        def make(count: int) -> tuple[Attributes, bytes]:
            return draw_attributes(dice), f"{label}:{count}".encode()

        source = Source(topic.name, label, dice.uniform(1.0, EVENTS_PER_S_MAX), make)
        self._sources.append((source, self._some(self.network.brokers)))

    def _draw_witness(self, topic: Topic, number: int) -> None:
        dice = self._dice
        kind = dice.choice(("anonymous", "named", "kept"))
        witness = Witness(
            topic.name,
            draw_condition(dice) if dice.random() < 0.7 else "",
            label=f"{kind} {number} of {topic.name}",
            is_named=kind != "anonymous",
            tokens="broker" if kind == "kept" else "client",
        )
        self._witnesses.append((witness, self._some(self._edges)))

    def _draw_joints(self) -> None:
        dice = self._dice
        for order in ("publisher", "total"):
            joint = JointWitness(
                [topic.name for topic in self._topics],
                draw_condition(dice) if dice.random() < 0.7 else "",
                label=f"joint {order}",
                order=order,
                tokens=dice.choice(("client", "client", "broker")),
            )
            self._joints.append((joint, self._some(self._edges)))

    def _some(self, brokers: Sequence[str]) -> str:
        """One broker, or several to choose from."""
        count = self._dice.choice((1, 1, min(2, len(brokers))))
        return self.network.url(*self._dice.sample(list(brokers), count))

    async def _stay_away(self, witness: Witness, url: str) -> None:
        """Leave and return once or twice, in the safety phase."""
        if witness.journal.name is None or self._dice.random() < 0.4:
            return
        duration_s = self.options.duration / SECOND
        for _ in range(self._dice.randint(1, 2)):
            absence = Absence(self._dice.uniform(0, duration_s / 2), self._dice.uniform(0, 4.0))
            await asyncio.sleep(absence.after_s)
            await witness.leave()
            await asyncio.sleep(absence.away_s)
            await witness.come(url)

    # --- the end ---------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Until every subscriber is past all that was logged."""
        end_s = self.network.now_s + RECOVERY_S
        while waiting := self._waiting():
            if self.network.now_s > end_s:
                raise Violation("everything arrives", f"these wait for ever: {', '.join(waiting)}")
            await asyncio.sleep(LOOK_S)

    def _waiting(self) -> list[str]:
        logs = self._logs()
        owed: list[tuple[Witness, SubscriberJournal]] = [(w, w.journal) for w, _ in self._witnesses]
        owed += [(joint, each) for joint, _ in self._joints for each in joint.journals]
        return [
            journal.label
            for witness, journal in owed
            for pubend, records in logs.items()
            if pubend.rpartition("/")[0] == journal.topic
            and records
            and not witness.has_settled(pubend, records[-1][0])
        ]

    def _logs(self) -> Mapping[str, list[tuple[int, bytes]]]:
        world = self.network.world
        return {
            str(name): read_log(world.processes[pubend.host].store, name)
            for name, pubend in world.network.pubends.items()
        }


def draw_rates(dice: random.Random) -> dict[str, float]:
    """Connections of clients break in each run; of the other faults each is in half of them."""
    rates = {kind: dice.choice(RATES) for kind in FAULTS if dice.random() < 0.5}
    return {**rates, "hang_up": dice.choice((0.5, 1.0, 2.0))}


def read_log(store: Store, pubend: PubendName) -> list[tuple[int, bytes]]:
    indices, records = store.scan(f"log/{pubend}", 0, 1 << 63)
    return list(zip(indices, map(bytes, records), strict=True))


def simulate_clients(seed: int, *, out: Callable[[str], object] | None = None) -> Outcome:
    """Play one seed to its end, or to the first violation."""
    run = ClientRun(seed, out)
    trace, violation, deliveries = run.network.trace, "", 0
    try:
        deliveries = run.play()
    except Violation as found:
        violation = str(found)
    except Exception as error:  # a broken invariant, or a crash of ours: found all the same
        violation = f"{type(error).__name__}: {error}"
    return Outcome(
        seed=seed,
        digest=trace.digest,
        steps=trace.count,
        deliveries=deliveries,
        virtual_us=run.network.world.now - START,
        options=run.options.lines() if violation else [],
        violation=violation,
        last_lines=list(trace.last) if violation else [],
        reached=run.network.world.reached,
    )
