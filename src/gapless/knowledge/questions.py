"""Questions: what neighbours have asked one relay, and what it has asked upstream for them.

Theory of operation
    A question that the relay cannot answer is remembered with its questioner and its purpose, and
    answered when the knowledge comes. The relay asks upstream once for all questioners: while a
    question is out, it holds back further nacks for the same ticks. After `nack_forget` it forgets
    the question, and a repeated nack may pass. A question of a catch-up also ends with its answer,
    which is not cached: the next questioner may ask at once.
    Purposes are kept apart: what is final for delivery may be just what a catch-up still wants.
    Catch-ups ask for many single ticks, and may go away without a word: their questions are
    forgotten after `nack_repeat_longest`, or oldest first. A catch-up that still wants them
    repeats.

Invariants (checked by `check`)
    I1  of each neighbour at most `nack_spans_max` questions for delivery are remembered, the last
        ones and the lowest; and at most `catch_up_spans_max` of those that catch up

Source: DSN 2002, sec. 2.4 (nack consolidation); docs/protocols/exactly-once.md, 4.3.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.broker_messages import Purpose
from gapless.core.identity import Instant
from gapless.core.spans import SpanSet
from gapless.core.ticks import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.core.identity import CellName
    from gapless.knowledge.timing import KnowledgeTiming


class Questioner(NamedTuple):
    """The neighbour that asks, and its purpose."""

    name: str
    purpose: Purpose


class OpenQuestion(NamedTuple):
    """What a questioner still waits for; `cell` is None for a sibling, which gets everything."""

    cell: CellName | None
    wanted: SpanSet
    added: dict[Span, Instant]  # of catch-ups, oldest first, with the time to forget it


class Questions:
    """The open questions of one relay."""

    def __init__(self, timing: KnowledgeTiming) -> None:
        self.timing = timing
        self.open_questions: dict[Questioner, OpenQuestion] = {}
        self.upstream_questions: deque[tuple[Instant, Purpose, SpanSet]] = (
            deque()
        )  # with the time to forget each

    def __bool__(self) -> bool:
        """Is any question open, or out upstream?"""
        return bool(self.open_questions or self.upstream_questions)

    @property
    def tick_count(self) -> int:
        """The number of ticks that are open for delivery."""
        return sum(
            each.wanted.tick_count
            for questioner, each in self.open_questions.items()
            if questioner.purpose == Purpose.DELIVERY
        )

    def add(
        self, questioner: Questioner, cell: CellName | None, unknown: Iterable[Span], now: Instant
    ) -> None:
        """Remember a question that could not be answered."""
        each = self.open_questions.setdefault(questioner, OpenQuestion(cell, SpanSet(), {}))
        spans = list(unknown)
        if questioner.purpose == Purpose.DELIVERY:
            each.wanted.update(spans)
            self._limit(each.wanted, spans)
            return
        forget = Instant(now + self.timing.nack_repeat_longest)
        for span in spans:  # a repeated question is young again
            each.added.pop(span, None)
            each.added[span] = forget
        self._forget_old(each, now)
        each.wanted.update(span for span in spans if span in each.added)

    def _forget_old(self, each: OpenQuestion, now: Instant) -> None:
        while each.added:
            span, forget = next(iter(each.added.items()))
            if len(each.added) <= self.timing.catch_up_spans_max and forget > now:
                return
            del each.added[span]
            each.wanted.remove(span)

    def answer(
        self, span: Span, purposes: tuple[Purpose, ...]
    ) -> list[tuple[Questioner, CellName | None, Span]]:
        """Remove and return the open parts of the span with one of these purposes, by
        questioner."""
        for _, purpose, asked in self.upstream_questions:
            if purpose in purposes and purpose != Purpose.DELIVERY:
                asked.remove(span)
        found: list[tuple[Questioner, CellName | None, Span]] = []
        for questioner in sorted(self.open_questions):
            cell, wanted, _ = self.open_questions[questioner]
            if questioner.purpose in purposes:
                found += [(questioner, cell, part) for part in wanted.within(span)]
                wanted.remove(span)
                if questioner.purpose == Purpose.DELIVERY:
                    self._limit(wanted)
                if not wanted:
                    del self.open_questions[questioner]
        return found

    def answer_ticks(
        self, ticks: Sequence[int]
    ) -> list[tuple[Questioner, CellName | None, list[int]]]:
        """Remove and return the open questions for single ticks, as indices into `ticks`: these
        events may have been filtered."""
        found: list[tuple[Questioner, CellName | None, list[int]]] = []
        spans = [Span(tick, tick + 1) for tick in ticks]
        for _, purpose, asked in self.upstream_questions:
            if purpose == Purpose.CATCH_UP:
                asked.difference_update(spans)
        for questioner in sorted(self.open_questions):
            cell, wanted, added = self.open_questions[questioner]
            if questioner.purpose == Purpose.WHOLE:
                continue
            chosen = [index for index, tick in enumerate(ticks) if tick in wanted]
            for index in chosen:
                wanted.remove(spans[index])
                added.pop(spans[index], None)
            if questioner.purpose == Purpose.DELIVERY:
                self._limit(wanted)
            if not wanted:
                del self.open_questions[questioner]
            if chosen:
                found.append((questioner, cell, chosen))
        return found

    def _limit(self, wanted: SpanSet, fresh: Iterable[Span] = ()) -> None:
        """Keep what a neighbour has just asked for, then its lowest questions: it repeats the
        others, unless it has had the answer from another broker."""
        count_max = self.timing.nack_spans_max
        if len(wanted) <= count_max:
            return
        older = SpanSet(wanted)
        older.difference_update(fresh)
        for forgotten in (*reversed(list(older)), *reversed(list(wanted))):
            wanted.remove(forgotten)
            if len(wanted) <= count_max:
                return

    def fresh(self, unknown: SpanSet, purpose: Purpose, now: Instant) -> tuple[Span, ...]:
        """The part that is not out upstream already; from now on it is."""
        while self.upstream_questions and (
            self.upstream_questions[0][0] <= now or not self.upstream_questions[0][2]
        ):
            self.upstream_questions.popleft()
        for _, other, asked in self.upstream_questions:
            if other == purpose:
                unknown.difference_update(asked)
        spans = tuple(unknown)
        if purpose == Purpose.DELIVERY:
            spans = spans[: self.timing.nack_spans_max]
        forget = Instant(now + self.timing.nack_forget)
        if spans:
            self.upstream_questions.append((forget, purpose, SpanSet(spans)))
        return spans

    def put_again(self, now: Instant) -> list[tuple[Purpose, SpanSet]]:
        """Everything that is open, by purpose: the broker that was asked may be gone."""
        self.upstream_questions.clear()
        for each in self.open_questions.values():
            self._forget_old(each, now)
        found: list[tuple[Purpose, SpanSet]] = []
        for purpose in Purpose:
            spans = [
                s
                for a, each in self.open_questions.items()
                if a.purpose == purpose
                for s in each.wanted
            ]
            if spans:
                found.append((purpose, SpanSet(spans)))
        return found

    def cut_off(self, end: int, purpose: Purpose) -> None:
        """Allow the rest of a question to be asked again: its answer ended early at `end`."""
        for _, other, asked in self.upstream_questions:
            if other == purpose and asked and end < asked.end:
                asked.remove(Span(end, asked.end))

    def remove_below(self, tick: int, cell: CellName | None = None) -> None:
        """Drop what is before `tick`: no cell (or not this one) needs it for delivery."""
        for questioner, (of, wanted, _) in self.open_questions.items():
            if questioner.purpose == Purpose.DELIVERY and (cell is None or of == cell):
                wanted.remove_below(tick)

    def remove_cell(self, cell: CellName) -> None:
        self.open_questions = {
            questioner: each
            for questioner, each in self.open_questions.items()
            if each.cell != cell
        }

    def check(self) -> None:
        for questioner, each in self.open_questions.items():
            if questioner.purpose == Purpose.DELIVERY:
                assert len(each.wanted) <= self.timing.nack_spans_max, "I1"
            assert len(each.added) <= self.timing.catch_up_spans_max, "I1"
