"""Text codes: the codes of one attribute's strings for batches. See `text_table`.

A copy of `AttributeColumns.codes`, made when a batch first needs it and extended by what was
added since. It is thrown away when codes are freed, and not saved.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from gapless.filters.matching import kernels
from gapless.filters.matching.text_table import ENTRY_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa
    from numpy.typing import NDArray

    from gapless.core.attribute_table import AttributeTable
    from gapless.filters.matching.plan import Point

ENTRIES_FIRST = 64
HEAP_FIRST = 1024


class TextCodes:
    """The codes of strings, by their bytes."""

    def __init__(self) -> None:
        self._seen = 0  # codes looked at, those of numbers included
        self.count = 0
        self.is_usable = True  # until too many strings want one place
        self._table = _table(ENTRIES_FIRST)
        self._bytes = np.empty(HEAP_FIRST, np.uint8)  # of all texts, with room to spare
        self._heap = _read_only(self._bytes[:0])

    def __reduce__(self) -> tuple[object, ...]:
        return TextCodes, ()

    def learn(self, codes: dict[Point, float]) -> bool:
        """Add the codes that are new since the last call; none was removed. False if the table
        refuses them."""
        if self._seen == len(codes) or not self.is_usable:
            return self.is_usable
        fresh = _texts(islice(reversed(codes.items()), len(codes) - self._seen))
        self._seen = len(codes)
        if 2 * (self.count + len(fresh)) * ENTRY_WORDS > len(self._table):
            fresh = _texts(codes.items())
            self._table = _table(1 << (4 * len(fresh)).bit_length())
            self._heap, self.count = self._heap[:0], 0
        if not fresh:
            return True
        self.count += len(fresh)
        # No string of Arrow's holds a lone surrogate, so one of ours that does equals none.
        pieces = [text.encode("utf-8", "surrogatepass") for text in fresh]
        offsets = np.cumsum([len(self._heap), *map(len, pieces)])
        self._append(b"".join(pieces))
        numbers = np.array([*fresh.values()], np.int64)
        learnt = kernels.learn_texts(self._table, self._heap, offsets, numbers)
        self.is_usable = learnt == len(numbers)
        return self.is_usable

    def _append(self, data: bytes) -> None:
        used = len(self._heap)
        if used + len(data) > len(self._bytes):
            grown = np.empty(2 * (used + len(data)), np.uint8)
            grown[:used] = self._heap
            self._bytes = grown
        self._bytes[used : used + len(data)] = np.frombuffer(data, np.uint8)
        self._heap = _read_only(self._bytes[: used + len(data)])

    def look_up(self, column: pa.Array) -> NDArray[np.float64]:
        """The codes of a column of strings; of what is null, any."""
        import pyarrow.types as kinds

        _, offsets, data = column.buffers()
        kind = np.int64 if kinds.is_large_string(column.type) else np.int32
        first, last = column.offset, column.offset + len(column) + 1
        codes = np.empty(len(column))
        if len(column):
            places = np.frombuffer(offsets, kind)[first:last].astype(np.int64)
            texts = np.frombuffer(data or b"", np.uint8)
            kernels.look_up_texts(self._table, self._heap, _read_only(texts), places, codes)
        return codes

    def place(
        self,
        attributes: AttributeTable,
        attribute: int,
        rows: NDArray[np.float64],
        width: int,
        column: int,
    ) -> None:
        """Write the codes of one attribute's texts into the rows; what has none stays."""
        kinds, starts, lengths = (part[attribute] for part in (attributes.kinds, *attributes[3:]))
        kernels.place_texts(
            self._table, self._heap, attributes.data, kinds, starts, lengths, rows, width, column
        )


def _texts(codes: Iterable[tuple[Point, float]]) -> dict[str, float]:
    return {point: code for point, code in codes if isinstance(point, str)}


def _table(entries: int) -> NDArray[np.int64]:
    """A power of two, and the one that stays free."""
    return np.zeros((entries + 1) * ENTRY_WORDS, np.int64)


def _read_only(array: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """As the kernels are compiled for, because Arrow's buffers are."""
    array.flags.writeable = False
    return array
