"""Transactions: events that are staged at a pubend, and published all at once or never.

Theory of operation
    What is staged is durable and invisible (`stages`). A commit waits until the pubend has no write
    under way; then ONE write makes it fact: the producer's last number, which parts count, the
    first tick, and as many events as go into one write. From then on the pubend does nothing else,
    no publication and no promise of silence, until the rest has followed at consecutive ticks,
    write by write, through the same log as everything else; the last write also ends the stage.
    A write takes several batches, because each write costs a sync. The batches are told one by one,
    and other work has its turn in between; meanwhile the next batches are written.
    Progress needs no note: the log ends there. So a restart continues from the end of the log, and
    a disk without room is tried again.
    The last committed number of each producer is kept for good. A number not above it is a repeat,
    which is answered and changes nothing. Of producers of one transaction (`ONCE`) the oldest are
    forgotten: their parts are gone with the commit, so a late repeat is refused.
    Each owner has a share of open transactions, staged bytes and names of producers. A restart does
    not know the owner of an open transaction, which expires in time; the owner of a name is written
    down. After a lost disk the pubend does not know which numbers were committed: it refuses every
    producer that it has not heard of since, until an administrator has struck its name off.
    Names are never forgotten by themselves, however idle: a repeated transaction of a
    forgotten producer would be published again. An administrator may strike one off.

Invariants (checked by `check`)
    I1  at most `transactions_max` are open, at most `producers_max` producers are known, and
        `producers_once_max` of one transaction
    I2  a transaction whose commit is durable is copied to its end, and all of it is told, before
        anything else is logged
    I3  what is written and not told yet is less than two writes

Cost: an event is written twice, and read once from what the system has just written.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct
from typing import TYPE_CHECKING

from gapless.core.client_messages import Done, Refused
from gapless.core.effects import NO_ROOM, Append, Chop, Delete, Effect, Persist, Put, Send, Write
from gapless.core.errors import StorageDamagedError, quoted
from gapless.core.identity import Instant, ProducerName
from gapless.core.ledger import is_proved, show_who
from gapless.core.ticks import Span
from gapless.core.transaction_messages import FORGOTTEN, ONCE, Committed, ProducerPosition
from gapless.knowledge.batch import cut, fits, size_of
from gapless.knowledge.receipts import STEP
from gapless.knowledge.stages import (
    TRANSACTIONS,
    Key,
    Staged,
    Stages,
    StageSlot,
    decode_events,
    key_of,
    refuse,
    stream_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import ClientName, PubendName
    from gapless.core.store import Store
    from gapless.core.transaction_messages import Abort, Commit, ProducerQuery, Stage
    from gapless.knowledge.timing import KnowledgeTiming

PRODUCERS, OWNERS = "producers", "producers' owners"
LAST = Struct("<qqq")  # number, first tick, events
ANEW = -1
"""Instead of the number of a transaction: an administrator lets the producer begin anew."""

STRIKE = (
    "Compare what was published; then `gapless producers TOPIC --remove NAME` lets it begin anew."
)


@dataclass(slots=True)
class Copy:
    """A transaction on its way into the log."""

    key: Key
    parts: tuple[str, ...]
    slot: StageSlot | None  # None: it has no events
    rest: deque[tuple[int, int]]  # records that are not in the log yet: index, events
    count: int
    owner: str = ""
    request: tuple[ClientName, Commit] | None = None  # the commit to answer when it is durable
    is_lost: bool = False  # what is not in the log yet cannot be read
    first_tick: int = 0
    done: int = 0  # events in the log
    skip: int = 0  # of them in the first record of `rest`
    ticks: range = range(0)  # in the current write
    events: tuple[bytes, ...] = ()
    ahead: tuple[int, tuple[bytes, ...]] = (
        -1,
        (),
    )  # the record that was read last: its index and events

    @classmethod
    def of(cls, key: Key, parts: tuple[str, ...], slot: StageSlot | None) -> Copy:
        layout = slot.layout(parts) if slot else []
        return cls(key, parts, slot, deque(layout), sum(count for _, count in layout))

    def advance(self, count: int) -> None:
        """Note that `count` more events are in the log."""
        self.done += count
        self.skip += count
        while self.rest and self.skip >= self.rest[0][1]:
            self.skip -= self.rest.popleft()[1]


class PubendTransactions:
    """All transactions of one pubend. Sans-IO: see the module docstring."""

    def __init__(
        self, pubend: PubendName, store: Store, timing: KnowledgeTiming, now: Instant
    ) -> None:
        self.pubend = pubend
        self.store = store
        self.timing = timing
        self.stages = Stages(pubend, store, timing, now)
        self.producers = f"{PRODUCERS}/{pubend}"
        self.last: dict[ProducerName, tuple[int, int, int]] = {
            ProducerName(name): LAST.unpack(fact)
            for name, fact in store.items(self.producers).items()
        }
        self.owners_table = f"{OWNERS}/{pubend}"
        owners = store.items(self.owners_table)
        self.owners = {ProducerName(name): fact.decode() for name, fact in owners.items()}
        once = [name for name in self.last if name.startswith(ONCE)]
        self._once = deque(sorted(once, key=lambda name: self.last[name][1]))  # oldest first
        self.claims: dict[Key, Copy] = {}  # commits that wait for their turn, in order
        self.copy: Copy | None = None
        self.is_writing = False
        self._untold_batches: deque[tuple[Sequence[int], tuple[bytes, ...]]] = deque()  # in the log
        self._retry_due: Instant | None = None
        self.is_hearing = False  # other brokers may know of a loss
        self.lost_before = 0  # numbers committed before this tick may be lost; 0: none are
        if self.stages.committed_slot is not None:
            slot, first_tick, parts = self.stages.committed_slot
            self.copy = Copy.of(slot.key, tuple(parts), slot)
            self.copy.first_tick = first_tick
            whole = self.last[slot.key[0]][2]
            if self.copy.count != whole:  # some of it is damaged, and nobody knows which
                self.copy.is_lost, self.copy.count, self.copy.rest = True, whole, deque()
            self._retry_due = now

    def resume(self, logged: int) -> int:
        """After a restart: where the log ends tells how far the copy has come. Returns from where
        on nothing is settled: since the commit, no silence was promised."""
        assert self.copy is not None
        first = self.copy.first_tick
        self.copy.advance((logged - 1 - first) // STEP + 1 if logged > first else 0)
        return max(logged, first)

    @property
    def end(self) -> int:
        """Where the transaction ends that is being copied into the log; 0 if none is."""
        return self.copy.first_tick + self.copy.count * STEP if self.copy is not None else 0

    @property
    def open_count(self) -> int:
        return len(self.stages.open_slots) + len(self.claims) + (self.copy is not None)

    # --- time -----------------------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        if self._untold_batches:
            return Instant(0)
        return self._retry_due if self._retry_due is not None else self.stages.deadline

    @property
    def is_busy(self) -> bool:
        """Is a transaction about to take ticks?"""
        return self.is_copying or bool(self.claims)

    @property
    def is_copying(self) -> bool:
        return self.copy is not None or bool(self._untold_batches)

    @property
    def wants_to_write(self) -> bool:
        if self.is_writing or self._retry_due is not None:
            return False
        if self.copy is None:
            return bool(self.claims) and not self._untold_batches
        return len(self._untold_batches) < self.timing.copy_batches_max

    def fire(self, now: Instant) -> list[Effect]:
        """Drop expired stages. A write may be due again: look at `wants_to_write`."""
        if self._retry_due is not None and self._retry_due <= now:
            self._retry_due = None
        return self.stages.fire(now)

    # --- what clients ask -----------------------------------------------------------------------

    def is_committed(self, key: Key) -> bool:
        return key[0] in self.last and self.last[key[0]][0] >= key[1]

    def _is_claimed(self, key: Key) -> bool:
        return key in self.claims or (self.copy is not None and self.copy.key == key)

    def stage(
        self, client: ClientName, message: Stage, now: Instant, owner: str = ""
    ) -> list[Effect]:
        """Stage events; answered when they are durable, or at once if they were before."""
        key = key_of(message)
        if refused := self._refuse_lost(client, message):
            return [refused]
        if self.is_committed(key):
            return [Send(client, Done(message.request))]
        if self._is_claimed(key):
            return [refuse(client, message, "the transaction is being committed")]
        if key not in self.stages.open_slots and (
            refused := self._refuse_new(client, message, owner)
        ):
            return [refused]
        return self.stages.stage(client, message, now, owner)

    def staged(self, message: Staged, now: Instant) -> list[Effect]:
        was_committed = self.is_committed(self.stages.oldest)
        return self.stages.staged(message, now, was_committed=was_committed)

    def abort(self, client: ClientName, message: Abort, now: Instant) -> list[Effect]:
        """Drop what is staged. A committed transaction stays, and that is no error."""
        key = key_of(message)
        if self._is_claimed(key) and not self.is_committed(key):
            return [refuse(client, message, "the transaction is being committed")]
        return self.stages.abort(client, message, now)

    def position(self, client: ClientName, query: ProducerQuery) -> list[Effect]:
        if refused := self._refuse_lost(client, query):
            return [refused]
        last = self.last.get(query.producer)
        number = last[0] if last and last[0] >= 0 else None
        return [Send(client, ProducerPosition(query.request, number))]

    def _refuse_lost(
        self, client: ClientName, message: Stage | Commit | ProducerQuery
    ) -> Send | None:
        """The refusal of a producer whose numbers may have been used before a disk was lost; None
        if all of them are known."""
        producer = message.producer
        if producer.startswith(ONCE):
            return None
        if self.last.get(producer, (0, 0, 0))[1] < self.lost_before:
            problem = (
                f"{self.pubend!r} has lost a disk, and with it which transactions of "
                f"{quoted(producer)} were committed"
            )
            return Send(client, Refused(message.request, problem, STRIKE))
        if self.is_hearing:
            problem = f"{self.pubend!r} has just started and asks which transactions there were"
            return Send(client, Refused(message.request, problem, "Try again.", retry=True))
        return None

    def refuse_all(self, problem: str, remedy: str) -> list[Effect]:
        """Answer every waiting request: the pubend is being deleted."""
        copies = [*self.claims.values(), *([self.copy] if self.copy is not None else [])]
        asked = [copy.request for copy in copies if copy.request is not None]
        waiting = [(client, message.request) for client, message in asked]
        waiting += [(write.client, write.request) for write in self.stages.pending_writes]
        return [Send(client, Refused(request, problem, remedy)) for client, request in waiting]

    def _refuse_new(self, client: ClientName, message: Stage | Commit, owner: str) -> Send | None:
        """The refusal if there is no room for one more transaction; None if there is."""
        if self.open_count >= self.timing.transactions_max:
            problem = f"{self.open_count} transactions are open, which is the limit"
            return refuse(client, message, problem)
        share = self.timing.principal_share_percent
        mine, limit = (
            len(self.stages.of(owner)),
            max(1, self.timing.transactions_max * share // 100),
        )
        if owner and mine >= limit:
            who = show_who(owner)
            problem = f"{who} has {mine} open transactions here, and its share is {limit}"
            return refuse(client, message, problem)
        if message.producer.startswith(ONCE):
            return None
        names = sum(each == owner for each in self.owners.values()) if owner else 0
        limit = max(1, self.timing.producers_max * share // 100)
        if names >= limit and message.producer not in self.last:
            who = show_who(owner)
            problem = f"{who} has {names} names of producers here, and its share is {limit}"
            return refuse(client, message, problem, retry=False)
        open_ones = {key[0] for key in (*self.stages.open_slots, *self.claims)} | {message.producer}
        fresh = {name for name in open_ones if not name.startswith(ONCE)}
        if len(self.last.keys() | fresh) - len(self._once) > self.timing.producers_max:
            return refuse(client, message, "too many producers", retry=False)
        return None

    def commit(self, client: ClientName, message: Commit, owner: str = "") -> list[Effect]:
        """Accept a commit, to be carried out when the pubend is free; or refuse it."""
        key = key_of(message)
        if refused := self._refuse_lost(client, message):
            return [refused]
        if self.is_committed(key):
            return [Send(client, self._repeated(key, message.request))]
        if self._is_claimed(key):
            return [refuse(client, message, "the transaction is being committed")]
        slot = self.stages.open_slots.get(key)
        parts: list[str] = []
        for index, name in enumerate(message.parts):
            wanted = message.counts[index] if message.counts else None
            if wanted == 0:
                continue
            part = slot.parts.get(name) if slot else None
            if part is not None and (part.is_ending or part.accepted > part.count):
                return [refuse(client, message, f"part {quoted(name)} is still being written")]
            if part is None or wanted not in (None, part.count):
                has = "is not staged" if part is None else f"has {part.count} events, not {wanted}"
                return [refuse(client, message, f"part {quoted(name)} {has}", retry=False)]
            parts.append(name)
        if slot is None and (refused := self._refuse_new(client, message, owner)):
            return [refused]
        self.stages.claim(key)
        self.claims[key] = Copy.of(key, tuple(parts), slot)
        self.claims[key].request = client, message
        self.claims[key].owner = owner
        return []

    def _repeated(self, key: Key, request: int) -> Committed:
        number, first_tick, count = self.last[key[0]]
        if number != key[1]:
            first_tick = count = FORGOTTEN
        return Committed(request, self.pubend, first_tick, count, repeated=True)

    # --- into the log ---------------------------------------------------------------------------

    def write(self, log: str, next_tick: int) -> tuple[Write, ...]:
        """The writes for the next events of a transaction; the first of them commit it."""
        assert self.wants_to_write
        writes: list[Write] = []
        if self.copy is None:
            self.copy = self.claims.pop(next(iter(self.claims)))
            self.copy.first_tick = next_tick
            producer, transaction = self.copy.key
            fact = LAST.pack(transaction, next_tick, self.copy.count)
            writes.append(Put(self.producers, producer, fact))
            is_new = producer not in self.last and not producer.startswith(ONCE)
            if is_new and is_proved(self.copy.owner):
                writes.append(Put(self.owners_table, producer, self.copy.owner.encode()))
            writes += [Delete(self.producers, oldest) for oldest in self._outdated(producer)]
        copy, slot = self.copy, self.copy.slot
        if copy.is_lost:
            raise StorageDamagedError(f"staged events of {self.pubend!r} are damaged")
        self.is_writing = True
        copy.events = self._read(copy)
        first = copy.first_tick + copy.done * STEP
        copy.ticks = range(first, first + len(copy.events) * STEP, STEP)
        if copy.events:
            writes.append(Append(log, copy.ticks, copy.events))
        if slot is not None:
            if copy.done + len(copy.events) == copy.count:
                writes += self.stages.ending(slot)
            elif copy.request is not None:
                fact = slot.fact(copy.parts, copy.first_tick)
                writes.append(Put(self.stages.facts, str(slot.number), fact))
        return tuple(writes)

    def lose_rest(self) -> tuple[Span, tuple[Write, ...]] | None:
        """Handle staged events that cannot be read, after the commit: what is not in the log yet is
        lost. Returns its ticks, and the writes that end the stage; None before the commit."""
        copy = self.copy
        assert copy is not None
        assert copy.slot is not None
        if copy.request is not None:
            return None
        self.is_writing, copy.is_lost = True, True
        copy.ticks, copy.events = range(0), ()
        span = Span(copy.first_tick + copy.done * STEP, self.end)
        return span, self.stages.ending(copy.slot)

    def refuse_damaged(self) -> list[Effect]:
        """The same before the commit: refuse it. The client must stage again."""
        copy = self.copy
        assert copy is not None
        assert copy.slot is not None
        assert copy.request is not None
        self.is_writing, self.copy = False, None
        answer = refuse(*copy.request, "its staged events are damaged on the disk", retry=False)
        return [answer, Persist(self.stages.drop(copy.slot))]

    def _outdated(self, producer: ProducerName) -> list[ProducerName]:
        """The producers of one transaction that are forgotten when this one commits."""
        if not producer.startswith(ONCE) or producer in self.last:
            return []
        return list(self._once)[: max(len(self._once) + 1 - self.timing.producers_once_max, 0)]

    def _read(self, copy: Copy) -> tuple[bytes, ...]:
        """The next staged events, as many as go into one write."""
        events, size, skip = list[bytes](), 0, copy.skip
        count_max = self.timing.batch_events_max * self.timing.copy_batches_max
        bytes_max = self.timing.batch_bytes_max * self.timing.copy_batches_max
        for index, _ in copy.rest:
            assert copy.slot is not None
            if copy.ahead[0] != index:
                try:
                    record = self.store.read(copy.slot.stream, index)
                except StorageDamagedError:
                    if events and copy.request is None:
                        break  # what comes before it is whole
                    raise
                copy.ahead = index, decode_events(record)
            some = copy.ahead[1][skip:]
            if not fits(some, count_max - len(events), bytes_max - size):
                ends = list(accumulate(map(len, some), initial=size))[1:]
                count = min(count_max - len(events), bisect_right(ends, bytes_max))
                events += some[: count if events else max(count, 1)]
                break
            events += some
            size, skip = size + size_of(some), 0
        return tuple(events)

    def written(self, now: Instant, *, ok: bool) -> list[Effect]:
        """Handle the end of a write; return the answers. `tell` then has what is new in the log."""
        copy = self.copy
        assert copy is not None
        self.is_writing = False
        ticks, events = copy.ticks, copy.events
        copy.ticks, copy.events = range(0), ()
        if not ok:
            return self._try_again(copy, now)
        limits = self.timing.batch_events_max, self.timing.batch_bytes_max
        batches = cut(events, *limits) if events else ()
        self._untold_batches += [(ticks[low:high], events[low:high]) for low, high in batches]
        copy.advance(len(events))
        effects: list[Effect] = []
        if copy.request is not None:
            effects = self._committed(copy, *copy.request)
        if copy.done == copy.count or copy.is_lost:
            self.copy = None
            if copy.slot is not None:
                self.stages.drop(copy.slot)  # on disk that is done
        return effects

    def tell(self) -> tuple[Sequence[int], tuple[bytes, ...]]:
        """The next batch that is in the log and not told yet."""
        return self._untold_batches.popleft() if self._untold_batches else ((), ())

    def _try_again(self, copy: Copy, now: Instant) -> list[Effect]:
        """Handle a full disk: refuse a commit that is not durable, retry one that is."""
        if copy.request is None:
            self._retry_due = Instant(now + self.timing.storage_retry)
            return []
        self.copy = None
        self.stages.reopen(copy.key, now)
        return [refuse(*copy.request, NO_ROOM)]

    def _committed(self, copy: Copy, client: ClientName, message: Commit) -> list[Effect]:
        """Answer a durable commit, and drop what can never be committed any more."""
        copy.request = None
        producer, transaction = copy.key
        for _ in self._outdated(producer):
            del self.last[self._once.popleft()]
        if producer.startswith(ONCE) and producer not in self.last:
            self._once.append(producer)
        elif copy.owner and producer not in self.last:
            self.owners[producer] = copy.owner
        self.last[producer] = (transaction, copy.first_tick, copy.count)
        answer = Committed(message.request, self.pubend, copy.first_tick, copy.count)
        effects: list[Effect] = [Send(client, answer)]
        for key, slot in list(self.stages.open_slots.items()):
            if self.is_committed(key):
                effects.append(Persist(self.stages.drop(slot)))
        for key, claim in list(self.claims.items()):
            if self.is_committed(key) and claim.request is not None:
                del self.claims[key]
                effects.append(
                    Send(claim.request[0], self._repeated(key, claim.request[1].request))
                )
                if claim.slot is not None:
                    effects.append(Persist(self.stages.drop(claim.slot)))
        return effects

    def strike(self, producer: ProducerName) -> tuple[Write, ...] | None:
        """The writes that forget a producer; None while it has transactions under way. What it has
        committed may then be committed again."""
        busy = {
            key[0] for key in (*self.stages.open_slots, *self.stages.claimed_slots, *self.claims)
        }
        if producer in busy or (self.copy is not None and self.copy.key[0] == producer):
            return None
        writes: list[Write] = []
        if self.lost_before and not producer.startswith(ONCE):  # from now on it may begin anew
            self.last[producer] = ANEW, self.lost_before, 0
            writes.append(Put(self.producers, producer, LAST.pack(*self.last[producer])))
        elif self.last.pop(producer, None) is not None:
            writes.append(Delete(self.producers, producer))
        if is_proved(self.owners.pop(producer, "")):
            writes.append(Delete(self.owners_table, producer))
        if producer in self._once:
            self._once.remove(producer)
        return tuple(writes)

    def check(self) -> None:
        self.stages.check()
        assert self.owners.keys() <= self.last.keys(), "a name that has an owner is remembered"
        assert self.open_count <= self.timing.transactions_max, "I1"
        assert len(self.last) - len(self._once) <= self.timing.producers_max, "I1"
        assert len(self._once) <= self.timing.producers_once_max, "I1"
        assert not self.is_writing or self.copy is not None, "I2"
        limit = 2 * self.timing.copy_batches_max * self.timing.batch_events_max
        assert sum(len(ticks) for ticks, _ in self._untold_batches) < limit, "I3"
        if self.copy is not None:
            left = sum(count for _, count in self.copy.rest) - self.copy.skip
            assert self.copy.done + left == self.copy.count or self.copy.is_lost


def leftovers(pubend: PubendName, store: Store) -> list[Write]:
    """The writes that delete all transactions of a deleted pubend."""
    slots = f"{TRANSACTIONS}/{pubend}"
    writes: list[Write] = []
    for table in (f"{PRODUCERS}/{pubend}", f"{OWNERS}/{pubend}"):
        writes += [Delete(table, name) for name in store.items(table)]
    for number in store.items(slots):
        stream = stream_of(int(number), pubend)
        writes += Delete(slots, number), Chop(stream, store.bounds(stream)[1])
    return writes
