"""Next hops: towards the closest node, in few hops, and never round."""

from __future__ import annotations

import math
import random

from gapless.scribe.contacts import Contacts
from gapless.scribe.identifiers import Identifier, NodeId, Space
from gapless.scribe.settings import RingSettings

SPACE = Space()
SETTINGS = RingSettings()


def ring(count: int, seed: int) -> dict[NodeId, Contacts]:
    """Nodes that know all they could, as after a long quiet time."""
    dice = random.Random(seed)
    nodes = sorted(NodeId(Identifier(dice.getrandbits(128))) for _ in range(count))
    known: dict[NodeId, Contacts] = {}
    half = SETTINGS.leaf_set_size // 2
    for index, node in enumerate(nodes):
        contacts = Contacts(node, SETTINGS, SPACE, lambda other: other % 97)
        for step in range(1, half + 1):
            contacts.leaves.add(nodes[(index + step) % count])
            contacts.leaves.add(nodes[index - step])
        for other in nodes:
            contacts.table.offer(other)
        known[node] = contacts
    return known


def way(known: dict[NodeId, Contacts], source: NodeId, key: int) -> list[NodeId]:
    visited, near = [source], False
    while True:
        hop, near = known[visited[-1]].next_hop(key, near=near)
        if hop == visited[-1]:
            return visited
        assert hop not in visited
        visited.append(hop)


def test_routing_agrees_with_the_closest_of_a_thousand_nodes() -> None:
    known = ring(1_000, seed=1)
    dice = random.Random(2)
    nodes, hops = list(known), 0
    for _ in range(300):
        key = dice.getrandbits(128)
        visited = way(known, dice.choice(nodes), key)
        assert visited[-1] == SPACE.closest(key, nodes)
        hops += len(visited) - 1
    assert hops / 300 <= math.ceil(math.log(1_000, 16))


def test_an_empty_table_is_slow_and_still_right() -> None:
    """The far end of the leaf set is always closer: rule three never fails."""
    known = ring(200, seed=3)
    for contacts in known.values():
        for node in list(contacts.table.entries()):
            contacts.table.remove(node)
    nodes, dice = list(known), random.Random(4)
    for _ in range(100):
        key = dice.getrandbits(128)
        assert way(known, dice.choice(nodes), key)[-1] == SPACE.closest(key, nodes)


def test_holes_in_tables_and_leaf_sets_never_lead_in_circles() -> None:
    known = ring(150, seed=5)
    dice = random.Random(6)
    for contacts in known.values():
        for node in dice.sample(list(known), 60):
            contacts.remove(node)
        contacts.check()
    for _ in range(300):
        way(known, dice.choice(list(known)), dice.getrandbits(128))  # asserts it visits none twice


def test_of_two_for_one_cell_the_nearer_stays() -> None:
    own = NodeId(Identifier(0))
    near = {1 << 127: 9, (1 << 127) + 1: 5, (1 << 127) + 2: 7}
    contacts = Contacts(own, SETTINGS, SPACE, lambda node: near[node])
    for value in near:
        contacts.hear_of(NodeId(Identifier(value)))
    assert list(contacts.table.entries()) == [(1 << 127) + 1]
    assert [node for _, node in contacts.nearby] == [(1 << 127) + 1, (1 << 127) + 2, 1 << 127]


def test_the_neighbourhood_is_bounded_and_keeps_the_nearest() -> None:
    settings = RingSettings(neighbourhood_max=3)
    contacts = Contacts(NodeId(Identifier(0)), settings, SPACE, lambda node: node)
    for value in (9, 4, 7, 1, 8, 4):
        contacts.hear_of(NodeId(Identifier(value)))
    assert [node for _, node in contacts.nearby] == [1, 4, 7]
