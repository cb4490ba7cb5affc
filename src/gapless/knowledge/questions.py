"""Questions: what neighbours have asked one relay, and what it has asked upstream for them.

Theory of operation
    What cannot be answered is remembered by who asked and what for, and answered when it comes. It
    is asked for upstream once for all who want it: while a question is out, more nacks for the same
    ticks are held back, until it is forgotten after `nack_forget` and a repeated nack may pass. One
    for those that catch up also ends with its answer, which is not cached: the next who wants the
    same may ask at once.
    Purposes are kept apart: what is final for delivery may be just what a catch-up still wants.
    Those who catch up ask for many single ticks, and may leave and not say so: their questions are
    forgotten after `nack_repeat_longest`, or oldest first; who still wants them asks again.

Invariants (checked by `check`)
    I1  of each neighbour at most `nack_spans_max` questions for delivery are remembered, the
        lowest; and at most `catch_up_spans_max` of those that catch up

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
    """Who asks, and what for."""

    name: str
    purpose: Purpose


class OpenQuestion(NamedTuple):
    """What an asker still waits for; `cell` is None for a sibling, who gets everything."""

    cell: CellName | None
    wanted: SpanSet
    added: dict[Span, Instant]  # by those that catch up, oldest first, and when to forget it


class Questions:
    """The open questions of one relay."""

    def __init__(self, timing: KnowledgeTiming) -> None:
        self.timing = timing
        self.open_questions: dict[Questioner, OpenQuestion] = {}
        self.upstream_questions: deque[tuple[Instant, Purpose, SpanSet]] = (
            deque()
        )  # out, by when to forget

    def __bool__(self) -> bool:
        """Is anything open, or was anything asked of late?"""
        return bool(self.open_questions or self.upstream_questions)

    @property
    def tick_count(self) -> int:
        """How much is open that is needed for delivery."""
        return sum(
            each.wanted.tick_count
            for asker, each in self.open_questions.items()
            if asker.purpose == Purpose.DELIVERY
        )

    def add(
        self, asker: Questioner, cell: CellName | None, unknown: Iterable[Span], now: Instant
    ) -> None:
        """Remember what could not be answered."""
        each = self.open_questions.setdefault(asker, OpenQuestion(cell, SpanSet(), {}))
        spans = list(unknown)
        if asker.purpose == Purpose.DELIVERY:
            each.wanted.update(spans)
            self._limit(each.wanted)
            return
        forget = Instant(now + self.timing.nack_repeat_longest)
        for span in spans:  # one that is asked again is young again
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
        """Who waits for which parts of the span, for one of these purposes; they do no longer."""
        for _, purpose, asked in self.upstream_questions:
            if purpose in purposes and purpose != Purpose.DELIVERY:
                asked.remove(span)
        found: list[tuple[Questioner, CellName | None, Span]] = []
        for asker in sorted(self.open_questions):
            cell, wanted, _ = self.open_questions[asker]
            if asker.purpose in purposes:
                found += [(asker, cell, part) for part in wanted.within(span)]
                wanted.remove(span)
                if asker.purpose == Purpose.DELIVERY:
                    self._limit(wanted)
                if not wanted:
                    del self.open_questions[asker]
        return found

    def answer_ticks(
        self, ticks: Sequence[int]
    ) -> list[tuple[Questioner, CellName | None, list[int]]]:
        """The same for events at single ticks that may have been filtered: who waits for which of
        them, by index."""
        found: list[tuple[Questioner, CellName | None, list[int]]] = []
        spans = [Span(tick, tick + 1) for tick in ticks]
        for _, purpose, asked in self.upstream_questions:
            if purpose == Purpose.CATCH_UP:
                asked.difference_update(spans)
        for asker in sorted(self.open_questions):
            cell, wanted, added = self.open_questions[asker]
            if asker.purpose == Purpose.WHOLE:
                continue
            chosen = [index for index, tick in enumerate(ticks) if tick in wanted]
            for index in chosen:
                wanted.remove(spans[index])
                added.pop(spans[index], None)
            if asker.purpose == Purpose.DELIVERY:
                self._limit(wanted)
            if not wanted:
                del self.open_questions[asker]
            if chosen:
                found.append((asker, cell, chosen))
        return found

    def _limit(self, wanted: SpanSet) -> None:
        """Remember only the lowest questions of a neighbour; it repeats the others."""
        for forgotten in list(wanted)[self.timing.nack_spans_max :]:
            wanted.remove(forgotten)

    def fresh(self, unknown: SpanSet, purpose: Purpose, now: Instant) -> tuple[Span, ...]:
        """What of this is not being asked for upstream already; it is from now on."""
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
        """Whoever was asked may be gone: everything that is open, by purpose."""
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
        """The answer ended there, with more to come: the rest may be asked for anew."""
        for _, other, asked in self.upstream_questions:
            if other == purpose and asked and end < asked.end:
                asked.remove(Span(end, asked.end))

    def remove_below(self, tick: int, cell: CellName | None = None) -> None:
        """Nobody (or nobody of this cell) needs what is before `tick` for delivery."""
        for asker, (of, wanted, _) in self.open_questions.items():
            if asker.purpose == Purpose.DELIVERY and (cell is None or of == cell):
                wanted.remove_below(tick)

    def remove_cell(self, cell: CellName) -> None:
        self.open_questions = {
            asker: each for asker, each in self.open_questions.items() if each.cell != cell
        }

    def check(self) -> None:
        for asker, each in self.open_questions.items():
            if asker.purpose == Purpose.DELIVERY:
                assert len(each.wanted) <= self.timing.nack_spans_max, "I1"
            assert len(each.added) <= self.timing.catch_up_spans_max, "I1"
