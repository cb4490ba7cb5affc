"""Staging: one transaction's events on disk, before anyone may see them.

Theory of operation
    A staged transaction has a slot: a log stream of its own, used again by another when it is
    over, so that no more streams come to be than transactions were ever open at once. Each `Stage`
    is one record: its part, the number of its first event there, and the events. A fact says whose
    slot it is and from which record on; both are written together.
    A write may fail for lack of room while the ones behind it do not. So a record counts only if
    it begins where its part ends, in the order of the stream: the same rule while it is written
    and when a restart reads it through. A record without events ends a part: what came before it
    does not count.

Invariants
    I1  `count` of a part is the sum of its records; it is at most `accepted`
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from gapless.core.errors import StorageCorruptError
from gapless.core.identity import Instant, ProducerName
from gapless.core.ticks import Span
from gapless.knowledge.batch import scan_through

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.store import Store

HEAD = struct.Struct("<HqI")  # length of the part's name, number of the first event, events
LENGTH = struct.Struct("<I")
RECORD_BYTES = 128
"""Counted for each record besides its bytes: what it costs in memory."""

Key = tuple[ProducerName, int]
"""Whose transaction, and which."""


def encode_stage(part: str, position: int, events: Sequence[bytes]) -> bytes:
    name = part.encode()
    lengths = struct.pack(f"<{len(events)}I", *map(len, events))
    return b"".join([HEAD.pack(len(name), position, len(events)), name, lengths, *events])


def decode_head(record: bytes) -> tuple[str, int, int]:
    """Part, number of the first event, how many."""
    length, position, count = HEAD.unpack_from(record)
    return record[HEAD.size : HEAD.size + length].decode(), position, count


def decode_events(record: bytes) -> tuple[bytes, ...]:
    length, _, count = HEAD.unpack_from(record)
    start = HEAD.size + length
    lengths = struct.unpack_from(f"<{count}I", record, start)
    bounds = list(accumulate(lengths, initial=start + LENGTH.size * count))
    return tuple(map(record.__getitem__, map(slice, bounds, bounds[1:])))


def size_of(record: bytes, count: int) -> int:
    """Bytes that count for one of so many events. That a part ends always finds room: the record of
    it is smaller than one of those that it ends."""
    return len(record) + RECORD_BYTES if count else 0


@dataclass(slots=True)
class Part:
    """The events that one who stages has handed over."""

    count: int = 0  # durable
    accepted: int = 0  # counting what is being written
    records: list[tuple[int, int]] = field(default_factory=list)  # index in the slot, events
    is_ending: bool = False

    def take(self, index: int, position: int, count: int) -> bool:
        """A record has become durable: does it count?"""
        if position != self.count:
            return False
        self.records.append((index, count))
        self.count += count
        self.accepted = max(self.accepted, self.count)
        return True


@dataclass(slots=True, eq=False)
class Slot:
    """One staged transaction."""

    number: int
    stream: str
    key: Key
    start: int  # its first record
    end: int  # the index of its next
    touched: Instant
    parts: dict[str, Part] = field(default_factory=dict)
    size: int = 0
    pending: int = 0  # writes under way
    is_known: bool = False  # is the fact durable?
    is_over: bool = False
    owner: str = ""  # who began it, in this life of the broker

    def fact(self, parts: Sequence[str] = (), first_tick: int | None = None) -> bytes:
        """With a `first_tick`: it is committed, and these are the parts that count."""
        fields = [*self.key, self.start, first_tick, list(parts)]
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def recover(
        cls, number: int, stream: str, fact: bytes, store: Store, now: Instant
    ) -> tuple[Slot, int | None, list[str]]:
        """A slot as a restart finds it, and whether it is committed: first tick and parts."""
        producer, transaction, start, first_tick, parts = json.loads(fact)
        is_damaged = False
        end = store.bounds(stream)[1]
        slot = cls(number, stream, (ProducerName(producer), transaction), start, end, now)
        slot.is_known = True
        for found in scan_through(store, stream, start, end):
            if isinstance(found, Span):
                if first_tick is not None:
                    problem = f"events of transaction {transaction} of {producer!r}, which was "
                    raise StorageCorruptError(f"{problem}committed, are damaged")
                is_damaged = True
                continue
            for index, record in zip(*found, strict=True):
                name, position, count = decode_head(record)
                slot.size += size_of(record, count)
                if count:
                    slot.parts.setdefault(name, Part()).take(index, position, count)
                else:
                    slot.parts.pop(name, None)
        slot.parts = {name: part for name, part in slot.parts.items() if part.count}
        if is_damaged:  # nobody knows in which part: whoever staged them is told to do so again
            slot.parts = {}
        return slot, first_tick, parts

    def layout(self, parts: Sequence[str]) -> list[tuple[int, int]]:
        """The records of these parts, in their order."""
        return [record for name in parts for record in self.parts[name].records]
