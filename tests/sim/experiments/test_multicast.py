"""The multicast experiment: a small one, against what must be so."""

from __future__ import annotations

import random

import pytest

from gapless.sim.experiments.multicast import (
    make_ring,
    measure_repair,
    measure_trees,
    report,
    subscribe_all,
    subscribers,
)
from gapless.sim.experiments.multicast_network import draw_transit_stub


def test_ways_of_the_network_are_as_long_as_their_delay_and_obey_the_triangle() -> None:
    network = draw_transit_stub(random.Random(1), 2, 2, 2, 5)
    dice = random.Random(2)
    count = len(network.delay)
    for _ in range(100):
        one, other, third = (dice.randrange(count) for _ in range(3))
        way = list(network.way(one, other))
        assert sum(int(network.delay[link]) for link in way) == network.delay[one, other]
        assert network.delay[one, other] <= network.delay[one, third] + network.delay[third, other]


@pytest.mark.slow
def test_trees_reach_all_members_and_cost_more_than_the_best_possible() -> None:
    ring = make_ring(120, seed=1)
    records = subscribe_all(ring, 12)
    assert len(subscribers(ring, records[0])) == 60
    figures = measure_trees(ring, records)
    assert figures.members == sum(len(subscribers(ring, record)) for record in records)
    assert figures.hops <= 3
    assert min(figures.average_delay) >= 1.0  # the shortest way is the shortest way
    assert min(figures.maximal_delay) >= 1.0
    assert max(figures.stress) >= max(figures.ip_stress)
    assert sum(figures.tables) <= sum(figures.entries)
    assert all(ours for _, ours, _ in figures.rows())


def test_the_report_has_a_line_for_each_figure() -> None:
    first, *rest = report(30, 3, [])
    assert first.startswith("30 nodes, 3 topics")
    assert len(rest) == 11


@pytest.mark.slow
def test_a_tenth_of_all_nodes_may_fail_and_the_rest_hear_again() -> None:
    figures = measure_repair(make_ring(60, seed=2), 0.1)
    assert figures.repaired_after is not None
    assert 0.5 < figures.delivered <= 1.0
    assert figures.ordered_delivered == 1.0
