"""The ring: joining, hearsay, those who fail, those who are back, and hops."""

from __future__ import annotations

import random

from gapless.core.identity import Instant
from gapless.scribe.effects import ToNode
from gapless.scribe.hops import Hops
from gapless.scribe.identifiers import Identifier, NodeId, TopicId
from gapless.scribe.member import RingMember
from gapless.scribe.messages import (
    Create,
    LeafPing,
    Passed,
    Probe,
    ProbeReply,
    RingJoin,
    Routed,
    Seat,
    TopicRecord,
)
from gapless.scribe.pastry import RingPhase
from gapless.scribe.settings import RingSettings
from tests.scribe.stand import Stand


def node(value: int) -> NodeId:
    return NodeId(Identifier(value))


def ring(count: int, seed: int, settings: RingSettings | None = None) -> Stand:
    dice, stand = random.Random(seed), Stand(settings)
    for _ in range(count):
        stand.add(dice.getrandbits(128))
    stand.run(10)
    return stand


def leaf_sets_are_right(stand: Stand) -> bool:
    order, half = sorted(stand.members), stand.settings.leaf_set_size // 2
    for index, name in enumerate(order):
        around = {order[(index + step) % len(order)] for step in range(-half, half + 1)} - {name}
        if set(stand.members[name].pastry.contacts.leaves.members) != around:
            return False
    return True


def test_newcomers_find_their_place_and_others_learn_of_them() -> None:
    assert leaf_sets_are_right(ring(30, seed=1, settings=RingSettings(leaf_set_size=8)))


def test_a_failed_node_is_replaced_by_the_next_one() -> None:
    stand = ring(20, seed=2, settings=RingSettings(leaf_set_size=6, replicas=3))
    for name in sorted(stand.members)[4:6]:
        stand.crash(name)
    stand.run(30)
    assert leaf_sets_are_right(stand)


def test_who_leaves_is_not_waited_for() -> None:
    stand = ring(20, seed=3, settings=RingSettings(leaf_set_size=6, replicas=3))
    gone = sorted(stand.members)[7]
    stand.do(gone, stand.members[gone].leave())
    stand.crash(gone)
    stand.run(1)
    assert leaf_sets_are_right(stand)


def test_halves_of_a_split_ring_find_together() -> None:
    stand = ring(16, seed=4, settings=RingSettings(leaf_set_size=4, replicas=3))
    left = set(sorted(stand.members)[::2])
    stand.is_lost = lambda one, other, _: (one in left) != (other in left)
    stand.run(30)
    assert not leaf_sets_are_right(stand)
    stand.is_lost = lambda *_: False
    stand.run(120)
    assert leaf_sets_are_right(stand)


def test_one_that_has_not_joined_passes_nothing_on_and_answers_no_probe() -> None:
    member = RingMember(Seat(node(5), 1), lambda _: 0)
    member.join([node(9)], Instant(0))
    routed = Routed(1, Identifier(5), Create(TopicRecord(TopicId(Identifier(5))), node(9)))
    assert member.receive(node(9), routed, Instant(1)) == []
    assert member.receive(node(9), Probe(1, ()), Instant(1)) == []
    assert member.receive(node(9), LeafPing(1), Instant(1)) == []
    assert member.pastry.phase is RingPhase.JOINING


def test_hearsay_is_probed_and_the_failed_are_not_brought_back_by_it() -> None:
    member = RingMember(Seat(node(5), 1), lambda _: 0)
    now = Instant(0)
    member.found(now)
    effects = member.receive(node(9), Probe(1, (node(7),)), now)
    probed = [e.node for e in effects if isinstance(e, ToNode) and isinstance(e.message, Probe)]
    assert probed == [7]
    assert 7 not in member.pastry.contacts.leaves
    for _ in range(10):
        now = member.deadline
        member.fire(now)
        member.receive(node(9), LeafPing(1), now)
    effects = member.receive(node(9), ProbeReply(1, (node(7),)), now)
    assert [e for e in effects if isinstance(e, ToNode) and e.node == 7] == []
    member.receive(node(7), LeafPing(3), now)
    assert 7 in member.pastry.contacts.leaves
    assert member.pastry.members.seats_near(7, 1) == (Seat(node(7), 3),)


def test_one_that_is_back_after_all_is_asked_to_look_up_our_place() -> None:
    member = RingMember(Seat(node(5), 1), lambda _: 0)
    member.found(Instant(0))
    member.receive(node(7), LeafPing(1), Instant(0))
    member.pastry.members.fail(node(7))
    effects = member.receive(node(7), LeafPing(1), Instant(1))
    [seek] = [e.message for e in effects if isinstance(e, ToNode) and isinstance(e.message, Routed)]
    assert seek.payload == RingJoin(node(5), fresh=False)


def test_only_the_node_that_got_a_hop_confirms_it() -> None:
    hops = Hops(RingSettings(answer_patience=10))
    routed = Routed(hops.next_number(), Identifier(1), RingJoin(node(1)))
    hops.watch(node(7), routed, Instant(0), 1)
    hops.confirm(node(8), routed.number)
    assert hops.deadline == 10
    hops.confirm(node(7), routed.number)
    assert hops.deadline is None


def test_hops_that_are_watched_are_bounded() -> None:
    hops = Hops(RingSettings(pending_max=3))
    for number in range(5):
        hops.watch(node(7), Routed(number, Identifier(1), RingJoin(node(1))), Instant(number), 1)
        hops.check()
    assert [hop.routed.number for hop in hops.through(node(7))] == [2, 3, 4]


def test_a_hop_is_confirmed_to_who_sent_it() -> None:
    member = RingMember(Seat(node(5), 1), lambda _: 0)
    member.found(Instant(0))
    effects = member.receive(node(9), Routed(4, Identifier(9), RingJoin(node(9))), Instant(0))
    assert ToNode(node(9), Passed(4)) in effects


def test_one_of_the_seeds_may_be_down() -> None:
    stand = Stand()
    first = stand.add(1 << 100)
    own = node(1 << 90)
    newcomer = RingMember(Seat(own, 9), lambda _: 1)
    stand.members[own] = newcomer
    stand.do(own, newcomer.join([node(77), first.node], stand.now))
    stand.run(1)
    assert newcomer.is_active


def test_two_rings_that_were_founded_apart_find_together_by_whom_they_were_to_join() -> None:
    stand = Stand()
    one = stand.add(1 << 100)
    own = node(1 << 90)
    other = RingMember(Seat(own, 9), lambda _: 1)
    stand.do(own, other.join([one.node], stand.now))  # which does not hear of it
    stand.do(own, other.found(stand.now))
    stand.settle()
    stand.members[own] = other
    stand.run(1)
    assert one.node not in other.pastry.contacts.leaves
    stand.run(15)
    assert one.node in other.pastry.contacts.leaves
    assert own in one.pastry.contacts.leaves
