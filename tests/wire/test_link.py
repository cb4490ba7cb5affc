"""One end of a link: what it takes before and after the Hello, and how long it waits for what."""

from __future__ import annotations

from math import inf

import pytest

from gapless.core.client_messages import Done
from gapless.core.errors import AccessError, ProtocolError, WireError
from gapless.core.identity import BrokerName
from gapless.core.messages import Goodbye, Hello, Ping, Pong
from gapless.wire.framing import frame
from gapless.wire.kinds import codec
from gapless.wire.link import (
    TRANSITIONS,
    DropLink,
    EndLink,
    KeepAlive,
    LinkMachine,
    LinkPhase,
    PeerLeft,
    PeerOpened,
    SendOnLink,
    goodbye,
)

NEWS = Done(7)
LOOKS = KeepAlive(look_s=2.0, looks_max=3)


def machine(**limits: float) -> LinkMachine:
    return LinkMachine(Hello(), 0.0, **limits)  # type: ignore[arg-type]


def opened(**limits: float) -> LinkMachine:
    link = machine(**limits)
    assert link.receive(Hello()) == PeerOpened(Hello())
    return link


def fired(link: LinkMachine) -> object:
    """What the machine wants at its next deadline."""
    return link.fire(link.deadline)


# --- Hello ---------------------------------------------------------------------------------------


def test_messages_are_handed_over_from_the_hello_on() -> None:
    link = machine()
    with pytest.raises(WireError, match="first message is no Hello"):
        link.receive(NEWS)
    hello = Hello(sender=BrokerName("b"))
    assert link.receive(hello) == PeerOpened(hello)
    assert link.receive(NEWS) is NEWS


@pytest.mark.parametrize("early", [Ping(1), Pong(1)])
def test_a_ping_before_the_hello_is_refused(early: Ping | Pong) -> None:
    with pytest.raises(WireError, match="first message is no Hello"):
        machine().receive(early)


def test_ends_without_a_common_version_do_not_open() -> None:
    link = machine()
    with pytest.raises(WireError, match="no common protocol version"):
        link.receive(Hello(version=9, version_min=9))
    assert link.phase is LinkPhase.OPENING


def test_a_second_hello_is_refused() -> None:
    with pytest.raises(ProtocolError, match="second Hello"):
        opened().receive(Hello())


def test_a_hello_that_does_not_come_in_time_ends_the_link_with_a_reason() -> None:
    link = machine(hello_s=5.0)
    assert link.fire(4.9) is None
    due = fired(link)
    assert isinstance(due, EndLink)
    assert "no Hello came within 5 s" in str(due.error)


def test_after_the_hello_nobody_waits_for_one() -> None:
    assert opened(hello_s=5.0).deadline == inf


def test_a_hello_is_said_once() -> None:
    link = machine()
    assert link.greet() == Hello()
    with pytest.raises(AssertionError):
        link.greet()


# --- frames --------------------------------------------------------------------------------------


LONG = frame(b"x" * 200)[:50]


def test_a_long_frame_is_refused_before_the_hello() -> None:
    link = machine(hello_bytes_max=100)
    assert link.feed(LONG, 0.0) == []
    assert "200 bytes is announced" in str(link.unframer.error)


def test_a_long_frame_behind_a_message_that_is_no_hello_is_refused_too() -> None:
    link = machine(hello_bytes_max=100)
    assert len(link.feed(frame(b"\x81\xa4kind\xa4news") + LONG, 0.0)) == 1
    with pytest.raises(WireError, match="200 bytes is announced before a Hello"):
        link.begin_frame(0.0)


def test_a_long_frame_is_welcome_after_the_hello() -> None:
    link = machine(hello_bytes_max=100)
    assert len(link.feed(bytes(codec().frames([Hello()])), 0.0)) == 1
    link.receive(Hello())
    assert link.feed(LONG, 0.0) == []
    link.begin_frame(0.0)
    assert link.unframer.error is None


def test_good_frames_come_out_before_the_error_behind_them() -> None:
    link = opened()
    assert len(link.feed(frame(b"good") + b"\xff" * 20, 0.0)) == 1
    assert link.unframer.error is not None
    assert link.feed(frame(b"good"), 0.0) == []


def test_a_frame_has_to_become_whole_in_time() -> None:
    link = opened(frame_s=60.0)
    link.feed(frame(b"x" * 100)[:50], 1.0)
    link.begin_frame(1.0)
    link.feed(frame(b"x" * 100)[50:60], 50.0)
    link.begin_frame(50.0)  # the time counts from its first byte
    assert link.deadline == 61.0
    due = fired(link)
    assert isinstance(due, EndLink)
    assert "60 bytes of a frame of 100 came within 60 s" in str(due.error)


