"""The experiment of the multicast service: how good its trees are, and how they heal.

Theory of operation
    Rings on a transit-stub network, topics of very different sizes, members drawn at random. Small
    rings are played: members are the real ones, subscribe, and their children tables are looked
    at. Of the largest only the structure is made. Trees are measured (`multicast_trees`), and a
    share of the nodes fails (`multicast_repair`). What a member takes in memory is traced, once.

Invariant: the same seed and size give the same results, memory apart, wherever runs are played.

Source: the method of the Scribe papers. Their figures, as recalled and not verified, are beside
ours; networks differ, so compare kinds, not values.
"""

from __future__ import annotations

import math
import random
import tracemalloc
from dataclasses import asdict, dataclass, field
from functools import partial
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.scribe.identifiers import Identifier
from gapless.scribe.messages import TopicRecord
from gapless.scribe.settings import SECOND, RingSettings
from gapless_lab.experiments.multicast.joining import COMPARISONS, measure_joining
from gapless_lab.experiments.multicast.network import LARGE, SMALL, Shape, draw_transit_stub
from gapless_lab.experiments.multicast.repair import measure_repair
from gapless_lab.experiments.multicast.ring import Ring
from gapless_lab.experiments.multicast.structure import measure_structure
from gapless_lab.experiments.multicast.tables import CANDIDATES_MAX
from gapless_lab.experiments.multicast.trees import Tally, Tree, topic_sizes
from gapless_lab.experiments.runs import Outcomes, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROUTES = 1_000
"""How many routes of a played ring are measured for their hops."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is played."""

    played: tuple[tuple[int, int], ...]
    """Nodes and topics of rings with real members."""
    structure: tuple[int, int]
    """Nodes and topics of the ring of which only tables are made."""
    joined: int
    """Nodes that really join, to see how near entries of tables get."""
    repair_nodes: int
    failed_shares: tuple[float, ...]
    network: Shape
    runs: int
    """Of each point."""


FULL = Size(
    played=((1_000, 200), (10_000, 1_000)),
    structure=(100_000, 1_500),
    joined=4_000,
    repair_nodes=1_000,
    failed_shares=(0.01, 0.05, 0.1, 0.2, 0.3),
    network=LARGE,
    runs=10,
)
QUICK = Size(
    played=((100, 20), (300, 60)),
    structure=(3_000, 200),
    joined=200,
    repair_nodes=60,
    failed_shares=(0.1, 0.3),
    network=SMALL,
    runs=1,
)


