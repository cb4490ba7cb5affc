"""Relay: one pubend's stream through one broker, from upstream to the cells below.

Theory of operation
    What comes from upstream joins a bounded cache, and what is new goes on to each cell below
    through that cell's filter edge. An event that does not pass is silence for that cell.
    Silence is lazy: it waits to travel with the next event, unless the cell has a hole there or
    has asked for it, or `silence_flush` has passed; within the same broker it never waits. Every
    message has a digest, which says against which subscriptions its ticks were matched; a higher
    one is news and does not wait either. One message never joins ticks of different digests. What
    is sent again has the highest: to be matched against more is always right.
    A nack is answered from the cache as far as that reaches, and where the asking cell is known
    to need nothing, with just that: final. The rest is asked for upstream, once for all who
    want it: while the question is out, more nacks for the same ticks are held back, until it is
    forgotten after `nack_forget` and a repeated nack may pass again.
    Acknowledgements are consolidated: what every cell below has delivered or will never need is
    acknowledged upstream. All state is soft. After a crash nothing is known, and nothing is
    acknowledged before every cell below has been heard.

Invariants (checked by `check`)
    I1  what a cell has been told and what is silence for it are disjoint
    I2  the acknowledged tick never moves back, and no cell below needs a tick before it
    I3  the cache holds at most `cache_events_max` events and `cache_bytes_max` bytes; of each
        neighbour at most `nack_spans_max` questions are remembered

Source: DSN 2002, sec. 2.1.1 and 2.4; PROTOCOLS A5, A8.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Ack, AckExpected, Knowledge, Nack
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.outgoing import ToBroker, ToCell
from gapless.core.spans import SpanSet
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.knowledge.batch import cut
from gapless.knowledge.outgoing import LOCAL, Edge, Outgoing
from gapless.knowledge.stream import KnowledgeStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import PubendName
    from gapless.knowledge.timing import Timing


@dataclass(slots=True)
class Outlet:
    """What we know of one cell below."""

    told: SpanSet = field(default_factory=SpanSet)  # sent to it, and it may have it
    quiet: SpanSet = field(default_factory=SpanSet)  # silence for it, not yet sent
    settled: int = -1  # it needs nothing below: delivered, or silence; -1: not heard yet
    digest: int = 0  # the highest that it was sent
    quiet_digest: int = 0  # that of everything in `quiet`

    def settle(self, delivered: int) -> None:
        """Move on past what was delivered and past silence that it need not be told."""
        if delivered >= 0:
            self.settled = self.quiet.first_missing(max(self.settled, delivered))


class Relay:
    """One pubend at one broker. Sans-IO: see the module docstring."""

    def __init__(
        self,
        pubend: PubendName,
        name: BrokerName,
        cell: CellName,
        upstream: CellName,
        below: tuple[CellName, ...],
        timing: Timing,
        edge: Edge,
        *,
        shadow: bool = False,
    ) -> None:
        self.pubend = pubend
        self.name = name
        self.cell = cell
        self.upstream = upstream
        self.timing = timing
        self.edge = edge
        self.stream = KnowledgeStream(shadow=shadow)
        self.outlets = {each: Outlet() for each in below}
        self.asking: dict[str, tuple[CellName | None, SpanSet]] = {}
        self.acked = -1  # told or to be told upstream; -1: nothing yet
        self.nacks_sent = 0
        self.digest = 0  # the highest that came
        self._asked: deque[tuple[Instant, Span]] = deque()  # questions out, by when to forget
        self._ack_due: Instant | None = None
        self._flush_due: Instant | None = None

    @property
    def deadline(self) -> Instant | None:
        return min((due for due in (self._ack_due, self._flush_due) if due), default=None)

    # --- downstream: knowledge ------------------------------------------------------------------

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> list[Outgoing]:
        """Join what upstream says, and pass on what is new."""
        start = max(knowledge.span.start, knowledge.final_below, knowledge.lost_below)
        self.digest = max(self.digest, knowledge.digest)
        if start >= knowledge.span.end:
            return self._pass_on_settled(knowledge)
        span = Span(start, knowledge.span.end)
        fresh = self.stream.learn(span, knowledge.ticks, knowledge.events.events)
        out = self._pass_on_settled(knowledge) + self._answer_asking(span, knowledge)
        if not knowledge.requested:
            for cell in self.outlets:
                for run in fresh:
                    out += self._offer(cell, run, knowledge.digest, now)
        self._acknowledge(now)
        self.stream.keep_newest(self.timing.cache_events_max, self.timing.cache_bytes_max)
        return out

    def _pass_on_settled(self, knowledge: Knowledge) -> list[Outgoing]:
        """What is final or lost is not cached: whoever knows says so, each time he is asked."""
        end = min(max(knowledge.final_below, knowledge.lost_below), knowledge.span.end)
        out: list[Outgoing] = []
        if end > knowledge.span.start:
            settled = Span(knowledge.span.start, end)
            for asker, (_, wanted) in sorted(self.asking.items()):
                for span in list(wanted.within(settled)):
                    message = Knowledge(
                        self.pubend,
                        span,
                        final_below=knowledge.final_below,
                        lost_below=knowledge.lost_below,
                        requested=True,
                    )
                    out.append(self._to_asker(asker, message))
                wanted.remove(settled)
                self._limit(wanted)
        return out

    def _answer_asking(self, span: Span, knowledge: Knowledge) -> list[Outgoing]:
        """Answer from the message itself: what was asked may lie before all that we cache."""
        out: list[Outgoing] = []
        if knowledge.more:  # the rest of the question is not being answered: it may be put again
            self._asked = deque(
                (forget, Span(asked.start, min(asked.end, span.end)))
                for forget, asked in self._asked
                if asked.start < span.end
            )
        for asker, (cell, wanted) in sorted(self.asking.items()):
            for part in list(wanted.within(span)):
                low = bisect_left(knowledge.ticks, part.start)
                high = bisect_left(knowledge.ticks, part.end)
                ticks, events = knowledge.ticks[low:high], knowledge.events.events[low:high]
                # What was asked for before it was there is news, under its own digest.
                again = knowledge.requested or cell is None
                digest, more = self.digest if again else knowledge.digest, knowledge.more
                out += self._answer(
                    asker, cell, part, ticks, events, digest, more=more, requested=again
                )
            wanted.remove(span)
            self._limit(wanted)
        self.asking = {asker: entry for asker, entry in self.asking.items() if entry[1]}
        return out

    def _answer(
        self,
        asker: str,
        cell: CellName | None,
        span: Span,
        ticks: Sequence[int],
        events: Sequence[bytes],
        digest: int,
        *,
        more: bool = False,
        requested: bool = True,
    ) -> list[Outgoing]:
        """Everything known about `span`, for one that asked."""
        if cell is not None:
            outlet = self.outlets[cell]
            outlet.quiet.remove(span)
            outlet.told.add(span)
        ticks, events = self._passing(cell, digest, ticks, events)
        messages = self._messages(span, ticks, events, digest, requested=requested, more=more)
        return [self._to_asker(asker, message) for message in messages]

    def _to_asker(self, asker: str, message: Knowledge) -> Outgoing:
        if asker in LOCAL:
            return ToCell(CellName(asker), message)
        return ToBroker(BrokerName(asker), message)

    def _offer(self, cell: CellName, run: Span, digest: int, now: Instant) -> list[Outgoing]:
        """Tell a cell below what has become known; silence alone may wait."""
        outlet = self.outlets[cell]
        out: list[Outgoing] = []
        for span in list(outlet.told.missing(run)):
            if outlet.quiet_digest != digest:
                out += self._flush(cell)
                outlet.quiet_digest = digest
            ticks, events = self._passing(cell, digest, *self.stream.events_in(span))
            hole = bool(outlet.told) and span.start < outlet.told.end
            if ticks or hole or digest > outlet.digest or cell in LOCAL:
                outlet.quiet.add(span)
                whole = outlet.quiet.run_at(span.start)
                assert whole is not None
                outlet.quiet.remove(whole)
                outlet.told.add(whole)
                outlet.digest = max(outlet.digest, digest)
                messages = self._messages(whole, ticks, events, digest, requested=False)
                out += [ToCell(cell, message) for message in messages]
            else:
                outlet.quiet.add(span)
                if self._flush_due is None:
                    self._flush_due = Instant(now + self.timing.silence_flush)
        return out

    def _passing(
        self, cell: CellName | None, digest: int, ticks: Sequence[int], events: Sequence[bytes]
    ) -> tuple[Sequence[int], Sequence[bytes]]:
        """The events that pass the edge to `cell`; all of them for a sibling."""
        if cell is None or cell in LOCAL or not ticks:
            return ticks, events
        chosen = self.edge.select(self.pubend, cell, digest, events)
        if len(chosen) == len(ticks):
            return ticks, events
        return [ticks[i] for i in chosen], [events[i] for i in chosen]

    def _messages(
        self,
        span: Span,
        ticks: Sequence[int],
        events: Sequence[bytes],
        digest: int,
        *,
        requested: bool,
        more: bool = False,
    ) -> list[Knowledge]:
        """One message for the span, or several within the limits of a batch."""
        messages, start = [], span.start
        limits = self.timing.batch_events_max, self.timing.batch_bytes_max
        for low, high in cut(events, *limits):
            end = span.end if high >= len(ticks) else ticks[high]
            messages.append(
                Knowledge(
                    self.pubend,
                    Span(start, end),
                    tuple(ticks[low:high]),
                    EventBatch.join(events[low:high]),
                    requested=requested,
                    more=more and high >= len(ticks),
                    digest=digest,
                )
            )
            start = end
        return messages

    def _flush(self, cell: CellName) -> list[Outgoing]:
        """Tell a cell the silence that has waited."""
        outlet = self.outlets[cell]
        spans, digest = list(outlet.quiet), outlet.quiet_digest
        outlet.quiet.clear()
        outlet.told.update(spans)
        return [ToCell(cell, Knowledge(self.pubend, span, digest=digest)) for span in spans]

    # --- upstream: curiosity and acknowledgements -----------------------------------------------

    def receive_nack(
        self, asker: str, cell: CellName | None, nack: Nack, now: Instant
    ) -> list[Outgoing]:
        """Answer what is known, ask upstream for the rest. `cell` is None for a sibling."""
        out: list[Outgoing] = []
        unknown = SpanSet()
        room = self.timing.answer_bytes_max
        for span in nack.spans[: self.timing.nack_spans_max]:
            rest = self._answer_final(asker, cell, span, out)
            if rest is None:
                continue
            ticks, events = self.stream.events_in(rest)
            _, fitting = cut(events, len(events), room)[0]
            room -= sum(map(len, events[:fitting]))
            more = fitting < len(events)
            if more:  # whatever is left is to be asked for anew
                rest = Span(rest.start, ticks[fitting])
            runs = list(self.stream.known.within(rest))
            for known in runs:
                last = more and known is runs[-1]
                found = self.stream.events_in(known)
                out += self._answer(asker, cell, known, *found, self.digest, more=last)
            unknown.update(self.stream.known.missing(rest))
            if more:
                break
        if unknown:
            wanted = self.asking.setdefault(asker, (cell, SpanSet()))[1]
            wanted.update(unknown)
            self._limit(wanted)
            out += self._ask_upstream(unknown, now)
        return out

    def _answer_final(
        self, asker: str, cell: CellName | None, span: Span, out: list[Outgoing]
    ) -> Span | None:
        """Say of what the asker needs no more that it is final; return the rest of the span."""
        final = self.acked if cell is None else self.outlets[cell].settled
        if span.start >= final:
            return span
        done = Span(span.start, min(span.end, final))
        message = Knowledge(self.pubend, done, final_below=done.end, requested=True)
        out.append(self._to_asker(asker, message))
        return Span(done.end, span.end) if done.end < span.end else None

    def _limit(self, wanted: SpanSet) -> None:
        """Remember only the lowest questions of a neighbour; it repeats the others."""
        for forgotten in list(wanted)[self.timing.nack_spans_max :]:
            wanted.remove(forgotten)

    def _ask_upstream(self, unknown: SpanSet, now: Instant) -> list[Outgoing]:
        while self._asked and self._asked[0][0] <= now:
            self._asked.popleft()
        unknown.difference_update(span for _, span in self._asked)
        spans = tuple(unknown)[: self.timing.nack_spans_max]
        if not spans:
            return []
        forget = Instant(now + self.timing.nack_forget)
        self._asked.extend((forget, span) for span in spans)
        self.nacks_sent += 1
        return [ToCell(self.upstream, Nack(self.pubend, spans))]

    def ask_again(self, now: Instant) -> list[Outgoing]:
        """Whoever was asked may be gone: put all open questions again."""
        self._asked.clear()
        return self._ask_upstream(SpanSet(s for _, some in self.asking.values() for s in some), now)

    def receive_ack(self, ack: Ack, now: Instant) -> list[Outgoing]:
        """A cell below needs nothing before `delivered` any more."""
        outlet = self.outlets[ack.cell]
        if ack.delivered > outlet.settled:
            outlet.settle(ack.delivered)
            outlet.told.remove_below(ack.delivered)
            outlet.quiet.remove_below(ack.delivered)
            for cell, wanted in self.asking.values():
                if cell == ack.cell:
                    wanted.remove_below(ack.delivered)
            self._acknowledge(now)
        return []

    def _acknowledge(self, now: Instant) -> None:
        for outlet in self.outlets.values():
            outlet.settle(outlet.settled)
        settled = min((outlet.settled for outlet in self.outlets.values()), default=self.stream.end)
        if settled > self.acked:
            self.acked = settled
            for _, wanted in self.asking.values():
                wanted.remove_below(settled)
            self.stream.forget_below(settled - (self.timing.past_window << PUBEND_BITS))
            if self._ack_due is None:
                self._ack_due = Instant(now + self.timing.ack_delay)

    def receive_ack_expected(self, tick: int, now: Instant) -> list[Outgoing]:
        """Pass the question on to the cells that owe an answer; answer it if none does."""
        if self.acked >= tick:
            return self._ack_upstream()
        return [
            ToCell(cell, AckExpected(self.pubend, tick))
            for cell, outlet in self.outlets.items()
            if outlet.settled < tick
        ]

    def _ack_upstream(self) -> list[Outgoing]:
        self._ack_due = None
        return [ToCell(self.upstream, Ack(self.pubend, self.cell, self.acked, reporter=self.name))]

    # --- time, membership, invariants -----------------------------------------------------------

    def fire(self, now: Instant) -> list[Outgoing]:
        out: list[Outgoing] = []
        if self._flush_due is not None and now >= self._flush_due:
            self._flush_due = None
            out += [each for cell in self.outlets for each in self._flush(cell)]
        if self._ack_due is not None and now >= self._ack_due:
            out += self._ack_upstream()
        return out

    def add_cell(self, cell: CellName, start: int) -> None:
        """From `start` on, another cell below counts (a merge that has come up)."""
        self.outlets[cell] = Outlet(settled=start)

    def remove_cell(self, cell: CellName) -> None:
        self.outlets.pop(cell, None)
        self.asking = {a: entry for a, entry in self.asking.items() if entry[0] != cell}

    def check(self) -> None:
        self.stream.check()
        for outlet in self.outlets.values():
            assert not any(outlet.told.overlaps(span) for span in outlet.quiet), "I1"
            assert outlet.settled >= self.acked or self.acked < 0, "I2"
        assert self.stream.event_count <= self.timing.cache_events_max, "I3"
        assert all(len(w) <= self.timing.nack_spans_max for _, w in self.asking.values()), "I3"
