"""Pubend: publications become an ordered, durable stream of ticks.

Theory of operation
    Each event gets a tick of its own, after all earlier ones and not before the clock. While one
    write is under way, new publications wait and go into the next write: the group commit. Once a
    write is durable, and not before, its receipts leave and its events, with the silence around
    them, become known: everything below `end` is settled for ever.
    An idle pubend moves `end` along with its clock, so that horizons below it advance: the longer
    nothing was published and nobody asked, the more rarely, so many idle topics cost next to
    nothing. A broker that waits for silence asks for it, and gets it at once. A promise of silence
    must hold after a crash too: how far promises may go is persisted ahead of need, and a restart
    begins beyond it. A clock far beyond all others is not believed (`CLOCK_MAX`), because a promise
    cannot be taken back.
    What everyone below has acknowledged is released: chopped from the log, and final from then on.
    How far release has come goes down with every message, for catch-ups.
    If the acknowledgement of the last event does not come, the pubend asks for it.

Invariants (checked by `check`)
    I1  released <= end, and every tick in the log lies between them
    I2  no event ever gets a tick below `end` or below the persisted promise at a restart, except
        the rest of a transaction: while one is copied (`transactions`), nothing is promised
    I3  at most `publish_pending_max` events wait, or one publication if that has more, and as
        many repeats of old ones (beyond it a publication is refused)

Source: DSN 2002, sec. 2.2 (pubends); docs/protocols/exactly-once.md, 4.2.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.broker_messages import Knowledge, Nack, Purpose
from gapless.core.client_messages import (
    Publish,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Refused,
)
from gapless.core.effects import NO_ROOM, Append, Effect, Persist, Put, Send, Tell, Write
from gapless.core.errors import StorageDamagedError, quoted
from gapless.core.events import EventBatch
from gapless.core.identity import Instant, PubendName
from gapless.core.messages import Message
from gapless.core.ticks import CLOCK_MAX, INSTANT_MAX, PUBEND_BITS, TICK_MAX, Span, tick_at
from gapless.knowledge.ack_timer import AckTimer
from gapless.knowledge.answers import answer, damaged, look_up, settled
from gapless.knowledge.batch import size_of
from gapless.knowledge.past import SAME_DISK, DiskHistory, Past, PastStore
from gapless.knowledge.publications import PublicationRequest, WriteBatch, gather
from gapless.knowledge.receipts import STEP, TOO_MANY, UNHEARD_OF, Publishers, refuse, why_not
from gapless.knowledge.retention import Policy, Release
from gapless.knowledge.transactions import PubendTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.identity import ClientName
    from gapless.core.store import Store
    from gapless.core.transaction_messages import Commit
    from gapless.knowledge.timing import KnowledgeTiming

FOR_EVER = Policy()
LAST_TICK = (INSTANT_MAX - 3_600_000_000) << PUBEND_BITS
"""From this tick on, there may be no ticks left for further events."""

OVER = "no ticks are left: the clock of the pubend's broker was once beyond the year 2255"
ANEW = "Set its clock, read what is to be kept, delete the topic and create it anew."
PROMISES = "promises"
IDLE_PAUSE_PART = 16
"""An idle pubend pauses for at most this fraction of the time since it was last active."""

PROMISE, CHOP = 0, -1  # instead of the number of a write


class Persisted(Message, frozen=True):
    """To the pubend itself: its write of this number, a promise, or a chop of its log is durable
    (or, if not `ok`, the disk had no room)."""

    pubend: PubendName
    number: int
    ok: bool = True


class Pubend:
    """One pubend at its host. Sans-IO: see the module docstring."""

    make_transactions = PubendTransactions

    def __init__(
        self,
        name: PubendName,
        number: int,
        store: Store,
        timing: KnowledgeTiming,
        now: Instant,
        policy: Policy = FOR_EVER,
        disk: DiskHistory = SAME_DISK,
    ) -> None:
        self.name = name
        self.number = number
        self.stream = f"log/{name}"
        self.timing = timing
        released, logged = store.bounds(self.stream)
        promise = int.from_bytes(store.get(PROMISES, name) or b"", "little")
        self.promise = min(promise, TICK_MAX)
        self.transactions = self.make_transactions(name, store, timing, now)
        copied = self.transactions.end
        self.past = Past(name, store, self.promise, copied, now, disk, timing.promise_step)
        self.store = PastStore(store, self.past)
        born = self.past.born
        self.release = Release(self.stream, self.store, policy, timing, self._tell(CHOP), born)
        self.end = max(logged, self.promise, born)
        if self.past.has_found_loss:
            self.end = max(self.end, self.past.doubtful_span.end)
        self.newest = logged if logged > released else 0  # all events lie below it
        self.publishers = Publishers(store, name, timing, self.past.number_floor)
        self.pending_requests: deque[PublicationRequest] = deque()
        self.batch = WriteBatch()  # under write
        self.is_unheard: Callable[[], bool] = bool  # the broker says whether anybody subscribes
        self.pending_count = 0  # events in `pending_requests` and `batch`
        self.pending_size = 0  # and their bytes
        self._write_number = 0
        self._promising = 0  # the promise that is being persisted
        self._recalled = 0  # an earlier life had promised everything below
        self._wanted_end = 0  # silence up to here was asked for
        self._deferred_nacks: deque[Nack] = deque()  # they were too much for one step
        self._deferred_due: Instant | None = None
        self._silence_due = now
        self._active_at = now  # when something was last published or asked for
        self._has_given_way = False  # did a transaction go before the pending requests?
        if self.transactions.copy is not None:
            self.end = self.transactions.resume(logged)
        self.transactions.is_hearing = self.past.is_hearing
        self._forget_numbers()
        self.ack_timer = AckTimer(timing)
        self.digest = 0  # of the messages that tell of events; the node sets it
        self._expect(now)

    @property
    def deadline(self) -> Instant | None:
        due = self._silence_due
        if self._deferred_due is not None and self._deferred_due < due:
            due = self._deferred_due
        for machine in (self.release, self.ack_timer, self.transactions):
            other = machine.deadline
            if other is not None and other < due:
                due = other
        return due

    @property
    def released(self) -> int:
        return self.release.chop_end

    @property
    def is_over(self) -> bool:
        """Are there no ticks left? Only if an old version, which believed any clock, has promised
        silence up to the end of time."""
        return self.end >= LAST_TICK

    # --- publishing -----------------------------------------------------------------------------

    def publish(
        self, client: ClientName, message: Publish, now: Instant, owner: str = ""
    ) -> list[Effect]:
        """Accept a publication; its receipt leaves when it is durable. `owner` is the identity that
        the client has proved."""
        if self.is_over:
            return [refuse(client, message, OVER, ANEW)]
        fresh, name = message.events.events, message.publisher
        if name is not None:
            following, term, opening = self.publishers.place(name)
            if message.term != term:
                return [refuse(client, message, *why_not(name, message.term, term))]
            if message.sequence > following:
                return [refuse(client, message, f"event {following} of {quoted(name)} is missing")]
            if not term and self.publishers.floor and not self.publishers.is_known(name):
                problem = f"publisher {quoted(name)} is not known here: idle ones are forgotten"
                return [refuse(client, message, problem, UNHEARD_OF)]
            if problem := self.publishers.refusal(name, owner, now):
                return [refuse(client, message, problem, TOO_MANY)]
            fresh = fresh[following - message.sequence :]
        size = size_of(fresh)
        if self._is_full(len(fresh), size):
            return [refuse(client, message, "the pubend has more to write than it can take")]
        if name is not None:
            self.publishers.accept(name, owner, (following + len(fresh), term, opening))
        self.pending_count += len(fresh)
        self.pending_size += size
        self.pending_requests.append(PublicationRequest(client, message, fresh, size))
        return self._go_on(now)

    def position(
        self, client: ClientName, query: PublisherQuery, now: Instant, owner: str = ""
    ) -> list[Effect]:
        """Give a client that takes a publisher's name over its term and its next number. The answer
        leaves when both are durable: a crash must not take back where the client begins."""
        name = query.publisher
        if self.past.is_hearing and not self.publishers.is_known(name):
            return [refuse(client, query, "the pubend has just started and asks for its past")]
        if self.is_over:
            return [refuse(client, query, OVER, ANEW)]
        if self._is_full(0, 0):
            return [refuse(client, query, "the pubend has more to write than it can take")]
        if problem := self.publishers.refusal(name, owner, now):
            return [refuse(client, query, problem, TOO_MANY)]
        term = self.publishers.take_over(query, owner, now)
        first = self.publishers.first
        self.pending_requests.append(
            PublicationRequest(client, query, (), 0, term=term, first_number=first)
        )
        return self._go_on(now)

    def _is_full(self, count: int, size: int) -> bool:
        """Would these exceed what may wait? A single publication always may."""
        timing = self.timing
        if len(self.pending_requests) >= timing.publish_pending_max:
            return True
        return self.pending_count > 0 and (
            self.pending_count + count > timing.publish_pending_max
            or self.pending_size + size > timing.publish_pending_bytes_max
        )

    def _go_on(self, now: Instant) -> list[Effect]:
        """Start the next write: publications and transactions take turns."""
        if self.is_over:
            return []
        self._skip_recalled()
        transactions = self.transactions
        if self.batch.requests or not transactions.wants_to_write:
            return self._write(now)
        if transactions.copy is None and self._has_given_way and self.pending_requests:
            self._has_given_way = False
            return self._write(now)
        self._has_given_way = True
        try:
            writes = transactions.write(self.stream, self._next_tick(now))
        except StorageDamagedError:
            return self._lose_staged() or transactions.refuse_damaged() + self._go_on(now)
        return [self._persist(writes)]

    def _lose_staged(self) -> list[Effect]:
        """The rest of a committed transaction cannot be read: note that it is lost. Whoever wants
        it asks, and is told; no later life uses its ticks."""
        lost = self.transactions.lose_rest()
        if lost is None:
            return []
        span, ending = lost
        self.past.add(span)
        self._recalled = max(self._recalled, span.end)
        self.promise = max(self.promise, span.end)
        fact = Put(PROMISES, self.name, self.promise.to_bytes(8, "little"))
        return [self._persist((fact, *ending))]

    def commit(
        self, client: ClientName, message: Commit, now: Instant, owner: str = ""
    ) -> list[Effect]:
        """Publish what is staged; `transactions` handles the other requests."""
        if self.is_over:
            return [Send(client, Refused(message.request, OVER, ANEW))]
        return self.transactions.commit(client, message, owner) + self._go_on(now)

    def _persist(self, writes: tuple[Write, ...], receipts: Sequence[Effect] = ()) -> Persist:
        """`receipts` leave as soon as the writes are durable, before we are told."""
        self._write_number += 1
        done, failed = self._tell(self._write_number)
        return Persist((*self.past.write(), *writes), (*receipts, done), (failed,))

    def _tell(self, number: int) -> tuple[Tell, Tell]:
        """The messages that a write is durable, and that it failed."""
        return Tell(Persisted(self.name, number)), Tell(Persisted(self.name, number, ok=False))

    def _write(self, now: Instant) -> list[Effect]:
        """Write the pending requests as one batch, unless a write is under way."""
        if self.batch.requests or self.transactions.is_copying or not self.pending_requests:
            return []
        limits = self.timing.batch_events_max, self.timing.batch_bytes_max
        publishers, runs_max = self.publishers.records, self.timing.receipts_max
        batch = gather(self.pending_requests, self._next_tick(now), limits, publishers, runs_max)
        self.batch = batch
        writes: list[Write] = []
        if batch.events:
            writes.append(Append(self.stream, batch.ticks, batch.events))
        receipts = [self._receipt(request) for request in batch.requests]
        return [self._persist((*writes, *self.publishers.writes(batch.publishers)), receipts)]

    def _next_tick(self, now: Instant) -> int:
        """The first free tick of this pubend that is not before the clock."""
        instant = max(min(now, CLOCK_MAX), -(-self.end >> PUBEND_BITS))
        return tick_at(Instant(instant), self.number)

    def persisted(self, message: Persisted, now: Instant) -> tuple[list[Effect], list[Knowledge]]:
        """Handle the end of a write: tell what is settled, start the next write. Its receipts have
        left (`_persist`)."""
        if message.number == PROMISE:
            return self._promised(now, ok=message.ok)
        if message.number == CHOP:
            self.release.chopped(now, ok=message.ok)
        if message.number != self._write_number:
            return [], []
        self.past.is_durable |= message.ok
        if self.transactions.is_writing:
            effects = self.transactions.written(now, ok=message.ok)
            knowledge = self._tell_copied(now)
            return effects + self._go_on(now), knowledge
        batch, self.batch = self.batch, WriteBatch()
        self.pending_count -= len(batch.events)
        self.pending_size -= batch.size
        if not message.ok:
            return self._refuse_all(batch.requests) + self._go_on(now), []
        self.publishers.written(batch.publishers)
        knowledge = self._settle(batch.ticks, batch.events, batch.size, now)
        effects = self._go_on(now)
        if not self.batch.requests and not self.pending_requests:
            self.publishers.settle()
        return effects, knowledge

    def _tell_copied(self, now: Instant) -> list[Knowledge]:
        ticks, events = self.transactions.tell()
        return self._settle(ticks, events, size_of(events), now)

    def _settle(
        self, ticks: Sequence[int], events: Sequence[bytes], size: int, now: Instant
    ) -> list[Knowledge]:
        """Tell that these are in the log: everything up to the last of them is settled."""
        if not ticks:
            return []
        span = Span(self._unspoken, ticks[-1] + 1)
        self.newest = self.end = span.end
        self.release.append(ticks[0], size, now)
        self._active_at = now
        self._silence_due = self._next_silence(now)
        self._expect(now)
        batch = EventBatch.join(events)
        known = Knowledge(
            self.name, span, tuple(ticks), batch, lost_below=self.released, digest=self.digest
        )
        return [known]

    def _receipt(self, request: PublicationRequest) -> Send:
        """The answer to a request of the batch under write."""
        message, name = request.message, request.message.publisher
        record = self.batch.publishers.get(name) if name is not None else None
        if name is not None and record is None:
            record = self.publishers.records[name]
        if isinstance(message, PublisherQuery):
            assert record is not None
            position = PublisherPosition(message.request, record.next, request.term)
            return Send(request.client, position)
        count, first = len(message.events), request.first_tick
        if record is None:
            ticks = tuple(range(first, first + count * STEP, STEP))
        else:
            ticks = record.ticks(message.sequence, count)
        unheard = self.is_unheard()
        return Send(request.client, Receipt(message.request, self.name, ticks, unheard=unheard))

    def _refuse_all(self, requests: list[PublicationRequest]) -> list[Effect]:
        """Refuse all requests, in order: the disk had no room, and nothing was written."""
        refused = [*requests, *self.pending_requests]
        self.pending_requests.clear()
        self.pending_count = self.pending_size = 0
        self.publishers.settle()
        return [refuse(each.client, each.message, NO_ROOM) for each in refused]

    # --- earlier lives --------------------------------------------------------------------------

    @property
    def _unspoken(self) -> int:
        """Where the next word begins. What may be lost is left out until that is known: whoever
        needs it asks."""
        doubt = self.past.doubtful_span
        if self.past.is_doubtful and doubt.start <= self.end < doubt.end:
            return doubt.end
        return self.end

    @property
    def vouched(self) -> int:
        """The tick up to which this pubend may have spoken, as its disk has it."""
        return max(self.promise, self.newest, self.past.born if self.past.is_durable else 0)

    def recall(self, spoken: int, now: Instant) -> list[Effect]:
        """Another broker has it that this pubend had promised everything below `spoken`. If that is
        more than the disk knows, what lies between is lost."""
        if self.past.is_news(spoken):
            self.past.lose()
            self._forget_numbers()
        elif spoken <= max(self.end, self._recalled):
            return []
        self._recalled = max(self._recalled, spoken, self.past.doubtful_span.end)
        self._skip_recalled()
        self._promising = max(self._promising, self._recalled)
        fact = Put(PROMISES, self.name, self._promising.to_bytes(8, "little"))
        done, failed = self._tell(PROMISE)
        forgotten = tuple(self.publishers.writes({}))
        return [Persist((*self.past.write(), fact, *forgotten), (done,), (failed,))]

    def _skip_recalled(self) -> None:
        """Go beyond what an earlier life has promised, unless ticks before it are being used."""
        if not self.batch.requests and not self.transactions.is_copying:
            self.end = max(self.end, self._recalled)

    def _forget_numbers(self) -> None:
        """After a loss: numbers of publishers and producers may have been used."""
        self.transactions.lost_before = self.past.number_floor << PUBEND_BITS
        if self.past.has_found_loss:
            self.publishers.lose(self.past.number_floor)

    def end_hearing(self) -> None:
        """All other brokers have answered, or were waited for long enough."""
        self.past.is_hearing = self.transactions.is_hearing = False

    # --- silence --------------------------------------------------------------------------------

    def speak(self, now: Instant) -> tuple[list[Effect], list[Knowledge]]:
        """Say at once what is settled, to carry other news; a write under way soon will."""
        self._active_at = now
        return self._promise_silence(now)

    def _promise_silence(
        self, now: Instant, *, is_promised: bool = False
    ) -> tuple[list[Effect], list[Knowledge]]:
        """Settle the ticks up to the clock, or as far as was asked for, as silence: at least one
        tick, even if the clock is behind, as a sign of life.
        `is_promised`: a promise was just written. If time has passed it already, as on a slow disk,
        tell what it covers before the next promise; otherwise nothing would ever be told."""
        if (
            self.batch.requests
            or self.pending_requests
            or self.transactions.is_busy
            or self.is_over
        ):
            return [], []
        skew_end = min(now + self.timing.clock_skew_max, CLOCK_MAX) << PUBEND_BITS
        clock_end = min(now, CLOCK_MAX) << PUBEND_BITS
        wanted, end = self._wanted_end, max(clock_end, self.end + 1)
        end = max(end, min(wanted, skew_end))
        is_part = is_promised and end > self.promise > self.end
        if is_part:
            end = self.promise
        elif end > self.promise:
            if self._promising:
                return [], []
            self._promising = end + (self.timing.promise_step << PUBEND_BITS)
            fact = Put(PROMISES, self.name, self._promising.to_bytes(8, "little"))
            done, failed = self._tell(PROMISE)
            return [Persist((*self.past.write(), fact), (done,), (failed,))], []
        start = self._unspoken
        end = max(end, start + 1)
        knowledge = Knowledge(self.name, Span(start, end), lost_below=self.released)
        self.end = end
        self._wanted_end = wanted if is_part else 0
        self._silence_due = self._next_silence(now)
        return [], [knowledge]

    def _next_silence(self, now: Instant) -> Instant:
        """When an idle pubend speaks next: after a fraction of the time that it was idle."""
        timing, idle = self.timing, now - self._active_at
        pause = min(idle // IDLE_PAUSE_PART, timing.idle_silence_longest)
        return Instant(now + max(pause, timing.idle_silence))

    def _promised(self, now: Instant, *, ok: bool) -> tuple[list[Effect], list[Knowledge]]:
        promised, self._promising = self._promising, 0
        if not ok:
            return [], []  # no room: it tries again when it is idle next
        self.promise = max(self.promise, promised)
        self.past.is_durable = True
        return self._promise_silence(now, is_promised=True)

    # --- curiosity and acknowledgements ---------------------------------------------------------

    def receive_nack(self, nack: Nack, now: Instant) -> tuple[list[Effect], list[Knowledge]]:
        """Answer from the log: what is final, what is an event, and that all else is silent. A
        large answer to a catch-up is read in several steps. Of what may be lost nothing is said
        yet: it will be asked for again."""
        answers, spans = self._tell_lost(nack)
        spans = [part for span in spans for part in self.past.settled_parts(span)]
        room = self.timing.answer_bytes_max
        if nack.purpose == Purpose.CATCH_UP:
            limits = self.timing.batch_events_max, self.timing.batch_bytes_max
            found, spans, late = look_up(
                self.store, self.stream, self.name, spans, limits, self.timing.answer_bytes_max
            )
            answers += found
            if late:
                self._put_off(replace(nack, spans=tuple(late)), now)
        for span in spans:
            self._wanted_end = max(self._wanted_end, span.end)
            release = self.release
            kept = release.chop_end, release.next_chop_end, self.end
            answers += answer(self.store, self.stream, kept, span, nack, room)
            room -= sum(size_of(answer.events.events) for answer in answers[-1:])
            if answers and answers[-1].more:
                break
        self.ack_timer.heard()
        is_late = self._wanted_end > self.end
        if is_late:
            self._active_at = now
        effects, knowledge = self._promise_silence(now) if is_late else ([], [])
        return effects, answers + knowledge

    def _put_off(self, nack: Nack, now: Instant) -> None:
        """Answer this in the next step, unless too much is deferred: then it will be asked
        again."""
        if len(self._deferred_nacks) * self.timing.nack_spans_max < self.timing.catch_up_spans_max:
            self._deferred_nacks.append(nack)
            self._deferred_due = Instant(now + 1)

    def _answer_late(self, now: Instant) -> tuple[list[Effect], list[Knowledge]]:
        """Answer the next deferred question."""
        if self._deferred_due is None or now < self._deferred_due:
            return [], []
        nack = self._deferred_nacks.popleft()
        self._deferred_due = Instant(now + 1) if self._deferred_nacks else None
        return self.receive_nack(nack, now)

    def _tell_lost(self, nack: Nack) -> tuple[list[Knowledge], list[Span]]:
        """One answer for all that a catch-up has lost of what it asks for; and the rest."""
        gone = self.released
        if nack.purpose == Purpose.DELIVERY:  # before its birth it told no broker where to begin
            gone = self.past.born
        lost = [span for span in nack.spans if span.start < gone]
        if not lost:
            return [], list(nack.spans)
        start = min(span.start for span in lost)
        end = min(gone, max(span.end for span in lost))
        answer = settled(self.name, Span(start, end), nack.purpose, gone)
        if nack.purpose == Purpose.DELIVERY:
            answer = damaged(self.name, Span(start, end), nack.purpose)
        rest = [Span(max(each.start, gone), each.end) for each in nack.spans if each.end > gone]
        return [answer], rest

    def acknowledge(self, delivered: int, now: Instant, released: int | None = None) -> None:
        """Note that all cells below have everything before `delivered`, and no durable subscription
        needs anything before `released`."""
        release, before = self.release, self.release.delivered
        delivered = min(delivered, self.end)
        release.acknowledge(delivered, delivered if released is None else released, now)
        if release.delivered > before:
            self.ack_timer.heard()
        if self._is_done:
            self.ack_timer.done()

    @property
    def _is_done(self) -> bool:
        """Has everything been delivered to all cells below, and released?"""
        return min(self.release.delivered, self.release.needed_from) >= self.newest

    def _expect(self, now: Instant) -> None:
        if not self._is_done:
            self.ack_timer.expect(self.newest, now)

    def fire(self, now: Instant) -> tuple[list[Effect], list[Knowledge], int]:
        """Do what is due; return effects, knowledge, and the tick whose acknowledgement is overdue,
        or 0."""
        effects, knowledge = self.release.fire(now), self._tell_copied(now)
        effects += self.transactions.fire(now) + self._go_on(now)
        answered, answers = self._answer_late(now)
        effects, knowledge = effects + answered, knowledge + answers
        if self._silence_due <= now:
            self._silence_due = self._next_silence(now)
            more, silence = self._promise_silence(now)
            effects, knowledge = effects + more, knowledge + silence
        expected = self.ack_timer.fire(now)
        if expected:
            self._expect(now)
        return effects, knowledge, expected

    def check(self) -> None:
        self.release.check()
        self.past.check()
        assert self.release.delivered <= self.end, "I1"
        pending = [request.events for request in (*self.pending_requests, *self.batch.requests)]
        assert self.pending_count == sum(map(len, pending))
        assert self.pending_size == sum(map(size_of, pending))
        longest = max(map(len, pending), default=0)
        assert self.pending_count <= max(self.timing.publish_pending_max, longest), "I3"
        assert len(self.pending_requests) <= self.timing.publish_pending_max, "I3"
        self.publishers.check()
        self.transactions.check()
        is_held_up = self.batch.requests or self.transactions.is_copying
        assert not self.pending_requests or is_held_up, "what waits, waits for a write"
