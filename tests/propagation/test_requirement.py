"""What a leaf requires of silence; and what a relay may answer with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.ticks import Span
from tests.propagation.requirement import (
    ABSOLUTE,
    STEPS_MAX,
    Doubt,
    Requirement,
    digest_of_answer,
    reaches,
)


def test_silence_below_what_has_started_is_doubted_from_there_on() -> None:
    requirement = Requirement("l")
    assert requirement.start("t/0", 10, 2) == 10
    assert requirement.start("t/0", 20, 5) == 20
    assert requirement.see("t/0", Span(5, 30), 1) == Doubt(Span(10, 30), {"l": 5})
    assert requirement.see("t/0", Span(5, 30), 2) == Doubt(Span(20, 30), {"l": 5})
    assert requirement.see("t/0", Span(12, 15), 1) == Doubt(Span(12, 15), {"l": 2})
    assert requirement.see("t/0", Span(5, 30), 5) is None
    assert requirement.see("t/1", Span(5, 30), 0) is None


def test_silence_of_an_unknown_vector_is_doubted_and_that_of_the_pubend_never() -> None:
    requirement = Requirement("l")
    assert requirement.see("t/0", Span(0, 5), None) is None  # nothing is required yet
    requirement.start("t/0", 10, 2)
    assert requirement.see("t/0", Span(10, 12), None) == Doubt(Span(10, 12), {"l": 2})
    assert requirement.see("t/0", Span(10, 12), ABSOLUTE) is None


def test_a_subscription_starts_behind_what_was_believed_without_it() -> None:
    requirement = Requirement("l")
    assert requirement.see("t/0", Span(15, 20), 1) is None
    assert requirement.start("t/0", 10, 2) == 20
    assert requirement.start("t/1", 10, 2) == 10
    assert requirement.see("t/0", Span(12, 25), 1) == Doubt(Span(20, 25), {"l": 2})


def test_what_is_doubted_was_not_believed() -> None:
    requirement = Requirement("l")
    requirement.start("t/0", 10, 2)
    assert requirement.see("t/0", Span(10, 20), 1) is not None
    assert requirement.start("t/0", 12, 3) == 12


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=20),
    st.tuples(st.integers(0, 30), st.integers(1, 8), st.integers(0, 9)),
)
def test_what_is_required_is_the_latest_start_of_all_that_have_started(
    started: list[tuple[int, int]], silence: tuple[int, int, int]
) -> None:
    requirement = Requirement("l")
    for tick, time in started:
        requirement.start("t/0", tick, time)
        requirement.check()
    for tick in range(40):
        wanted = max((time for place, time in started if place <= tick), default=0)
        assert requirement.at("t/0", tick) == wanted
    start, length, time = silence
    doubt = requirement.see("t/0", Span(start, start + length), time)
    doubted = [t for t in range(start, start + length) if requirement.at("t/0", t) > time]
    assert doubted == (list(range(doubt.span.start, doubt.span.end)) if doubt else [])


def test_beyond_the_kept_steps_more_is_required_of_old_ticks_and_not_less() -> None:
    requirement = Requirement("l")
    for number in range(1, STEPS_MAX + 10):
        requirement.start("t/0", 10 * number, number)
        requirement.check()
    for number in range(1, STEPS_MAX + 10):
        assert requirement.at("t/0", 10 * number) >= number
    assert requirement.at("t/0", 9) == 0


def test_a_relay_answers_with_silence_only_if_it_knows_that_it_reaches_the_minimum() -> None:
    assert reaches({"l": 2, "other": 1}, {"l": 2})
    assert not reaches({"l": 1}, {"l": 2})
    assert not reaches(None, {"l": 2})


def test_an_event_is_sent_in_any_case_but_past_all_filters_if_need_be() -> None:
    assert digest_of_answer(7, {"l": 2}, {"l": 2}) == 7
    assert digest_of_answer(7, {"l": 1}, {"l": 2}) == 0
    assert digest_of_answer(7, None, {"l": 2}) == 0
