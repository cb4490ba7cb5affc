"""Roots and publications: once, only when committed, and never from nothing."""

from __future__ import annotations

import random

import pytest

from gapless.core.errors import UsageError
from gapless.scribe.effects import Begun, Deliver, MissedRange, RequestOutcome, ToNode
from gapless.scribe.messages import (
    Ballot,
    Create,
    LogAppend,
    Prepare,
    Published,
    Replica,
    RootPublication,
    Routed,
    Seat,
    TopicCreated,
    TopicRecord,
    TreeEvent,
)
from gapless.scribe.roots import FULL
from gapless.scribe.settings import RingSettings
from tests.scribe.stand import Stand


class Rooted(Stand):
    """A ring, a topic that exists, and one node besides its root."""

    def __init__(self, *, ordered: bool, settings: RingSettings | None = None) -> None:
        super().__init__(settings)
        dice = random.Random(3)
        for _ in range(8):
            self.add(dice.getrandbits(128))
        self.run(5)
        self.record = TopicRecord(self.space.topic_id("t", "x"), ordered=ordered)
        self.root = self.closest(self.record.topic)
        self.other = next(name for name in self.members if name != self.root)
        self.do(self.other, self.members[self.other].create(self.record, self.now))
        self.run(3)

    def subscribe(self) -> None:
        member = self.members[self.other]
        effects = member.subscribe(self.record.topic, self.now, ordered=self.record.ordered)
        self.do(self.other, effects)
        self.run(2)

    def publish(self, body: bytes) -> int:
        member = self.members[self.other]
        number, effects = member.publish(
            self.record.topic, body, self.now, ordered=self.record.ordered
        )
        self.do(self.other, effects)
        return number

    def got(self) -> list[bytes]:
        return [effect.body for _, effect in self.done if isinstance(effect, Deliver)]

    def answers(self) -> list[RequestOutcome]:
        return [e for _, e in self.done if isinstance(e, RequestOutcome) and e.number is not None]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_publication_whose_answer_is_lost_is_repeated_and_comes_once(ordered: bool) -> None:
    stand = Rooted(ordered=ordered)
    stand.subscribe()
    stand.is_lost = lambda _, to, message: isinstance(message, Published) and to == stand.other
    stand.publish(b"news")
    stand.run(3)
    assert stand.answers() == []
    stand.is_lost = lambda *_: False
    stand.run(3)
    assert stand.got() == [b"news"]
    assert [answer.problem for answer in stand.answers()] == [""]


def test_an_event_that_no_majority_holds_is_neither_sent_down_nor_confirmed() -> None:
    stand = Rooted(ordered=True)
    stand.subscribe()
    stand.is_lost = lambda _, __, message: isinstance(message, LogAppend)
    stand.publish(b"news")
    stand.run(1)
    assert stand.got() == []
    assert stand.answers() == []
    stand.is_lost = lambda *_: False
    stand.run(10)
    assert stand.got() == [b"news"]


def test_a_publication_to_no_topic_is_told_so_in_the_end() -> None:
    stand = Rooted(ordered=False)
    stand.record = TopicRecord(stand.space.topic_id("none", "x"))
    stand.publish(b"news")
    stand.run(60)
    [answer] = stand.answers()
    assert "did not answer" in answer.problem


def test_an_answer_to_another_life_of_the_publisher_is_not_ours() -> None:
    stand = Rooted(ordered=True)
    stand.is_lost = lambda _, __, message: isinstance(message, RootPublication)
    number = stand.publish(b"news")
    before = Seat(stand.other, 0)
    stale = Published(stand.record.topic, before, number)
    stand.do(stand.other, stand.members[stand.other].receive(stand.root, stale, stand.now))
    assert stand.answers() == []


def test_one_that_heard_of_a_group_and_not_who_is_in_it_begins_no_other() -> None:
    """Else it would have a group of its own, without what was confirmed."""
    stand = Rooted(ordered=False)
    root = stand.members[stand.root]
    record = TopicRecord(stand.record.topic, ordered=True)
    prepare = Prepare(record, Ballot(7, stand.other))
    stand.do(stand.root, root.receive(stand.other, prepare, stand.now))
    stand.run(10)
    assert not root.roots.groups[record.topic].is_leader
    assert not root.roots.groups[record.topic].is_campaigning


def test_what_nobody_keeps_any_more_is_told_as_missed_and_exactly_that() -> None:
    stand = Rooted(ordered=True, settings=RingSettings(buffer_events_max=4))
    stand.subscribe()
    stand.is_lost = lambda _, to, message: isinstance(message, TreeEvent) and to == stand.other
    for number in range(10):
        stand.publish(b"%d" % number)
        stand.run(0.1)
    stand.is_lost = lambda *_: False
    stand.run(10)
    [begun] = [e for _, e in stand.done if isinstance(e, Begun)]
    [missed] = [e for _, e in stand.done if isinstance(e, MissedRange)]
    assert (begun.position, missed.start, missed.end) == (1, 1, 7)
    assert stand.got() == [b"6", b"7", b"8", b"9"]


def test_more_publications_than_may_wait_are_refused() -> None:
    stand = Rooted(ordered=True, settings=RingSettings(publish_pending_max=2))
    stand.is_lost = lambda *_: True
    stand.publish(b"1")
    stand.publish(b"2")
    with pytest.raises(UsageError, match="wait for an answer"):
        stand.publish(b"3")