def test_a_frame_that_became_whole_gives_the_next_one_its_own_time() -> None:
    whole = frame(b"x" * 100)
    link = opened(frame_s=60.0)
    link.feed(whole[:50], 0.0)
    link.begin_frame(0.0)
    link.feed(whole[50:] + whole[:50], 59.0)
    assert fired(link) is None
    assert link.deadline == 120.0
    link.feed(whole[50:], 61.0)
    assert fired(link) is None, "nothing is begun"
    assert link.deadline == inf


def test_an_end_that_did_not_read_does_not_blame_the_other() -> None:
    link = opened(frame_s=60.0)
    link.feed(frame(b"x" * 100)[:50], 0.0)
    link.begin_frame(0.0)
    assert link.fire(60.0, could_read=False) is None
    assert link.deadline == 120.0


# --- keep-alive ----------------------------------------------------------------------------------


def test_a_silent_end_is_pinged_and_then_given_up() -> None:
    link = opened()
    link.keep_alive(LOOKS, 0.0)
    link.feed(b"", 1.0)
    assert fired(link) is None
    assert [fired(link), fired(link)] == [SendOnLink(Ping(1)), SendOnLink(Ping(2))]
    assert fired(link) == DropLink("nothing came for 6 s")
    assert link.deadline == inf


def test_any_byte_counts_as_alive() -> None:
    """A peer that works for long answers pings meanwhile, or is in the middle of a long frame."""
    link = opened()
    link.keep_alive(LOOKS, 0.0)
    for _ in range(20):
        assert fired(link) is None
        assert fired(link) == SendOnLink(Ping(1))
        link.feed(b"\0", link.deadline - 0.5)


def test_a_process_that_stood_still_counts_one_look() -> None:
    link = opened()
    link.keep_alive(LOOKS, 0.0)
    assert fired(link) is None
    assert link.fire(1_000.0) == SendOnLink(Ping(1))
    assert link.deadline == 1_002.0


def test_a_link_to_be_kept_pings_at_every_look() -> None:
    link = opened()
    link.keep_alive(KeepAlive(2.0, 3, ping_after=0), 0.0)
    for _ in range(5):
        link.feed(b"", link.deadline)
        assert fired(link) == SendOnLink(Ping(0))


def test_an_end_may_be_watched_without_pings() -> None:
    link = opened()
    link.keep_alive(KeepAlive(2.0, 2, ping_after=None), 0.0)
    assert [fired(link), fired(link)] == [None, None]
    assert isinstance(fired(link), DropLink)


def test_pings_are_answered_and_pongs_are_dropped() -> None:
    link = opened()
    assert link.receive(Ping(3)) == SendOnLink(Pong(3))
    assert link.receive(Pong(3)) is None


def test_heartbeats_of_the_application_are_handed_over() -> None:
    link = opened()
    link.keep_alive(KeepAlive(2.0, 3, ping_after=None, has_heartbeats=True), 0.0)
    assert link.receive(Ping(3)) == Ping(3)
    assert link.receive(Pong(3)) == Pong(3)


# --- the end -------------------------------------------------------------------------------------


def test_a_goodbye_is_told_before_and_after_the_hello() -> None:
    said = Goodbye("no room", "Try another broker.")
    assert machine().receive(said) == PeerLeft(said)
    assert opened().receive(said) == PeerLeft(said)


def test_a_goodbye_says_why_and_whether_to_come_back() -> None:
    assert goodbye(ProtocolError("no", "Wait.")) == Goodbye("no", "Wait.")
    assert goodbye(AccessError("no", "Ask.")) == Goodbye("no", "Ask.", final=True)


def test_a_link_that_closes_is_gone_in_time_and_looks_no_more() -> None:
    link = opened(frame_s=60.0)
    link.keep_alive(LOOKS, 0.0)
    link.feed(frame(b"x")[:5], 0.0)
    link.begin_frame(0.0)
    link.close(1.0, 100.0)
    assert link.is_over
    assert link.deadline == 101.0
    link.close(2.0, 1.0)
    link.keep_alive(KeepAlive(0.5, 3), 2.0)
    assert link.deadline == 3.0
    assert isinstance(fired(link), DropLink)


def test_a_denial_is_told_after_its_delay() -> None:
    link, error = opened(), AccessError("no", "Ask.")
    link.deny(error, 1.0, 2.0)
    assert link.is_over
    assert link.fire(2.9) is None
    assert fired(link) == EndLink(error)
    link.close(3.0, 1.0)
    assert link.phase is LinkPhase.CLOSING


def test_no_phase_is_entered_twice_but_the_last() -> None:
    assert set(TRANSITIONS) == set(LinkPhase)
    assert [each for each in LinkPhase if each in TRANSITIONS[each]] == [LinkPhase.CLOSING]
    assert all(LinkPhase.CLOSING in after for after in TRANSITIONS.values())
