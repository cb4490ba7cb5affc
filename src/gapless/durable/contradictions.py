"""Contradictions: ticks that the filtered log names, and at which an answer says there is no event.

Theory of operation
    The filtered log names a tick only after its event has passed here, and a pubend tells of an
    event only when the event is durable. So the pubend's log had the event, and still has it unless
    it was released: silence contradicts it. The answer may have come from a cache or from a broker
    that filters. So the tick stays unknown, and the catch-up asks the pubend itself, past all of
    them (with the least vector). If the pubend's log has no event there either, the event is lost:
    the host began anew without its disk, or with an older copy. The catch-up tells that as a gap.
    If a cache on the way still has the event, it comes as the answer to the first question.

Cost: nothing unless an answer contradicts the filtered log, which only follows such a loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Nack, Purpose, Vector
from gapless.core.spans import SpanSet
from gapless.core.ticks import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.broker_messages import Knowledge
    from gapless.core.identity import PubendName
    from gapless.durable.timing import DurableTiming


class Contradictions:
    """The contradictions in the window of one catch-up."""

    def __init__(self, pubend: PubendName, timing: DurableTiming, *, is_whole: bool) -> None:
        self.pubend = pubend
        self.timing = timing
        self.is_whole = is_whole  # the pubend itself is asked for everything
        self._ticks = SpanSet()
        self._new_ticks = SpanSet()  # of those, the ones not asked for yet

    def judge(
        self, knowledge: Knowledge, wanted: Sequence[int], known: SpanSet
    ) -> tuple[list[Span], list[Span]]:
        """The wanted ticks at which this answer denies an event: the lost ones, and those that
        stay unknown. `wanted` lies in the span of the answer."""
        there, lost, doubtful = set(knowledge.ticks), list[Span](), list[Span]()
        for tick in wanted:
            if tick in there or tick in known:
                continue
            span = Span(tick, tick + 1)
            is_asked = self.is_whole or tick in self._ticks
            if is_asked and knowledge.purpose == Purpose.WHOLE:
                lost.append(span)
            else:
                doubtful.append(span)
                if tick not in self._ticks:
                    self._ticks.add(span)
                    self._new_ticks.add(span)
        return lost, doubtful

    def clear(self) -> None:
        """Forget them all: they are known by now."""
        if self._ticks:
            self._ticks.clear()
            self._new_ticks.clear()

    def ask(self) -> list[Nack]:
        """Questions to the pubend itself for the new ones. What one question cannot take is asked
        for when it is repeated."""
        spans = tuple(self._new_ticks)[: self.timing.nack_spans_max]
        self._new_ticks.clear()
        return [Nack(self.pubend, spans, Vector())] if spans else []

    def address(self, nacks: list[Nack]) -> list[Nack]:
        """These questions, addressed to the pubend itself where that must answer."""
        if self.is_whole:
            return [Nack(self.pubend, nack.spans, Vector()) for nack in nacks]
        return [part for nack in nacks for part in self._divide(nack)] if self._ticks else nacks

    def _divide(self, nack: Nack) -> list[Nack]:
        denied = SpanSet(part for span in nack.spans for part in self._ticks.within(span))
        rest = SpanSet(nack.spans)
        rest.difference_update(denied)
        some = (denied, Vector()), (rest, None)
        return [Nack(self.pubend, tuple(spans), least) for spans, least in some if spans]