def test_more_topics_than_a_node_takes_are_refused() -> None:
    stand = Rooted(ordered=False, settings=RingSettings(publish_topics_max=1, records_max=1))
    stand.publish(b"1")
    stand.record = TopicRecord(stand.space.topic_id("other", "x"))
    with pytest.raises(UsageError, match="as many as it may"):
        stand.publish(b"2")
    root = stand.members[stand.root].roots
    assert list(root.records) == [stand.space.topic_id("t", "x")]
    [refusal] = root.create(Create(stand.record, stand.other), stand.now)
    assert refusal == ToNode(stand.other, TopicCreated(stand.record.topic, FULL))


def test_settings_that_cannot_be_are_refused() -> None:
    for wrong in ({"leaf_set_size": 5}, {"heartbeat": 0}, {"replicas": 20}):
        with pytest.raises(UsageError):
            RingSettings(**wrong)


def test_an_ordered_topic_is_not_created_again_as_another() -> None:
    stand = Rooted(ordered=True)
    other = TopicRecord(stand.record.topic, ordered=False)
    stand.do(stand.other, stand.members[stand.other].create(other, stand.now))
    stand.run(2)
    answers = [e for _, e in stand.done if isinstance(e, RequestOutcome) and e.number is None]
    assert "another order" in answers[-1].problem


def test_an_ordered_event_is_confirmed_with_its_number_also_when_asked_again() -> None:
    stand = Rooted(ordered=True)
    stand.is_lost = lambda _, to, message: isinstance(message, Published) and to == stand.other
    stand.publish(b"news")
    stand.settle()
    stand.is_lost = lambda *_: False
    stand.run(3)
    stand.publish(b"more")
    stand.run(1)
    assert [answer.position for answer in stand.answers()] == [1, 2]


def test_the_log_of_an_ordered_topic_is_bounded_in_bytes_too() -> None:
    stand = Rooted(ordered=True, settings=RingSettings(buffer_bytes_max=100))
    for _ in range(10):
        stand.publish(b"x" * 30)
        stand.settle()
    group = stand.members[stand.root].roots.groups[stand.record.topic]
    assert (group.base, group.committed) == (8, 11)
    assert [answer.position for answer in stand.answers()] == list(range(1, 11))


def test_an_ordered_topic_begins_with_the_number_that_its_record_says() -> None:
    stand = Rooted(ordered=False)
    record = TopicRecord(stand.space.topic_id("u", "x"), ordered=True, first=700)
    member = stand.members[stand.other]
    stand.do(stand.other, member.create(record, stand.now))
    stand.run(1)
    stand.do(stand.other, member.subscribe(record.topic, stand.now, ordered=True))
    _, effects = member.publish(record.topic, b"news", stand.now, ordered=True)
    stand.do(stand.other, effects)
    stand.run(2)
    assert RequestOutcome(record.topic, 1, position=700) in [effect for _, effect in stand.done]


def test_nothing_is_left_of_a_topic_that_is_forgotten() -> None:
    stand = Rooted(ordered=True)
    stand.subscribe()
    stand.is_lost = lambda _, to, message: isinstance(message, RootPublication | Routed)
    number = stand.publish(b"news")
    for node, member in stand.members.items():
        stand.do(node, member.forget(stand.record.topic, stand.now))
    stand.settle()
    for member in stand.members.values():
        assert stand.record.topic not in member.roots.groups
        assert stand.record.topic not in member.tree.topics
    [answer] = stand.answers()
    assert answer.number == number
    assert "deleted" in answer.problem


def test_all_timers_keep_pace_with_the_heartbeat() -> None:
    fast = RingSettings().at_pace(100_000)
    assert (fast.heartbeat, fast.dead_after, fast.replicas) == (100_000, 600_000, 5)
    assert fast.at_pace(RingSettings().heartbeat) == RingSettings()


def test_a_record_is_let_go_of_only_when_its_root_has_shown_that_it_has_it() -> None:
    """Nodes that are closer to the topic come, and what is sent to them is lost."""
    stand = Rooted(ordered=False, settings=RingSettings(leaf_set_size=8, replicas=3))
    topic = stand.record.topic

    def holders() -> set[int]:
        return {name - topic for name, each in stand.members.items() if topic in each.roots.records}

    before = holders()
    assert len(before) == 3
    stand.is_lost = lambda one, to, message: isinstance(message, Replica)
    for distance in (1, 2, 3):
        stand.add(topic + distance)
    stand.run(60)
    assert holders() == before
    stand.is_lost = lambda *_: False
    stand.run(60)
    assert holders() == {1, 2, 3}


def test_a_root_that_is_given_a_record_has_it_copied_at_once() -> None:
    """Whoever gave it lets go of it soon."""
    stand = Rooted(ordered=False, settings=RingSettings(leaf_set_size=8, replicas=3))
    record = TopicRecord(stand.space.topic_id("other", "x"))
    root = stand.closest(record.topic)
    *_, farthest = sorted(stand.members, key=lambda name: stand.space.rank(record.topic, name))
    stand.do(farthest, [ToNode(root, Replica((record,)))])
    stand.settle()
    assert sum(record.topic in each.roots.records for each in stand.members.values()) == 3
