"""The group of an ordered topic: nothing committed is lost, whoever leads, whoever comes back."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gapless.core.identity import Instant
from gapless.scribe.effects import Effect, ToNode
from gapless.scribe.group import TopicGroup
from gapless.scribe.identifiers import Identifier, NodeId, TopicId
from gapless.scribe.messages import (
    Accept,
    Ballot,
    Hint,
    LogAppend,
    Outvoted,
    Prepare,
    Seat,
    TopicRecord,
)
from gapless.scribe.settings import RingSettings

RECORD = TopicRecord(TopicId(Identifier(99)), "ann", ordered=True)
SETTINGS = RingSettings(lead_repeat=10)
SOURCE = Seat(NodeId(Identifier(50)), 1)


class Ensemble:
    """Groups of one topic at a few nodes; messages wait until they are let through, or are lost."""

    def __init__(self, count: int = 5) -> None:
        self.seats = [Seat(NodeId(Identifier(number)), 1) for number in range(1, count + 1)]
        self.groups = {seat.node: TopicGroup(RECORD, seat, SETTINGS) for seat in self.seats}
        self.waiting: list[tuple[NodeId, ToNode]] = []
        self.now = Instant(0)

    def __getitem__(self, number: int) -> TopicGroup:
        return self.groups[NodeId(Identifier(number))]

    def do(self, number: int, effects: list[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, ToNode)
            self.waiting.append((NodeId(Identifier(number)), effect))

    def lead(self, number: int, *seats: int) -> None:
        chosen = tuple(self.seats[index - 1] for index in seats)
        self.do(number, self[number].lead(chosen, self.now))

    def publish(self, number: int, sequence: int) -> None:
        self.do(number, self[number].publish(SOURCE, sequence, sequence, b"%d" % sequence))

    def pass_on(self, index: int = 0) -> None:
        sender, effect = self.waiting.pop(index)
        group = self.groups.get(effect.node)
        if group is not None:
            self.do(effect.node, group.receive(sender, effect.message, self.now))  # type: ignore[arg-type]
            group.check()

    def settle(self) -> None:
        for _ in range(10_000):
            if not self.waiting:
                return
            self.pass_on()
        raise AssertionError("it does not come to rest")

    def restart(self, number: int) -> None:
        """It comes back, and knows nothing."""
        old = self.seats[number - 1]
        self.seats[number - 1] = Seat(old.node, old.born + 1)
        self.groups[old.node] = TopicGroup(RECORD, self.seats[number - 1], SETTINGS)

    def bodies(self, number: int) -> list[bytes]:
        group = self[number]
        return [entry.body for _, entry in group.between(1, group.committed)]


def test_an_event_is_committed_when_a_majority_holds_it() -> None:
    five = Ensemble()
    five.lead(1, 1, 2, 3, 4, 5)
    five.settle()
    assert five[1].is_leader
    five.publish(1, 1)
    appends = [i for i, (_, e) in enumerate(five.waiting) if isinstance(e.message, LogAppend)]
    assert len(appends) == 4
    five.pass_on(0)
    five.pass_on(-1)
    assert five[1].committed == 1
    assert not five[1].has_published(SOURCE, 1)
    five.settle()
    assert five[1].committed == 2
    assert five[1].has_published(SOURCE, 1)


def test_a_new_leader_has_all_that_was_committed_and_the_old_one_commits_no_more() -> None:
    five = Ensemble()
    five.lead(1, 1, 2, 3)
    five.settle()
    five.publish(1, 1)
    five.settle()
    five[4].receive(NodeId(Identifier(2)), Hint(RECORD, five[2].newest), five.now)
    five.lead(4, 4, 5, 3)
    five.settle()
    assert five[4].is_leader
    assert five.bodies(4) == [b"1"]
    assert not five[1].is_leader
    assert five[1].lineup.seats == ()  # it was let go


def test_nobody_leads_without_a_majority_of_those_who_may_have_more() -> None:
    five = Ensemble()
    five.lead(1, 1, 2, 3)
    five.settle()
    five.publish(1, 1)
    five.settle()
    for number in (1, 2):
        five.restart(number)  # two of three have forgotten: the third alone must not go on
    five.lead(3, 3, 4, 5)
    five.settle()
    assert not five[3].is_leader
    assert five[3].is_campaigning


def test_one_that_came_back_does_not_vote_as_if_it_remembered() -> None:
    """Of three seats two hold the event; one of those two comes back empty. The third and it are no
    majority."""
    five = Ensemble()
    five.lead(1, 1, 2, 3)
    five.settle()
    five.do(1, five[1].publish(SOURCE, 1, 1, b"1"))
    five.waiting = [(a, e) for a, e in five.waiting if e.node != 3]
    five.settle()
    assert five[1].committed == 2
    five.restart(2)
    del five.groups[NodeId(Identifier(1))]
    five.lead(3, 3, 2, 4)
    five.settle()
    assert not five[3].is_leader


def test_a_repeated_publication_is_appended_once_and_an_early_one_waits() -> None:
    one = Ensemble(1)
    one.lead(1, 1)
    one.settle()
    assert one[1].publish(SOURCE, 2, 1, b"two") == []
    assert one[1].end == 1
    one[1].publish(SOURCE, 1, 1, b"one")
    one[1].publish(SOURCE, 1, 1, b"one")
    one[1].publish(SOURCE, 2, 1, b"two")
    assert one.bodies(1) == [b"one", b"two"]


def test_a_seat_that_lags_is_caught_up() -> None:
    five = Ensemble()
    five.lead(1, 1, 2, 3)
    five.settle()
    for sequence in range(1, 6):
        five.publish(1, sequence)
        five.waiting = [(a, e) for a, e in five.waiting if e.node != 3]
        five.settle()
    assert five[3].end == 1
    five.now = Instant(1_000)
    five.do(1, five[1].repeat(five.now))
    five.settle()
    assert five[3].end == 6


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_whatever_is_lost_or_late_committed_events_stay_in_one_order(seed: int) -> None:
    """Any node may try to lead, with any seats; messages come in any order, or not at all."""
    dice, five = random.Random(seed), Ensemble()
    five.lead(1, 1, 2, 3)
    five.settle()
    agreed: dict[int, bytes] = {}
    for sequence in range(1, 250):
        stir(five, dice, sequence)
        leaders = [group for group in five.groups.values() if group.is_leader]
        for group in leaders:
            for number, entry in group.between(1, group.committed):
                assert agreed.setdefault(number, entry.body) == entry.body
        newest = max(group.newest.ballot for group in five.groups.values())
        for group in leaders:
            if group.lineup.ballot == newest:  # others may not know better
                assert group.committed > max(agreed, default=0)


def stir(five: Ensemble, dice: random.Random, sequence: int) -> None:
    """Something happens."""
    choice = dice.random()
    if choice < 0.03:
        leader = dice.randint(1, 5)
        if five[leader].newest.seats:
            five.lead(leader, *dice.sample(range(1, 6), 3))
    elif choice < 0.10:
        for number in range(1, 6):
            if five[number].is_leader:
                five.publish(number, 10 * sequence + number)
    elif choice < 0.15 and five.waiting:
        five.waiting.pop(dice.randrange(len(five.waiting)))
    elif five.waiting:
        five.pass_on(dice.randrange(len(five.waiting)))
    else:
        five.now = Instant(five.now + 100)
        for number in range(1, 6):
            five.do(number, five[number].repeat(five.now))


def test_a_lesser_ballot_is_refused_and_told_the_greater() -> None:
    five = Ensemble()
    five.lead(1, 1, 2, 3)
    five.settle()
    stale = Prepare(RECORD, five[1].promised)
    five.lead(2, 1, 2, 3)
    five.settle()
    [refusal] = five[3].receive(NodeId(Identifier(1)), stale, five.now)
    assert isinstance(refusal, ToNode)
    assert refusal.message == Outvoted(RECORD.topic, five[2].promised)


def test_a_state_under_a_lesser_ballot_than_promised_is_not_taken() -> None:
    five = Ensemble()
    five.lead(1, 1, 2, 3)
    [(_, accept), *_] = [each for each in five.waiting if each[1].node == 2]
    assert isinstance(accept.message, Accept)
    five[2].receive(
        NodeId(Identifier(3)), Prepare(RECORD, Ballot(9, NodeId(Identifier(3)))), five.now
    )
    [refusal] = five[2].receive(NodeId(Identifier(1)), accept.message, five.now)
    assert isinstance(refusal, ToNode)
    assert refusal.message == Outvoted(RECORD.topic, Ballot(9, NodeId(Identifier(3))))
    assert five[2].lineup.seats == ()


def test_a_first_group_begins_when_most_of_its_seats_know_of_none() -> None:
    stand = Ensemble(3)
    stand.do(1, stand[1].begin(tuple(stand.seats), stand.now))
    assert [effect.message for _, effect in stand.waiting] == [Prepare(RECORD, Ballot())] * 2
    was_campaigning = stand[1].is_campaigning
    stand.pass_on()
    stand.pass_on(1)  # the answer of one of them
    assert (was_campaigning, stand[1].is_campaigning) == (False, True)
    stand.settle()
    assert stand[1].is_leader


def test_one_that_was_root_in_an_earlier_life_does_not_begin_another_group() -> None:
    stand = Ensemble(3)
    stand.lead(1, 1, 2, 3)
    stand.settle()
    stand.publish(1, 1)
    stand.settle()
    stand.restart(1)
    stand.do(1, stand[1].begin(tuple(stand.seats), stand.now))
    stand.settle()
    stand.now = Instant(100)
    assert stand[1].repeat(stand.now) == []
    assert not stand[1].is_campaigning
    stand.do(1, stand[1].receive(stand.seats[1].node, Hint(RECORD, stand[2].lineup), stand.now))
    stand.lead(1, 1, 2, 3)
    stand.settle()
    assert stand[1].is_leader
    assert stand.bodies(1) == [b"1"]


def test_unanswered_questions_about_a_group_are_repeated() -> None:
    stand = Ensemble(3)
    stand.do(1, stand[1].begin(tuple(stand.seats), stand.now))
    stand.waiting.clear()
    stand.now = Instant(20)
    stand.do(1, stand[1].repeat(stand.now))
    stand.settle()
    assert stand[1].is_leader
