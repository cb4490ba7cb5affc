"""Subend: one pubend's stream, turned into gapless in-order delivery at one broker.

Theory of operation
    `horizon` is the doubt horizon: the first tick not yet known. Everything before it may be taken,
    in order; what lies beyond waits. A gap is something unknown before something seen. The subend
    asks for a gap that outlasts `gap_patience`, again after `nack_repeat`, and doubles that wait
    while nothing comes. The caller takes what is settled when it likes (`take`). What waits is
    bounded: beyond `waiting_events_max` the subend forgets the newest, and asks for it when there
    is room. If an answer says that there is more, the next question follows at once. But once
    something was forgotten, questions wait for their time; otherwise they would never end.

Invariants (checked by `check`)
    I1  taken <= horizon <= seen; none of them moves back
    I2  at most `waiting_events_max` events wait, and `waiting_bytes_max` bytes
    I3  while something seen is unknown, there is a deadline

Source: DSN 2002, sec. 2.3 (subends, doubt horizon); docs/protocols/exactly-once.md, 4.4.
As in the paper, the horizon is exclusive: the first tick still in doubt.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.broker_messages import Knowledge, Nack
from gapless.core.identity import Instant
from gapless.core.spans import SpanSet
from gapless.core.ticks import Span
from gapless.knowledge.batch import cut
from gapless.knowledge.stream import KnowledgeStream

if TYPE_CHECKING:
    from gapless.core.identity import PubendName
    from gapless.knowledge.timing import KnowledgeTiming


class Settled(NamedTuple):
    """What a caller takes: events by tick, and lost spans; everything else is silence."""

    ticks: list[int]
    events: list[bytes]
    lost: list[tuple[PubendName, Span]]


class Subend:
    """The receiving end of one pubend. Sans-IO: see the module docstring."""

    def __init__(self, pubend: PubendName, start: int, timing: KnowledgeTiming) -> None:
        self.pubend = pubend
        self.timing = timing
        self.stream = KnowledgeStream(start)
        self.taken = start
        self.horizon = start
        self.seen = start
        self._lost = SpanSet()
        self._new_gaps: deque[tuple[Instant, Span]] = (
            deque()
        )  # not asked for yet, with the time to ask
        self._open_spans = SpanSet()  # asked for at least once, or waiting for room
        self._last_question = SpanSet()  # when it is answered, the next follows
        self._is_overfull = False  # something was forgotten, and nothing was taken since
        self._repeat_due: Instant | None = None
        self._repeat_after = timing.nack_repeat

    @property
    def deadline(self) -> Instant | None:
        if not self._new_gaps:
            return self._repeat_due
        first = self._new_gaps[0][0]
        return first if self._repeat_due is None else min(first, self._repeat_due)

    @property
    def _room(self) -> tuple[int, int]:
        return self.timing.waiting_events_max, self.timing.waiting_bytes_max

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> list[Nack]:
        """Learn, and move the horizon to the first tick still in doubt."""
        span = knowledge.span
        final = min(max(knowledge.final_below, span.start), span.end)
        lost = min(max(knowledge.lost_below, final), span.end)
        if lost < span.end:
            rest = span if lost == span.start else Span(lost, span.end)
            self.stream.learn(rest, knowledge.ticks, knowledge.events.events)
        if lost > span.start:
            self.stream.settle(Span(span.start, lost))
        if lost > max(final, self.horizon):
            self._lost.add(Span(max(final, self.horizon), lost))
        if span.start > self.seen:
            gap = Span(self.seen, span.start)
            self._new_gaps.append((Instant(now + self.timing.gap_patience), gap))
        self.seen = max(self.seen, span.end)
        if self.stream.keep_oldest(*self._room):
            self._open_spans.add(Span(self.stream.end, self.seen))
            self._is_overfull = True
        before, self.horizon = self.horizon, self.stream.known.first_missing(self.horizon)
        if knowledge.more and not self._is_overfull:
            return self._ask([], now)
        return self._ask_on(now, moved=self.horizon > before)

    def take(self, through: int, now: Instant) -> Settled:
        """Remove and return everything settled before `through`, which is at most the horizon."""
        assert self.taken <= through <= self.horizon
        if through == self.taken:
            return Settled([], [], [])
        ticks, events = self.stream.take_below(through)
        lost: list[tuple[PubendName, Span]] = []
        if self._lost:
            span = Span(self.taken, through)
            lost = [(self.pubend, each) for each in self._lost.within(span)]
            self._lost.remove_below(through)
        self.taken = through
        self._is_overfull = False
        if self._open_spans:  # there is room again
            self._repeat_due = Instant(now + self.timing.gap_patience)
        return Settled(ticks, events, lost)

    @property
    def whole_through(self) -> int:
        """The end of the settled part that is uniform: nothing in it is lost, or all of it is."""
        if not self._lost or self._lost.start >= self.horizon:
            return self.horizon
        if self._lost.start > self.taken:
            return self._lost.start
        return min(next(iter(self._lost)).end, self.horizon)

    def fitting(self, count: int, size: int) -> int:
        """The tick up to which settled events fit this count and size; one always fits."""
        stream = self.stream
        if stream.event_count <= count and stream.size <= size:
            return self.horizon
        ticks, events = stream.events_in(Span(self.taken, self.horizon))
        _, fitting = cut(events, count, size)[0]
        return ticks[fitting] if fitting < len(ticks) else self.horizon

    def expect(self, tick: int, now: Instant) -> list[Nack]:
        """Ask at once for everything before `tick` that is unknown."""
        self.seen = max(self.seen, tick)
        return self._ask(list(self._doubts(tick)), now)

    def fire(self, now: Instant) -> list[Nack]:
        """Ask for gaps that have lasted too long."""
        spans: list[Span] = []
        while self._new_gaps and self._new_gaps[0][0] <= now:
            _, gap = self._new_gaps.popleft()
            spans += self.stream.known.missing(gap)
        spans = [span for span in spans if span.end > self.horizon]
        nacks = self._ask(spans, now) if spans else []
        if self._repeat_due is not None and self._repeat_due <= now:
            self._repeat_due = None
            self._repeat_after = min(self._repeat_after * 2, self.timing.nack_repeat_longest)
            nacks += self._ask([], now)
        return nacks

    def _doubts(self, end: int) -> SpanSet:
        if end <= self.horizon:
            return SpanSet()
        return SpanSet(self.stream.known.missing(Span(self.horizon, end)))

    def _ask_on(self, now: Instant, *, moved: bool) -> list[Nack]:
        """After learning something: drop answered questions, and ask the next ones."""
        if not self._open_spans:
            return []
        self._open_spans.remove_below(self.horizon)
        if moved:
            self._repeat_after = self.timing.nack_repeat
        if self._last_question and not self._is_overfull:
            self._last_question.remove_below(
                self.horizon
            )  # what was answered may have been taken since
            if not any(any(self.stream.known.missing(span)) for span in self._last_question):
                self._last_question.clear()
                return self._ask([], now)
        if self._open_spans and self._repeat_due is None:
            self._repeat_due = Instant(now + self._repeat_after)
        return []

    def _ask(self, spans: list[Span], now: Instant) -> list[Nack]:
        """Ask for these spans and for earlier ones that are still unknown, lowest first."""
        self._open_spans.update(spans)
        open_spans = [part for span in self._open_spans for part in self.stream.known.missing(span)]
        self._open_spans = SpanSet(open_spans)
        self._open_spans.remove_below(self.horizon)
        if not self._open_spans:
            self._repeat_due = None
            self._repeat_after = self.timing.nack_repeat
            return []
        self._repeat_due = Instant(now + self._repeat_after)
        count_max, bytes_max = self._room
        full = self.stream.event_count >= count_max or self.stream.size >= bytes_max
        end = self.stream.end if full else self.seen
        chosen = [span for span in self._open_spans if span.start < end]
        chosen = chosen[: self.timing.nack_spans_max]
        self._last_question = SpanSet(chosen)
        return [Nack(self.pubend, tuple(chosen))] if chosen else []

    def check(self) -> None:
        self.stream.check()
        assert self.taken <= self.horizon <= self.seen, "I1"
        count_max, bytes_max = self._room
        assert self.stream.event_count <= count_max, "I2"
        assert self.stream.size <= bytes_max or self.stream.event_count == 1, "I2"
        doubt = self.horizon < self.seen and any(self._doubts(self.seen))
        assert not doubt or self.deadline is not None, "I3"
