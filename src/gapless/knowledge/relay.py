"""Relay: one pubend's stream through one broker, from upstream to the cells below.

Theory of operation
    Knowledge from upstream joins a bounded cache, and what is new goes to each cell below through
    that cell's filter edge. An event that does not pass is silence for that cell.
    Silence is lazy: it waits to travel with the next event, unless the cell has a hole there or
    asked for it, or `silence_flush` has passed. Within the same broker it never waits. Every
    message has a digest, which says against which subscriptions its ticks were matched; a higher
    digest is news and does not wait either. A message never joins ticks of different digests. What
    is sent again has the highest digest: matching against more subscriptions is always right.
    How far the pubend has released goes along, never beyond the start of what a message tells.
    The relay answers a nack from the cache as far as that reaches. Where the asking cell is known
    to need nothing, the answer is just that: final. The rest is asked for upstream (`questions`).
    Acknowledgements are consolidated: the relay acknowledges upstream what every cell below has
    delivered or will never need, and what no durable subscription below needs. All state is soft.
    After a crash the relay knows nothing, and acknowledges nothing before it has heard every cell.

Invariants (checked by `check`)
    I1  what was sent to a cell and the silence that waits for it are disjoint
    I2  the acknowledged tick never moves back, and no cell below needs a tick before it
    I3  the cache holds at most `cache_events_max` events and `cache_bytes_max` bytes

Source: DSN 2002, sec. 2.1.1 and 2.4; docs/protocols/exactly-once.md, 4.3, 4.6.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    Knowledge,
    Nack,
    Purpose,
    ReleaseHold,
)
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.core.outgoing import ToBroker, ToCell
from gapless.core.spans import SpanSet
from gapless.core.ticks import PUBEND_BITS, TICK_MAX, Span
from gapless.knowledge.answers import damaged, gather, scatter, settled
from gapless.knowledge.batch import cut, retell, split
from gapless.knowledge.neighbours import LOCAL, SOURCE, Edge, Outgoing
from gapless.knowledge.outlet import Outlet, ReleaseReport
from gapless.knowledge.questions import Questioner, Questions
from gapless.knowledge.reporter import Reporter
from gapless.knowledge.stream import KnowledgeStream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import PubendName
    from gapless.knowledge.timing import KnowledgeTiming


FOR_CATCH_UPS = Purpose.CATCH_UP, Purpose.WHOLE


class RelayPlace(NamedTuple):
    """Where a relay stands in its pubend's tree: at which broker, and between which cells."""

    broker: BrokerName
    cell: CellName  # of the broker
    upstream: CellName
    below: tuple[CellName, ...]


