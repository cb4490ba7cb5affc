"""Delivered events: what one message brought for one subscription, encoded until somebody looks.

Theory of operation
    The inbox makes one for each message and picks each subscription's part from it. The first look
    at an event decodes all events of the message, once, whichever subscription looks. A reader of
    columns never looks: compiled code takes the encoded bytes (`client.columns`).

Cost: an application that reads columns pays for no Python object of an event; one that reads events
pays what it did when the inbox decoded them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, cast, overload

from gapless.core.events import Event, EventBatch, EventRun
from gapless.wire.events import decode_events, encode_event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gapless.client.delivery import Delivery
    from gapless.core.identity import PubendName, TopicName
    from gapless.core.ticks import Tick


class DeliveredEvents(Sequence[Event]):
    """Events in order, each with its tick; `pubends` is one for each, or the pubend of them all."""

    __slots__ = ("_decoded", "_source", "encoded", "pubends", "ticks", "topic")

    def __init__(
        self,
        topic: TopicName,
        pubends: PubendName | tuple[PubendName, ...],
        ticks: tuple[int, ...],
        encoded: EventBatch,
        source: tuple[DeliveredEvents, Sequence[int]] | None = None,
    ) -> None:
        self.topic = topic
        self.pubends = pubends
        self.ticks = ticks
        self.encoded = encoded
        self._source = source  # the events these were picked from, and their indices there
        self._decoded: list[Event] | None = None

    @classmethod
    def join(cls, parts: Sequence[DeliveredEvents]) -> DeliveredEvents:
        """The events of all parts, which are of one topic, and of one pubend or of several."""
        if len(parts) == 1:
            return parts[0]
        pubends: Any = parts[0].pubends
        if isinstance(pubends, tuple):
            pubends = tuple([pubend for part in parts for pubend in part.pubends])
        ticks = tuple([tick for part in parts for tick in part.ticks])
        encoded = EventBatch(tuple([event for part in parts for event in part.encoded]))
        return cls(parts[0].topic, pubends, ticks, encoded)

    def pick(self, indices: Sequence[int]) -> DeliveredEvents:
        """The events of these ascending indices."""
        if len(indices) == len(self.ticks):
            return self
        pubends: Any = self.pubends
        if isinstance(pubends, tuple):
            pubends = tuple([pubends[index] for index in indices])
        ticks = tuple([self.ticks[index] for index in indices])
        return DeliveredEvents(
            self.topic, pubends, ticks, self.encoded.pick(indices), (self, indices)
        )

    def beyond(self, received: Mapping[str, int]) -> DeliveredEvents:
        """The events whose ticks are not below what was received of their pubend."""
        first = self.pubends[0] if isinstance(self.pubends, tuple) else self.pubends
        if self.ticks[0] >= received.get(first, 0):
            return self  # ticks ascend, and what was received is a prefix
        places = enumerate(zip(self._each_pubend(), self.ticks, strict=True))
        return self.pick([i for i, (name, tick) in places if tick >= received.get(name, 0)])

    def _each_pubend(self) -> Iterator[PubendName]:
        pubends = self.pubends
        return iter(pubends) if isinstance(pubends, tuple) else repeat(pubends, len(self.ticks))

    # --- as events -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.ticks)

    def __iter__(self) -> Iterator[Event]:
        return iter(self._events())

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._events()[index]

    def _events(self) -> list[Event]:
        if self._decoded is None:
            if self._source is not None:
                whole, indices = self._source
                events = whole._events()
                self._decoded = [events[index] for index in indices]
                self._source = None
            else:
                ticks = cast("tuple[Tick, ...]", self.ticks)
                pubends = self._each_pubend()
                self._decoded = decode_events(self.encoded, self.topic, pubends, ticks)
        return self._decoded

    # --- as columns ------------------------------------------------------------------------------

    def to_arrow(self) -> Any:
        """A `pyarrow.RecordBatch`; `gapless.client.columns` has the schema."""
        from gapless.client.columns import to_arrow

        return to_arrow(self.topic, self.pubends, EventRun.of(self.ticks, self.encoded.events))


def as_batches(taken: DeliveredEvents | list[Delivery]) -> Iterator[Any]:
    """What was taken, with its events as record batches. Events that were decoded already, because
    the application took single ones before, are encoded again."""
    if isinstance(taken, DeliveredEvents):
        yield taken.to_arrow()
        return
    for is_event, items in groupby(taken, lambda item: isinstance(item, Event)):
        if not is_event:
            yield from items
            continue
        events = cast("list[Event]", list(items))
        encoded = [encode_event(e.attributes, e.body, e.publisher, e.sequence) for e in events]
        pubends = tuple([event.pubend for event in events])
        ticks = tuple([event.tick for event in events])
        yield DeliveredEvents(
            events[0].topic, pubends, ticks, EventBatch(tuple(encoded))
        ).to_arrow()
