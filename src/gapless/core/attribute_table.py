"""Attribute table: where the values of a few attributes stand in encoded events, as flat arrays.

What reads encoded events (`gapless.wire`) and what matches them (`gapless.filters`) know nothing of
each other. Between them goes this: for each name and event, the kind of a value and a number, or
the place of a text or of bytes in bytes that all share. No object is made for an event.
Events that can do it have a method `locate(names)`; its answer is None where they must be decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MISSING, BOOL, INT, FLOAT, TEXT, TIMESTAMP, BYTES = range(7)
"""The kinds of values."""


class AttributeTable(NamedTuple):
    """By name and event. Of a name that occurs twice in an event the last counts."""

    data: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    values: NDArray[np.float64]  # of a number or of microseconds the nearest float; a truth: 0 or 1
    starts: NDArray[np.int64]  # of a text or of bytes, in `data`
    lengths: NDArray[np.int64]
