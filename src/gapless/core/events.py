"""Events, and batches of them that stay encoded.

Theory of operation
    A publisher encodes an event once; from there to the last subscriber it travels as those
    bytes. An `EventBatch` keeps them side by side, so that a broker can pick, log and forward
    events without knowing how they are encoded, and without copying them; on the wire a batch is
    one contiguous piece. An `EventRun` is a part of a log as it stands on disk; only a reader that
    wants single events cuts it. `gapless.wire.events` knows what is inside an encoded event.
"""

from __future__ import annotations

from itertools import accumulate
from struct import pack, unpack
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gapless.core.ticks import PUBEND_BITS
from gapless.core.timestamps import EPOCH, MICROSECOND, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy import int64
    from numpy.typing import NDArray

    from gapless.core.identity import PubendName, PublisherName, TopicName
    from gapless.core.ticks import Tick

Value = bool | int | float | str | Timestamp | bytes
"""What an attribute may hold; a `datetime` has a time zone. A missing attribute is SQL's NULL."""

Attributes = dict[str, Value]

FIRST_INSTANT = 946_684_800_000_000
"""The year 2000, in microseconds: no clock is before it, and no number of a queue gets there."""


class Event(NamedTuple):
    """One publication, as an application sees it."""

    attributes: Mapping[str, Any]  # each a `Value`; which, the application knows
    body: bytes
    topic: TopicName
    pubend: PubendName
    tick: Tick
    publisher: PublisherName | None = None
    sequence: int | None = None

    @property
    def published(self) -> Timestamp | None:
        """When its pubend took it, in UTC, by the clock of the broker that hosts it; None where the
        ticks of the topic's service are numbers and no times."""
        instant = self.tick >> PUBEND_BITS
        return EPOCH + instant * MICROSECOND if instant >= FIRST_INSTANT else None


class EventBatch(msgspec.Struct, frozen=True, array_like=True):
    """Encoded events, in order. They may be any bytes; `wire.events.check_events` checks them."""

    events: tuple[bytes, ...]

    @classmethod
    def join(cls, pieces: Iterable[bytes]) -> EventBatch:
        """A batch of these encoded events, in this order."""
        return cls(tuple(pieces))

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: int) -> bytes:
        """One encoded event."""
        return self.events[index]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.events)

    def pick(self, indices: Sequence[int]) -> EventBatch:
        """The batch of these events, given by ascending index; itself when that is all."""
        if len(indices) == len(self.events):
            return self
        events = self.events
        return EventBatch(tuple([events[index] for index in indices]))


class EventRun(msgspec.Struct, frozen=True, array_like=True):
    """Encoded events end to end, each with its tick."""

    ticks: bytes = b""  # 8 bytes for each, the lowest first
    ends: bytes = b""  # where each ends in `data`; 4 bytes, the lowest first
    data: bytes = b""

    def __post_init__(self) -> None:
        end = int.from_bytes(self.ends[-4:], "little")
        if len(self.ends) % 4 or len(self.ticks) != 2 * len(self.ends) or end != len(self.data):
            raise ValueError("each event of a run has a tick and an end, the last that of the run")

    @classmethod
    def of(cls, ticks: Sequence[int], events: Sequence[bytes]) -> EventRun:
        ends = accumulate(map(len, events))
        counts = f"<{len(ticks)}q", f"<{len(events)}I"
        return cls(pack(counts[0], *ticks), pack(counts[1], *ends), b"".join(events))

    def __len__(self) -> int:
        return len(self.ticks) // 8

    def tick_numbers(self) -> tuple[int, ...]:
        return unpack(f"<{len(self)}q", self.ticks)

    def cut(self) -> tuple[bytes, ...]:
        """Each event by itself."""
        ends = unpack(f"<{len(self)}I", self.ends)
        return tuple(map(self.data.__getitem__, map(slice, (0, *ends), ends)))


class Piece(NamedTuple):
    """Events end to end: number i stands at `bounds[i]:bounds[i + 1]`."""

    data: bytes | memoryview
    bounds: NDArray[int64]


NO_EVENTS = EventBatch.join([])
