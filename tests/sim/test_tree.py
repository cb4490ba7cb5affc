"""The swarm over the tree: every fault, within δ and beyond it."""

from __future__ import annotations

import pytest

from gapless.sim.tree.run import simulate_tree

SEEDS = range(2_000, 2_012)

FOUND_ONCE = (24, 212, 1_008, 1_142, 1_218, 1_242)
"""Seeds that once found a fault."""


@pytest.mark.parametrize("seed", [*SEEDS, *FOUND_ONCE])
def test_flows_are_contiguous_and_all_comes_to_rest(seed: int) -> None:
    outcome = simulate_tree(seed)
    assert not outcome.violation, (outcome.options, outcome.last_lines)
    assert outcome.deliveries > 0


def test_the_same_seed_takes_the_same_course() -> None:
    first, second = simulate_tree(2_000), simulate_tree(2_000)
    assert first.digest == second.digest
    assert first.digest != simulate_tree(2_001).digest
