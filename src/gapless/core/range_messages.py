"""The messages by which a client reads what is in the log: a range, once, without a subscription.

A range is read in steps; each answer says what it has covered, and the client asks on from there.
What was released is told (`lost_below`), never skipped.
"""

from __future__ import annotations

from gapless.core.events import NO_EVENTS, EventBatch, EventRun
from gapless.core.identity import PubendName, TopicName
from gapless.core.lengths import Address, AnyCount, Condition, LongName
from gapless.core.messages import Message
from gapless.core.ticks import Span


class ReadRange(Message, frozen=True):
    """Everything of the span that matches, in the order of ticks; `events_max` of 0: no limit.
    `whole`: the client accepts a run of events as the answer.

    With a `stride` the client wants no events: only how many match, and the tick of each
    `stride`-th match. `phase`: how many matches it has counted since the last such tick."""

    topic: TopicName
    request: int
    pubend: PubendName
    span: Span
    condition: Condition = ""
    events_max: int = 0
    whole: bool = False
    stride: AnyCount = 0
    phase: AnyCount = 0

    def __post_init__(self) -> None:
        if self.events_max < 0:
            raise ValueError("a limit is not below 0")
        if self.phase and self.phase >= self.stride:
            raise ValueError("a phase is below its stride")


class RangeRead(Message, frozen=True):
    """All that matches in `span`, which begins where it was asked for. None: nothing there is
    settled yet. `more`: the rest of what was asked for can be read now. Where everything matches
    and the client takes it, the events are in `run`."""

    request: int
    pubend: PubendName
    span: Span | None = None
    ticks: tuple[int, ...] = ()
    events: EventBatch = NO_EVENTS
    lost_below: int = 0  # of the span, what is below this tick is gone
    more: bool = False
    run: EventRun | None = None
    count: AnyCount | None = None  # of matches, if the client wanted no events

    def __post_init__(self) -> None:
        if self.count is None and len(self.ticks) != len(self.events):
            raise ValueError("each event that was read has a tick")


class PositionsQuery(Message, frozen=True):
    """From where to where can the pubends of a topic be read? Or this one alone?"""

    topic: TopicName
    request: int
    pubend: PubendName | None = None


class Positions(Message, frozen=True):
    """For each pubend hosted here: events below the first tick are gone, those below the second are
    settled. For each other pubend: the broker that hosts it."""

    request: int
    here: dict[LongName, tuple[int, int]]
    elsewhere: dict[LongName, Address] = {}  # noqa: RUF012 - msgspec makes a new one for each


RangeRequest = ReadRange | PositionsQuery
