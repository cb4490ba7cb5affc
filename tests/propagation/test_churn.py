"""Churn: 1,000 changes a second at ten leaves, while events are published."""

from __future__ import annotations

from collections import Counter
from itertools import cycle

from tests.propagation.checker import Checker
from tests.propagation.decision import Reason
from tests.propagation.test_world import is_quiet, step
from tests.propagation.world import World

STEPS = 300  # of 10 ms
BATCH = 5  # as many new ones, and as many that go: ten changes a step
KEPT = 30  # at each leaf
CONDITIONS = tuple(
    f"s {which} AND p {sign} {price}"
    for which in ("= 'ibm'", "= 't'", "LIKE 'ny%'", "LIKE 'n%'", "IN ('ibm', 'x')", "<> 't'")
    for sign in ("=", ">", "<")
    for price in range(10)
)


def test_under_churn_nothing_is_filtered_wrongly_and_then_all_tables_are_right() -> None:
    checker = Checker(Counter())
    world = World(7, checker, leaf_count=10)
    world.loss, world.conditions, world.checked_every = 0.02, CONDITIONS, 50
    leaves = [broker for broker in world.brokers() if broker.leaf is not None]
    changes = 0
    for broker, _ in zip(cycle(leaves), range(STEPS), strict=False):
        keys = world.keys_of(broker)
        gone = world.dice.sample(keys, BATCH if len(keys) > KEPT else 0)
        fresh = [world.dice.choice(CONDITIONS) for _ in range(2 * BATCH - len(gone))]
        world.update(broker, fresh, gone)
        changes += len(fresh) + len(gone)
        step(world)
    assert changes == 10 * STEPS
    assert checker.reasons[Reason.FILTERED] > 0
    while not is_quiet(checker, world) and world.now < 20_000_000:
        step(world)
    world.run(1_000_000)
    checker.complete(world)
    checker.quiet(world)
