"""A group's machine: keys, members, what is in hand, what comes back, and progress."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from gapless.core.identity import ClientName, Instant, PubendName
from gapless.core.ticks import PUBEND_BITS
from gapless.node.groups.member_group import GroupLimits, Letter, MemberGroup

if TYPE_CHECKING:
    from gapless.node.groups.lane import GroupMember

P = PubendName("trades/0")
A, B, C = ((ClientName(name), 1) for name in "abc")
NOW = Instant(1_000)


def tick(number: int) -> int:
    return number << PUBEND_BITS


def make_group(
    *, events_max: int = 4, attempts_max: int = 0, fact: bytes | None = None
) -> MemberGroup:
    group = MemberGroup(GroupLimits(events_max, 1 << 20, 100, attempts_max), fact)
    group.begin({P: tick(1)})
    return group


def feed(group: MemberGroup, *events: tuple[int, object]) -> None:
    """Give events, each a number and a key, to the group."""
    ticks = [tick(number) for number, _ in events]
    encoded = [b"%d" % number for number, _ in events]
    group.receive(P, ticks, encoded, [key for _, key in events], ticks[-1] + 1)
    group.check()


def hand_out(group: MemberGroup, now: int = NOW) -> dict[str, list[int]]:
    """Who gets what: numbers of events, by the name of the member."""
    handed = group.hand_out(Instant(now))
    group.check()
    return {m.key[0]: [e.tick >> PUBEND_BITS for e in events] for m, events in handed}


def finish(group: MemberGroup, member: tuple[ClientName, int], *numbers: int) -> None:
    group.finish(member, P, [tick(number) for number in numbers])
    group.check()


def low(group: MemberGroup) -> int:
    return group.low()[P] >> PUBEND_BITS


def test_each_event_goes_to_one_member_and_a_key_stays_with_its_member() -> None:
    group = make_group()
    group.join(A)
    group.join(B)
    feed(group, (1, "x"), (2, "y"), (3, "x"), (4, "y"))
    assert hand_out(group) == {"a": [1, 3], "b": [2, 4]}
    finish(group, A, 1, 3)
    finish(group, B, 2, 4)
    feed(group, (5, "y"), (6, "x"))
    assert hand_out(group) == {"a": [6], "b": [5]}


def test_a_member_gets_no_more_than_it_may_have_in_hand() -> None:
    group = make_group(events_max=2)
    group.join(A)
    feed(group, (1, "x"), (2, "y"), (3, "x"))
    assert hand_out(group) == {"a": [1, 2]}
    finish(group, A, 2)
    assert hand_out(group) == {"a": [3]}


def test_events_without_a_key_go_to_any_member_with_room() -> None:
    group = make_group(events_max=2)
    group.join(A)
    group.join(B)
    feed(group, *((number, None) for number in range(1, 6)))
    handed = hand_out(group)
    assert sorted(len(numbers) for numbers in handed.values()) == [2, 2]
    finish(group, B, handed["b"][0])
    assert hand_out(group) == {"b": [5]}


def test_the_low_water_mark_waits_for_the_first_unfinished_event() -> None:
    group = make_group()
    group.join(A)
    feed(group, (1, "x"), (2, "y"), (3, "z"))
    hand_out(group)
    finish(group, A, 2, 3)
    assert low(group) == 1
    assert group.take_passed() == 0
    finish(group, A, 1)
    assert low(group) == 3  # everything through event 3
    assert group.low()[P] == tick(3) + 1
    assert group.take_passed() == 3


def test_a_key_moves_only_when_nothing_of_it_is_in_hand() -> None:
    group = make_group()
    group.join(A)
    feed(group, (1, "x"), (2, "y"))
    hand_out(group)
    group.join(B)  # gets one of the two keys
    feed(group, (3, "x"), (4, "y"))
    assert hand_out(group) == {"a": [3]}
    finish(group, A, 2)
    assert hand_out(group) == {"b": [4]}


def test_what_a_lost_member_had_goes_to_another_in_order() -> None:
    group = make_group()
    group.join(A)
    feed(group, (1, "x"), (2, "x"), (3, "y"))
    hand_out(group)
    finish(group, A, 1)
    group.leave(A, is_lost=True)
    group.check()
    group.join(B)
    feed(group, (4, "x"))
    handed = hand_out(group)["b"]
    assert [number for number in handed if number in (2, 4)] == [2, 4]
    assert sorted(handed) == [2, 3, 4]


def test_a_rejected_event_holds_its_key_for_the_delay() -> None:
    group = make_group()
    group.join(A)
    feed(group, (1, "x"), (2, "x"), (3, "y"))
    hand_out(group)
    group.reject(A, P, [tick(1)], until=Instant(NOW + 50))
    group.reject(A, P, [tick(2)], counts=False)
    group.check()
    assert hand_out(group) == {}
    assert group.deadline == NOW + 50
    assert hand_out(group, NOW + 50) == {"a": [1, 2]}


def test_nothing_of_a_key_is_handed_out_until_what_came_back_is_alone() -> None:
    group = make_group()
    group.join(A)
    feed(group, (1, "x"), (2, "x"))
    hand_out(group)
    group.reject(A, P, [tick(1)])
    assert hand_out(group) == {}, "2 is still in hand"
    finish(group, A, 2)
    assert hand_out(group) == {"a": [1]}


def test_an_event_that_was_tried_too_often_dies_and_its_key_waits() -> None:
    group = make_group(attempts_max=2)
    group.join(A)
    feed(group, (1, "x"), (2, "x"))
    for _ in range(2):
        hand_out(group)
        group.reject(A, P, [tick(1)], reason="no")
        group.reject(A, P, [tick(2)], counts=False)
        group.check()
    (dying,) = group.dying
    assert dying.tick == tick(1)
    assert group.attempts(dying) == (2, "no")
    assert hand_out(group) == {}
    group.address(Letter(P, tick(1), 0))
    group.bury(dying)
    group.check()
    assert hand_out(group) == {"a": [2]}
    finish(group, A, 2)
    assert low(group) == 2


def test_a_restart_goes_on_from_the_fact_and_passes_over_what_is_finished() -> None:
    group = make_group()
    group.join(A)
    feed(group, (1, "x"), (2, "y"), (3, "x"), (4, "z"))
    hand_out(group)
    finish(group, A, 2, 4)
    group.reject(A, P, [tick(3)], reason="later")
    again = make_group(fact=group.encode())
    assert low(again) == 1
    again.join(B)
    feed(again, (1, "x"), (2, "y"), (3, "x"), (4, "z"), (5, "y"))
    assert hand_out(again) == {"b": [1, 5, 3]}
    assert [each.number for each in again.progress[P].attempts.values()] == [1]
    finish(again, B, 1, 3)
    assert low(again) == 5


def test_a_group_without_members_forgets_what_is_open_and_gets_it_again() -> None:
    group = make_group()
    group.join(A)
    feed(group, (1, "x"), (2, "y"))
    hand_out(group)
    finish(group, A, 2)
    group.leave(A, is_lost=False)
    group.suspend()
    group.check()
    group.begin(group.low())
    group.join(B)
    feed(group, (1, "x"), (2, "y"), (3, "y"))
    assert hand_out(group) == {"b": [1, 3]}


def test_keys_that_are_not_used_are_forgotten_beyond_the_limit() -> None:
    group = MemberGroup(GroupLimits(4, 1 << 20, 2))
    group.begin({P: tick(1)})
    group.join(A)
    for number in range(1, 10):
        feed(group, (number, f"key {number}"))
        hand_out(group)
        finish(group, A, number)
    assert len(group.members[A].keys) == 2


class Play:
    """A group that is fed, and whose members do what the dice say."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.group = make_group(events_max=3)
        self.now = 1_000
        self.sent: list[tuple[int, object]] = []
        self.finished: dict[object, list[int]] = defaultdict(list)
        self.names = [(ClientName(f"m{number}"), number) for number in range(6)]
        self.group.join(self.names[0])

    def step(self) -> None:
        self.now += self.dice.randrange(20)
        actions = self.feed, self.join, self.leave, self.finish, self.finish, self.reject
        (self.restart if self.dice.random() < 0.03 else self.dice.choice(actions))()
        self.group.check()
        hand_out(self.group, self.now)

    def member(self) -> GroupMember:
        return self.dice.choice(list(self.group.members.values()))

    def feed(self) -> None:
        keys = [None, "x", "y", "z", 1, 1.0]
        count = self.dice.randrange(1, 5)
        new = [(len(self.sent) + 1 + i, self.dice.choice(keys)) for i in range(count)]
        self.sent += new
        feed(self.group, *new)

    def join(self) -> None:
        if free := [each for each in self.names if each not in self.group.members]:
            self.group.join(self.dice.choice(free))

    def leave(self) -> None:
        if len(self.group.members) > 1:
            self.group.leave(self.member().key, is_lost=self.dice.random() < 0.5)

    def finish(self) -> None:
        self.finish_some(self.member(), self.dice.randrange(3))

    def finish_some(self, member: GroupMember, count: int) -> None:
        for event in list(member.in_hand.values())[:count]:
            self.finished[event.lane.key].append(event.tick)
            finish(self.group, member.key, event.tick >> PUBEND_BITS)

    def reject(self) -> None:
        member = self.member()
        if not member.in_hand:
            return
        first, *others = member.in_hand.values()
        rest = [each.tick for each in others if each.lane is first.lane]
        until = Instant(self.now + self.dice.randrange(30))
        self.group.reject(member.key, P, [first.tick], until=until)
        self.group.reject(member.key, P, rest, counts=False)

    def restart(self) -> None:
        self.group = make_group(events_max=3, fact=self.group.encode())
        self.group.join(self.names[0])
        if self.sent:
            feed(self.group, *self.sent)

    def end(self) -> None:
        while self.group.open_count:
            self.now += 100
            hand_out(self.group, self.now)
            for member in self.group.members.values():
                self.finish_some(member, 3)


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_every_event_is_finished_once_and_keys_are_in_order(seed: int) -> None:
    play = Play(seed)
    for _ in range(400):
        play.step()
    play.end()
    ticks = [each for some in play.finished.values() for each in some]
    assert sorted(ticks) == [tick(number) for number, _ in play.sent]
    for key, some in play.finished.items():
        assert key is None or some == sorted(some)
