"""The transit-stub network: ways against a search of the whole."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from gapless_lab.experiments.multicast.network import TransitStub, _shortest, draw_transit_stub
from tests.lab.experiments.multicast.tiny import SHAPE


@pytest.fixture(scope="module")
def network() -> TransitStub:
    return draw_transit_stub(random.Random(1), SHAPE)


def links_of(network: TransitStub) -> list[tuple[int, int]]:
    return [divmod(int(code), len(network.delay)) for code in network.links]


def test_delays_are_those_of_the_shortest_ways_over_all_links(network: TransitStub) -> None:
    lengths = {link: int(network.delay[link]) for link in links_of(network)}
    assert len(network.delay) == 4 + 4 * 2 * 5
    assert (_shortest(len(network.delay), lengths).delay == network.delay).all()


def test_a_way_goes_over_links_and_is_as_long_as_its_delay(network: TransitStub) -> None:
    links = set(links_of(network))
    for start in range(len(network.delay)):
        for end in range(len(network.delay)):
            way = list(network.way(start, end))
            assert links.issuperset(way)
            assert sum(int(network.delay[link]) for link in way) == network.delay[start, end]


def test_copies_are_counted_on_each_link_of_each_way(network: TransitStub) -> None:
    dice = random.Random(2)
    pairs = [(dice.randrange(44), dice.randrange(44)) for _ in range(200)]
    copies = network.copies(*(np.array(side) for side in zip(*pairs, strict=True)))
    counted = Counter(link for pair in pairs for link in network.way(*pair))
    assert [counted[link] for link in links_of(network)] == copies.tolist()


def test_hosts_stand_at_stub_routers_only(network: TransitStub) -> None:
    assert network.stub_routers == list(range(4, 44))
