"""Ticks: the time line of a pubend, and half-open spans of it.

Theory of operation
    A tick is a 64-bit integer, `(microseconds << 10) | pubend number`: the low bits keep two
    pubends of a topic from ever sharing a tick, so that a total order over them has no ties.
    Spans are half-open, `[start, end)`, everywhere.

Invariants
    I1  0 <= tick <= TICK_MAX
    I2  a span is never empty: start < end

Source: Bhola et al., DSN 2002, sec. 2.2 (time line, low-order bits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NewType

import msgspec

from gapless.core.identity import Instant

if TYPE_CHECKING:
    from collections.abc import Mapping

Tick = NewType("Tick", int)

PUBEND_BITS = 10
PUBEND_COUNT_MAX = 1 << PUBEND_BITS
"""How many pubends one topic may have."""

TICK_MAX = (1 << 63) - 1
"""The largest tick: what fits a signed 64-bit integer, as Spark and Arrow want it."""

AnyTick = Annotated[int, msgspec.Meta(ge=0, le=TICK_MAX)]
"""A tick as a peer sends it: the decoder refuses what is none."""

INSTANT_MAX = TICK_MAX >> PUBEND_BITS
"""The last instant that has ticks: in the year 2255."""

CLOCK_MAX = INSTANT_MAX - 5 * 365 * 24 * 3_600 * 1_000_000
"""A clock beyond this instant, in the year 2250, is not believed: it is taken to stand still there.
So a clock that is wrong for a moment leaves ticks for all that is published later."""

AHEAD_MAX = 10_000_000 << PUBEND_BITS
"""How far a position may be ahead of what is known of its pubend, and still be believed: clocks of
brokers differ, and so do pubends of one topic that is read in total order."""


def tick_at(instant: Instant, pubend_number: int) -> Tick:
    """The tick that this pubend has at this instant."""
    if not 0 <= pubend_number < PUBEND_COUNT_MAX:
        raise ValueError(f"pubend number {pubend_number} is not in 0..{PUBEND_COUNT_MAX - 1}")
    if not 0 <= instant <= INSTANT_MAX:
        raise ValueError(f"instant {instant} is not in 0..{INSTANT_MAX}")
    return Tick(instant << PUBEND_BITS | pubend_number)


def check_ticks(token: Mapping[str, int]) -> None:
    """`ValueError` if these are no positions."""
    for tick in token.values():
        if not 0 <= tick <= TICK_MAX:
            raise ValueError(f"{tick} is no tick: 0 <= tick < 2^63")


def instant_of(tick: Tick) -> Instant:
    return Instant(tick >> PUBEND_BITS)


def pubend_number_of(tick: Tick) -> int:
    return tick & (PUBEND_COUNT_MAX - 1)


class Span(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """The ticks from `start` up to, but without, `end`. Never empty."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end <= TICK_MAX + 1:
            raise ValueError(f"[{self.start},{self.end}) is not a span: 0 <= start < end <= 2^63")

    def __contains__(self, tick: int) -> bool:
        return self.start <= tick < self.end

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"[{self.start},{self.end})"
