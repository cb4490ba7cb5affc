"""Exactly once through disconnects, crashes and early release; and the world notices faults."""

from __future__ import annotations

import pytest

from tests.durable.actors import Planted
from tests.durable.world import World

STEPS = 400


@pytest.mark.parametrize("seed", range(40))
def test_everyone_gets_everything_once_or_is_told_exactly_what_is_lost(seed: int) -> None:
    World(seed).run(STEPS)


def test_the_world_reaches_what_it_is_about() -> None:
    worlds = [World(seed) for seed in range(10)]
    for world in worlds:
        world.run(STEPS)
    assert sum(world.gap_count for world in worlds) > 10
    assert sum(world.crash_count for world in worlds) > 10
    assert sum(world.catch_up_count for world in worlds) > 100
    assert sum(len(client.got) for world in worlds for client in world.clients.values()) > 500


@pytest.mark.parametrize(
    "planted",
    [
        Planted(token_ahead=True),
        Planted(early_report=True),
        Planted(no_back_pointer=True),
        Planted(gap_at_once=True),
        Planted(no_tail=True),
        Planted(no_refilter=True),
    ],
    ids=lambda planted: next(name for name, broken in vars(planted).items() if broken),
)
def test_a_planted_fault_is_found(planted: Planted) -> None:
    for seed in range(60):
        try:
            World(seed, planted).run(STEPS)
        except AssertionError:
            return
    pytest.fail("nobody noticed")
