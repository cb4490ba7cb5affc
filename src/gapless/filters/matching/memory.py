"""Memory: the arena of one compiled index, which grows, and views of it for readers.

Grows by half when it is full. An arena that was mapped from a file is used as it is until then.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

import numpy as np

from gapless.filters.matching import arena, kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.filters.matching.columns import ColumnInterval

WORDS_FIRST = 1 << 14
TABLE_FIRST = 64

REQUEST_AT = arena.HEADER_WORDS
REQUESTS = [Struct("=9q" + "qdd" * count) for count in range(arena.SLOTS_MAX + 1)]  # by slots
PADS = [(0,) * (4 - count) for count in range(5)]


class Memory:
    """The words of an arena."""

    __slots__ = ("bytes", "identities", "identity_view", "out_at", "words")

    def __init__(self, words: NDArray[np.int64]) -> None:
        self.use(words)

    def use(self, words: NDArray[np.int64]) -> None:
        self.words = words
        self.bytes = memoryview(words).cast("B")  # type: ignore[arg-type]
        self.identities = words.view(np.uint32)
        self.identity_view = self.bytes.cast("I")
        self.out_at = 2 * int(words[arena.OUT])  # where the matches of `match_one` are

    def _grow(self, missing: int) -> None:
        old = self.words
        new = np.zeros(max(len(old) + len(old) // 2, int(old[arena.TOP]) + missing), np.int64)
        new[: old[arena.TOP]] = old[: old[arena.TOP]]
        self.use(new)

    def insert(
        self, handle: int, identity: int, root: int, codes: list[int], slots: list[ColumnInterval]
    ) -> None:
        """Add a row under a key."""
        request = [handle, identity, len(codes), root, *codes, *PADS[len(codes)], len(slots)]
        for slot in slots:
            request += slot  # type: ignore[arg-type]
        while True:
            REQUESTS[len(slots)].pack_into(self.bytes, 8 * REQUEST_AT, *request)
            missing = kernels.insert(self.words)
            if not missing:
                self.out_at = 2 * int(self.words[arena.OUT])
                return
            self._grow(missing)

    def reserve(self, table: int, capacity: int, need: int) -> int:
        """Where a table has room for `need` words that no kernel fills; its old place is not
        reused."""
        if need > self.words[capacity]:
            need *= 2
            if self.words[arena.TOP] + need > len(self.words):
                self._grow(need)
            words = self.words
            words[table], words[capacity] = words[arena.TOP], need
            words[arena.TOP] += need
        return int(self.words[table])


def fresh_arena(size: int = WORDS_FIRST) -> NDArray[np.int64]:
    """An arena of at least `size` words, without rows."""
    words = np.zeros(max(size, WORDS_FIRST), np.int64)
    top = REQUEST_AT + arena.REQUEST_WORDS
    words[arena.REQUEST] = REQUEST_AT
    for table, capacity, entry_words in (
        (arena.EDGES, arena.EDGES_CAP, 2),
        (arena.BUCKETS, arena.BUCKETS_CAP, arena.BUCKET_WORDS),
        (arena.ROWS, arena.ROWS_CAP, 2),
        (arena.HANDLES, arena.HANDLES_CAP, 1),
    ):
        words[table], words[capacity] = top, TABLE_FIRST
        top += TABLE_FIRST * entry_words
    words[arena.OUT], words[arena.SCRATCH] = top, top + TABLE_FIRST // 2
    words[arena.BUCKETS_COUNT], words[arena.ROWS_COUNT] = 2, 1
    words[arena.TOP] = top + TABLE_FIRST
    return words
