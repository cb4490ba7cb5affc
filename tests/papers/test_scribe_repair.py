"""Rowstron, Kermarrec, Castro, Druschel: SCRIBE, NGC 2001, sections 2 and 4: how a node joins, what
its tables hold, and how leaf sets, tables and trees are repaired.

A ring mends itself in more than one way: what one message misses, a later round finds. So these
tests let no time pass, or lose the other way, to see each mechanism alone.
"""

from __future__ import annotations

import random
from statistics import mean
from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.scribe.effects import Begun, Deliver, Effect, ToNode
from gapless.scribe.identifiers import Identifier, NodeId, TopicId
from gapless.scribe.member import RingMember
from gapless.scribe.messages import (
    Adopted,
    Create,
    Graft,
    LeafPing,
    Probe,
    ProbeReply,
    Pull,
    Refresh,
    RingJoin,
    RingWelcome,
    Routed,
    RowQuery,
    RowReply,
    Seat,
    TopicRecord,
    TreeEvent,
)
from gapless.scribe.pastry import RingPhase
from gapless.scribe.settings import SECOND, RingSettings
from tests.scribe.stand import Stand

if TYPE_CHECKING:
    from gapless.scribe.messages import ScribeMessage

SMALL = RingSettings(leaf_set_size=2, neighbourhood_max=1, replicas=2)
"""So small that a node knows others by its routing table alone."""


def node(value: int, shift: int = 120) -> NodeId:
    """A node by its first two digits."""
    return NodeId(Identifier(value << shift))


OWN, NEXT, LAST = node(0x00), node(0x01), node(0xFF)  # the two beside us on the circle
ELDER, YOUNGER, HELPER = node(0x4A), node(0x4B), node(0x80)  # two of one cell of our table


def alone(settings: RingSettings = SMALL, own: NodeId = OWN) -> RingMember:
    """A member that has the nodes beside it in its leaf set, and nobody else."""
    member = RingMember(Seat(own, 1), lambda other: other % 97, settings=settings)
    member.found(Instant(0))
    for beside in (NEXT, LAST):
        member.receive(beside, LeafPing(1), Instant(0))
    return member


def sent(effects: list[Effect], kind: type[ScribeMessage]) -> list[NodeId]:
    return [e.node for e in effects if isinstance(e, ToNode) and isinstance(e.message, kind)]


def grown(count: int, seed: int, settings: RingSettings | None = None) -> Stand:
    dice, stand = random.Random(seed), Stand(settings)
    for _ in range(count):
        stand.add(dice.getrandbits(128))
    stand.run(10)
    return stand


def leaf_sets_are_right(stand: Stand) -> bool:
    order, half = sorted(stand.members), stand.settings.leaf_set_size // 2
    around = {
        name: {order[(index + step) % len(order)] for step in range(-half, half + 1)} - {name}
        for index, name in enumerate(order)
    }
    known = {
        name: set(member.pastry.contacts.leaves.members) for name, member in stand.members.items()
    }
    return known == around


# --- section 2: joining ---------------------------------------------------------------------------


def test_2_a_newcomer_is_active_only_when_everyone_of_its_leaf_set_has_answered() -> None:
    """It probes those it is told of, and those whom they name. Before, it would not know who is
    closer to a key than itself."""
    newcomer = RingMember(Seat(OWN, 1), lambda _: 0)
    newcomer.join([HELPER], Instant(0))
    effects = newcomer.receive(LAST, RingWelcome((NEXT, HELPER), ()), Instant(1))
    assert sorted(sent(effects, Probe)) == sorted([LAST, NEXT, HELPER])
    for answered, named, more in ((LAST, (), []), (NEXT, (ELDER,), [ELDER]), (HELPER, (), [])):
        effects = newcomer.receive(answered, ProbeReply(1, named), Instant(2))
        assert sent(effects, Probe) == more
        assert newcomer.pastry.phase is RingPhase.PROBING
        assert newcomer.receive(NEXT, Probe(1, ()), Instant(2)) == [], "it answers for nobody yet"
    newcomer.receive(ELDER, ProbeReply(1, ()), Instant(3))
    assert newcomer.is_active
    assert set(newcomer.pastry.contacts.leaves.members) == {LAST, NEXT, HELPER, ELDER}


