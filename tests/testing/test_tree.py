"""The swarm over the tree: every fault, within δ and beyond it."""

from __future__ import annotations

import random

import pytest

from gapless.testing.tree.options import (
    MODES,
    Repeats,
    Tags,
    draw_narrow,
    draw_restless,
    draw_rounds,
    draw_siege,
    in_mode,
    restless,
)
from gapless.testing.tree.run import simulate_tree

SEEDS = (*range(14), 9_100_155)  # the last found a subscription that its neighbour did not know

FOUND_ONCE = (10, 52, 123, 289, 332, 594)
"""Seeds of `draw_restless` that once found a fault."""


@pytest.mark.parametrize("seed", SEEDS)
def test_flows_are_contiguous_and_all_comes_to_rest(seed: int) -> None:
    outcome = simulate_tree(seed)
    assert not outcome.violation, (outcome.options, outcome.last_lines)
    assert outcome.deliveries > 0


@pytest.mark.parametrize("seed", [5038, 6009])
def test_who_is_not_let_in_yet_lets_nobody_in(seed: int) -> None:
    outcome = simulate_tree(seed)
    assert not outcome.violation, (outcome.options, outcome.last_lines)


@pytest.mark.parametrize("seed", [0, 27, 30, 32])
def test_brokers_may_join_at_those_that_are_about_to_join(seed: int) -> None:
    outcome = simulate_tree(seed, joins=4, join_every=40_000)
    assert not outcome.violation, (outcome.options, outcome.last_lines)


@pytest.mark.parametrize("seed", range(12))
def test_while_as_many_are_out_of_reach_as_are_tolerated_the_others_go_on(seed: int) -> None:
    outcome = simulate_tree(seed, options=draw_siege(random.Random(seed)))
    assert not outcome.violation, (outcome.options, outcome.last_lines)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_given_up_is_told_whatever_else_fails(seed: int) -> None:
    outcome = simulate_tree(seed, options=draw_narrow(random.Random(seed)))
    assert not outcome.violation, (outcome.options, outcome.last_lines)


@pytest.mark.parametrize("seed", range(4))
def test_while_no_more_fail_than_tolerated_all_goes_on_between_the_others(seed: int) -> None:
    outcome = simulate_tree(seed, options=draw_rounds(random.Random(seed)))
    assert not outcome.violation, (outcome.options, outcome.last_lines)


@pytest.mark.parametrize(("repeats", "tags"), sorted(set(MODES)))
@pytest.mark.parametrize("seed", FOUND_ONCE)
def test_what_was_found_once_stays_mended(seed: int, repeats: Repeats, tags: Tags) -> None:
    options = in_mode(draw_restless(random.Random(seed * 7 + 1)), repeats, tags)
    outcome = simulate_tree(seed, options=options)
    assert not outcome.violation, (outcome.options, outcome.last_lines)


@pytest.mark.parametrize("failures_tolerated", [0, 1, 2])
def test_subscriptions_may_come_and_go_while_links_do(failures_tolerated: int) -> None:
    outcome = simulate_tree(1, options=restless(failures_tolerated))
    assert not outcome.violation, outcome.last_lines


def test_the_same_seed_takes_the_same_course() -> None:
    first, second = simulate_tree(0), simulate_tree(0)
    assert first.digest == second.digest
    assert first.digest != simulate_tree(1).digest