@dataclass(slots=True)
class Results:
    """All that was measured."""

    seed: int
    size: Size
    outcomes: Outcomes = field(default_factory=Outcomes)

    @property
    def rings(self) -> list[tuple[int, int]]:
        """Nodes and topics, by size."""
        return [*self.size.played, self.size.structure]

    def trees(self, nodes: int, topics: int) -> list[dict[str, Any]]:
        """Figures of all runs."""
        return self.outcomes.of(self._trees(nodes, topics))

    def repairs(self, share: float) -> list[dict[str, Any]]:
        return self.outcomes.of(self._repair(share))

    def values(self, nodes: int, topics: int, name: str) -> list[float]:
        """Delays of all topics of all runs."""
        return [value for figures in self.trees(nodes, topics) for value in figures[name]]

    def mean_of(self, nodes: int, topics: int, name: str) -> float:
        """Of a histogram, over all runs."""
        return fmean(mean_of_histogram(each[name]) for each in self.trees(nodes, topics))

    def max_of(self, nodes: int, topics: int, name: str) -> float:
        """The greatest of each run, on average."""
        return fmean(each[name][-1][0] for each in self.trees(nodes, topics))

    def copies(self, nodes: int, topics: int) -> tuple[float, float]:
        """Ours and IP multicast's, mean of a link, the links of hosts among them.

        A copy crosses the link of the host that sends it and that of the host that gets it. IP
        multicast crosses that of the root, and that of each member.
        """
        return (
            fmean(
                (total(each["stress"]) + 2 * total(each["entries"])) / link_count(each, nodes)
                for each in self.trees(nodes, topics)
            ),
            fmean(
                (total(each["ip_stress"]) + each["members"] + topics) / link_count(each, nodes)
                for each in self.trees(nodes, topics)
            ),
        )

    def runs(self) -> list[Run]:
        """All there is to play: first runs of all points first, so that little is soon complete."""
        memory = [
            Run(self._memory(*ring), 0, ring[0] / 100, partial(play_memory, *ring))
            for ring in self.size.played[:1]
        ]
        size = self.size
        play = partial(measure_joining, size.joined, size.network, f"joining {self.seed}")
        joining = Run(self._joining(), 0, size.joined / 50, play)
        return [*memory, joining] + [
            run for number in range(self.size.runs) for run in self._runs(number)
        ]

    def _runs(self, number: int) -> Iterator[Run]:
        size, routers = self.size, math.prod(self.size.network) / 5_000
        play: Callable[[], Any]
        for nodes, topics in size.played:
            seed = f"multicast {self.seed} {nodes} {number}"
            play = partial(play_trees, nodes, topics, size.network, seed)
            yield Run(self._trees(nodes, topics), number, routers + nodes / 200, play)
        for share in size.failed_shares:
            seed = f"multicast {self.seed} repair {share} {number}"
            play = partial(measure_repair, size.repair_nodes, share, size.network, seed)
            yield Run(self._repair(share), number, routers + size.repair_nodes / 40, play)
        nodes, topics = size.structure
        play = partial(
            measure_structure,
            nodes,
            topics,
            size.network,
            f"multicast {self.seed} {nodes} {number}",
        )
        yield Run(self._trees(nodes, topics), number, routers + nodes / 4_000, play)

    def _trees(self, nodes: int, topics: int) -> str:
        return f"trees: {nodes} nodes, {topics} topics, {self._setting()}"

    def _repair(self, share: float) -> str:
        return f"repair: {share:.0%} of {self.size.repair_nodes} nodes, {self._setting()}"

    def _joining(self) -> str:
        return f"joining: {self.size.joined} nodes, {self._setting()}"

    def _memory(self, nodes: int, topics: int) -> str:
        return f"memory: {nodes} nodes, {topics} topics"

    def _setting(self) -> str:
        return f"seed {self.seed}, network {'-'.join(map(str, self.size.network))}"

    def notes(self) -> list[str]:
        """Figures that nobody has claimed anything about."""
        lines = []
        for nodes, topics in self.rings:
            delays = self.values(nodes, topics, "maximal_delay")
            played = f"{len(self.trees(nodes, topics))} of {self.size.runs} runs"
            lines.append(
                f"{nodes:,} nodes, {topics:,} topics, {played}: "
                f"{self.mean_of(nodes, topics, 'hops'):.2f} hops "
                f"(log16 N: {math.log(nodes, 16):.2f}); delay to the last member "
                f"{median(delays):.2f} times IP multicast's, at most {max(delays):.2f}; "
                f"{self.mean_of(nodes, topics, 'stress'):.1f} copies on a link between routers "
                f"(IP: {self.mean_of(nodes, topics, 'ip_stress'):.1f})"
            )
        for share in self.size.failed_shares:
            found = self.repairs(share)
            if not found:
                continue
            plain, ordered = (fmean(fmean(f[k]) for f in found) for k in ("plain", "ordered"))
            still = fmean(each["standing_still"] for each in found)
            lines.append(
                f"{share:.0%} of {self.size.repair_nodes:,} nodes fail: {plain:.2%} delivered, "
                f"ordered {ordered:.2%} ({still:.1f} of 10 topics stand still), "
                f"all is well after {self._well_after(found)}"
            )
        for at_first, later in self.outcomes.of(self._joining()):
            lines.append(
                f"{self.size.joined:,} nodes that join one by one: entries of the first row are as "
                f"near as the nearest of {at_first:.0f} nodes drawn at random, and of {later:.0f} "
                f"after {COMPARISONS} comparisons of a row each; other rings here have the nearest "
                f"of {CANDIDATES_MAX}, or of all where fewer fit"
            )
        [memory] = self.outcomes.of(self._memory(*self.size.played[0]))
        [kept, *_] = self.trees(*self.size.structure)
        return [
            *lines,
            f"A member takes {memory / 1_000:.1f} KB, of the structure alone "
            f"{kept['bytes_per_node']:,} bytes.",
        ]

    @staticmethod
    def _well_after(found: list[dict[str, Any]]) -> str:
        healed = [s for f in found if (s := f["repaired_after_s"]) is not None]
        never = f", {len(found) - len(healed)} runs not yet" if len(healed) < len(found) else ""
        return f"{fmean(healed):.1f} s, at most {max(healed)} s{never}" if healed else "never"

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"seed": self.seed, "size": asdict(self.size), "runs": self.outcomes.plain()}


def mean_of_histogram(pairs: list[list[int]]) -> float:
    return total(pairs) / sum(count for _, count in pairs)


def total(pairs: list[list[int]]) -> int:
    """The sum of all values of a histogram."""
    return sum(value * count for value, count in pairs)


def link_count(figures: dict[str, Any], nodes: int) -> int:
    """Links in both directions: between routers, and of the hosts."""
    between: list[list[int]] = figures["stress"]
    return sum(count for _, count in between) + 2 * nodes


def play_trees(nodes: int, topics: int, shape: Shape, seed: str) -> dict[str, Any]:
    """Real members subscribe; their trees are measured."""
    dice = random.Random(seed)
    ring = Ring(nodes, draw_transit_stub(dice, shape), RingSettings(), dice)
    numbers = {node: number for number, node in enumerate(ring.order)}
    tally = Tally(ring.network, np.array([ring.routers[node] for node in ring.order]))
    for record in subscribe_all(ring, topics):
        parents = ring.parents(record)
        tally.add(
            Tree(
                numbers[ring.space.closest(record.topic, ring.members)],
                np.array([numbers[node] for node in ring.subscribers(record)]),
                np.array([numbers[node] for node in parents], dtype=np.int64),
                np.array([numbers[node] for node in parents.values()], dtype=np.int64),
            )
        )
    hops = []
    for _ in range(ROUTES):
        key = Identifier(dice.getrandbits(ring.space.bits))
        hops.append(len(ring.way(dice.choice(ring.order), key)) - 1)
    return tally.figures(np.array(hops))


def subscribe_all(ring: Ring, topics: int) -> list[TopicRecord]:
    """Topics by falling size, with their members in place."""
    records = []
    for rank, size in enumerate(topic_sizes(len(ring.order), topics)):
        records.append(TopicRecord(ring.space.topic_id(f"topic {rank}", "experiment")))
        ring.subscribe(records[-1], ring.dice.sample(ring.order, size))
    ring.run(3 * SECOND)
    return records


def play_memory(nodes: int, topics: int) -> int:
    """Bytes of a member, subscriptions and messages under way included."""
    dice = random.Random("memory")
    network = draw_transit_stub(dice, SMALL)
    tracemalloc.start()
    try:
        ring = Ring(nodes, network, RingSettings(), dice)
        subscribe_all(ring, topics)
        taken, _ = tracemalloc.get_traced_memory()
        return round(taken / nodes)
    finally:
        tracemalloc.stop()
