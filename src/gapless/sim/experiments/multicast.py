"""The experiment of the multicast service: how good its trees are, and how they heal.

Theory of operation
    A ring on a transit-stub network, topics of very different sizes (the size falls with the rank,
    as 1/rank^1.25), members drawn at random. One event of each topic goes down its tree; compared
    with IP multicast, which would send it once over each link of the shortest ways: its delay, to
    the last member (`RMD`) and on average (`RAD`), the copies on each link (link stress), and what
    nodes have to keep (children tables, and children in them: node stress).
    Then a share of all nodes fails at once while events go on, to plain and to ordered topics.
    Which share of them arrives at the members that live, and after how long all do?

Source: the method of the Scribe papers. Their figures, as recalled and not verified, are beside
ours; networks and sizes differ, so compare kinds, not values.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from gapless.scribe.identifiers import Identifier
from gapless.scribe.messages import TopicRecord
from gapless.scribe.settings import SECOND, Settings
from gapless.sim.experiments.multicast_network import draw_transit_stub
from gapless.sim.experiments.multicast_ring import Ring

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId

SIZE_EXPONENT = 1.25
SIZE_MIN = 5
ROUTES = 500
"""How many routes are measured for their hops."""
WATCHED = 10
"""Topics of each kind that events are published to while nodes fail."""
WATCH_SECONDS = 40

RECALLED = {
    "RMD, median": "1.69",
    "RAD, median": "1.68",
    "link stress, mean": "2.4 (IP: 0.7)",
    "link stress, max": "4,031 (IP: 950)",
    "children tables per node, mean": "2.4",
    "children per node, mean": "6.2",
}
"""100,000 nodes, 1,500 topics, 5,050 routers: recalled from the literature, not verified."""


@dataclass(frozen=True, slots=True)
class TreeFigures:
    """What the trees of a quiet ring are like."""

    nodes: int
    topics: int
    members: int
    hops: float
    maximal_delay: list[float]
    """By topic: RMD."""
    average_delay: list[float]
    """By topic: RAD."""
    stress: list[int]
    """By link that was used at all: copies."""
    ip_stress: list[int]
    tables: list[int]
    """By node: topics with children."""
    entries: list[int]
    """By node: children, over all topics."""

    def rows(self) -> list[tuple[str, str, str]]:
        """Name, ours, recalled."""
        ours = {
            "hops, mean": f"{self.hops:.2f} (log16 N: {math.log(self.nodes, 16):.2f})",
            "RMD, median": f"{median(self.maximal_delay):.2f}",
            "RMD, max": f"{max(self.maximal_delay):.2f}",
            "RAD, median": f"{median(self.average_delay):.2f}",
            "RAD, max": f"{max(self.average_delay):.2f}",
            "link stress, mean": f"{fmean(self.stress):.1f} (IP: {fmean(self.ip_stress):.1f})",
            "link stress, max": f"{max(self.stress):,} (IP: {max(self.ip_stress):,})",
            "children tables per node, mean": f"{fmean(self.tables):.1f}",
            "children tables per node, max": f"{max(self.tables):,}",
            "children per node, mean": f"{fmean(self.entries):.1f}",
            "children per node, max": f"{max(self.entries):,}",
        }
        return [(name, value, RECALLED.get(name, "")) for name, value in ours.items()]


@dataclass(frozen=True, slots=True)
class RepairFigures:
    """What happens when a share of the nodes fails at once."""

    failed: float
    delivered: float
    """Of what was published to plain topics: the share that arrived, of all that should."""
    ordered_delivered: float
    """The same for ordered topics that kept a majority of their group."""
    standing_still: int
    """Ordered topics that did not."""
    repaired_after: float | None
    """Seconds from the failure to the first second whose events, and all later ones, reached all
    members of all plain topics; None if they did not within the watch."""


def report(nodes: int, topics: int, shares: list[float], seed: int = 1) -> list[str]:
    """The whole experiment, as lines of a table."""
    ring = make_ring(nodes, seed)
    trees = measure_trees(ring, subscribe_all(ring, topics))
    lines = [f"{nodes:,} nodes, {topics:,} topics, {trees.members:,} members, seed {seed}"]
    lines += [f"{name:32} {ours:24} {recalled}" for name, ours, recalled in trees.rows()]
    for share in shares:
        repair = measure_repair(make_ring(nodes, seed), share)
        after = "not yet" if repair.repaired_after is None else f"{repair.repaired_after:.0f} s"
        lines.append(
            f"{share:.0%} fail: {repair.delivered:.2%} delivered, ordered "
            f"{repair.ordered_delivered:.2%}, {repair.standing_still} stand still, "
            f"repaired after {after}"
        )
    return lines


def make_ring(nodes: int, seed: int, settings: Settings | None = None) -> Ring:
    dice = random.Random(f"multicast {seed}")
    return Ring(nodes, draw_transit_stub(dice), settings or Settings(), dice)


def subscribe_all(ring: Ring, topics: int) -> list[TopicRecord]:
    """Topics by falling size, with their members in place."""
    records = []
    for rank in range(1, topics + 1):
        record = TopicRecord(ring.space.topic_id(f"topic {rank}", "experiment"))
        size = max(SIZE_MIN, int(len(ring.order) / 2 * rank**-SIZE_EXPONENT))
        join(ring, record, ring.dice.sample(ring.order, min(size, len(ring.order))))
        records.append(record)
    ring.run(3 * SECOND)
    return records


def join(ring: Ring, record: TopicRecord, nodes: list[NodeId]) -> None:
    for node in nodes:
        member = ring.members[node]
        ring.do(node, member.subscribe(record.topic, ring.now, ordered=record.ordered))


def subscribers(ring: Ring, record: TopicRecord) -> list[NodeId]:
    return [
        node
        for node, member in ring.members.items()
        if (topic := member.tree.topics.get(record.topic)) is not None and topic.subscribed
    ]


def measure_trees(ring: Ring, records: list[TopicRecord]) -> TreeFigures:
    """One event down each tree, on paper: parents and children as they are now."""
    maximal, average = [], []
    copies: Counter[tuple[int, int]] = Counter()
    ip_copies: Counter[tuple[int, int]] = Counter()
    total = 0
    for record in records:
        members = subscribers(ring, record)
        total += len(members)
        root = ring.space.closest(record.topic, ring.members)
        delays = _descend(ring, record, root, copies)
        others = [node for node in members if node != root]
        links: set[tuple[int, int]] = set()
        for node in others:
            links.update(ring.network.way(ring.routers[root], ring.routers[node]))
        ip_copies.update(links)
        direct = [ring.delay(root, node) for node in others]
        ours = [delays[node] for node in others]
        if others:
            maximal.append(max(ours) / max(direct))
            average.append(sum(ours) / sum(direct))
    hops = []
    for _ in range(ROUTES):
        key = Identifier(ring.dice.getrandbits(ring.space.bits))
        hops.append(len(ring.way(ring.dice.choice(ring.order), key)) - 1)
    children = [
        [len(topic.children) for topic in member.tree.topics.values() if topic.children]
        for member in ring.members.values()
    ]
    return TreeFigures(
        nodes=len(ring.order),
        topics=len(records),
        members=total,
        hops=fmean(hops),
        maximal_delay=maximal,
        average_delay=average,
        stress=list(copies.values()),
        ip_stress=list(ip_copies.values()),
        tables=[len(each) for each in children],
        entries=[sum(each) for each in children],
    )


def _descend(
    ring: Ring, record: TopicRecord, root: NodeId, copies: Counter[tuple[int, int]]
) -> dict[NodeId, int]:
    """When each node of a tree gets an event that leaves the root at 0."""
    delays, waiting = {root: 0}, [root]
    while waiting:
        node = waiting.pop()
        for child in ring.members[node].tree.topics[record.topic].children:
            delays[child] = delays[node] + ring.delay(node, child)
            copies.update(ring.network.way(ring.routers[node], ring.routers[child]))
            waiting.append(child)
    return delays


def measure_repair(ring: Ring, share: float) -> RepairFigures:
    """Events to a few topics every second, while a share of all nodes fails after five."""
    records = [
        TopicRecord(ring.space.topic_id(f"watched {index}", f"{share}"), ordered=index >= WATCHED)
        for index in range(2 * WATCHED)
    ]
    size = max(SIZE_MIN, len(ring.order) // 20)
    creator = ring.order[0]
    for record in records:
        ring.do(creator, ring.members[creator].create(record, ring.now))
        join(ring, record, ring.dice.sample(ring.order, size))
    ring.run(5 * SECOND)
    doomed = ring.dice.sample(ring.order[1:], int(share * len(ring.order)))
    bodies: dict[int, list[tuple[TopicRecord, bytes]]] = {}
    for second in range(-5, WATCH_SECONDS):
        if second == 0:
            ring.fail(doomed)
        for index, record in enumerate(records):
            body = b"%d %d" % (second, index)
            bodies.setdefault(second, []).append((record, body))
            _, effects = ring.members[creator].publish(
                record.topic, body, ring.now, ordered=record.ordered
            )
            ring.do(creator, effects)
        ring.run(SECOND)
    ring.run(20 * SECOND)
    return _judge(ring, share, records, bodies)


def _judge(
    ring: Ring,
    share: float,
    records: list[TopicRecord],
    bodies: dict[int, list[tuple[TopicRecord, bytes]]],
) -> RepairFigures:
    members = {record.topic: set(subscribers(ring, record)) for record in records}
    still = {record.topic for record in records if record.ordered and not _leads(ring, record)}
    wanted: Counter[bool] = Counter()
    got: Counter[bool] = Counter()
    last_lack = -1
    for second, sent in bodies.items():
        for record, body in sent:
            if record.topic in still:
                continue
            takers = members[record.topic] & ring.delivered.get(body, {}).keys()
            wanted[record.ordered] += len(members[record.topic])
            got[record.ordered] += len(takers)
            if not record.ordered and len(takers) < len(members[record.topic]):
                last_lack = max(last_lack, second)
    return RepairFigures(
        failed=share,
        delivered=got[False] / max(1, wanted[False]),
        ordered_delivered=got[True] / max(1, wanted[True]),
        standing_still=len(still),
        repaired_after=last_lack + 1 if last_lack < WATCH_SECONDS - 1 else None,
    )


def _leads(ring: Ring, record: TopicRecord) -> bool:
    root = ring.members[ring.space.closest(record.topic, ring.members)]
    group = root.roots.groups.get(record.topic)
    return group is not None and group.is_leader
