"""Edge keys that were found column by column, put together row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.int64]


class EdgeKeys:
    """The edge keys of the rows of one batch."""

    def __init__(self) -> None:
        self._rows: list[Words] = []
        self._keys: list[Words] = []

    def add(self, rows: Words, keys: Words) -> None:
        """One for each of these rows; a row may be named several times."""
        self._rows.append(rows)
        self._keys.append(keys)

    def by_row(self, count: int) -> tuple[Words, Words]:
        """All of them, row after row, and where those of each of the `count` rows end."""
        if not self._keys:
            return np.empty(0, np.int64), np.zeros(count, np.int64)
        rows, keys = np.concatenate(self._rows), np.concatenate(self._keys)
        ends = np.cumsum(np.bincount(rows, minlength=count))
        return keys[np.argsort(rows, kind="stable")], ends
