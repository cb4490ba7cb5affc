"""Denied: ticks that a catch-up wants, and of which it was told that nothing is there.

Theory of operation
    The filtered log names a tick only when its event has come by here, and a pubend tells of an
    event only when it is durable. So there was an event in the pubend's log, and as long as it was
    not released it is there: silence contradicts it. Who said so? It may have been a cache, or
    someone who filters; so the tick stays unknown, and the pubend itself is asked, past all of them
    (with the least vector that counts). If its log denies the event too, it has lost it: the host
    began anew without its disk, or with an older copy of it. Who catches up tells that as a gap.
    What some cache on the way still has comes as the answer to the first question.

Cost: nothing where nobody contradicts the filtered log, which is always but after such a loss.
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
    """Of one catch-up, in its window."""

    def __init__(self, pubend: PubendName, timing: DurableTiming, *, is_whole: bool) -> None:
        self.pubend = pubend
        self.timing = timing
        self.is_whole = is_whole  # the pubend itself is asked for everything
        self._ticks = SpanSet()
        self._new_ticks = SpanSet()  # of those, not asked for yet

    def judge(
        self, knowledge: Knowledge, wanted: Sequence[int], known: SpanSet
    ) -> tuple[list[Span], list[Span]]:
        """Of ticks that are wanted, and that an answer speaks of, those that it denies: what is
        lost, and what is still unknown."""
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
        """All of them are known by now."""
        if self._ticks:
            self._ticks.clear()
            self._new_ticks.clear()

    def ask(self) -> list[Nack]:
        """Ask the pubend itself for what is new among them; what is too much for one question is
        asked for when it is repeated."""
        spans = tuple(self._new_ticks)[: self.timing.nack_spans_max]
        self._new_ticks.clear()
        return [Nack(self.pubend, spans, Vector())] if spans else []

    def address(self, nacks: list[Nack]) -> list[Nack]:
        """The same questions, those that are for the pubend itself to it."""
        if self.is_whole:
            return [Nack(self.pubend, nack.spans, Vector()) for nack in nacks]
        return [part for nack in nacks for part in self._divide(nack)] if self._ticks else nacks

    def _divide(self, nack: Nack) -> list[Nack]:
        denied = SpanSet(part for span in nack.spans for part in self._ticks.within(span))
        rest = SpanSet(nack.spans)
        rest.difference_update(denied)
        some = (denied, Vector()), (rest, None)
        return [Nack(self.pubend, tuple(spans), least) for spans, least in some if spans]
