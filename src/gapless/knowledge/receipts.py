"""Receipts: what a pubend remembers of its named publishers, so that a retry never publishes twice.

Theory of operation
    A named publisher numbers its events 0, 1, 2, … without holes. For each publisher the pubend
    keeps the next number it expects and, for the newest runs of publications, the tick of their
    first event: the events of a run have ticks one pubend step apart, so a run is three numbers.
    This record is written in one commit with the events, so it is right after any crash. A number
    that was published before is a repeat and gets its first tick again, or -1 if its run is
    forgotten. A number beyond the next is refused, because what is missing may still be retried.

    A process that takes a name over asks for the next number, and gets a term with it: higher than
    all before, and durable before the answer leaves. A publication says under which term it was
    numbered, and counts only under the last term. The previous process may be paused, cut off or
    still sending, and continue later: by then its numbers belong to another process, and its events
    would be taken for repeats of events that it never saw.
    A process that gets no answer asks again over another connection, while its first question may
    still be on its way. Both name the same opening and get one term; otherwise the late question
    would take the name from its own process.
    A term is taken from the clock, or from the last term if the clock was set back. So no term
    returns that was given before a volume was lost, or a topic deleted and created again.

    Names are remembered as long as there is room. At the limit of all names, or at the share of one
    owner, the name that was idle for longest is forgotten, if it was idle for `publisher_idle`;
    otherwise the new name is refused. An administrator may strike a name off. A late retry under a
    forgotten name is refused, never published again: the pubend does not know its term. Names
    without a term could not be told from new ones; so once a name was forgotten, a new name counts
    only if it was opened. The highest forgotten term is written down (`floor`), so that no term is
    given twice.

Invariants
    I1  runs ascend and do not overlap; the last ends at `next`; at most `receipts_max` of them
    I2  a term is given once; 0 is that of a name that no process has taken over
    I3  neither the next number nor the term goes back: a pending place is at or beyond the durable
        one
    I4  the account counts every name that is durable or waits for the disk, for its owner
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import Refused
from gapless.core.effects import Delete, Put, Send
from gapless.core.errors import quoted
from gapless.core.identity import Instant, PublisherName
from gapless.core.ledger import Account, is_proved
from gapless.core.ticks import PUBEND_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.client_messages import Publish, PublisherQuery
    from gapless.core.identity import ClientName, PubendName
    from gapless.core.store import Store
    from gapless.knowledge.timing import KnowledgeTiming

PUBLISHERS, OWNERS, FLOORS = "publishers", "publishers' owners", "publishers' floors"
"""Tables: the record of each name, its first user, and the highest forgotten term."""

RUN = struct.Struct("<qqq")
STEP = 1 << PUBEND_BITS
"""From one tick of a pubend to its next."""

Place = tuple[int, int, int]
"""The next number of a publisher, its term, and the opening that got the term."""


@dataclass(slots=True)
class PublisherRecord:
    """The durable record of one named publisher: its place and its newest runs. Runs stay packed as
    they are written: each commit adds to one of many, and looks at no other."""

    next: int = 0
    packed: bytes = b""
    term: int = 0
    opening: int = 0

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """The first number, the end, and the tick of the first event, of each run."""
        return list(RUN.iter_unpack(self.packed))

    def copy(self) -> PublisherRecord:
        return PublisherRecord(self.next, self.packed, self.term, self.opening)

    def publish(self, sequence: int, count: int, tick: int, runs_max: int) -> None:
        """Remember that `count` events from `sequence` on have `tick` and the ticks after it."""
        assert sequence == self.next
        packed, self.next = self.packed, sequence + count
        run, kept = (sequence, self.next, tick), (runs_max - 1) * RUN.size
        if packed:
            first, _, begin = RUN.unpack_from(packed, len(packed) - RUN.size)
            if begin + (sequence - first) * STEP == tick:
                run, packed = (first, self.next, begin), packed[: -RUN.size]
        self.packed = packed[max(0, len(packed) - kept) :] + RUN.pack(*run)

    def ticks(self, sequence: int, count: int) -> tuple[int, ...]:
        """The ticks of these numbers; -1 where they are forgotten."""
        found: list[int] = []
        for offset in range(len(self.packed) - RUN.size, -1, -RUN.size):
            first, end, tick = RUN.unpack_from(self.packed, offset)
            low, high = max(first, sequence), min(end, sequence + count)
            if low < high:
                ticks = range(tick + (low - first) * STEP, tick + (high - first) * STEP, STEP)
                if len(ticks) == count:
                    return tuple(ticks)
                found = found or [-1] * count
                found[low - sequence : high - sequence] = ticks
            if first <= sequence:
                break
        return tuple(found or [-1] * count)

    @property
    def heard_at(self) -> Instant:
        """When the name was last opened or published; its term and ticks come from the clock."""
        last = RUN.unpack_from(self.packed, len(self.packed) - RUN.size)[2] if self.packed else 0
        return Instant(max(self.term, last >> PUBEND_BITS))

    def encode(self) -> bytes:
        return RUN.pack(self.next, self.term, self.opening) + self.packed

    @classmethod
    def decode(cls, fact: bytes) -> PublisherRecord:
        following, term, opening = RUN.unpack_from(fact)
        return cls(following, fact[RUN.size :], term, opening)


NEW = PublisherRecord()
"""The record of a name that was never used."""

TAKEN_OVER = "Use a name in one process at a time."
UNHEARD_OF = "Open the publisher again, and go on from its number."
TOO_MANY = "Use fewer names of publishers, or have some struck off (`gapless publishers`)."


class Publishers:
    """All named publishers of one pubend. See the module docstring."""

    def __init__(
        self, store: Store, pubend: PubendName, timing: KnowledgeTiming, first: int = 0
    ) -> None:
        """`first`: the first number of a new name; lower ones may have been used before a disk was
        lost."""
        self.pubend = pubend
        self.first = first
        self.table = f"{PUBLISHERS}/{pubend}"
        self.idle = timing.publisher_idle
        share = timing.principal_share_percent
        self.account = Account("names of publishers", timing.publishers_max, share)
        facts = {
            PublisherName(name): PublisherRecord.decode(fact)
            for name, fact in store.items(self.table).items()
        }
        in_order = sorted(facts.items(), key=lambda each: each[1].heard_at)
        self.records = dict(in_order)  # the longest idle first
        owners = store.items(f"{OWNERS}/{pubend}")
        self.owners = {PublisherName(name): fact.decode() for name, fact in owners.items()}
        floor = int.from_bytes(store.get(FLOORS, pubend) or b"", "little")
        self.floor = max(floor, first)  # after a loss, new names must be opened
        self.pending_places: dict[PublisherName, Place] = {}  # including what waits for the disk
        self._forgotten_names: list[PublisherName] = []  # still on disk
        for name in self.records:
            self.account.take(self.owner(name))

    def owner(self, name: PublisherName) -> str:
        """The identity that used the name first; empty: none in particular."""
        return self.owners.get(name, "")

    def is_known(self, name: PublisherName) -> bool:
        return name in self.records or name in self.pending_places

    def place(self, name: PublisherName) -> Place:
        """The place that the next publication must continue, including what waits for the disk."""
        if name in self.pending_places:
            return self.pending_places[name]
        known = self.records.get(name)
        return (known.next, known.term, known.opening) if known else (self.first, 0, 0)

    def lose(self, first: int) -> None:
        """A disk was lost: numbers below `first` may have been used, by any name. All names are
        forgotten, and must be opened again."""
        self.first, self.floor = first, max(self.floor, first)
        for name in [name for name in self.records if name not in self.pending_places]:
            self.forget(name)

    # --- names that come --------------------------------------------------------------------------

    def refusal(self, name: PublisherName, owner: str, now: Instant) -> str:
        """Why there is no room for this name; empty if there is. An idle name may be forgotten for
        it."""
        if self.is_known(name) or not self.account.refusal(owner, 1):
            return ""
        is_full = self.account.total >= self.account.total_max
        victim = self._idlest("" if is_full else owner, now)
        if victim is not None:
            self.forget(victim)
        refused = self.account.refusal(owner, 1)
        if refused and not is_full:
            return f"too many named publishers: {refused}"
        return "too many named publishers" if refused else ""

    def _idlest(self, owner: str, now: Instant) -> PublisherName | None:
        """The longest idle name, of this owner or of all; None if it was used too recently."""
        for name, known in self.records.items():
            if known.heard_at + self.idle > now:
                return None
            if name not in self.pending_places and (not owner or self.owner(name) == owner):
                return name
        return None

    def forget(self, name: PublisherName) -> None:
        """Forget a name; the next write deletes it on disk."""
        assert name not in self.pending_places, "what waits for the disk is not forgotten"
        self.account.give_back(self.owner(name))
        self.floor = max(self.floor, self.records.pop(name).term, 1)
        self._forgotten_names.append(name)

    def strike(self, name: PublisherName) -> tuple[Put | Delete, ...] | None:
        """The writes that forget a name at an administrator's request; None while it waits for the
        disk."""
        if name in self.pending_places:
            return None
        if name in self.records:
            self.forget(name)
        return tuple(self.writes({}))

    def accept(self, name: PublisherName, owner: str, place: Place) -> None:
        """Set the place that counts from now on, and waits for the disk."""
        if not self.is_known(name):
            if owner:
                self.owners[name] = owner
            else:
                self.owners.pop(name, None)
            self.account.take(owner)
        self.pending_places[name] = place

    def take_over(self, query: PublisherQuery, owner: str, now: Instant) -> int:
        """Start a new term, the only one that counts from now on; return it."""
        following, term, opening = self.place(query.publisher)
        if not query.opening or query.opening != opening:
            term = max(term + 1, now, self.floor + 1)
        self.accept(query.publisher, owner, (following, term, query.opening))
        return term

    # --- what is written --------------------------------------------------------------------------

    def writes(self, changed: Mapping[PublisherName, PublisherRecord]) -> list[Put | Delete]:
        """The writes for changed records and forgotten names."""
        writes: list[Put | Delete] = []
        for name in self._forgotten_names:
            writes.append(Delete(self.table, name))
            owner = "" if self.is_known(name) else self.owners.pop(name, "")
            if is_proved(owner):
                writes.append(Delete(f"{OWNERS}/{self.pubend}", name))
        if self._forgotten_names:
            writes.append(Put(FLOORS, self.pubend, self.floor.to_bytes(8, "little")))
            self._forgotten_names.clear()
        for name, each in sorted(changed.items()):
            writes.append(Put(self.table, name, each.encode()))
            if name not in self.records and is_proved(self.owner(name)):
                writes.append(Put(f"{OWNERS}/{self.pubend}", name, self.owners[name].encode()))
        return writes

    def written(self, changed: Mapping[PublisherName, PublisherRecord]) -> None:
        """Note that these records are durable; the most recently used name stands last."""
        for name, each in changed.items():
            self.records.pop(name, None)
            self.records[name] = each

    def settle(self) -> None:
        """Nothing waits for the disk any more: drop the places that did not become durable."""
        for name in self.pending_places:
            if name not in self.records:
                self.account.give_back(self.owner(name))
        self.pending_places.clear()

    def check(self) -> None:
        for name, (following, term, _) in self.pending_places.items():
            known = self.records.get(name, NEW)
            assert known.next <= following, "I3"
            assert known.term <= term, "I3"
        self.account.check()
        waiting = sum(name not in self.records for name in self.pending_places)
        assert self.account.total == len(self.records) + waiting, "I4"


def why_not(name: PublisherName, term: int, current: int) -> tuple[str, str]:
    """The problem and the remedy for a publication under a term that is not the current one."""
    if term < current:
        return f"{quoted(name)} was taken over since it was opened", TAKEN_OVER
    return f"this pubend does not know that {quoted(name)} was opened", UNHEARD_OF


def refuse(
    client: ClientName, message: Publish | PublisherQuery, problem: str, remedy: str = ""
) -> Send:
    """Refuse a request: for good if there is a remedy, else for now."""
    later = "Publish the same events again later."
    return Send(client, Refused(message.request, problem, remedy or later, retry=not remedy))
