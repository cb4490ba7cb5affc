"""Stages: the transactions that are open at a pubend, what they hold, and when they are dropped.

Theory of operation
    A transaction gets a slot with its first `Stage` and keeps it until it is committed, aborted, or
    idle for `transaction_expiry`; then one write forgets it and gives its space back. A slot is a
    log stream of its own. Slots are used again, so there are never more streams than transactions
    that were open at once. Each `Stage` is one record: its part, the number of its first event
    there, and the events. A fact says to which transaction a slot belongs and from which record on;
    fact and record are written together.
    A write may fail for lack of room while the ones after it succeed. So a record counts only if it
    begins where its part ends, in the order of the stream: the same rule holds when it is written
    and when a restart reads it. A record without events ends a part: what came before it does not
    count. Answers leave when what they are about is durable. A write without room is refused "for
    now", with the later writes of its part: the client may send them again.

Invariants (checked by `check`)
    I1  a slot is used by one transaction at a time
    I2  what is staged has at most `staged_bytes_max` bytes, or is one record; besides, each part
        that was ended has left a record smaller than itself
    I3  open transactions stand in the order in which they were last used: O(1) for the deadline
    I4  of it, at most `publish_pending_bytes_max` bytes are not durable yet, or one record
    I5  `count` of a part is the sum of its records; it is at most `accepted`
"""

from __future__ import annotations

import heapq
import json
import struct
from collections import deque
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from gapless.core.client_messages import Done, Refused
from gapless.core.effects import (
    NO_ROOM,
    Append,
    Chop,
    Delete,
    Effect,
    Persist,
    Put,
    Send,
    Tell,
    Write,
)
from gapless.core.errors import quoted
from gapless.core.identity import Instant, ProducerName, PubendName
from gapless.core.ledger import show_who
from gapless.core.messages import Message
from gapless.core.store import RECORD_BYTES_MAX
from gapless.core.ticks import Span
from gapless.knowledge.batch import scan_through

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import ClientName
    from gapless.core.store import Store
    from gapless.core.transaction_messages import Abort, Commit, Stage
    from gapless.knowledge.timing import KnowledgeTiming

HEAD = struct.Struct("<HqI")  # length of the part's name, number of the first event, events
LENGTH = struct.Struct("<I")
RECORD_BYTES = 128
"""Counted for each record besides its bytes: its cost in memory."""

Key = tuple[ProducerName, int]
"""A producer, and the number of its transaction."""


def encode_stage(part: str, position: int, events: Sequence[bytes]) -> bytes:
    name = part.encode()
    lengths = struct.pack(f"<{len(events)}I", *map(len, events))
    return b"".join([HEAD.pack(len(name), position, len(events)), name, lengths, *events])


def decode_head(record: bytes) -> tuple[str, int, int]:
    """The part, the number of the first event, and the count of events."""
    length, position, count = HEAD.unpack_from(record)
    return record[HEAD.size : HEAD.size + length].decode(), position, count


def decode_events(record: bytes) -> tuple[bytes, ...]:
    length, _, count = HEAD.unpack_from(record)
    start = HEAD.size + length
    lengths = struct.unpack_from(f"<{count}I", record, start)
    bounds = list(accumulate(lengths, initial=start + LENGTH.size * count))
    return tuple(map(record.__getitem__, map(slice, bounds, bounds[1:])))


def staged_size(record: bytes, count: int) -> int:
    """The bytes that a record of `count` events counts for. A record that ends a part counts for
    nothing, so it always finds room: it is smaller than a record that it ends."""
    return len(record) + RECORD_BYTES if count else 0


@dataclass(slots=True)
class StagedPart:
    """A part of a transaction: the events that one process has staged."""

    count: int = 0  # durable
    accepted: int = 0  # including what is being written
    records: list[tuple[int, int]] = field(default_factory=list)  # index in the slot, events
    is_ending: bool = False

    def take(self, index: int, position: int, count: int) -> bool:
        """Add a record that has become durable; False if it does not count."""
        if position != self.count:
            return False
        self.records.append((index, count))
        self.count += count
        self.accepted = max(self.accepted, self.count)
        return True


