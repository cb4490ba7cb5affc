"""All that is connected is delivered, unless the trail or literal tags stand in its way."""

from __future__ import annotations

import random
from typing import Literal

import pytest

from gapless.core.identity import BrokerName
from gapless_lab.experiments.partitions.delivery import delivered_share
from gapless_lab.experiments.partitions.graph import Graph, draw_failed, tree


def names(*numbers: int) -> list[BrokerName]:
    return [BrokerName(f"b{number}") for number in numbers]


@pytest.mark.parametrize("tolerated", [0, 1])
def test_all_that_is_connected_is_delivered(tolerated: int) -> None:
    edges = tree(24, 3)
    failed = sorted(draw_failed(random.Random(1), Graph(edges), 9))
    connected = 1 - Graph(edges).disconnected_share(failed, tolerated)
    assert 0 < connected < 1
    assert delivered_share(edges, failed, tolerated, seed=1) == pytest.approx(connected)


def test_the_trail_holds_back_what_the_source_s_numbers_let_pass() -> None:
    """Every other broker of a chain is dead: two of any three, where one may be."""
    edges, failed = tree(9, 2), names(1, 2, 5, 6)
    assert Graph(edges).disconnected_share(failed, 1) == 0
    assert delivered_share(edges, failed, 1, seed=1) == 1
    assert delivered_share(edges, failed, 1, seed=1, repeats="trail", tags="literal") < 1


def test_scoped_tags_let_a_late_subscriber_hear_what_is_behind_the_dead() -> None:
    edges, failed = tree(9, 2), names(1, 2)

    def late(tags: Literal["literal", "scoped"]) -> float:
        return delivered_share(edges, failed, 1, seed=1, tags=tags, is_late=True)

    assert late("literal") < late("scoped") == 1


def test_a_draw_does_not_see_what_another_has_done() -> None:
    edges, failed = tree(9, 2), names(1, 2)
    alone = delivered_share(edges, failed, 1, seed=2)
    delivered_share(edges, names(0, 3, 4), 1, seed=2)
    assert delivered_share(edges, failed, 1, seed=2) == alone == 1
