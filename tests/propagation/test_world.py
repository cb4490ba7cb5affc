"""Random trees under loss, reordering and crashes; and that the checker would notice."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.propagation.actors import NOTHING, Planted
from tests.propagation.checker import Checker, ViolationError
from tests.propagation.decision import Reason
from tests.propagation.world import World

SEEDS = range(24)
PLANTED = {
    "constraint": Planted(is_constraint_at_least=True),
    "filter": Planted(is_filter_trusted=True),
    "clock": Planted(is_clock_forgotten=True),
    "start": Planted(is_start_early=True),
    "stamp": Planted(is_stamp_forgotten=True),
}

FOUND = {"constraint": "B-S1", "filter": "B-S1", "clock": "B-S3", "start": "B-S2", "stamp": "B-S3"}
"""What the checker must say, in the end, for a rule that is broken."""


def violation(seed: int, planted: Planted) -> str:
    """The broken promise, if it is one of safety."""
    try:
        live(seed, planted)
    except ViolationError as error:
        return str(error) if str(error).startswith("B-") else ""
    return ""


def live(seed: int, planted: Planted = NOTHING) -> tuple[World, Checker]:
    """Two seconds of chaos, then peace until everything should be known."""
    checker = Checker(Counter())
    world = World(seed, checker, planted)
    for _ in range(200):
        if world.dice.random() < 0.3:
            world.churn()
        if world.dice.random() < 0.02:
            up = [each for each in world.brokers() if each.is_up]
            if up:
                world.crash(world.dice.choice(up))
        step(world)
    world.loss = 0.0
    for _ in range(600):
        step(world)
        if world.now > 2_600_000 and is_quiet(checker, world):
            break
    world.run(1_000_000)
    checker.complete(world)
    checker.quiet(world)
    return world, checker


def step(world: World) -> None:
    world.publish()
    world.run(10_000)
    world.tick()


def is_quiet(checker: Checker, world: World) -> bool:
    try:
        checker.quiet(world)
    except ViolationError:
        return False
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_counts_is_filtered_and_peace_brings_exact_tables(seed: int) -> None:
    live(seed)


def test_all_reasons_for_a_decision_occur() -> None:
    seen: Counter[Reason] = Counter()
    for seed in range(3):
        seen += live(seed)[1].reasons
    assert set(seen) == set(Reason)
    assert seen[Reason.FILTERED] > 0


@pytest.mark.parametrize("name", PLANTED)
def test_the_checker_finds_a_planted_fault(name: str) -> None:
    """A checker that finds nothing proves nothing."""
    found = next(filter(None, (violation(seed, PLANTED[name]) for seed in range(100))))
    assert found.startswith(FOUND[name])