@dataclass(slots=True, eq=False)
class StageSlot:
    """One staged transaction."""

    number: int
    stream: str
    key: Key
    start: int  # its first record
    end: int  # the index of its next record
    touched: Instant
    parts: dict[str, StagedPart] = field(default_factory=dict)
    size: int = 0
    pending: int = 0  # writes under way
    is_known: bool = False  # is the fact durable?
    is_over: bool = False
    is_damaged: bool = False  # some of its records cannot be read
    owner: str = ""  # the identity that began it, in this life of the broker

    def fact(self, parts: Sequence[str] = (), first_tick: int | None = None) -> bytes:
        """The fact to write. With a `first_tick` it says that the transaction is committed with
        these parts."""
        fields = [*self.key, self.start, first_tick, list(parts)]
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def recover(
        cls, number: int, stream: str, fact: bytes, store: Store, now: Instant
    ) -> tuple[StageSlot, int | None, list[str]]:
        """A slot as a restart finds it; with the first tick and the parts if it is committed."""
        producer, transaction, start, first_tick, parts = json.loads(fact)
        end = store.bounds(stream)[1]
        slot = cls(number, stream, (ProducerName(producer), transaction), start, end, now)
        slot.is_known = True
        for found in scan_through(store, stream, start, end):
            if isinstance(found, Span):
                slot.is_damaged = True
                continue
            for index, record in zip(*found, strict=True):
                name, position, count = decode_head(record)
                slot.size += staged_size(record, count)
                if count:
                    slot.parts.setdefault(name, StagedPart()).take(index, position, count)
                else:
                    slot.parts.pop(name, None)
        slot.parts = {name: part for name, part in slot.parts.items() if part.count}
        if slot.is_damaged and first_tick is None:
            # It is unknown in which part: the client must stage all again.
            slot.parts = {}
        return slot, first_tick, parts

    def layout(self, parts: Sequence[str]) -> list[tuple[int, int]]:
        """The records of these parts, in order."""
        known = [self.parts[name] for name in parts if name in self.parts or not self.is_damaged]
        return [record for part in known for record in part.records]


TRANSACTIONS = "transactions"
LATER = "Ask the same again later."
SMALLER = "Make several of it, or raise the limit at the broker."
FEWER = "Stage fewer events at a time."
AGAIN = "Stage all its events again, in a new part, and commit that."


class Staged(Message, frozen=True):
    """To the stages themselves: their oldest write is durable (or, if not `ok`, had no room)."""

    pubend: PubendName
    ok: bool = True


@dataclass(slots=True)
class StageWrite:
    """A write to a slot that is under way. One without events ends the part."""

    client: ClientName
    request: int
    slot: StageSlot
    name: str
    index: int
    position: int
    count: int
    size: int


