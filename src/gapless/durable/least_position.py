"""Least position: the least of very many positions of which few change.

Theory of operation
    A heap holds an entry for every key, never above the key's true position. Moving a position up
    touches the dictionary alone; an outdated entry is corrected only when it comes to the top. So a
    key that stands still costs nothing, and neither does one that moves far from the least. Moving
    a position down, which only a hand-over does, adds an entry; the old entry is dropped when it
    comes to the top. With too many old entries the heap is built anew.

Invariants (checked by `check`)
    I1  the entry at the top is a true position, the least of all
    I2  every key has an entry at or below its position; at most 2n + 8 entries for n keys

Cost: O(1) to read, O(log n) amortised for each change; about 250 bytes a key.
Source: DSN 2003, sec. 4.1, `min over s of released(s, p)`.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace


class LeastPosition:
    """Positions by key, and the least of them."""

    __slots__ = ("_heap", "_positions")

    def __init__(self) -> None:
        self._positions: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def set(self, key: int, position: int) -> None:
        """Add the key, or move it up or down."""
        before = self._positions.get(key)
        self._positions[key] = position
        if before is None or position < before:
            heappush(self._heap, (position, key))
        self._settle()

    def remove(self, key: int) -> None:
        """Remove the key, if it is there."""
        self._positions.pop(key, None)
        self._settle()

    @property
    def least(self) -> int | None:
        """The least position; None if there are no keys."""
        return self._heap[0][0] if self._heap else None

    def __len__(self) -> int:
        return len(self._positions)

    def _settle(self) -> None:
        heap, positions = self._heap, self._positions
        if len(heap) > 2 * len(positions) + 8:
            heap[:] = [(position, key) for key, position in positions.items()]
            heapify(heap)
        while heap:
            entry, key = heap[0]
            position = positions.get(key)
            if entry == position:
                return
            if position is None or position < entry:  # gone, or there is a lower entry
                heappop(heap)
            else:
                heapreplace(heap, (position, key))

    def check(self) -> None:
        assert self.least == min(self._positions.values(), default=None), "I1"
        lowest: dict[int, int] = {}
        for position, key in self._heap:
            lowest[key] = min(position, lowest.get(key, position))
        assert all(lowest[key] <= position for key, position in self._positions.items()), "I2"
        assert len(self._heap) <= 2 * len(self._positions) + 8, "I2"
