"""Boxes: a coarse pre-selection among very many conjunctions, with array operations.

Theory of operation
    Each constraint lies within an interval of floats, so a conjunction lies within a box. One
    conjunction can cover another only if its box contains the other's and it constrains no more
    attributes. The latter is compared for all rows at once, the former only for the rows that are
    left if they are few. The caller tests the selected rows exactly. Rounding is harmless: the
    mapping keeps order, so no row is ever missed.

Invariants
    I1  if a covers b, then `covering(b)` selects a and `covered(a)` selects b

Cost: about 8 bytes for each row and bound; 0.3 ns for each row, and again for each bound if many
rows have fitting attributes. At most `COLUMNS_MAX` attributes have columns; further ones are not
compared here. numpy is imported with this module and not before.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from gapless.core.timestamps import to_microseconds
from gapless.filters.constraint import (
    Booleans,
    ByteStrings,
    Missing,
    Numbers,
    Present,
    Strings,
    Timestamps,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from gapless.filters.constraint import Constraint
    from gapless.filters.normal import Conjunction

COLUMNS_MAX = 32
BITS_MAX = 63
ROWS_MIN = 1024
FEW = 8
"""Rows are few if they are at most one in this many."""

FREE = np.uint64(1) << np.uint64(63)
"""The mark of a row that is not in use; no conjunction has it."""


class Boxes:
    """Numbered rows, each the box of one conjunction."""

    def __init__(self) -> None:
        self._marks: NDArray[np.uint64] = np.full(ROWS_MIN, FREE)
        self._is_root: NDArray[np.bool_] = np.zeros(ROWS_MIN, np.bool_)
        self._columns: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = {}
        self._bits: dict[object, np.uint64] = {}
        self._end = 0  # no row at or beyond it is in use

    def put(self, row: int, conjunction: Conjunction, is_root: bool) -> None:
        if row >= len(self._marks):
            self._grow(max(row + 1, len(self._marks) * 2))
        self._end = max(self._end, row + 1)
        for name, constraint in conjunction.constraints:
            column = self._column(name)
            if column is not None:
                column[0][row], column[1][row] = bounds_of(constraint)
        self._marks[row] = self._mark(conjunction)
        self._is_root[row] = is_root

    def drop(self, row: int, conjunction: Conjunction) -> None:
        self._marks[row] = FREE
        self._is_root[row] = False
        for name, _ in conjunction.constraints:
            if name in self._columns:
                low, high = self._columns[name]
                low[row], high[row] = -inf, inf

    def set_root(self, row: int, is_root: bool) -> None:
        self._is_root[row] = is_root

    def covering(self, conjunction: Conjunction, *, roots: bool) -> Iterator[int]:
        """The rows that may cover the conjunction."""
        others = ~self._mark(conjunction)
        fitting = (self._marks[: self._end] & others) == 0
        return self._caught(fitting, conjunction, np.less_equal, np.greater_equal, roots)

    def covered(self, conjunction: Conjunction, *, roots: bool) -> Iterator[int]:
        """The rows that the conjunction may cover."""
        mark = self._mark(conjunction)
        fitting = (self._marks[: self._end] & (mark | FREE)) == mark
        return self._caught(fitting, conjunction, np.greater_equal, np.less_equal, roots)

    def _caught(
        self,
        fitting: NDArray[np.bool_],
        conjunction: Conjunction,
        low_test: np.ufunc,
        high_test: np.ufunc,
        roots: bool,
    ) -> Iterator[int]:
        """Of the rows whose attributes fit, those whose bounds fit too: one by one if they are
        few."""
        if roots:
            fitting &= self._is_root[: self._end]
        if np.count_nonzero(fitting) * FEW > self._end:
            for low, high, bounds in self._compared(conjunction):
                fitting &= low_test(low[: self._end], bounds[0])
                fitting &= high_test(high[: self._end], bounds[1])
            return _numbers(np.flatnonzero(fitting))
        rows = np.flatnonzero(fitting)
        for low, high, bounds in self._compared(conjunction):
            rows = rows[low_test(low[rows], bounds[0])]
            rows = rows[high_test(high[rows], bounds[1])]
        return _numbers(rows)

    def _compared(
        self, conjunction: Conjunction
    ) -> Iterable[tuple[NDArray[np.float64], NDArray[np.float64], tuple[float, float]]]:
        for name, constraint in conjunction.constraints:
            if name in self._columns:
                yield *self._columns[name], bounds_of(constraint)

    def _mark(self, conjunction: Conjunction) -> np.uint64:
        """One bit for each attribute and residual; with very many, some share a bit."""
        mark = np.uint64(0)
        for part in (*(name for name, _ in conjunction.constraints), *conjunction.residuals):
            bit = self._bits.get(part)
            if bit is None:
                place = len(self._bits) if len(self._bits) < BITS_MAX else hash(part) % BITS_MAX
                bit = np.uint64(1) << np.uint64(place)
                if len(self._bits) < BITS_MAX:
                    self._bits[part] = bit
            mark |= bit
        return mark

    def _column(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        if name not in self._columns:
            if len(self._columns) >= COLUMNS_MAX:
                return None
            size = len(self._marks)
            self._columns[name] = (np.full(size, -inf), np.full(size, inf))
        return self._columns[name]

    def _grow(self, size: int) -> None:
        more = size - len(self._marks)
        self._marks = np.concatenate([self._marks, np.full(more, FREE)])
        self._is_root = np.concatenate([self._is_root, np.zeros(more, np.bool_)])
        for name, (low, high) in self._columns.items():
            self._columns[name] = (
                np.concatenate([low, np.full(more, -inf)]),
                np.concatenate([high, np.full(more, inf)]),
            )


def _numbers(rows: NDArray[np.intp]) -> Iterator[int]:
    """The rows, a piece at a time: callers mostly look at the first few only."""
    for start in range(0, len(rows), 256):
        yield from rows[start : start + 256].tolist()


def bounds_of(constraint: Constraint) -> tuple[float, float]:
    """An interval that contains all values; if one constraint includes another, so do these."""
    match constraint:
        case Numbers(low, high, values=values):
            return (float(values[0]), float(values[-1])) if values else (float(low), float(high))
        case Strings(low, high, values=words):
            if words:
                return _rank(words[0]), _rank(words[-1])
            return _rank(low), inf if high is None else _rank(high)
        case Booleans(flags):
            return float(flags[0]), float(flags[-1])
        case Timestamps(low, high, values=times):
            if times:
                low, high = times[0], times[-1]
            end = inf if high is None else float(to_microseconds(high))
            return float(to_microseconds(low)), end
        case ByteStrings(low, high, values=pieces):
            if pieces:
                low, high = pieces[0], pieces[-1]
            return _rank(_as_text(low)), inf if high is None else _rank(_as_text(high))
        case Missing():
            return 0.0, 0.0
        case Present():
            return -inf, inf


def _as_text(data: bytes) -> str:
    """A text for each byte string, in the same order."""
    return data[:3].decode("latin-1")


def _rank(text: str) -> float:
    """The rank of a string among all, by its first characters; exact in 53 bits."""
    first, second, third = (ord(character) for character in (text[:3] + "\0\0\0")[:3])
    return float(first << 32 | second << 11 | third >> 10)