class Stages:
    """What is staged at one pubend. Sans-IO: see the module docstring."""

    def __init__(
        self, pubend: PubendName, store: Store, timing: KnowledgeTiming, now: Instant
    ) -> None:
        self.pubend = pubend
        self.store = store
        self.timing = timing
        self.facts = f"{TRANSACTIONS}/{pubend}"
        self.open_slots: dict[Key, StageSlot] = {}
        self.claimed_slots: dict[Key, StageSlot] = {}  # being committed: nothing may change them
        self.committed_slot: tuple[StageSlot, int, list[str]] | None = None  # found by a restart
        self.staged_bytes = 0
        self.pending_bytes = 0  # not durable yet
        self.pending_writes: deque[StageWrite] = deque()
        self._free: list[tuple[int, int]] = []  # free slots: number, next index
        found = {int(key): fact for key, fact in store.items(self.facts).items()}
        for number, fact in sorted(found.items()):
            stream = stream_of(number, pubend)
            slot, first_tick, parts = StageSlot.recover(number, stream, fact, store, now)
            self.staged_bytes += slot.size
            if first_tick is None:
                self.open_slots[slot.key] = slot
            else:
                self.claimed_slots[slot.key] = slot
                self.committed_slot = slot, first_tick, parts
        self._slot_count = max(found, default=-1) + 1
        for number in range(self._slot_count):
            if number not in found:
                heapq.heappush(self._free, (number, store.bounds(stream_of(number, pubend))[1]))

    @property
    def deadline(self) -> Instant | None:
        for slot in self.open_slots.values():
            return Instant(slot.touched + self.timing.transaction_expiry)
        return None

    def fire(self, now: Instant) -> list[Effect]:
        """Drop transactions that were idle for too long."""
        effects: list[Effect] = []
        for slot in list(self.open_slots.values()):
            if slot.touched + self.timing.transaction_expiry > now:
                break
            if slot.pending:
                self._touch(slot, now)
            else:
                effects.append(Persist(self.drop(slot)))
        return effects

    def _touch(self, slot: StageSlot, now: Instant) -> None:
        slot.touched = now
        self.open_slots[slot.key] = self.open_slots.pop(slot.key)

    # --- staging --------------------------------------------------------------------------------

    def of(self, owner: str) -> list[StageSlot]:
        """The transactions that an owner has begun and that are not over."""
        return [
            slot
            for slot in (*self.open_slots.values(), *self.claimed_slots.values())
            if slot.owner == owner
        ]

    def stage(
        self, client: ClientName, message: Stage, now: Instant, owner: str = ""
    ) -> list[Effect]:
        """Stage events of a transaction that is not committed."""
        key, events, position = key_of(message), message.events.events, message.position
        slot = self.open_slots.get(key)
        part = slot.parts.get(message.part) if slot else None
        if part is None:
            if position:
                problem = f"part {quoted(message.part)} is not there any more"
                return [refuse(client, message, problem, retry=False)]
        elif part.is_ending:
            return [refuse(client, message, "the part is being dropped")]
        elif position > part.accepted:
            return [refuse(client, message, f"event {part.accepted} of the part is missing")]
        elif position + len(events) <= part.count:
            return [Send(client, Done(message.request))]
        else:
            events = events[part.accepted - position :]
            if not events:
                return [refuse(client, message, "these events are being written")]
        record = encode_stage(message.part, part.accepted if part else 0, events)
        if len(record) > RECORD_BYTES_MAX:
            problem = f"a stage of {len(record)} bytes is more than one record takes"
            return [Send(client, Refused(message.request, problem, FEWER))]
        size = staged_size(record, len(events))
        room = self.timing.staged_bytes_max
        if slot is not None and slot.size + size > room:
            problem = f"the transaction has more than staged_bytes_max, {room} bytes"
            return [Send(client, Refused(message.request, problem, SMALLER))]
        if self.staged_bytes and self.staged_bytes + size > room:
            return [refuse(client, message, "the pubend has no room to stage more")]
        if owner and not (slot and slot.owner != owner):
            mine = sum(each.size for each in self.of(owner))
            share = room * self.timing.principal_share_percent // 100
            if mine and mine + size > share:
                problem = f"{show_who(owner)} has staged {mine} bytes here, its share is {share}"
                return [refuse(client, message, problem)]
        if (
            self.pending_writes
            and self.pending_bytes + size > self.timing.publish_pending_bytes_max
        ):
            return [refuse(client, message, "more is being staged than the disk has taken")]
        slot = slot or self._begin(key, now, owner)
        slot.parts.setdefault(message.part, StagedPart())
        return self._append(client, message, slot, record, len(events), now)

    def _begin(self, key: Key, now: Instant, owner: str) -> StageSlot:
        if self._free:
            number, index = heapq.heappop(self._free)
        else:
            number = self._slot_count  # new in this life, but the disk may have used it
            index = self.store.bounds(stream_of(number, self.pubend))[1]
            self._slot_count += 1
        slot = self.open_slots[key] = StageSlot(
            number, stream_of(number, self.pubend), key, index, index, now
        )
        slot.owner = owner
        return slot

    def _append(
        self,
        client: ClientName,
        message: Stage | Abort,
        slot: StageSlot,
        record: bytes,
        count: int,
        now: Instant,
    ) -> list[Effect]:
        assert message.part is not None
        part, size = slot.parts[message.part], staged_size(record, count)
        place = (slot.end, part.accepted, count, size)
        self.pending_writes.append(StageWrite(client, message.request, slot, message.part, *place))
        writes: list[Write] = []
        if not slot.is_known:
            writes.append(Put(self.facts, str(slot.number), slot.fact()))
        writes.append(Append(slot.stream, (slot.end,), (record,)))
        part.accepted += count
        slot.end += 1
        slot.pending += 1
        slot.size += size
        self.staged_bytes += size
        self.pending_bytes += size
        self._touch(slot, now)
        done, failed = Staged(self.pubend), Staged(self.pubend, ok=False)
        return [Persist(tuple(writes), (Tell(done),), (Tell(failed),))]

    def staged(self, message: Staged, now: Instant, *, was_committed: bool) -> list[Effect]:
        """Handle the end of the oldest write. `was_committed`: is its transaction committed?"""
        write = self.pending_writes.popleft()
        slot = write.slot
        slot.pending -= 1
        self.pending_bytes -= write.size
        if slot.is_over:  # its space is free already
            if was_committed:
                return [Send(write.client, Done(write.request))]
            return [refuse(write.client, write, "the transaction was ended meanwhile", retry=False)]
        effects: list[Effect] = [self._take(write, now) if message.ok else self._undo(write)]
        if slot.key in self.open_slots and not (slot.parts or slot.pending):
            effects.append(Persist(self.drop(slot)))  # it has become empty
        return effects

    def _take(self, write: StageWrite, now: Instant) -> Send:
        """The answer to a durable write, which may not count."""
        slot = write.slot
        slot.is_known = True
        if slot.key in self.open_slots:
            self._touch(slot, now)
        part = slot.parts.setdefault(write.name, StagedPart())
        if not write.count:
            del slot.parts[write.name]
        elif not part.take(write.index, write.position, write.count):
            if not part.accepted:
                del slot.parts[write.name]
            return refuse(write.client, write, "earlier events of the part are missing")
        return Send(write.client, Done(write.request))

    def _undo(self, write: StageWrite) -> Send:
        """The answer to a write without room."""
        slot = write.slot
        slot.size -= write.size
        self.staged_bytes -= write.size
        if (part := slot.parts.get(write.name)) is not None:
            part.accepted, part.is_ending = part.count, False
            if not part.accepted:
                del slot.parts[write.name]
        return refuse(write.client, write, NO_ROOM)

    @property
    def oldest(self) -> Key:
        """The transaction of the oldest write under way."""
        return self.pending_writes[0].slot.key

    def abort(self, client: ClientName, message: Abort, now: Instant) -> list[Effect]:
        """Drop what is staged, or one part of it; nothing staged is no error."""
        slot, done = self.open_slots.get(key_of(message)), Send(client, Done(message.request))
        if slot is None or (message.part is not None and message.part not in slot.parts):
            return [done]
        if message.part is None or list(slot.parts) == [message.part]:
            failed = refuse(client, message, NO_ROOM)
            return [Persist(self.drop(slot), (done,), (failed,))]
        part = slot.parts[message.part]
        if part.is_ending or part.accepted > part.count:
            return [refuse(client, message, "the part is being written")]
        part.is_ending = True
        return self._append(client, message, slot, encode_stage(message.part, 0, ()), 0, now)

    # --- the end of a slot ----------------------------------------------------------------------

    def claim(self, key: Key) -> None:
        """Protect a transaction from changes: it is being committed."""
        if (slot := self.open_slots.pop(key, None)) is not None:
            self.claimed_slots[key] = slot

    def reopen(self, key: Key, now: Instant) -> None:
        """Open a transaction again that could not be committed."""
        if (slot := self.claimed_slots.pop(key, None)) is not None:
            slot.touched = now
            self.open_slots[key] = slot

    def drop(self, slot: StageSlot) -> tuple[Write, ...]:
        """End a transaction; return the writes that free its space."""
        self.open_slots.pop(slot.key, None)
        self.claimed_slots.pop(slot.key, None)
        slot.is_over = True
        self.staged_bytes -= slot.size
        heapq.heappush(self._free, (slot.number, slot.end))
        return self.ending(slot)

    def ending(self, slot: StageSlot) -> tuple[Write, ...]:
        return Delete(self.facts, str(slot.number)), Chop(slot.stream, slot.end)

    def check(self) -> None:
        slots = [*self.open_slots.values(), *self.claimed_slots.values()]
        used = sorted([slot.number for slot in slots] + [number for number, _ in self._free])
        assert used == list(range(self._slot_count)), "I1"
        assert self.staged_bytes == sum(slot.size for slot in slots), "I2"
        assert self.pending_bytes == sum(write.size for write in self.pending_writes), "I4"
        times = [slot.touched for slot in self.open_slots.values()]
        assert times == sorted(times), "I3"
        for slot in slots:
            for part in slot.parts.values():
                assert part.count == sum(count for _, count in part.records) <= part.accepted, "I5"


def stream_of(number: int, pubend: PubendName) -> str:
    """The log stream of a slot."""
    return f"stage/{number}/{pubend}"


def key_of(message: Stage | Commit | Abort) -> Key:
    return message.producer, message.transaction


def refuse(
    client: ClientName,
    message: Stage | Commit | Abort | StageWrite,
    problem: str,
    *,
    retry: bool = True,
) -> Send:
    return Send(client, Refused(message.request, problem, LATER if retry else AGAIN, retry))
