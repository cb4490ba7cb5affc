"""Figures 9 to 12 of SRDS 2011, small."""

from __future__ import annotations

import random

import pytest

from gapless.core.identity import BrokerName
from gapless.sim.experiments.partitions import TOLERATED, Results, Size, jobs, judge, notes
from gapless.sim.experiments.partitions_delivery import delivered_share
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


@pytest.mark.parametrize("tolerated", TOLERATED)
def test_pairs_are_connected_if_no_path_has_too_many_failed_in_a_row(tolerated: int) -> None:
    graph = Graph(tree(40, 3))
    failed = draw_failed(random.Random(tolerated), graph, 16)
    live = [broker for broker in graph.brokers if broker not in failed]

    def reached(here: BrokerName, back: BrokerName | None, in_a_row: int) -> int:
        """How many live ones one gets to from here, in any direction but back."""
        found = 0
        for there in graph.beside[here]:
            if there != back and there not in failed:
                found += 1 + reached(there, here, 0)
            elif there != back and in_a_row < tolerated:
                found += reached(there, here, in_a_row + 1)
        return found

    pairs = sum(reached(broker, None, 0) for broker in live)
    share = 1 - pairs / (len(live) * (len(live) - 1))
    assert graph.disconnected_share(failed, tolerated) == pytest.approx(share)


def test_sessions_of_the_machine_are_the_links_of_the_graph() -> None:
    edges = tree(60, 3)
    graph = Graph(edges)
    failed = draw_failed(random.Random(3), graph, 12)
    linked = [len(graph.linked(b, failed, 2)) for b in graph.brokers if b not in failed]
    assert active_counts(edges, failed, 2) == linked


def test_the_whole_experiment_runs_small_and_delivers_all_that_the_graph_allows() -> None:
    results = Results(seed=1, size=TINY)
    for _, play in jobs(results, lambda: 0.0):
        play()
    assert len(judge(results)) == 12
    assert len(notes(results)) == len(TOLERATED)
    shares = [(results.delivered[key], allowed) for key, allowed in results.reachable.items()]
    assert [delivered for delivered, _ in shares] == pytest.approx([each for _, each in shares])
    assert shares[0][0] < shares[-1][0]


def test_the_trail_holds_back_what_the_source_s_numbers_let_pass() -> None:
    """Every other broker of a chain is dead: two of any three, where one may be."""
    edges, failed = tree(9, 2), names(1, 2, 5, 6)
    graph = Graph(edges)
    assert graph.disconnected_share(failed, 1) == 0
    assert delivered_share(edges, failed, 1, seed=1) == 1
    assert delivered_share(edges, failed, 1, seed=1, repeats="trail") < 1


def test_scoped_tags_let_a_late_subscriber_hear_what_is_behind_the_dead() -> None:
    edges, failed = tree(9, 2), names(1, 2)
    late = {
        tags: delivered_share(edges, failed, 1, seed=1, tags=tags, subscribers=3, is_late=True)
        for tags in ("literal", "scoped")
    }
    assert late["literal"] < late["scoped"] == 1
