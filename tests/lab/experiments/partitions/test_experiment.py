"""Figures 9 to 12 of SRDS 2011, small."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gapless.core.identity import BrokerName
from gapless_lab.experiments.partitions.claims import judge
from gapless_lab.experiments.partitions.experiment import (
    ACTIVE_FAILED,
    FANOUTS,
    SHAPES,
    TOLERATED,
    Results,
    Size,
    play_graph,
)
from gapless_lab.experiments.partitions.graph import Graph, active_counts, draw_failed, tree

TINY = Size(
    brokers=200,
    failed_counts=(34,),
    deliveries=((24, (2, 4)),),
    publications=1,
    runs=1,
)


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


def test_the_whole_experiment_runs_small_and_delivers_all_that_the_graph_allows() -> None:
    results = Results(seed=1, size=TINY)
    for run in reversed(results.runs()):
        results.outcomes.keep(run, run.play())
    assert len(judge(results)) == 13
    assert len(results.notes()) == 1 + len(SHAPES)
    for failed in (2, 4):
        shares = [
            (results.delivered(24, t, failed), results.reachable(24, t, failed)) for t in TOLERATED
        ]
        assert all(delivered == pytest.approx(allowed) for delivered, allowed in shares)
    assert shares[0][0] < shares[-1][0]
    for fanout in FANOUTS:
        assert sum(results.active(fanout, ACTIVE_FAILED[0])) == pytest.approx(1)
    assert results.known(7, 3)[-1] == 199


def test_a_point_is_the_mean_of_its_runs_and_has_no_others() -> None:
    results = Results(seed=5, size=TINY)
    results.size = replace(TINY, runs=2)
    runs = [
        run for run in results.runs() if "connectivity" in run.point and "fanout 3" in run.point
    ]
    assert [run.number for run in runs] == list(range(20))
    for run in runs:
        results.outcomes.keep(run, run.play())
    played = [play_graph(5, 200, 3, 34, number)[1] for number in range(20)]
    assert len(set(played)) > 1  # each run has failed brokers of its own
    assert results.disconnected(3, 1, 34) == pytest.approx(sum(played) / 20)


def test_names_of_runs_differ_where_outcomes_may() -> None:
    other = replace(TINY, brokers=100, deliveries=((30, (2, 4)),))
    sizes = (TINY, other, replace(other, brokers=90, deliveries=((30, (9, 3)),)))
    names = [run.name for seed in (1, 2) for size in sizes for run in Results(seed, size).runs()]
    assert len(names) == len(set(names))
    often = {run.name for run in Results(1, replace(TINY, publications=5)).runs()}
    assert sum(run.name not in often for run in Results(1, TINY).runs()) == 2 * len(TOLERATED)
    more = Results(1, replace(TINY, runs=2)).runs()
    assert {run.name for run in Results(1, TINY).runs()} < {run.name for run in more}


def test_of_a_network_that_was_not_played_nothing_is_claimed() -> None:
    results = Results(seed=1, size=replace(TINY, deliveries=((10, (1, 2)), (24, (2, 4)))))
    for run in results.runs():
        if "24 brokers, all" not in run.point:
            results.outcomes.keep(run, run.play())
    assert {each.experiment for each in judge(results) if "10" in each.experiment} == {
        "figure 10, 10 brokers"
    }
    assert "δ = 3: not played" in results.notes()[1]