def test_2_who_does_not_answer_a_newcomer_is_not_in_its_leaf_set() -> None:
    newcomer = RingMember(Seat(OWN, 1), lambda _: 0)
    newcomer.join([LAST], Instant(0))
    newcomer.receive(LAST, RingWelcome((NEXT,), ()), Instant(1))
    newcomer.receive(LAST, ProbeReply(1, (NEXT,)), Instant(2))
    while not newcomer.is_active and newcomer.deadline < 60 * SECOND:
        newcomer.fire(newcomer.deadline)
        newcomer.receive(LAST, ProbeReply(1, (NEXT,)), newcomer.deadline)
    assert newcomer.pastry.contacts.leaves.members == [LAST]


def test_2_the_first_node_on_the_way_gives_all_its_rows_and_others_the_one_they_share() -> None:
    """The first one is near, so are its entries; of the others the row that fits counts."""
    own, newcomer = node(0x400, 116), node(0x4FF, 116)  # they share one digit
    member = alone(own=own)
    member.pastry.members.hear_of([node(0x90), node(0x450, 116), node(0x401, 116)])
    for hops, given in ((1, True), (2, False)):
        asked = Routed(1, newcomer, RingJoin(newcomer), hops=hops)
        effects = member.receive(LAST, asked, Instant(1))
        [contacts] = [
            e.message.contacts
            for e in effects
            if isinstance(e, ToNode) and isinstance(e.message, RingWelcome)
        ]
        assert node(0x450, 116) in contacts
        assert (node(0x90) in contacts) is given
        assert node(0x401, 116) not in contacts


def test_2_a_node_that_restarts_at_once_is_let_in_at_once() -> None:
    """Whoever passes its `RingJoin` on forgets its life before: the way would end at itself."""
    stand = grown(20, seed=1, settings=RingSettings(leaf_set_size=6, replicas=3))
    name = sorted(stand.members)[9]
    stand.crash(name)
    again = RingMember(Seat(name, 99), lambda _: 1, settings=stand.settings)
    seed = next(iter(stand.members))
    stand.members[name] = again
    stand.do(name, again.join([seed], stand.now))
    stand.settle()
    assert again.is_active
    assert leaf_sets_are_right(stand)


# --- section 2: what tables hold ------------------------------------------------------------------


def test_2_entries_of_a_table_are_near() -> None:
    """Of all nodes that fit a cell, one that is near in the network: so most hops are short."""
    dice = random.Random(3)
    places: dict[NodeId, tuple[int, int]] = {}

    def distance(one: NodeId, other: NodeId) -> int:
        (a, b), (c, d) = places[one], places[other]
        return abs(a - c) + abs(b - d)

    stand = Stand(
        RingSettings(leaf_set_size=4, neighbourhood_max=4, replicas=3), proximity=distance
    )
    for _ in range(50):
        value = dice.getrandbits(128)
        places[NodeId(Identifier(value))] = dice.randrange(1_000), dice.randrange(1_000)
        stand.add(value)
    stand.run(10)
    chosen, possible = [], []
    for name, member in stand.members.items():
        table = member.pastry.contacts.table
        for entry in table.row(0):
            fitting = [n for n in places if n != name and table.cell_of(n) == table.cell_of(entry)]
            if len(fitting) > 1:
                chosen.append(distance(name, entry))
                possible.append(mean(distance(name, each) for each in fitting))
    assert len(chosen) > 100
    assert mean(chosen) < 0.75 * mean(possible)


