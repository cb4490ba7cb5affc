"""Structure of a ring, against the machine and against looking at all nodes."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gapless.scribe.contacts import Contacts
from gapless.scribe.identifiers import Identifier, NodeId
from gapless.scribe.settings import RingSettings
from gapless_lab.experiments.multicast.network import LAN_DELAY, draw_transit_stub
from gapless_lab.experiments.multicast.structure import SPACE, Structure
from gapless_lab.experiments.multicast.tables import NOBODY
from gapless_lab.experiments.multicast.trees import Tally, Tree
from tests.lab.experiments.multicast.tiny import SHAPE

COUNT = 400


@pytest.fixture(scope="module")
def structure() -> Structure:
    dice = random.Random(1)
    return Structure(COUNT, draw_transit_stub(dice, SHAPE), dice)


def identifiers(structure: Structure) -> list[NodeId]:
    return [NodeId(Identifier(int(each))) for each in structure.identifiers]


def test_a_cell_has_the_nearest_that_fits_and_is_empty_where_nobody_does(
    structure: Structure,
) -> None:
    names = identifiers(structure)
    delay = structure.network.delay[structure.routers][:, structure.routers]
    for node in range(0, COUNT, 7):
        fitting: dict[tuple[int, int], list[int]] = {}
        for other in range(COUNT):
            if other != node:
                row = SPACE.prefix_length(names[node], names[other])
                fitting.setdefault((row, SPACE.digit(names[other], row)), []).append(other)
        for row, cells in enumerate(structure.rows):
            for digit, entry in enumerate(cells[node].tolist()):
                fit = fitting.pop((row, digit), [])
                assert (entry in fit) if fit else entry == NOBODY
                assert not fit or delay[node, entry] == delay[node, fit].min()
        assert not fitting


def test_next_hops_are_those_of_a_node_with_the_same_contacts(structure: Structure) -> None:
    names, dice, rare = identifiers(structure), random.Random(2), 0
    for node in dice.sample(range(COUNT), 40):
        contacts = Contacts(names[node], RingSettings(), SPACE, lambda _: 0)
        for leaf in structure.leaves(node):
            contacts.leaves.add(names[leaf])
        for row in structure.rows:
            for entry in row[node].tolist():
                if entry != NOBODY:
                    contacts.table.offer(names[entry])
        around = [names[(node + step) % COUNT] + 1 for step in range(-10, 11)]
        for key in (*(dice.getrandbits(64) for _ in range(50)), *around):
            [hop] = structure.next_hops(np.array([node]), key)
            assert names[hop] == contacts.next_hop(key)[0]
            rare += not contacts.leaves.covers(key) and contacts.table.entry(key) is None
    assert rare >= 5  # empty cells were met too


@pytest.mark.parametrize("key", [0, 1, (1 << 64) - 1])
def test_the_root_is_the_closest_of_all_nodes_also_around_zero(
    structure: Structure, key: int
) -> None:
    names = identifiers(structure)
    keys = [key, *(random.Random(3).getrandbits(64) for _ in range(100)), *names[:20]]
    assert [names[structure.root(each)] for each in keys] == [
        SPACE.closest(each, names) for each in keys
    ]


def test_every_route_ends_at_the_root(structure: Structure) -> None:
    hops = structure.hops(500)
    assert 1.5 < hops.mean() < 3


def test_a_tree_has_all_its_members_and_each_parent_in_it(structure: Structure) -> None:
    members = np.arange(0, COUNT, 9)
    tree = structure.tree(1 << 40, members)
    inside = {tree.root, *tree.nodes.tolist()}
    assert inside.issuperset(members.tolist())
    assert inside.issuperset(tree.parents.tolist())
    assert len(set(tree.nodes.tolist())) == len(tree.nodes)
    assert tree.root not in tree.nodes


def test_a_tree_is_measured_by_hand(structure: Structure) -> None:
    """Root 0 has the children 1 and 2, and 1 the child 3, which alone with 2 wants events."""
    network, routers = structure.network, structure.routers
    tally = Tally(network, routers)
    tree = Tree(0, np.array([2, 3]), np.array([1, 2, 3]), np.array([0, 0, 1]))
    tally.add(tree)
    figures = tally.figures(np.array([1, 1, 2]))

    def delay(one: int, other: int) -> int:
        return 2 * LAN_DELAY + int(network.delay[routers[one], routers[other]])

    ours, direct = (delay(0, 2), delay(0, 1) + delay(1, 3)), (delay(0, 2), delay(0, 3))
    assert figures["maximal_delay"] == [round(max(ours) / max(direct), 3)]
    assert figures["average_delay"] == [round(sum(ours) / sum(direct), 3)]
    assert figures["entries"] == [[0, COUNT - 2], [1, 1], [2, 1]]
    assert figures["tables"] == [[0, COUNT - 2], [1, 2]]
    assert figures["hops"] == [[1, 2], [2, 1]]
    ways = [set(network.way(int(routers[0]), int(routers[node]))) for node in (2, 3)]
    assert sum(value * count for value, count in figures["ip_stress"]) == len(ways[0] | ways[1])
    edges = ((0, 1), (0, 2), (1, 3))
    steps = [len(list(network.way(int(routers[a]), int(routers[b])))) for a, b in edges]
    assert sum(value * count for value, count in figures["stress"]) == sum(steps)


def test_what_does_not_lead_to_the_root_is_no_tree(structure: Structure) -> None:
    tally = Tally(structure.network, structure.routers)
    circle = Tree(0, np.array([1]), np.array([1, 2]), np.array([2, 1]))
    with pytest.raises(AssertionError, match="lead to the root"):
        tally.add(circle)
