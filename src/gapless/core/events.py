"""Events, and batches of them that stay encoded.

Theory of operation
    A publisher encodes an event once; from there to the last subscriber it travels as those
    bytes. An `EventBatch` is one contiguous piece of memory with the end of each event in it, so
    that a broker can pick, cut and forward events without knowing how they are encoded. What is
    inside an encoded event is the business of `gapless.wire.events` alone.

Invariants (checked on construction, so also on decoding)
    I1  `ends` never decrease, start at or above 0 and finish at the length of `data`
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gapless.core.identity import PubendName, PublisherName, TopicName
    from gapless.core.ticks import Tick

Value = bool | int | float | str
"""What an attribute may hold. A missing attribute is SQL's NULL."""

Attributes = dict[str, Value]


class Event(NamedTuple):
    """One publication, as an application sees it."""

    attributes: Mapping[str, Value]
    body: bytes
    topic: TopicName
    pubend: PubendName
    tick: Tick
    publisher: PublisherName | None = None
    sequence: int | None = None


class EventBatch(msgspec.Struct, frozen=True, array_like=True):
    """Encoded events in one piece: `data`, and where in it each event ends."""

    data: bytes
    ends: tuple[int, ...]

    def __post_init__(self) -> None:
        ends = self.ends
        if (ends[-1] if ends else 0) != len(self.data):
            raise ValueError(f"a batch of {len(self.data)} bytes does not end at {ends[-1:]}")
        if ends and (ends[0] < 0 or any(a > b for a, b in pairwise(ends))):
            raise ValueError("the events of a batch must follow one another")

    @classmethod
    def join(cls, pieces: Iterable[bytes]) -> EventBatch:
        """A batch of these encoded events, in this order."""
        kept, ends, end = [], [], 0
        for piece in pieces:
            end += len(piece)
            kept.append(piece)
            ends.append(end)
        return cls(b"".join(kept), tuple(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> bytes:
        """One encoded event."""
        if index < 0:
            index += len(self.ends)
        return self.data[self.ends[index - 1] if index else 0 : self.ends[index]]

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        for end in self.ends:
            yield self.data[start:end]
            start = end

    def pick(self, indices: Sequence[int]) -> EventBatch:
        """The batch of these events, given by ascending index; itself when that is all."""
        if len(indices) == len(self.ends):
            return self
        return EventBatch.join([self[index] for index in indices])
