"""SpanSet against the dumb second implementation: a set of ticks."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.spans import SpanSet
from gapless.core.ticks import Span

LIMIT = 40

spans = st.tuples(st.integers(0, LIMIT - 1), st.integers(1, LIMIT)).map(
    lambda pair: Span(min(pair[0], pair[1] - 1), max(pair[0] + 1, pair[1]))
)
steps = st.lists(st.tuples(st.sampled_from(["add", "remove", "remove_below"]), spans), max_size=25)


def runs_of(ticks: set[int]) -> list[Span]:
    """The dumb way: neighbours share the difference between tick and position."""
    groups = groupby(enumerate(sorted(ticks)), lambda pair: pair[1] - pair[0])
    runs = [[tick for _, tick in group] for _, group in groups]
    return [Span(run[0], run[-1] + 1) for run in runs]


def play(script: list[tuple[str, Span]]) -> tuple[SpanSet, set[int]]:
    ours, dumb = SpanSet(), set[int]()
    for verb, span in script:
        match verb:
            case "add":
                ours.add(span)
                dumb |= set(range(span.start, span.end))
            case "remove":
                ours.remove(span)
                dumb -= set(range(span.start, span.end))
            case _:
                ours.remove_below(span.start)
                dumb -= set(range(span.start))
        ours.check()
    return ours, dumb


@given(steps)
def test_any_sequence_of_changes_leaves_what_a_set_of_ticks_holds(
    script: list[tuple[str, Span]],
) -> None:
    ours, dumb = play(script)
    assert list(ours) == runs_of(dumb)
    assert len(ours) == len(runs_of(dumb))
    assert ours.tick_count == len(dumb)
    assert [tick for tick in range(LIMIT + 2) if tick in ours] == sorted(dumb)


@given(steps, spans)
def test_every_question_about_a_span_has_the_dumb_answer(
    script: list[tuple[str, Span]], span: Span
) -> None:
    ours, dumb = play(script)
    asked = set(range(span.start, span.end))
    assert ours.covers(span) == (asked <= dumb)
    assert ours.overlaps(span) == bool(asked & dumb)
    assert list(ours.within(span)) == runs_of(asked & dumb)
    assert list(ours.missing(span)) == runs_of(asked - dumb)


@given(steps, st.integers(0, LIMIT + 5))
def test_every_question_about_a_tick_has_the_dumb_answer(
    script: list[tuple[str, Span]], tick: int
) -> None:
    ours, dumb = play(script)
    assert ours.first_missing(tick) == next(t for t in range(tick, LIMIT + 7) if t not in dumb)
    holes = {other for other in range(tick, max(dumb, default=0)) if other not in dumb}
    assert list(ours.gaps(tick)) == runs_of(holes)
    assert ours.run_at(tick) == next((run for run in runs_of(dumb) if tick in run), None)


@given(steps, steps)
def test_equal_sets_are_equal_however_they_came_about(
    script: list[tuple[str, Span]], other: list[tuple[str, Span]]
) -> None:
    (ours, dumb), (theirs, dumb_theirs) = play(script), play(other)
    assert (ours == theirs) == (dumb == dumb_theirs)
    union = ours.copy()
    union.update(theirs)
    assert list(union) == runs_of(dumb | dumb_theirs)
    union.difference_update(theirs)
    assert list(union) == runs_of(dumb - dumb_theirs)
    assert list(ours) == runs_of(dumb), "a copy has a life of its own"


def test_a_set_shows_its_runs_and_its_ends() -> None:
    ours = SpanSet([Span(3, 5), Span(5, 7), Span(9, 10)])
    assert repr(ours) == "SpanSet([3,7) [9,10))"
    assert (ours.start, ours.end) == (3, 10)
    ours.clear()
    assert not ours


def test_a_set_that_can_change_is_never_a_key() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(SpanSet())
