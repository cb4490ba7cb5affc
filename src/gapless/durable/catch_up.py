"""Catch-up: one returning subscriber's way through one pubend, back to the consolidated stream.

Theory of operation
    The filtered log names the ticks that the subscription wants; all other ticks are silence. The
    catch-up has a subend of its own, which starts at the token and asks for exactly the wanted
    ticks, one window at a time. A window has at most `catch_up_window` wanted ticks, and no more
    than the client has credit for. When a window is wholly known, the catch-up opens the next. When
    the answer of the filtered log is used up, the catch-up reads that log again.
    If the pubend's log is at this broker (`fetch`), the catch-up reads the window from it and
    delivers it at once; it asks only for what is missing there. A window then takes half of the
    credit, because other subscriptions of the same client share that credit. A window ends at the
    roundest tick of its second half. So subscriptions with equal conditions arrive at the same
    windows, and one of them reads each window, or asks for it, for all (`catch_up_group`).
    The usual answer is one event at one wanted tick. Such answers gather, and `advance` gives them
    to the subend: consecutive wanted ticks in one piece, with the silence after each. Before any
    other answer, the subend is told all the silence of the window, piece by piece.
    Released events are lost, and the client is told one gap. This broker knows how far release has
    gone (`released`), or an answer says so. Nothing before that tick is read, asked for or looked
    up, so the cost does not depend on how much was released. The gap is held back until something
    follows that is not lost: then consecutive losses are one gap, in whatever pieces they came.
    The filtered log names no tick without an event. If an answer says that a wanted tick is silent,
    the catch-up asks the pubend itself; if the pubend agrees, the event is lost (`contradictions`).
    Of ticks before `since` the filtered log knows nothing: the subscription came from another
    broker, or starts in the past. The catch-up asks the pubend for all of them and filters here.
    The catch-up `is_done` when everything before the consolidated stream's durable position is
    delivered, and everything before `since`, which may lie ahead of that position after a crash.
    The node then adds the stream's `tail` and drops the catch-up.

Invariants (checked by `check`)
    I1  position <= what the subend gave out <= window_end; none moves back
    I2  at most `catch_up_window` events wait
    I3  position lies before a gap that is held back
    I4  an answer that the subend was not given yet is in the window, and not known there

Cost: a few dictionary steps for each wanted tick; the machinery works once per answered question.
Source: DSN 2003, sec. 4.1 (catchup stream, switchover); docs/protocols/durable-subscriptions.md,
3.2, 3.6, 3.8.
Deviation: the stream ends at the durable position and takes nothing beyond it from the live one.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.broker_messages import Knowledge, Nack
from gapless.core.events import EventBatch
from gapless.core.identity import Instant
from gapless.core.spans import SpanSet
from gapless.core.ticks import Span
from gapless.durable.consolidated import SubscriptionBatch
from gapless.durable.contradictions import Contradictions
from gapless.durable.filtered_log import LogReading, Trail
from gapless.knowledge.subend import Subend

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.durable.catch_up_group import CatchUpGroup
    from gapless.durable.filtered_log import FilteredLog
    from gapless.durable.timing import DurableTiming

    Matches = Callable[[Sequence[int], Sequence[bytes]], Sequence[int]]
    """Returns the indices of the events, at these ticks, that the subscription wants, ascending."""

    Fetch = Callable[[Sequence[int]], Sequence[bytes | None]]
    """Returns the events at these ticks, None where there is none; a prefix if it stops early."""

    Released = Callable[[], int]
    """Returns the tick below which the pubend has released everything, as far as is known here."""


class LostSpan(NamedTuple):
    """A span in which everything that the subscription wanted is lost."""

    span: Span


@dataclass(frozen=True, slots=True)
class Taker:
    """The subscription that catches up, as far as one pubend is concerned."""

    number: int  # in the filtered log
    since: int = 0  # of ticks before it the filtered log knows nothing
    matches: Matches | None = None  # its condition; None: it takes everything
    is_anew: bool = False  # where it was is lost: whatever it lacks before `since` is lost, too


@dataclass(frozen=True, slots=True)
class CatchUpSource:
    """Where a catch-up reads: the filtered log, and what else of the pubend is at this broker."""

    log: FilteredLog
    fetch: Fetch | None = None  # the pubend's own log; None: the events must be asked for
    group: CatchUpGroup | None = None  # of those with the same condition
    released: Released | None = None


class CatchUpWindow(Subend):
    """The subend of a catch-up: at most `window` events wait in it."""

    window = 1

    @property
    def _room(self) -> tuple[int, int]:
        return self.window, self.timing.waiting_bytes_max

    def ask_for(self, ticks: Sequence[int], now: Instant) -> list[Nack]:
        """Ask for these ticks while no question is open. One question must be able to take them."""
        spans = [Span(tick, tick + 1) for tick in ticks]
        if not spans or self.stream.size >= self.timing.waiting_bytes_max:
            return self._ask(spans, now)
        self._open_spans = SpanSet(spans)
        self._last_question = self._open_spans.copy()
        self._repeat_due = Instant(now + self._repeat_after)
        return [Nack(self.pubend, tuple(self._open_spans))]


def roundest(low: int, high: int) -> int:
    """The number in (low, high] with the most trailing zeros in binary; `high` if there is none."""
    zeros = max(0, (low ^ high).bit_length() - 1)
    return high >> zeros << zeros


class CatchUp:
    """One subscription, one pubend. Sans-IO: see the module docstring."""

    def __init__(
        self, taker: Taker, start: int, source: CatchUpSource, timing: DurableTiming
    ) -> None:
        self.taker = taker.number
        self.since = taker.since
        self.matches = taker.matches
        self.log = source.log
        self.fetch = source.fetch
        self.group = source.group
        self.released = source.released
        self.timing = timing
        self.position = start  # everything before it is delivered
        self.subend = CatchUpWindow(self.log.pubend, start, timing)
        self.subend.window = timing.catch_up_window
        self.window_end = start  # the subend was told of everything before it
        self._reading = LogReading(start, start, [], start, start)
        self._trail = self.group.trail if self.group is not None else Trail()
        self._window: list[int] = []  # the wanted ticks of the current window
        self._is_silence_known = True  # does the subend know the silence between those?
        self._answers: dict[int, bytes] = {}  # not yet given to the subend
        self._wanted_ticks: set[int] = set()  # of the window, and not delivered yet
        self._unknown_spans = SpanSet()  # of the window; the filtered log knows nothing of them
        self._contradictions = Contradictions(self.log.pubend, timing, is_whole=start < self.since)
        self._lost_below = taker.since if taker.is_anew else 0
        self._gap: Span | None = None  # held back: the loss may continue
        self._shared_from = start  # from here on nothing wanted lies before what is read next
        self._read_due: Instant | None = None
        self.is_waiting = False  # would it have asked for more, given room?
        self.is_shared = False  # did another catch-up read what was delivered last?

    def is_done(self, latest: int) -> bool:
        """Is all before the consolidated stream's durable position delivered?"""
        return self.position >= max(latest, self.since)

    @property
    def deadline(self) -> Instant | None:
        due = [self.subend.deadline, self._read_due]
        return min((each for each in due if each is not None), default=None)

    # --- in order, as fast as the client takes it -----------------------------------------------

    @property
    def open_count(self) -> int:
        """How many events are asked for and not delivered; the limit, where that is unknown."""
        return len(self._wanted_ticks) + (self.timing.catch_up_window if self._unknown_spans else 0)

    def advance(
        self, latest: int, credit: int, now: Instant, room: int = 1 << 62
    ) -> tuple[list[SubscriptionBatch | LostSpan], list[Nack]]:
        """What to deliver now (at most `credit` events), and what to ask for (at most `room`
        events). From a log at this broker it takes one window.

        Call it after every other method, and when `latest`, credit or room has grown.
        """
        self.is_waiting = self.is_shared = False
        latest = max(latest, self.since)
        pieces, nacks = list[SubscriptionBatch | LostSpan](), self._take_in(now)
        denied = self._contradictions.ask()
        while not self.is_done(latest):
            before = self.subend.taken, self.window_end
            events = self._deliver(latest, credit, pieces, now)
            credit -= events
            if credit:
                if events and self._unknown_spans and self.subend.horizon < self.window_end:
                    nacks += self.subend.expect(self.window_end, now)  # there is room again
                if room:
                    part = credit if self.fetch is None else min((credit + 1) // 2, room)
                    if shared := self._share(part, pieces, now):
                        credit, room = credit - shared, 0
                        continue
                    part = min(part, room)
                    nacks += self._open_window(latest, part, now)
                    room = 0 if self.fetch is not None and self._wanted_ticks else room
                else:
                    self.is_waiting = (
                        self.window_end <= self.subend.horizon and self.window_end < latest
                    )
            if before == (self.subend.taken, self.window_end):
                break
        return pieces, denied + self._contradictions.address(nacks)

    def _deliver(
        self, latest: int, credit: int, pieces: list[SubscriptionBatch | LostSpan], now: Instant
    ) -> int:
        """Append what is settled to `pieces`; return the number of events."""
        subend = self.subend
        through = subend.horizon
        if through > subend.taken:
            ticks, _ = subend.stream.events_in(Span(subend.taken, through))
            through = ticks[credit] if credit < len(ticks) else through
        settled = subend.take(through, now)
        self._unknown_spans.remove_below(through)
        self._wanted_ticks = {tick for tick in self._wanted_ticks if tick >= through}
        low = 0
        for _, lost in settled.lost:
            high = bisect_left(settled.ticks, lost.start)
            self._add(
                SubscriptionBatch(settled.ticks[low:high], settled.events[low:high], lost.start),
                pieces,
            )
            self._gap = Span(self._gap.start if self._gap else lost.start, lost.end)
            low = high
        last = SubscriptionBatch(settled.ticks[low:], settled.events[low:], through)
        self._add(self._keep(last, has_lost=bool(settled.lost)), pieces)
        if self._gap and through >= latest:
            self._add_gap(pieces)
            self._add(SubscriptionBatch([], [], through), pieces)
        return len(settled.ticks)

    def _keep(self, batch: SubscriptionBatch, *, has_lost: bool) -> SubscriptionBatch:
        """Let the group share a batch; return the one to deliver, which has the same events."""
        if has_lost or self._gap or self._shared_from < self.since:
            self._shared_from = batch.through
        elif batch.ticks:
            start, self._shared_from = self._shared_from, batch.through
            return batch if self.group is None else self.group.keep(start, batch)
        return batch

    def _add(self, batch: SubscriptionBatch, pieces: list[SubscriptionBatch | LostSpan]) -> None:
        """Deliver a batch. Silence alone does not end a gap: the loss may continue after it."""
        if self._gap and batch.ticks:
            self._add_gap(pieces)
        if not self._gap and batch.through > self.position:
            pieces.append(batch)
            self.position = batch.through

    def _add_gap(self, pieces: list[SubscriptionBatch | LostSpan]) -> None:
        assert self._gap is not None
        pieces.append(LostSpan(self._gap))
        self.position, self._gap = self._gap.end, None

    def _share(self, room: int, pieces: list[SubscriptionBatch | LostSpan], now: Instant) -> int:
        """Deliver what another catch-up has read from here on; return the number of events."""
        start, subend = self.position, self.subend
        if (
            self.group is None
            or start < max(self.window_end, self.since, self._lost_below)
            or self._gap
        ):
            return 0
        batch = self.group.batch(start, min(room, self.timing.catch_up_window))
        if batch is None:
            return 0
        self._window = []
        self.window_end = subend.seen = self._shared_from = batch.through
        self._tell(Span(start, batch.through), now)  # the subend may take it for silence
        subend.take(batch.through, now)
        self.is_shared = True
        self._add(batch, pieces)
        return len(batch.ticks)

    # --- what is wanted -------------------------------------------------------------------------

    def _open_window(self, latest: int, credit: int, now: Instant) -> list[Nack]:
        """If the last window is wholly known, tell the subend of the next wanted ticks."""
        subend = self.subend
        room = min(self.timing.catch_up_window, credit) - subend.stream.event_count
        if subend.horizon < self.window_end or self.window_end >= latest or room <= 0:
            return []
        self._read_due = None
        self._contradictions.clear()
        if self.released is not None:
            self._lost_below = max(self._lost_below, self.released())
        if self.window_end >= self._reading.through:
            self._reading = self._read(latest)
            if self._reading.through == self.window_end:  # one read was not enough
                self._read_due = Instant(now + 1)
                return []
        self._reading = self._reading.lose_below(self._lost_below)
        if self.fetch is None:  # more than one question takes would only be in the way
            room = min(room, self.timing.nack_spans_max)
        start, end = self.window_end, self._next_end(room)
        self.window_end = subend.seen = end
        return self._tell_known(Span(start, end), now)

    def _read(self, latest: int) -> LogReading:
        """What the filtered log knows from here on, or what another of the group has read of it."""
        group, start = self.group, self.window_end
        found = None if group is None or start < self.since else group.reading(start)
        if found is None:
            found = self.log.read(
                self.taker,
                start,
                latest,
                since=self.since,
                released=self._lost_below,
                trail=self._trail,
            )
            if group is not None:
                group.note(found)
        if found.unknown_below > max(start, self.since):  # the log is damaged there
            self._contradictions.is_whole = True
        return found

    def _next_end(self, room: int) -> int:
        """The end of the next window: that of its zone, or after as many wanted ticks as fit."""
        unknown_below, lost_below, wanted, unknown_from, through = self._reading
        for end in (unknown_below, lost_below):
            if self.window_end < end:
                return end
        if self.window_end < unknown_from:
            place = bisect_left(wanted, self.window_end) + room
            if place >= len(wanted):
                return unknown_from
            middle = wanted[place - (room // 2 if self.group is not None else 0)]
            return roundest(middle, wanted[place])
        return through

    def _tell_known(self, span: Span, now: Instant) -> list[Nack]:
        """Tell the subend what the log knows of a span within one zone; ask for the rest."""
        reading, start = self._reading, span.start
        self._window = []
        if span.end <= reading.unknown_below or start >= reading.unknown_from:
            self._unknown_spans.add(span)
            if start < self._lost_below:
                self._tell(Span(start, min(span.end, self._lost_below)), now, lost=True)
        elif span.end <= reading.lost_below:
            self._tell(span, now, lost=True)
        else:
            low, high = (bisect_left(reading.wanted, edge) for edge in (start, span.end))
            window = self._window = reading.wanted[low:high]
            self._wanted_ticks.update(window)
            first = window[0] if window else span.end
            if start < first:
                self._tell(Span(start, first), now)
            self._is_silence_known = False
            if self.fetch is None:
                return self.subend.ask_for(window, now)
            arrived = zip(window, self.fetch(window), strict=False)
            self._answers = {tick: event for tick, event in arrived if event is not None}
            self._take_in(now)
            if self.subend.horizon == span.end:
                return []
            self._tell_silence(now)
        return self.subend.expect(span.end, now)

    def _tell_silence(self, now: Instant) -> None:
        """Tell the subend all the silence of the window, once."""
        if self._is_silence_known or not self._window:
            return
        self._is_silence_known = True
        ends = [*self._window[1:], self.window_end]
        for tick, end in zip(self._window, ends, strict=True):
            if tick + 1 < end and not self.subend.stream.known.covers(Span(tick + 1, end)):
                self._tell(Span(tick + 1, end), now)

    def _tell(self, span: Span, now: Instant, *, lost: bool = False) -> list[Nack]:
        knowledge = Knowledge(self.log.pubend, span, lost_below=span.end if lost else 0)
        return self.subend.receive_knowledge(knowledge, now)

    # --- answers --------------------------------------------------------------------------------

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> list[Nack]:
        """Learn what was asked for; ignore everything else."""
        if not knowledge.damaged:
            self._lost_below = max(self._lost_below, knowledge.lost_below)
        gone = max(knowledge.lost_below, knowledge.final_below)
        if knowledge.scattered:
            for tick in self._wanted_ticks.intersection(knowledge.ticks).difference(self._answers):
                if tick not in self.subend.stream.known:
                    place = bisect_left(knowledge.ticks, tick)
                    self._answers[tick] = knowledge.events.events[place]
            return []
        tick = knowledge.span.start
        if (
            knowledge.ticks == (tick,)
            and tick in self._wanted_ticks
            and knowledge.span.end == tick + 1
        ):
            if tick not in self.subend.stream.known:
                self._answers.setdefault(tick, knowledge.events[0])
            return []
        nacks = self._take_in(now)
        start = max(knowledge.span.start, self.subend.horizon)
        end = min(max(knowledge.span.end, knowledge.lost_below), self.window_end)
        lost_end = self._lost_end(min(gone, end))
        if start < lost_end and not self.subend.stream.events_in(Span(start, lost_end))[0]:
            nacks += self._tell(Span(start, lost_end), now, lost=True)  # in one piece
            start = lost_end
        self._tell_silence(now)
        if start >= end:
            return self._contradictions.address(nacks)
        low, high = (bisect_left(self._window, edge) for edge in (max(start, gone), end))
        known = self.subend.stream.known
        denied, doubtful = self._contradictions.judge(knowledge, self._window[low:high], known)
        for each in denied:
            nacks += self._tell(each, now, lost=True)
        missing = SpanSet(known.missing(Span(start, end)))
        missing.difference_update(doubtful)
        parts = list(missing)
        for part in parts:
            ticks, events = self._for_us(knowledge, part)
            answer = Knowledge(
                knowledge.pubend,
                part,
                ticks,
                events,
                lost_below=min(gone, part.end) if gone > part.start else 0,
                more=knowledge.more and part is parts[-1],
            )
            nacks += self.subend.receive_knowledge(answer, now)
        return self._contradictions.address(nacks)

    def _lost_end(self, gone: int) -> int:
        """The end of the wanted ticks that are lost, if everything below `gone` is."""
        place = bisect_left(self._window, gone)
        return self._window[place - 1] + 1 if place else gone

    def lacks(self, span: Span) -> bool:
        """Is this span, which was asked for, still unknown?"""
        if span.end <= self.subend.horizon or span.start in self._answers:
            return False
        return not self.subend.stream.known.covers(span)

    def _take_in(self, now: Instant) -> list[Nack]:
        """Give the subend the answers, in runs with the silence between and after them."""
        arrived, self._answers = self._answers, {}
        ticks, window, nacks = sorted(arrived), self._window, list[Nack]()
        while ticks:
            low = bisect_left(window, ticks[0])
            pairs = enumerate(zip(window[low:], ticks, strict=False))
            count = next((at for at, (want, got) in pairs if want != got), len(ticks))
            run, ticks = ticks[:count], ticks[count:]
            end = window[low + count] if low + count < len(window) else self.window_end
            events = EventBatch.join(map(arrived.__getitem__, run))
            knowledge = Knowledge(self.log.pubend, Span(run[0], end), tuple(run), events)
            nacks += self.subend.receive_knowledge(knowledge, now)
        return nacks

    def _for_us(self, knowledge: Knowledge, part: Span) -> tuple[tuple[int, ...], EventBatch]:
        """The wanted events of a part: the filtered log names them, or the condition matches."""
        low, high = (bisect_left(knowledge.ticks, edge) for edge in (part.start, part.end))
        chosen = [i for i in range(low, high) if knowledge.ticks[i] in self._wanted_ticks]
        if self._unknown_spans:
            doubtful = [i for i in range(low, high) if knowledge.ticks[i] in self._unknown_spans]
            if self.matches is not None:
                events = [knowledge.events[i] for i in doubtful]
                ticks = [knowledge.ticks[i] for i in doubtful]
                doubtful = [doubtful[i] for i in self.matches(ticks, events)]
            chosen = sorted({*chosen, *doubtful})
        return tuple(knowledge.ticks[i] for i in chosen), knowledge.events.pick(chosen)

    def fire(self, now: Instant) -> list[Nack]:
        """Ask again for what did not come; `advance` continues reading."""
        self._read_due = None
        return self._contradictions.address(self._take_in(now) + self.subend.fire(now))

    def check(self) -> None:
        self.subend.check()
        assert self.position <= self.subend.taken <= self.subend.horizon <= self.window_end, "I1"
        waiting = self.subend.stream.event_count + len(self._answers)
        assert waiting <= self.timing.catch_up_window, "I2"
        assert self._gap is None or self.position <= self._gap.start, "I3"
        assert self._answers.keys() <= set(self._window), "I4"
        assert not any(tick in self.subend.stream.known for tick in self._answers), "I4"
