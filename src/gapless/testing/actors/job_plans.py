"""Plans of producers: who commits transactions, how they are staged, and what goes wrong there."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gapless.core.identity import ProducerName
from gapless.node.redirect import bound_pubend

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, TopicName
    from gapless.node.config import Config
    from gapless.node.network import Network

MILLISECOND = 1_000

TINY_LIMITS: dict[str, int] = {"transactions_max": 2, "staged_bytes_max": 4_000, "producers_max": 3}
"""The largest transaction that is drawn fits; two may have to wait for each other."""


@dataclass(frozen=True, kw_only=True)
class JobPlan:
    """How one producer behaves; times in microseconds."""

    name: ProducerName
    broker: BrokerName
    topic: TopicName
    transaction_count: int
    parts_max: int
    events_max: int
    """Of a part."""
    batch_max: int
    lanes: int
    """Connections that stage."""
    pause: int
    patience: int
    trouble: float
    """How often something goes wrong on the way."""
    crash: float
    """How often its broker crashes just as it has answered a commit, with the rest to copy."""


def draw_jobs(seed: int, network: Network, config: Config) -> tuple[tuple[JobPlan, ...], Config]:
    """From dice of their own, so that runs without them stay as they were."""
    dice = random.Random(f"jobs {seed}")
    if dice.random() < 0.6:
        return (), config
    plans: list[JobPlan] = []
    for topic in network.topics:
        for _ in range(dice.choice((0, 1, 1, 2))):
            name = ProducerName(f"J{len(plans) + 1}")
            plans.append(
                JobPlan(
                    name=name,
                    broker=bound_pubend(topic, name).host,
                    topic=topic.name,
                    transaction_count=dice.randint(1, 8),
                    parts_max=dice.choice((1, 3)),
                    events_max=dice.choice((3, 12)),
                    batch_max=dice.choice((1, 2, 5)),
                    lanes=dice.choice((1, 3)),
                    pause=dice.choice((2, 50)) * MILLISECOND,
                    patience=dice.choice((15, 100)) * MILLISECOND,
                    trouble=dice.choice((0.0, 0.3, 0.8)),
                    crash=dice.choice((0.0, 0.0, 0.5)),
                )
            )
    drawn = [name for name in TINY_LIMITS if dice.random() < 0.2]
    limits: dict[str, Any] = {name: TINY_LIMITS[name] for name in drawn}
    if dice.random() < 0.5:
        limits["batch_events_max"] = dice.choice((1, 2))  # so that a commit takes several writes
    expiry = dice.choice((300, 2_000)) * MILLISECOND
    limits["copy_batches_max"] = 1 + 3 * (seed % 2)
    return tuple(plans), replace(config, transaction_expiry=expiry, **limits)
