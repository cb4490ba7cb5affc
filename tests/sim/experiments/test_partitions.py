"""Figures 9 to 12 of SRDS 2011, small."""

from __future__ import annotations

import random

import pytest

from gapless.core.identity import BrokerName
from gapless.sim.experiments.partitions import TOLERATED, Results, Size, jobs, judge, notes
from gapless.sim.experiments.partitions_graph import Graph, active_counts, draw_failed, tree

TINY = Size(brokers=200, failed_counts=(34,), runs=3, delivery_brokers=24, delivery_runs=1)


def names(*numbers: int) -> list[BrokerName]:
    return [BrokerName(f"b{number}") for number in numbers]


def test_a_tree_has_as_many_neighbours_as_its_fanout() -> None:
    graph = Graph(tree(40, 3))
    assert {len(graph.beside[broker]) for broker in graph.brokers} <= {1, 2, 3}
    assert graph.disconnected_share((), 0) == 0


def test_a_chain_is_cut_by_one_failure_more_than_it_tolerates() -> None:
    graph = Graph(tree(7, 2))
    assert graph.disconnected_share(names(1), 0) == pytest.approx(1 - (2 + 12) / 30)
    assert graph.disconnected_share(names(1), 1) == 0
    failed = names(0, 1)  # b0 is in the middle of the chain, b1 beside it
    assert graph.disconnected_share(failed, 1) == pytest.approx(1 - (2 + 6) / 20)
    assert graph.disconnected_share(failed, 2) == 0


def test_sessions_of_the_machine_are_the_links_of_the_graph() -> None:
    edges = tree(60, 3)
    graph = Graph(edges)
    failed = draw_failed(random.Random(3), graph, 12)
    linked = [len(graph.linked(b, failed, 2)) for b in graph.brokers if b not in failed]
    assert active_counts(edges, failed, 2) == linked


def test_the_whole_experiment_runs_small_and_delivers_no_more_than_the_graph_allows() -> None:
    results = Results(seed=1, size=TINY)
    for _, play in jobs(results, lambda: 0.0):
        play()
    assert len(judge(results)) == 12
    assert len(notes(results)) == len(TOLERATED)
    shares = [(results.delivered[key], allowed) for key, allowed in results.reachable.items()]
    assert all(delivered <= allowed + 1e-9 for delivered, allowed in shares)
    assert shares[0][0] == pytest.approx(shares[0][1])  # nobody is bypassed, so nothing is held
    assert shares[0][0] < shares[-1][0]