def test_2_a_row_is_compared_now_and_then_and_the_nearer_entry_stays() -> None:
    near = {ELDER: 9, YOUNGER: 5, HELPER: 1, NEXT: 1, LAST: 1}
    settings = RingSettings(leaf_set_size=2, neighbourhood_max=1, replicas=2, table_every=SECOND)
    member = RingMember(Seat(OWN, 1), lambda other: near[other], settings=settings)
    member.found(Instant(0))
    for beside in (NEXT, LAST):
        member.receive(beside, LeafPing(1), Instant(0))
    member.pastry.members.hear_of([ELDER, HELPER])
    asked: list[NodeId] = []
    for _ in range(8):
        now = member.deadline
        asked += sent(member.fire(now), RowQuery)
        for beside in (NEXT, LAST):
            member.receive(beside, LeafPing(1), now)
    assert {ELDER, HELPER} <= set(asked), "all of the row have their turn"
    member.receive(HELPER, RowReply((HELPER, YOUNGER)), member.deadline)
    assert member.pastry.contacts.table.entry(ELDER) == YOUNGER


def test_2_a_node_that_is_asked_for_a_row_gives_it_and_learns_from_the_one_of_the_asker() -> None:
    member = alone()
    member.pastry.members.hear_of([HELPER])
    asked = RowQuery(0, (LAST, ELDER))
    [answer] = member.receive(LAST, asked, Instant(1))
    assert answer == ToNode(LAST, RowReply((OWN, ELDER, HELPER, LAST)))


# --- section 2: repair ----------------------------------------------------------------------------


def test_2_a_leaf_set_is_repaired_at_once_by_those_at_its_ends() -> None:
    """No time passes: nobody waits for the next round to compare sets."""
    stand = grown(20, seed=3, settings=RingSettings(leaf_set_size=6, replicas=3))
    gone = sorted(stand.members)[7]
    effects = stand.members[gone].leave()
    stand.crash(gone)
    stand.do(gone, effects)
    stand.settle()
    assert leaf_sets_are_right(stand)


def test_2_ends_and_neighbours_are_asked_when_a_member_of_the_leaf_set_fails() -> None:
    settings = RingSettings(leaf_set_size=6, replicas=3)
    member = RingMember(Seat(OWN, 1), lambda _: 0, settings=settings)
    member.found(Instant(0))
    larger, smaller = [node(each) for each in (1, 2, 3)], [node(each) for each in (255, 254, 253)]
    for each in (*larger, *smaller):
        member.receive(each, LeafPing(1), Instant(0))
    asked = sent(member.pastry.members.fail(larger[1]), Probe)
    assert asked == sorted([larger[0], larger[2], smaller[0], smaller[2]])


def test_2_another_of_its_row_is_asked_for_a_substitute_of_a_failed_entry() -> None:
    """And until then the message takes another way."""
    stand = Stand(SMALL, proximity=lambda one, other: (one, other) != (OWN, ELDER))
    for value in (HELPER, YOUNGER, NEXT, LAST, ELDER, OWN):
        stand.add(value)
    stand.run(10)
    table = stand.members[OWN].pastry.contacts.table
    assert table.entry(YOUNGER) == ELDER
    stand.crash(ELDER)
    before = len(stand.sent)
    topic = TopicRecord(stand.space.topic_id("t", "x"))
    stand.do(OWN, stand.members[OWN].pastry.route(Create(topic, OWN), node(0x4C), stand.now))
    stand.run(5)
    assert [to for one, to, m in stand.sent[before:] if one == OWN and isinstance(m, RowQuery)]
    assert table.entry(node(0x4C)) == YOUNGER


def test_2_the_nodes_beside_us_are_told_our_leaf_set_with_every_round() -> None:
    """The others a word of life: each pair of neighbours compares what lies between."""
    settings = RingSettings(leaf_set_size=6, replicas=3)
    member = RingMember(Seat(OWN, 1), lambda _: 0, settings=settings)
    member.found(Instant(0))
    others = [node(each) for each in (1, 2, 3, 253, 254, 255)]
    for each in others:
        member.receive(each, LeafPing(1), Instant(0))
    effects = member.fire(Instant(settings.ping_every))
    assert sorted(sent(effects, Probe)) == [node(1), node(255)]
    assert sorted(sent(effects, LeafPing)) == others[1:-1]


