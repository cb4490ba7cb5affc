"""Trees: circles are broken, old parents are told, bounds hold."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gapless.scribe.effects import Begun, ToNode
from gapless.scribe.messages import (
    Adopted,
    Divert,
    Graft,
    Heartbeat,
    Prune,
    TopicBeat,
    TreeEvent,
)
from gapless.scribe.settings import RingSettings
from tests.scribe.stand import Stand

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId, TopicId
    from gapless.scribe.member import RingMember


def ring(
    count: int = 12, settings: RingSettings | None = None
) -> tuple[Stand, TopicId, list[NodeId]]:
    """A stand, a topic, and the nodes that are not its root."""
    dice, stand = random.Random(5), Stand(settings)
    for _ in range(count):
        stand.add(dice.getrandbits(128))
    stand.run(5)
    topic = stand.space.topic_id("t", "x")
    return stand, topic, [node for node in stand.members if node != stand.closest(topic)]


def subscribed(stand: Stand, topic: TopicId, node: NodeId) -> RingMember:
    member = stand.members[node]
    stand.do(node, member.subscribe(topic, stand.now))
    stand.settle()
    return member


def test_a_circle_of_parents_is_noticed_by_its_path_and_given_up() -> None:
    stand, topic, (one, two, *_) = ring()
    member = subscribed(stand, topic, one)
    stand.do(one, member.receive(two, Heartbeat((TopicBeat(topic, (one,)),)), stand.now))
    assert member.tree.topics[topic].parent != two
    member.tree.topics[topic].become_child(two, (), stand.now)
    member.check()
    refusal = member.receive(two, Heartbeat((TopicBeat(topic, (one,)),)), stand.now)
    assert refusal == [ToNode(two, Prune((topic,)))]
    assert member.tree.topics[topic].parent is None
    stand.run(5)
    assert member.tree.topics[topic].path[-1] == stand.closest(topic)


def test_who_is_above_us_is_not_taken_on() -> None:
    stand, topic, (one, *_) = ring()
    member = subscribed(stand, topic, one)
    above = member.tree.topics[topic].path[-1]
    wish = Graft(topic, above)
    assert member.tree.forward(wish, stand.now) == (wish, [])
    assert above not in member.tree.topics[topic].children


def test_a_second_parent_replaces_the_first_which_is_told() -> None:
    stand, topic, (one, two, *_) = ring()
    member = subscribed(stand, topic, one)
    first = member.tree.topics[topic].parent
    assert first is not None
    effects = member.receive(two, Adopted(topic, ()), stand.now)
    assert effects == [ToNode(first, Prune((topic,)))]
    assert member.tree.topics[topic].parent == two


def test_a_heartbeat_of_another_than_the_parent_is_refused() -> None:
    stand, topic, (one, two, *_) = ring()
    member = subscribed(stand, topic, one)
    before = member.tree.topics[topic].parent
    effects = member.receive(two, Heartbeat((TopicBeat(topic, ()),)), stand.now)
    assert effects == [ToNode(two, Prune((topic,)))]
    assert member.tree.topics[topic].parent == before


def test_an_event_of_a_topic_that_nobody_here_wants_ends_the_matter() -> None:
    stand, topic, (one, two, *_) = ring()
    effects = stand.members[one].receive(two, TreeEvent(topic, 1, b"x"), stand.now)
    assert effects == [ToNode(two, Prune((topic,)))]


def test_a_node_with_as_many_topics_as_it_takes_lets_subscriptions_pass() -> None:
    stand, topic, (one, two, *_) = ring(settings=RingSettings(topics_max=1))
    member = subscribed(stand, stand.space.topic_id("other", "x"), one)
    wish = Graft(topic, two)
    assert member.tree.forward(wish, stand.now) == (wish, [])
    assert topic not in member.tree.topics


def test_a_root_that_is_no_longer_the_closest_becomes_a_child() -> None:
    stand, topic, _ = ring()
    root = stand.closest(topic)
    member = subscribed(stand, topic, root)
    assert member.tree.topics[topic].is_root
    stand.add(int(topic) + 1)
    stand.run(5)
    assert stand.closest(topic) == topic + 1
    assert not member.tree.topics[topic].is_root
    assert member.tree.topics[topic].parent == topic + 1


def test_children_of_one_that_leaves_have_another_parent_at_once() -> None:
    stand, topic, nodes = ring(30, RingSettings(leaf_set_size=4, replicas=3))
    for name in nodes:
        subscribed(stand, topic, name)
    forwarder = next(name for name in nodes if stand.members[name].tree.topics[topic].children)
    children = list(stand.members[forwarder].tree.topics[topic].children)
    stand.do(forwarder, stand.members[forwarder].leave())
    stand.settle()
    stand.crash(forwarder)
    stand.settle()
    for name, member in stand.members.items():
        entry = member.tree.topics[topic]
        assert forwarder not in (entry.parent, *entry.children), name
    assert all(stand.members[name].tree.topics[topic].parent for name in children)


def test_a_node_with_as_many_children_as_it_takes_sends_one_more_to_one_of_them() -> None:
    stand, topic, others = ring(settings=RingSettings(children_max=2))
    for node in others:
        subscribed(stand, topic, node)
    stand.run(10)
    for node, member in stand.members.items():
        place = member.tree.topics[topic]
        assert len(place.children) <= 2
        assert place.is_rooted
        assert (place.path[-1] if place.path else node) == stand.closest(topic)


def test_one_above_us_that_is_sent_to_us_is_not_taken_on() -> None:
    stand, topic, (one, *_) = ring()
    member = subscribed(stand, topic, one)
    above = member.tree.topics[topic].path[-1]
    assert member.receive(above, Graft(topic, above), stand.now) == []


def test_who_has_a_parent_stays_with_it_whatever_another_says() -> None:
    stand, topic, (one, two, *_) = ring()
    member = subscribed(stand, topic, one)
    assert member.receive(two, Divert(topic, (two,)), stand.now) == []


def test_subscribers_count_on_a_topic_once_the_root_is_at_the_end_of_the_path() -> None:
    stand, topic, (one, two, *_) = ring()
    stand.is_lost = lambda *_: True
    member = subscribed(stand, topic, one)
    assert not stand.done
    begun = member.receive(two, Adopted(topic, ()), stand.now)
    assert begun == []
    rooted = Heartbeat((TopicBeat(topic, (), rooted=True),))
    assert member.receive(two, rooted, stand.now) == [Begun(topic, 0)]
    assert member.receive(two, rooted, stand.now) == []


def test_a_child_learns_at_once_that_there_is_a_way_to_the_root() -> None:
    stand, topic, (one, two, three, *_) = ring()
    member = subscribed(stand, topic, one)
    member.receive(two, Adopted(topic, ()), stand.now)
    taken_on = member.receive(three, Graft(topic, three), stand.now)
    assert taken_on == [ToNode(three, Adopted(topic, (two,), rooted=False))]
    effects = member.receive(two, Heartbeat((TopicBeat(topic, (), rooted=True),)), stand.now)
    assert ToNode(three, Heartbeat((TopicBeat(topic, (two,), rooted=True),))) in effects
