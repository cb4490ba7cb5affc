"""Many single events in one message: what it says, and what it does not."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.effects import Append
from gapless.knowledge.answers import fetch, gather
from gapless.testing.checkers.nack_fan_in import apart
from gapless.testing.memory_volume import MemoryVolume
from tests.knowledge.host import Host
from tests.knowledge.notation import knowledge, make_relay
from tests.knowledge.relay_steps import ask, tell

LIMITS = (100, 10_000)
SINGLES = "[1,2) [5,6) [9,10) catching-up"
ANSWER = "[1,10) D1 D5 D9 asked scattered catching-up"


# --- out of a log ---------------------------------------------------------------------------------


def test_what_is_fetched_is_there_or_not_and_no_more_than_fits_with_one_beyond() -> None:
    volume = MemoryVolume()
    volume.commit([Append("log", (1, 5, 9), (b"one", b"five", b"nine"))])
    assert fetch(volume, "log", [1, 2, 5, 9]) == [b"one", None, b"five", b"nine"]
    assert fetch(volume, "log", [1, 2, 5, 9], bytes_max=5) == [b"one", None, b"five"]
    assert fetch(volume, "log", [1, 5], bytes_max=0) == [b"one"]


# --- one message for many -------------------------------------------------------------------------


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.integers(1, 9))
def test_gathered_answers_say_what_they_said_apart(
    events: set[int], silent: set[int], count_max: int
) -> None:
    answers = [
        knowledge(f"[{t},{t + 1}){f' D{t}' * (t in events)} asked catching-up")
        for t in sorted(events | silent)
    ]
    gathered = gather(answers, (count_max, 10_000))
    again = [single for each in gathered for single in apart(each)]
    assert sorted(again, key=lambda each: each.span) == answers
    assert all(len(each.ticks) <= count_max for each in gathered)
    some = [each for each in gathered if each.scattered]
    assert all(left.span.end <= right.span.start for left, right in pairwise(some))
    if len(events) > 1:
        assert len(some) == -(-len(events) // count_max)


@pytest.mark.parametrize(
    "text",
    [
        "[1,2) asked catching-up",
        "[1,4) D1 D2 asked catching-up",
        "[1,2) D1 asked",
        "[1,2) D1 asked whole",
        "[1,2) lost<2 asked catching-up",
    ],
)
def test_only_events_at_single_ticks_for_who_catches_up_are_gathered(text: str) -> None:
    answers = [knowledge(text), knowledge("[7,8) D7 asked catching-up")]
    assert gather(answers, LIMITS) == answers


@pytest.mark.parametrize("also", ["", "asked more", "asked lost<2", "asked final<2"])
def test_scattered_events_are_an_answer_and_say_nothing_else(also: str) -> None:
    with pytest.raises(ValueError, match="scattered"):
        knowledge(f"[1,6) D5 {also} scattered")


# --- from the pubend ------------------------------------------------------------------------------


def ask_pubend(count: int, **limits: Any) -> list[str]:
    """The shape of the answers to a question for every other of six events, and one more tick."""
    host = Host(**limits)
    host.publish(*"abcdef", now=10)
    host.sync_all(now=10)
    [news] = host.known
    host.known.clear()
    wanted = news.ticks[::2][:count]
    text = " ".join(f"[{tick},{tick + 1})" for tick in [wanted[0] - 7, *wanted])
    host.ask(f"{text} catching-up")
    assert [tick for each in host.known for tick in each.ticks] == list(wanted)
    return [f"{len(each.ticks)}{' scattered' * each.scattered}" for each in host.known]


def test_a_pubend_answers_a_question_for_single_ticks_with_one_message() -> None:
    assert ask_pubend(3) == ["3 scattered", "0"]


def test_scattered_answers_are_bounded_like_any_message() -> None:
    assert ask_pubend(3, batch_events_max=2) == ["2 scattered", "1 scattered", "0"]


# --- through a relay ------------------------------------------------------------------------------


def test_scattered_events_go_on_as_one_message_to_who_asked() -> None:
    machine = make_relay("red", "all")
    assert ask(machine, "all", SINGLES) == [f"above: nack {SINGLES}"]
    assert tell(machine, ANSWER) == [f"*all1: {ANSWER}"]
    assert machine.questions.open_questions == {}


def test_of_scattered_events_each_gets_what_he_asked_for() -> None:
    machine = make_relay("red", "all")
    ask(machine, "all", "[1,2) [5,6) catching-up")
    ask(machine, None, "[5,6) [9,10) catching-up", asker="sibling")
    assert tell(machine, ANSWER) == [
        "*all1: [1,6) D1 D5 asked scattered catching-up",
        "*sibling: [5,10) D5 D9 asked scattered catching-up",
    ]


def test_of_ticks_between_scattered_events_nothing_is_known() -> None:
    machine = make_relay("all")
    ask(machine, "all", "[0,10) catching-up")
    assert tell(machine, ANSWER) == [f"*all1: {ANSWER}"]
    assert ask(machine, "all", "[0,10)") == ["above: nack [0,10)"]
    assert tell(machine, "[0,1) asked catching-up") == [
        "*all1: [0,1) asked",
        "*all1: [0,1) asked catching-up",
    ]


def test_what_does_not_pass_the_edge_is_silence_at_its_tick_alone() -> None:
    machine = make_relay("red")
    ask(machine, "red", SINGLES)
    assert tell(machine, "[1,10) D1:red D5 D9:red asked scattered catching-up") == [
        "*red1: [1,10) D1:red D9:red asked scattered catching-up",
        "*red1: [5,6) asked catching-up",
    ]


def test_for_delivery_scattered_events_are_answers_of_their_own() -> None:
    machine = make_relay("red")
    ask(machine, "red", "[0,7)")
    assert tell(machine, "[1,10) D1:red D5 D9:red asked scattered catching-up") == [
        "*red1: [1,2) D1:red asked",
        "*red1: [5,6) asked",
    ]
    [(_, wanted, _)] = machine.questions.open_questions.values()
    assert str(wanted) == "SpanSet([0,1) [2,5) [6,7))"


def test_who_needs_everything_is_not_answered_with_what_may_be_filtered() -> None:
    machine = make_relay("all")
    ask(machine, "all", "[0,10) whole")
    assert tell(machine, ANSWER) == []
    assert machine.questions.open_questions


def test_cached_events_at_single_ticks_are_one_answer() -> None:
    machine = make_relay("all")
    tell(machine, "[0,10) D1 D5 D9")
    assert ask(machine, "all", f"[0,1) {SINGLES}") == [
        f"*all1: {ANSWER}",
        "*all1: [0,1) asked catching-up",
    ]


def test_what_was_answered_may_be_asked_for_again_at_once() -> None:
    machine = make_relay("red", "all")
    ask(machine, "all", SINGLES)
    assert ask(machine, "red", "[5,6) catching-up") == []
    tell(machine, ANSWER)
    assert ask(machine, "red", "[4,6) catching-up") == ["above: nack [4,6) catching-up"]