def test_2_who_takes_us_for_its_neighbour_and_is_not_learns_who_lies_between() -> None:
    member = alone()
    far = node(0x70)
    effects = member.receive(far, LeafPing(1), Instant(1))
    assert effects == [ToNode(far, ProbeReply(1, (NEXT, LAST)))]


# --- section 4: repair of trees -------------------------------------------------------------------


def test_4_1_a_parent_that_the_ring_finds_dead_is_replaced_without_waiting_for_heartbeats() -> None:
    settings = RingSettings(leaf_set_size=2, replicas=2, parent_dead_after=1_000 * SECOND)
    member, topic = alone(settings), TopicId(Identifier(HELPER + 1))
    member.subscribe(topic, Instant(0))
    member.receive(HELPER, Adopted(topic, (), rooted=True), Instant(0))
    assert member.tree.topics[topic].parent == HELPER
    member.suspect(HELPER, Instant(1))
    asked: list[object] = []
    while member.deadline < 10 * SECOND:
        now = member.deadline
        for beside in (NEXT, LAST):
            member.receive(beside, LeafPing(1), now)
        routed = [e.message for e in member.fire(now) if isinstance(e, ToNode)]
        asked += [m.payload for m in routed if isinstance(m, Routed)]
    assert member.tree.topics[topic].parent is None
    assert Graft(topic, OWN) in asked


def test_4_1_a_parent_that_has_forgotten_a_child_takes_it_on_when_it_refreshes() -> None:
    member, topic = alone(), TopicId(OWN)
    refresh = Refresh(((topic, False, None),))
    assert ToNode(NEXT, Adopted(topic, (), rooted=True)) in member.receive(
        NEXT, refresh, Instant(1)
    )
    assert NEXT in member.tree.topics[topic].children


def test_4_1_children_learn_at_once_that_their_parent_has_become_the_root() -> None:
    """They may have waited for a way to the root: no heartbeat is awaited for that."""
    member, topic = alone(), TopicId(Identifier(NEXT + 1))
    member.tree.forward(Graft(topic, LAST), Instant(1))
    assert not member.tree.topics[topic].is_rooted
    effects = member.tree.deliver(Graft(topic, OWN), Instant(2))
    assert [e.node for e in effects if isinstance(e, ToNode)] == [LAST]


def test_4_2_what_was_missed_comes_with_the_repair_of_the_tree_unasked() -> None:
    """`faultHandler` puts the last number into the message that repairs, `joinHandler` sends what
    the new parent keeps from there on. Here every `Pull`, which would find it too, is lost."""
    ring = grown(16, seed=11, settings=RingSettings(leaf_set_size=4, replicas=3, children_max=2))
    topic = ring.space.topic_id("t", "x")
    creator = next(iter(ring.members))
    record = TopicRecord(topic, ordered=True)
    ring.do(creator, ring.members[creator].create(record, ring.now))
    ring.run(3)
    root = ring.closest(topic)
    for name, member in ring.members.items():
        if name != root:
            ring.do(name, member.subscribe(topic, ring.now, ordered=True))
    ring.run(5)
    child = next(n for n, m in ring.members.items() if len(m.tree.topics[topic].path) > 1)
    parent = ring.members[child].tree.topics[topic].parent
    assert parent is not None
    ring.is_lost = lambda one, to, message: (
        isinstance(message, Pull) or (to == child and isinstance(message, TreeEvent))
    )
    for number in range(10):
        _, effects = ring.members[root].publish(topic, b"%d" % number, ring.now, ordered=True)
        ring.do(root, effects)
        ring.settle()
    ring.is_lost = lambda one, to, message: isinstance(message, Pull)
    ring.crash(parent)
    ring.run(20)
    done = [effect for name, effect in ring.done if name == child]
    assert [e.position for e in done if isinstance(e, Begun)] == [1]
    got = [e.body for e in done if isinstance(e, Deliver)]
    assert got == [b"%d" % number for number in range(10)]
