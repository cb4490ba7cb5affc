"""What is sent on a connection arrives in order or not at all, and both ends fall together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, Instant
from gapless.tree.connections import Connections, Reach
from gapless.tree.messages import Beat, Carried, SyncEnd, SyncSummary
from gapless.tree.settings import TreeSettings

if TYPE_CHECKING:
    from gapless.core.effects import Send

A, B = BrokerName("A"), BrokerName("B")
SETTINGS = TreeSettings(beat_every=10, patience=30)


class Pair:
    """Two ends and what is under way between them."""

    def __init__(self) -> None:
        self.now = Instant(1)
        self.ends = {A: Connections(1, SETTINGS), B: Connections(1, SETTINGS)}
        self.under_way: list[tuple[BrokerName, Send]] = []
        self.arrived: list[object] = []
        for name, other in ((A, B), (B, A)):
            self.post(name, self.ends[name].want([other], self.now))

    def post(self, sender: BrokerName, effects: list[Send]) -> None:
        self.under_way += [(sender, effect) for effect in effects]

    def deliver(self) -> None:
        """All that is under way, and what follows from it, arrives."""
        for _ in range(20):
            arriving, self.under_way = self.under_way, []
            for sender, send in arriving:
                self.arrive(sender, send)
            if not arriving:
                return
        raise AssertionError("they talk for ever")

    def arrive(self, sender: BrokerName, send: Send) -> None:
        end = self.ends[A if sender == B else B]
        if isinstance(send.message, Beat):
            self.post(A if sender == B else B, end.receive_beat(sender, send.message, self.now))
        else:
            assert isinstance(send.message, Carried)
            messages, beats = end.receive(sender, send.message)
            self.arrived += messages
            self.post(A if sender == B else B, beats)

    def pass_time(self, by: int, *, losing: bool = False) -> None:
        for _ in range(by // 10):
            self.now = Instant(self.now + 10)
            for name, end in self.ends.items():
                self.post(name, end.fire(self.now))
            if losing:
                self.under_way.clear()
            self.deliver()
            for end in self.ends.values():
                end.check()

    def reaches(self) -> tuple[Reach, Reach]:
        return self.ends[A].reach(B), self.ends[B].reach(A)


def connected() -> Pair:
    pair = Pair()
    pair.deliver()
    pair.pass_time(10)
    assert pair.reaches() == (Reach.UP, Reach.UP)
    return pair


def test_two_who_want_each_other_connect_and_stay_so() -> None:
    pair = connected()
    sessions = (pair.ends[A].session(B), pair.ends[B].session(A))
    pair.pass_time(200)
    assert (pair.ends[A].session(B), pair.ends[B].session(A)) == sessions


def test_silence_is_failure_and_an_answer_mends_it_on_new_sessions() -> None:
    pair = connected()
    before = pair.ends[A].session(B)
    pair.pass_time(40, losing=True)
    assert pair.reaches() == (Reach.FAILED, Reach.FAILED)
    assert pair.ends[A].send(B, (SyncEnd(),)) == []
    pair.pass_time(30)
    assert pair.reaches() == (Reach.UP, Reach.UP)
    assert pair.ends[A].session(B) > before


def test_one_who_never_answers_has_failed_and_one_not_wanted_is_idle() -> None:
    alone = Connections(1, SETTINGS)
    alone.want([B], Instant(1))
    assert alone.reach(B) is Reach.CONNECTING
    alone.fire(Instant(31))
    assert alone.reach(B) is Reach.FAILED
    alone.want([], Instant(32))
    assert alone.reach(B) is Reach.IDLE


def test_a_message_that_is_missing_ends_the_session_at_both_ends_before_the_next_beat() -> None:
    pair = connected()
    sessions = (pair.ends[A].session(B), pair.ends[B].session(A))
    first = pair.ends[A].send(B, (SyncSummary(),))
    assert first
    pair.post(A, pair.ends[A].send(B, (SyncEnd(),)))
    pair.deliver()
    assert pair.arrived == []
    assert pair.reaches() == (Reach.UP, Reach.UP)
    after = (pair.ends[A].session(B), pair.ends[B].session(A))
    assert after[0] > sessions[0]
    assert after[1] > sessions[1]


def test_a_last_message_that_is_missing_is_noticed_by_the_next_beat() -> None:
    pair = connected()
    before = pair.ends[B].session(A)
    pair.ends[A].send(B, (SyncEnd(),))
    pair.pass_time(10)
    assert pair.ends[B].session(A) > before


def test_a_message_that_comes_twice_or_of_a_former_session_is_dropped() -> None:
    pair = connected()
    old = pair.ends[A].send(B, (SyncEnd(),))
    pair.post(A, old)
    pair.deliver()
    pair.post(A, old)
    pair.deliver()
    assert pair.arrived == [SyncEnd()]
    pair.pass_time(40, losing=True)
    pair.pass_time(30)
    pair.post(A, old)
    pair.deliver()
    assert pair.arrived == [SyncEnd()]


def test_a_restarted_end_is_noticed_though_nobody_was_silent() -> None:
    pair = connected()
    before = pair.ends[A].session(B)
    pair.ends[B] = Connections(2, SETTINGS)
    pair.post(B, pair.ends[B].want([A], pair.now))
    pair.deliver()
    pair.pass_time(20)
    assert pair.reaches() == (Reach.UP, Reach.UP)
    assert pair.ends[A].session(B) > before


def test_two_who_do_not_want_each_other_any_more_fall_silent() -> None:
    pair = connected()
    for end in pair.ends.values():
        end.want([], pair.now)
    pair.post(A, [pair.ends[A]._beat(B)])  # one that was under way
    pair.deliver()
    pair.pass_time(40)
    assert pair.reaches() == (Reach.IDLE, Reach.IDLE)
