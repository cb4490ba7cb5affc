"""How multicast trees heal: a share of all nodes fails at once, while events go on.

Theory of operation
    Every second one event goes to each of a few plain and a few ordered topics, from five seconds
    before the failure on. Which share of them arrives at the members that live, and after how long
    do all arrive again? An ordered topic of which a majority of the group failed stands still, as
    it should; it is counted and left out.

Source: the method of the Scribe papers; the settings are ours.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from gapless.scribe.messages import TopicRecord
from gapless.scribe.settings import SECOND, RingSettings
from gapless_lab.experiments.multicast.network import draw_transit_stub
from gapless_lab.experiments.multicast.ring import Ring

if TYPE_CHECKING:
    from gapless_lab.experiments.multicast.network import Shape

SIZE_MIN = 5
WATCHED = 10
"""Topics of each kind that events are published to while nodes fail."""
BEFORE_SECONDS = 5
WATCH_SECONDS = 40

Sent = dict[int, list[tuple[TopicRecord, bytes]]]
"""By second: what was published."""


def measure_repair(nodes: int, share: float, shape: Shape, seed: str) -> dict[str, Any]:
    """The share of what was published that arrived, by kind of topic and by second."""
    dice = random.Random(seed)
    ring = Ring(nodes, draw_transit_stub(dice, shape), RingSettings(), dice)
    records = [
        TopicRecord(ring.space.topic_id(f"watched {index}", f"{share}"), ordered=index >= WATCHED)
        for index in range(2 * WATCHED)
    ]
    creator = ring.order[0]
    for record in records:
        ring.do(creator, ring.members[creator].create(record, ring.now))
        ring.subscribe(record, dice.sample(ring.order, max(SIZE_MIN, nodes // 20)))
    ring.run(5 * SECOND)
    doomed = dice.sample(ring.order[1:], int(share * nodes))
    sent: Sent = {}
    for second in range(-BEFORE_SECONDS, WATCH_SECONDS):
        if second == 0:
            ring.fail(doomed)
        for index, record in enumerate(records):
            body = b"%d %d" % (second, index)
            sent.setdefault(second, []).append((record, body))
            _, effects = ring.members[creator].publish(
                record.topic, body, ring.now, ordered=record.ordered
            )
            ring.do(creator, effects)
        ring.run(SECOND)
    ring.run(20 * SECOND)
    return _figures(ring, records, sent)


def _figures(ring: Ring, records: list[TopicRecord], sent: Sent) -> dict[str, Any]:
    members = {record.topic: set(ring.subscribers(record)) for record in records}
    still = [record for record in records if record.ordered and not _leads(ring, record)]
    plain, ordered = [], []
    for events in sent.values():
        wanted, got = [0, 0], [0, 0]
        for record, body in events:
            if record not in still:
                takers = members[record.topic] & ring.delivered.get(body, {}).keys()
                wanted[record.ordered] += len(members[record.topic])
                got[record.ordered] += len(takers)
        plain.append(got[False] / max(1, wanted[False]))
        ordered.append(got[True] / wanted[True] if wanted[True] else 1.0)
    lacking = [second for second, share in zip(sent, plain, strict=True) if share < 1.0]
    last = max(lacking, default=-1)
    return {
        "plain": [round(share, 5) for share in plain],
        "ordered": [round(share, 5) for share in ordered],
        "standing_still": len(still),
        # The first second whose events, and all later ones, reached everybody.
        "repaired_after_s": last + 1 if last < WATCH_SECONDS - 1 else None,
    }


def _leads(ring: Ring, record: TopicRecord) -> bool:
    root = ring.members[ring.space.closest(record.topic, ring.members)]
    group = root.roots.groups.get(record.topic)
    return group is not None and group.is_leader
