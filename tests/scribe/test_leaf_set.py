"""The leaf set against sorting all nodes there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.scribe.identifiers import Identifier, NodeId, Space
from gapless.scribe.leaf_set import LeafSet

SPACE = Space(8, 4)
nodes = st.integers(0, 255).map(lambda value: NodeId(Identifier(value)))


def expected(own: NodeId, offered: set[NodeId], size: int) -> set[NodeId]:
    ring = sorted(offered - {own}, key=lambda node: SPACE.clockwise(own, node))
    return set(ring) if len(ring) <= size else {*ring[: size // 2], *ring[-size // 2 :]}


@given(nodes, st.lists(nodes, max_size=30), st.sampled_from([2, 4, 8]))
def test_it_holds_the_nearest_on_either_side_in_whatever_order_they_come(
    own: NodeId, offered: list[NodeId], size: int
) -> None:
    leaves = LeafSet(SPACE, own, size)
    for node in offered:
        assert leaves.would_take(node) == leaves.add(node)
        leaves.check()
    assert set(leaves.members) == expected(own, set(offered), size)


@given(nodes, st.sets(nodes, max_size=30), nodes, st.sampled_from([2, 4, 8]))
def test_within_its_reach_it_knows_who_is_responsible(
    own: NodeId, others: set[NodeId], key: NodeId, size: int
) -> None:
    leaves = LeafSet(SPACE, own, size)
    for node in sorted(others):
        leaves.add(node)
    if leaves.covers(key):
        assert leaves.closest(key) == SPACE.closest(key, [own, *others])


@given(nodes, st.sets(nodes, min_size=1, max_size=12), st.data())
def test_who_is_removed_is_out_and_the_others_stay(
    own: NodeId, others: set[NodeId], data: st.DataObject
) -> None:
    leaves = LeafSet(SPACE, own, 16)
    for node in sorted(others):
        leaves.add(node)
    gone = data.draw(st.sampled_from(sorted(others)))
    assert leaves.remove(gone) == (gone != own)
    leaves.check()
    assert set(leaves.members) == others - {gone, own}


def test_sides_are_counted_from_us_and_ends_are_the_farthest() -> None:
    leaves = LeafSet(SPACE, NodeId(Identifier(100)), 4)
    for value in (90, 95, 105, 110, 200, 20):
        leaves.add(NodeId(Identifier(value)))
    assert leaves.larger == [105, 110]
    assert leaves.smaller == [95, 90]
    assert leaves.ends_without(NodeId(Identifier(1))) == [90, 110]
    assert leaves.ends_without(NodeId(Identifier(90))) == [95, 110]
    assert leaves.neighbours == [95, 105]
    assert leaves.nearest(104, 3) == [105, 100, 110]
    assert not leaves.covers(150)
