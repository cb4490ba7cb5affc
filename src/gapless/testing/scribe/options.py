"""What the seed decides about a run of the multicast service before it begins."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from gapless.scribe.settings import RingSettings

if TYPE_CHECKING:
    import random

MILLISECOND = 1_000
SECOND = 1_000_000


@dataclass(frozen=True, kw_only=True)
class ScribeOptions:
    """All that is drawn before a run."""

    seed: int
    nodes: int
    topics: int
    ordered: int
    """How many of the topics are ordered."""
    wishes: int
    """Subscriptions to begin with."""
    settings: RingSettings
    is_calm: bool
    """Adjacent nodes fail together, fewer than half a leaf set, and nothing else happens."""
    churn: float
    """The share of nodes that fail at one moment."""
    joins: int
    leaves: int
    crashes: int
    """Nodes that fail one by one, each coming back later."""
    partition: bool
    loss: float
    duplicate: float
    overtake: float
    publications: int
    duration: int
    """Microseconds of the part with faults."""

    def lines(self) -> list[str]:
        return [f"{each.name} {getattr(self, each.name)}" for each in fields(self)]


def draw_settings(dice: random.Random) -> RingSettings:
    size = dice.choice((4, 8, 16))
    return RingSettings(
        leaf_set_size=size,
        neighbourhood_max=dice.choice((4, 16)),
        replicas=min(dice.choice((3, 5)), size // 2 + 1),
        ping_every=500 * MILLISECOND,
        dead_after=1_600 * MILLISECOND,
        answer_patience=200 * MILLISECOND,
        revive_every=1 * SECOND,
        table_every=5 * SECOND,
        heartbeat=400 * MILLISECOND,
        parent_dead_after=1_300 * MILLISECOND,
        subscribe_repeat=800 * MILLISECOND,
        refresh_every=1 * SECOND,
        child_expiry=3_200 * MILLISECOND,
        publish_repeat=700 * MILLISECOND,
        replicate_every=2 * SECOND,
        lead_repeat=600 * MILLISECOND,
    )


def draw_scribe_options(seed: int, dice: random.Random) -> ScribeOptions:
    is_calm = dice.random() < 0.25
    faulty = 0 if is_calm else 1
    topics = dice.choice((2, 5, 12))
    nodes = dice.choice((5, 5, 12, 12, 12, 30, 30, 60))
    return ScribeOptions(
        seed=seed,
        nodes=nodes,
        topics=topics,
        ordered=dice.randint(0, min(topics, 3)),
        wishes=dice.choice((4, 20, 60)),
        settings=draw_settings(dice),
        is_calm=is_calm,
        churn=faulty * dice.choice((0.0, 0.0, 0.1, 0.3)),
        joins=faulty * dice.choice((0, 2, nodes // 3)),
        leaves=faulty * dice.choice((0, 1, nodes // 6)),
        crashes=faulty * dice.choice((0, 1, 4)),
        partition=bool(faulty) and dice.random() < 0.3,
        loss=faulty * dice.choice((0.0, 0.0, 0.02, 0.1)),
        duplicate=faulty * dice.choice((0.0, 0.1)),
        overtake=faulty * dice.choice((0.0, 0.1)),
        publications=dice.choice((10, 40)),
        duration=dice.choice((4, 8)) * SECOND,
    )
