"""Attribute rows: the attributes of a batch, decoded only when a caller looks at an event.

Theory of operation
    The matcher need not decode a batch: compiled code (`wire.parse`) finds where the attributes
    stand that filters ask for, and whether the events are whole. So the matcher gets a batch as a
    sequence of attributes that can also `locate`. Compiled code knows only the forms that our
    encoder makes. It refuses others, and those are decoded event by event.

Invariants
    I1  what is located means what `wire.events.decode_attributes` gives
    I2  `check_plain` accepts exactly what `wire.events.check_events` accepts

Cost: a third of what checking costs otherwise, and of what decoding and encoding rows costs.
Loading the compiled code takes 0.5 s once a process, compiling it some seconds once a machine: call
`prepare` beside other work.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, overload

import numpy as np

from gapless.core.attribute_table import AttributeTable
from gapless.core.events import EventBatch
from gapless.wire import parse
from gapless.wire.events import (
    ATTRIBUTE_COUNT_MAX,
    EVENT_BYTES_MAX,
    NAME_BYTES_MAX,
    TEXT_MAX,
    check_events,
    decode_attributes,
    encode_event,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from gapless.core.events import Attributes

NAME_SETS_MAX = 256
"""Sets of names whose bytes are cached; others are encoded anew each time."""


class AttributeRows(Sequence["Attributes"]):
    """The attributes of each event of a batch."""

    def __init__(self, batch: EventBatch) -> None:
        self._batch = batch

    def __len__(self) -> int:
        return len(self._batch)

    def __iter__(self) -> Iterator[Attributes]:
        return iter(decode_attributes(self._batch))

    @overload
    def __getitem__(self, index: int) -> Attributes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Attributes]: ...
    def __getitem__(self, index: int | slice) -> Attributes | Sequence[Attributes]:
        if isinstance(index, slice):
            return AttributeRows(EventBatch(self._batch.events[index]))
        return decode_attributes(EventBatch((self._batch.events[index],)))[0]

    def locate(self, names: tuple[str, ...]) -> AttributeTable | None:
        """Where these attributes stand; None: decode them."""
        data, bounds = _end_to_end(self._batch)
        shape = len(names), len(self._batch)
        located = AttributeTable(
            data,
            np.zeros(shape, np.uint8),
            np.empty(shape),
            np.empty(shape, np.int64),
            np.empty(shape, np.int64),
        )
        return located if parse.locate(data, bounds, *_bytes_of(names), *located[1:]) else None


def check_plain(batch: EventBatch, event_bytes_max: int = EVENT_BYTES_MAX) -> None:
    """As `check_events`, faster for nearly all batches."""
    data, bounds = _end_to_end(batch)
    limit = min(event_bytes_max, TEXT_MAX)  # what is shorter has no text that is longer
    is_long = len(data) > limit and max(map(len, batch)) > limit
    if is_long or not parse.is_plain(data, bounds, ATTRIBUTE_COUNT_MAX, NAME_BYTES_MAX):
        check_events(batch, event_bytes_max)


def prepare() -> None:
    """Load the compiled code, or compile it."""
    batch = EventBatch((encode_event({"a": "b", "n": 1.5}),))
    check_plain(batch)
    assert AttributeRows(batch).locate(("a", "n")) is not None


def _end_to_end(batch: EventBatch) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of all events, and where each begins and ends."""
    events = batch.events
    bounds = np.fromiter(accumulate(map(len, events), initial=0), np.int64, len(events) + 1)
    return np.frombuffer(b"".join(events), np.uint8), bounds


@lru_cache(NAME_SETS_MAX)
def _bytes_of(names: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Names end to end, and where each begins and ends."""
    pieces = [name.encode("utf-8", "surrogatepass") for name in names]
    ends = np.array([0, *accumulate(map(len, pieces))], np.int64)
    return np.frombuffer(b"".join(pieces), np.uint8), ends
