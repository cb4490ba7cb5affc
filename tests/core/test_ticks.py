"""Ticks carry an instant and a pubend number, in order; spans are never empty."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.identity import Instant
from gapless.core.ticks import (
    INSTANT_MAX,
    PUBEND_COUNT_MAX,
    TICK_MAX,
    Span,
    Tick,
    instant_of,
    pubend_number_of,
    tick_at,
)

instants = st.integers(0, INSTANT_MAX).map(Instant)
numbers = st.integers(0, PUBEND_COUNT_MAX - 1)


@given(instants, numbers)
def test_a_tick_gives_back_its_instant_and_its_pubend(instant: Instant, number: int) -> None:
    tick = tick_at(instant, number)
    assert (instant_of(tick), pubend_number_of(tick)) == (instant, number)
    assert 0 <= tick <= TICK_MAX


@given(instants, numbers, instants, numbers)
def test_ticks_order_by_instant_and_never_collide(
    instant: Instant, number: int, other: Instant, other_number: int
) -> None:
    ours, theirs = tick_at(instant, number), tick_at(other, other_number)
    assert (ours < theirs) == ((instant, number) < (other, other_number))


def test_an_instant_or_a_pubend_out_of_range_has_no_tick() -> None:
    with pytest.raises(ValueError, match="pubend number 1024"):
        tick_at(Instant(0), PUBEND_COUNT_MAX)
    with pytest.raises(ValueError, match="instant -1"):
        tick_at(Instant(-1), 0)
    with pytest.raises(ValueError, match="instant"):
        tick_at(Instant(INSTANT_MAX + 1), 0)


@pytest.mark.parametrize(("start", "end"), [(5, 5), (6, 5), (-1, 3), (0, TICK_MAX + 2)])
def test_an_empty_or_impossible_span_cannot_be_made(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not a span"):
        Span(start, end)
    with pytest.raises(msgspec.ValidationError, match="not a span"):
        msgspec.convert([start, end], Span)


def test_a_span_is_half_open() -> None:
    span = Span(3, 6)
    assert [tick for tick in range(9) if tick in span] == [3, 4, 5]
    assert len(span) == 3
    assert str(span) == "[3,6)"
    assert Tick(TICK_MAX) in Span(0, TICK_MAX + 1)
