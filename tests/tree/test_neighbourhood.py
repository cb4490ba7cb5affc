"""A broker knows the tree as far as it reaches, and no further."""

from __future__ import annotations

import pytest

from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName
from gapless.tree.neighbourhood import Neighbourhood

CHAIN = tuple((BrokerName(f"b{i}"), BrokerName(f"b{i + 1}")) for i in range(5))


def test_edges_may_come_in_any_order_and_direction() -> None:
    turned = [(b, a) for a, b in reversed(CHAIN)]
    assert Neighbourhood(BrokerName("b0"), 3, turned).path(BrokerName("b3")) == ("b1", "b2", "b3")


def test_what_is_too_far_is_not_known() -> None:
    near = Neighbourhood(BrokerName("b0"), 2, CHAIN)
    assert len(near) == 2
    with pytest.raises(ProtocolError, match="b3"):
        near.path(BrokerName("b3"))


def test_the_edges_of_a_neighbourhood_rebuild_it() -> None:
    near = Neighbourhood(BrokerName("b2"), 2, CHAIN)
    again = Neighbourhood(BrokerName("b2"), 2, near.edges)
    assert again.edges == near.edges
    assert again.path(BrokerName("b4")) == ("b3", "b4")


def test_only_what_is_new_and_near_is_reported_as_learnt() -> None:
    near = Neighbourhood(BrokerName("b0"), 2, CHAIN[:1])
    assert near.learn(CHAIN) == (CHAIN[1],)
    assert near.learn(CHAIN) == ()


def test_further_leads_away() -> None:
    near = Neighbourhood(BrokerName("b2"), 2, CHAIN)
    assert near.further(BrokerName("b2")) == ["b1", "b3"]
    assert near.further(BrokerName("b3")) == ["b4"]
    assert near.further(BrokerName("b0")) == []
