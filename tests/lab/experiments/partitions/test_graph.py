"""Who is cut off from whom, counted in one walk up the tree."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from gapless_lab.experiments.partitions.graph import Graph, draw_failed, tree

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName


@pytest.mark.parametrize("tolerated", range(4))
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


def test_nobody_is_cut_off_where_at_most_one_lives() -> None:
    graph = Graph(tree(3, 2))
    assert graph.disconnected_share(graph.brokers, 1) == 0
    assert graph.disconnected_share(graph.brokers[1:], 1) == 0
