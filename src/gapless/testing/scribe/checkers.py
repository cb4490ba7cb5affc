"""What must hold of rings and trees once everything is quiet. Each says what is wrong, in words.

Oracles are brute force over all nodes that live: sorting identifiers, following parents one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.scribe.messages import Seat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.scribe.identifiers import Identifier, NodeId, TopicId
    from gapless.scribe.member import RingMember
    from gapless.testing.scribe.world import ScribeWorld

LEAVES = "leaf sets are right"
ROUTES = "routing finds the closest node"
TREES = "one tree, and every subscriber in it"
EVERYTHING = "what was confirmed arrives"
ARRIVES = "never misrouted"


def wrong_leaf_sets(world: ScribeWorld) -> Iterator[str]:
    """Every leaf set has the nodes next to it on either side, and no others."""
    members = world.active()
    ring = sorted(member.node for member in members)
    half = world.settings.leaf_set_size // 2
    for index, node in enumerate(ring):
        member = world.places[node].member
        assert member is not None
        around = {ring[(index + step) % len(ring)] for step in range(-half, half + 1)}
        if len(ring) <= 2 * half + 1:
            around = set(ring)
        if set(member.pastry.contacts.leaves.members) != around - {node}:
            yield f"the leaf set of {world.space.show(node)}"


def route(world: ScribeWorld, source: RingMember, key: Identifier) -> list[NodeId] | None:
    """The nodes that a message for the key would visit; None if it goes to one that is dead."""
    way, near, member = [source.node], False, source
    while True:
        hop, near = member.pastry.contacts.next_hop(key, near=near)
        if hop == member.node:
            return way
        following = world.places[hop].member
        if following is None or not following.is_active:
            return None
        assert hop not in way, "a message goes round"
        way.append(hop)
        member = following


def wrong_routes(world: ScribeWorld, keys: list[Identifier]) -> Iterator[str]:
    members = world.active()
    nodes = [member.node for member in members]
    for index, key in enumerate(keys):
        way = route(world, members[index % len(members)], key)
        if way is not None and way[-1] != world.space.closest(key, nodes):
            yield f"{world.space.show(key)} is led to {world.space.show(way[-1])}"


def wrong_trees(world: ScribeWorld) -> Iterator[str]:
    """Parents lead to the one root; parents and children agree; subscribers are in."""
    members = {member.node: member for member in world.active()}
    for topic in world.facts.records:
        root = world.space.closest(topic, members)
        inside = {node: member for node, member in members.items() if topic in member.tree.topics}
        for node, wanted in world.facts.wishes:
            if wanted == topic and node in members and node not in inside:
                yield f"{world.space.show(node)} is outside the tree of {world.space.show(topic)}"
        for node, member in inside.items():
            yield from _wrong_place(world, topic, node, member, inside, root)


def _wrong_place(
    world: ScribeWorld,
    topic: TopicId,
    node: NodeId,
    member: RingMember,
    inside: dict[NodeId, RingMember],
    root: NodeId,
) -> Iterator[str]:
    show = world.space.show
    entry = member.tree.topics[topic]
    if entry.is_root != (node == root):
        yield f"{show(node)} {'is' if entry.is_root else 'is not'} the root of {show(topic)}"
    for child in entry.children:
        if child not in inside or inside[child].tree.topics[topic].parent != node:
            yield f"{show(child)} is not a child of {show(node)} in {show(topic)}"
    way, at = [node], entry
    while not at.is_root:
        parent = at.parent
        if parent is None or parent not in inside:
            yield f"{show(way[-1])} has no parent in {show(topic)}"
            return
        if way[-1] not in inside[parent].tree.topics[topic].children:
            yield f"{show(parent)} does not have {show(way[-1])} as a child in {show(topic)}"
        if parent in way:
            yield f"{show(parent)} is above itself in {show(topic)}"
            return
        way.append(parent)
        at = inside[parent].tree.topics[topic]


def missing_events(world: ScribeWorld) -> Iterator[str]:
    """Every ordered event that was confirmed has a number, and every subscriber all up to the end,
    except where a majority of a group is lost: such a topic stands still."""
    facts, show = world.facts, world.space.show
    for topic, record in facts.records.items():
        if not record.ordered or is_lost(world, topic):
            continue
        if waiting := [body for (_, about, _), body in facts.sent.items() if about == topic]:
            yield f"{len(waiting)} publications to {show(topic)} are not confirmed"
        end = max(facts.logs[topic], default=0) + 1
        takers = [(n, taken) for (n, about), taken in facts.wishes.items() if about == topic]
        for node, taken in takers:
            if taken.start is None:
                yield f"{show(node)} was not told where {show(topic)} begins"
            elif taken.end < end:
                yield f"{show(node)} has {show(topic)} up to {taken.end} of {end}"
        if lost := facts.confirmed[topic] - _logged(world, topic):
            yield f"{min(lost)!r} of {show(topic)} was confirmed, and its root does not have it"


def _logged(world: ScribeWorld, topic: TopicId) -> set[bytes]:
    """What the root of an ordered topic holds; all there ever was, as the log has room."""
    root = world.places[world.space.closest(topic, [m.node for m in world.active()])].member
    assert root is not None
    group = root.roots.groups.get(topic)
    if group is None or not group.is_leader:
        return set()
    assert group.base == 1, "the log is too small for this run"
    return {entry.body for _, entry in group.between(1, group.committed)}


def is_lost(world: ScribeWorld, topic: TopicId) -> bool:
    """Is there a group whose majority is gone, and which may have had more than others?"""
    lives = {Seat(place.node, place.life) for place in world.live()}
    groups = [m.roots.groups[topic] for m in world.active() if topic in m.roots.groups]
    lineups = [lineup for group in groups for lineup in (group.lineup, group.known)]
    floor = max((each.ballot for each in lineups if each.active), default=None)
    relevant = [
        each.seats for each in lineups if each.seats and (not floor or each.ballot >= floor)
    ]
    relevant += [seats for group in groups for seats in group.needed]
    return not relevant or any(2 * len(lives.intersection(each)) <= len(each) for each in relevant)