class Relay:
    """One pubend at one broker. Sans-IO: see the module docstring."""

    def __init__(
        self,
        pubend: PubendName,
        place: RelayPlace,
        timing: KnowledgeTiming,
        edge: Edge,
        *,
        epoch: int = 0,
    ) -> None:
        self.pubend = pubend
        self.name = place.broker
        self.upstream = place.upstream
        self.timing = timing
        self.edge = edge
        self.stream = KnowledgeStream()
        self._limits = timing.batch_events_max, timing.batch_bytes_max
        self.outlets = {each: Outlet() for each in place.below}
        self.questions = Questions(timing)
        self.acked = -1  # reported upstream, or about to be; -1: nothing yet
        self.nacks_sent = 0
        self.lost_below = 0  # the pubend has released everything before it, and says so
        self.digest = 0  # the highest that came from upstream
        self._digest_from = TICK_MAX  # from this tick on it is the digest of the ticks themselves
        self.reporter = Reporter(pubend, place.broker, place.cell, epoch, timing.ack_delay)
        self._flush_due: Instant | None = None

    @property
    def deadline(self) -> Instant | None:
        report, flush = self.reporter.deadline, self._flush_due
        return min(report, flush) if report and flush else report or flush

    # --- downstream: knowledge ------------------------------------------------------------------

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> list[Outgoing]:
        """Join what upstream says, and pass on what is new."""
        start = max(knowledge.span.start, knowledge.final_below, knowledge.lost_below)
        if not knowledge.damaged:
            self.lost_below = max(self.lost_below, knowledge.lost_below)
        if knowledge.digest > self.digest:
            self.digest = knowledge.digest
            self._digest_from = TICK_MAX if knowledge.requested else knowledge.span.start
        if knowledge.scattered:
            return self._pass_on_scattered(knowledge)
        if start >= knowledge.span.end:
            return self._pass_on_settled(knowledge)
        span = knowledge.span if start == knowledge.span.start else Span(start, knowledge.span.end)
        fresh = self.stream.learn(span, knowledge.ticks, knowledge.events.events)
        out: list[Outgoing] = []
        if self.questions:
            out = self._pass_on_settled(knowledge) + self._answer_asking(span, knowledge)
        if not knowledge.requested:
            for cell in self.outlets:
                for run in fresh:
                    out += self._offer(cell, run, knowledge, now)
        if not self.outlets or any(each.silent_spans for each in self.outlets.values()):
            self._acknowledge(now)  # silence that need not be sent: no cell will acknowledge it
        self.stream.keep_newest(self.timing.cache_events_max, self.timing.cache_bytes_max)
        return out

    def _pass_on_scattered(self, knowledge: Knowledge) -> list[Outgoing]:
        """Pass scattered events on to the questioners. Not cached: they are older than the
        cache."""
        out, digest = list[Outgoing](), self.digest
        for questioner, cell, chosen in self.questions.answer_ticks(knowledge.ticks):
            ticks = [knowledge.ticks[i] for i in chosen]
            events = [knowledge.events[i] for i in chosen]
            some = dict(zip(*self._passing(cell, digest, ticks, events), strict=True))
            if questioner.purpose == Purpose.CATCH_UP:
                found = scatter(self.pubend, list(some), list(some.values()), self._limits, digest)
                out += [self._to_questioner(questioner, each) for each in found]
                ticks = [tick for tick in ticks if tick not in some]  # silence, there
            for tick in ticks:
                here = ([tick], [some[tick]]) if tick in some else ([], [])
                out += self._answer(questioner, cell, Span(tick, tick + 1), *here, digest)
        return out

    def _pass_on_settled(self, knowledge: Knowledge) -> list[Outgoing]:
        """Pass final and lost spans on to the questioners. They are not cached: the broker that
        knows says so each time. All that one questioner has lost goes into one answer."""
        out: list[Outgoing] = []
        start, end = knowledge.span.start, min(knowledge.final_below, knowledge.span.end)
        if end > start:
            for questioner, _, part in self.questions.answer(Span(start, end), (Purpose.DELIVERY,)):
                out.append(
                    self._to_questioner(questioner, settled(self.pubend, part, questioner.purpose))
                )
        end = min(knowledge.lost_below, knowledge.span.end)
        if end > start and knowledge.damaged:
            out += self._pass_on_damaged(Span(start, end))
        elif end > start:
            lost: dict[Questioner, Span] = {}
            for questioner, _, part in self.questions.answer(Span(start, end), FOR_CATCH_UPS):
                lost[questioner] = Span(lost.get(questioner, part).start, part.end)  # they ascend
            for questioner, span in lost.items():
                answer = settled(self.pubend, span, questioner.purpose, knowledge.lost_below)
                out.append(self._to_questioner(questioner, answer))
        return out

    def _pass_on_damaged(self, span: Span) -> list[Outgoing]:
        """Pass on that a span is damaged in the log: lost to everyone, also for delivery."""
        out: list[Outgoing] = []
        for questioner, cell, part in self.questions.answer(span, tuple(Purpose)):
            out.append(
                self._to_questioner(questioner, damaged(self.pubend, part, questioner.purpose))
            )
            if cell is not None and questioner.purpose == Purpose.DELIVERY:
                self.outlets[cell].silent_spans.remove(part)
                self.outlets[cell].sent_spans.add(part)
        return out

    def _answer_asking(self, span: Span, knowledge: Knowledge) -> list[Outgoing]:
        """Answer questions from the message itself: they may lie before everything in the cache."""
        out: list[Outgoing] = []
        if knowledge.more:
            self.questions.cut_off(span.end, knowledge.purpose)
        is_whole = knowledge.purpose == Purpose.WHOLE or self.upstream == SOURCE
        purposes = tuple(Purpose) if is_whole else (Purpose.DELIVERY, Purpose.CATCH_UP)
        for questioner, cell, part in self.questions.answer(span, purposes):
            low = bisect_left(knowledge.ticks, part.start)
            high = bisect_left(knowledge.ticks, part.end)
            ticks, events = knowledge.ticks[low:high], knowledge.events.events[low:high]
            # What was asked for before it was there is news, under its own digest.
            again = knowledge.requested or cell is None or questioner.purpose != Purpose.DELIVERY
            digest, more = self.digest if again else knowledge.digest, knowledge.more
            out += self._answer(
                questioner, cell, part, ticks, events, digest, more=more, requested=again
            )
        return out

    def _answer(
        self,
        questioner: Questioner,
        cell: CellName | None,
        span: Span,
        ticks: Sequence[int],
        events: Sequence[bytes],
        digest: int,
        *,
        more: bool = False,
        requested: bool = True,
    ) -> list[Outgoing]:
        """Everything known about `span`, for one questioner."""
        if cell is not None and questioner.purpose == Purpose.DELIVERY:
            outlet = self.outlets[cell]
            outlet.silent_spans.remove(span)
            outlet.sent_spans.add(span)
        if questioner.purpose != Purpose.WHOLE:
            ticks, events = self._passing(cell, digest, ticks, events)
        kind = Knowledge(
            self.pubend, span, requested=requested, digest=digest, purpose=questioner.purpose
        )
        messages = split(kind, ticks, events, self._limits, more=more)
        return [self._to_questioner(questioner, message) for message in messages]

    def _to_questioner(self, questioner: Questioner, message: Knowledge) -> Outgoing:
        if questioner.name in LOCAL:
            return ToCell(CellName(questioner.name), message)
        return ToBroker(BrokerName(questioner.name), message)

    def _offer(
        self, cell: CellName, run: Span, knowledge: Knowledge, now: Instant
    ) -> list[Outgoing]:
        """Send a cell below what has become known; silence alone may wait."""
        outlet, digest = self.outlets[cell], knowledge.digest
        out: list[Outgoing] = []
        for span in list(outlet.sent_spans.missing(run)):
            if outlet.silent_digest != digest:
                out += self._flush(cell)
                outlet.silent_digest = digest
            is_all = span == knowledge.span
            known = (knowledge.ticks, knowledge.events.events) if is_all else None
            ticks, events = self._passing(cell, digest, *(known or self.stream.events_in(span)))
            hole = bool(outlet.sent_spans) and span.start < outlet.sent_spans.end
            if ticks or hole or digest > outlet.digest or cell in LOCAL:
                outlet.digest = max(outlet.digest, digest)
                whole = outlet.tell(span)
                messages = retell(knowledge, whole, ticks, events, self._limits, self.lost_below)
                out += [ToCell(cell, message) for message in messages]
            else:
                outlet.silent_spans.add(span)
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

    def _flush(self, cell: CellName) -> list[Outgoing]:
        """Send a cell the silence that has waited."""
        outlet = self.outlets[cell]
        spans, digest = list(outlet.silent_spans), outlet.silent_digest
        outlet.silent_spans.clear()
        outlet.sent_spans.update(spans)
        return [
            ToCell(
                cell,
                Knowledge(
                    self.pubend, span, lost_below=min(self.lost_below, span.start), digest=digest
                ),
            )
            for span in spans
        ]

    # --- upstream: curiosity and acknowledgements -----------------------------------------------

    def receive_nack(
        self, name: str, cell: CellName | None, nack: Nack, now: Instant
    ) -> list[Outgoing]:
        """Answer what is known, and ask upstream for the rest. `cell` is None for a sibling."""
        questioner, out, unknown = Questioner(name, nack.purpose), list[Outgoing](), SpanSet()
        room = self.timing.answer_bytes_max
        for span in nack.spans[: self.timing.nack_spans_max]:
            rest = self._answer_final(questioner, cell, span, out)
            if rest is None:
                continue
            is_filtered = nack.purpose == Purpose.WHOLE and self.upstream != SOURCE
            if is_filtered or rest.end <= self.stream.base:
                unknown.add(rest)  # forgotten, or our silence may stem from filtering
                continue
            ticks, events = self.stream.events_in(rest)
            _, fitting = cut(events, nack.events_max or len(events), room)[0]
            room -= sum(map(len, events[:fitting]))
            more = fitting < len(events)
            if more:  # the questioner asks again for the rest
                rest = Span(rest.start, ticks[fitting])
            runs = list(self.stream.known.within(rest))
            for known in runs:
                last = more and known is runs[-1]
                found = self.stream.events_in(known)
                again = last or cell is None or nack.purpose > 0 or known.start < self._digest_from
                out += self._answer(
                    questioner, cell, known, *found, self.digest, more=last, requested=again
                )
            unknown.update(self.stream.known.missing(rest))
            if more:
                break
        if nack.purpose == Purpose.CATCH_UP:
            answers = [each.message for each in out if isinstance(each.message, Knowledge)]
            out = [self._to_questioner(questioner, each) for each in gather(answers, self._limits)]
        if unknown:
            self.questions.add(questioner, cell, unknown, now)
            out += self._ask_upstream(unknown, nack.purpose, now, nack.events_max)
        return out

    def _answer_final(
        self, questioner: Questioner, cell: CellName | None, span: Span, out: list[Outgoing]
    ) -> Span | None:
        """Answer that what the questioner no longer needs is final; return the rest of the span."""
        if questioner.purpose != Purpose.DELIVERY:
            return span
        final = self.acked if cell is None else self.outlets[cell].settled
        if span.start >= final:
            return span
        done = Span(span.start, min(span.end, final))
        out.append(self._to_questioner(questioner, settled(self.pubend, done, questioner.purpose)))
        return Span(done.end, span.end) if done.end < span.end else None

    def _ask_upstream(
        self, unknown: SpanSet, purpose: Purpose, now: Instant, events_max: int = 0
    ) -> list[Outgoing]:
        spans, count_max = self.questions.fresh(unknown, purpose, now), self.timing.nack_spans_max
        self.nacks_sent += bool(spans)
        return [
            ToCell(
                self.upstream,
                Nack(self.pubend, spans[at : at + count_max], None, purpose, events_max),
            )
            for at in range(0, len(spans), count_max)
        ]

    def ask_again(self, now: Instant) -> list[Outgoing]:
        """Repeat all open questions: the broker that was asked may be gone."""
        return [
            out
            for purpose, spans in self.questions.put_again(now)
            for out in self._ask_upstream(spans, purpose, now)
        ]

    def receive_ack(self, ack: Ack, now: Instant) -> list[Outgoing]:
        """Note that a cell needs nothing before `delivered`, and its durable subscriptions nothing
        before `released`."""
        outlet = self.outlets[ack.cell]
        outlet.report(ack.reporter, ReleaseReport(ack.epoch, ack.sequence, ack.released))
        if ack.delivered > outlet.settled:
            outlet.settle(ack.delivered)
            outlet.sent_spans.remove_below(ack.delivered)
            outlet.silent_spans.remove_below(ack.delivered)
            self.questions.remove_below(ack.delivered, ack.cell)
        self._acknowledge(now)
        return []

    @property
    def released(self) -> int:
        """The tick before which no durable subscription below needs anything."""
        released = min([each.released for each in self.outlets.values()], default=self.acked)
        return max(0, min(released, self.acked))

    def _acknowledge(self, now: Instant) -> None:
        for outlet in self.outlets.values():
            outlet.settle(outlet.settled)
        done = min([outlet.settled for outlet in self.outlets.values()], default=self.stream.end)
        if done > self.acked:
            self.acked = done
            self.questions.remove_below(done)
            self.stream.forget_below(done - (self.timing.past_window << PUBEND_BITS))
        self.reporter.notice(self.acked, self.released, now)

    def receive_ack_expected(self, tick: int, now: Instant) -> list[Outgoing]:
        """Pass the question on to the cells that owe an acknowledgement; answer if all have given
        it."""
        out: list[Outgoing] = [
            ToCell(cell, AckExpected(self.pubend, tick))
            for cell, outlet in self.outlets.items()
            if min(outlet.settled, outlet.released) < tick
        ]
        return out + (self._ack_upstream() if self.acked >= tick else [])

    def _ack_upstream(self) -> list[Outgoing]:
        ack = self.reporter.report(self.acked, self.released)
        return [] if ack is None else [ToCell(self.upstream, ack)]

    def receive_hold(self, cell: CellName, hold: ReleaseHold, now: Instant) -> ReleaseHold:
        """Release no more behind the cell than the hold says; return the hold to pass up."""
        self.outlets[cell].report(
            hold.reporter, ReleaseReport(hold.epoch, hold.sequence, hold.tick)
        )
        self._acknowledge(now)
        return self.reporter.hold(hold, self.released)

    def forget_reporter(self, cell: CellName, reporter: BrokerName, now: Instant) -> None:
        """Forget the reports of a broker that is gone, if others report for its cell."""
        if cell in self.outlets:
            self.outlets[cell].forget(reporter)
            self._acknowledge(now)

    # --- time, membership, invariants -----------------------------------------------------------

    def fire(self, now: Instant) -> list[Outgoing]:
        out: list[Outgoing] = []
        if self._flush_due is not None and now >= self._flush_due:
            self._flush_due = None
            out += [each for cell in self.outlets for each in self._flush(cell)]
        if self.reporter.is_due(now):
            out += self._ack_upstream()
        return out

    def add_cell(self, cell: CellName, start: int) -> None:
        """Count another cell below from `start` on, such as a merge that begins."""
        self.outlets[cell] = outlet = Outlet(settled=start)
        outlet.report(self.name, ReleaseReport(self.reporter.epoch, 0, start))

    def remove_cell(self, cell: CellName) -> None:
        del self.outlets[cell]
        self.questions.remove_cell(cell)

    def check(self) -> None:
        self.stream.check()
        for outlet in self.outlets.values():
            assert not any(outlet.sent_spans.overlaps(span) for span in outlet.silent_spans), "I1"
            assert outlet.settled >= self.acked or self.acked < 0, "I2"
        assert self.stream.event_count <= self.timing.cache_events_max, "I3"
        self.questions.check()
