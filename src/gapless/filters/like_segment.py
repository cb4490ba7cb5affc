"""Segments: what stands between two `%` of a LIKE pattern, and where a text has it first.

Theory of operation
    A segment is pieces of text at fixed distances; between them any character may stand (`_`). A
    single piece is found by `str.find`, which is linear. For several pieces the search proposes a
    start; each piece says by `str.find` from which start on it fits, and the farthest of these is
    proposed next. That is quick for patterns that people write. A hostile text makes the pieces
    disagree at every character. So after some proposals all starts of a stretch of the text are
    tested at once: one bit for each start, and for each character of the pieces one `and` with the
    bits of its places in the stretch, shifted. Stretches grow, so an early match costs little, and
    the next segment goes on in the same stretch.

Cost
    With one piece O(text). With several at most O(text · characters / 64) at the speed of memory,
    for every text: 0.1 ns a character of the text for each of the pieces where these are few, and
    0.01 ns where they are many; and some microseconds for each segment. No start is ever proposed
    twice.

numpy is imported where a text is tested by stretches, and not before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Bits = NDArray[np.uint8]
    Pieces = Sequence[tuple[str, int]]  # each with its distance from the start

FINDS_MAX = 64
"""Calls of `str.find` for one text before it is tested by stretches. They take about as long as the
first stretch."""

FINDS_MIN = 16
"""Calls of `str.find` that every segment has, and one more for each piece."""

STRETCH_FIRST, STRETCH_LAST = 1 << 10, 1 << 18
"""Starts that are tested at once: at first, and at most; or the length of the segment."""

GLANCE = 32
"""Characters of the pieces after which the search looks whether any start is left."""

KEPT_MAX = 1024
"""Bit arrays that are cached for a stretch, by character and shift; 32 KiB each at most."""


class Segment:
    """Pieces at fixed distances from a start; `size` characters in all."""

    __slots__ = ("_pieces", "size")

    def __init__(self, parts: Sequence[str]) -> None:
        """`parts`: literal pieces, and `""` for each `_`."""
        self._pieces: list[tuple[str, int]] = []
        self.size = 0
        for part in parts:
            if part:
                self._pieces.append((part, self.size))
            self.size += len(part) or 1

    def stands_at(self, text: str, start: int) -> bool:
        """Does the text, which is long enough, have it there?"""
        for piece, offset in self._pieces:  # noqa: SIM110 - a generator takes twice as long
            if not text.startswith(piece, start + offset):
                return False
        return True

    def find(self, search: Search, start: int, end: int) -> int:
        """Where its first place in text[start:end] ends; -1: there is none."""
        find, pieces, size = search.text.find, self._pieces, self.size
        last = end - size
        budget = left = len(pieces) + max(search.finds_left, FINDS_MIN)
        found = start
        while start <= last:
            for piece, offset in pieces:
                left -= 1
                found = find(piece, start + offset, last + offset + len(piece)) - offset
                if found != start:
                    break
            if found == start or found < start:
                search.finds_left -= budget - left
                return start + size if found == start else -1
            start = found
            if left <= 0:
                search.finds_left = 0
                found = search.first(pieces, size, start, last)
                return found + size if found >= 0 else -1
        return -1


class Search:
    """One text on its way through the segments of a pattern."""

    __slots__ = ("_stretch", "finds_left", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.finds_left = FINDS_MAX
        self._stretch: TextStretch | None = None

    def first(self, pieces: Pieces, size: int, start: int, last: int) -> int:
        """The first of the starts from `start` to `last` at which all pieces stand; -1 if none."""
        count, stretch = max(STRETCH_FIRST, size), self._stretch
        while start <= last:
            if stretch is None or start + size > stretch.end:
                end = min(start + count, last + 1) + size - 1
                stretch = self._stretch = TextStretch(self.text, start, end)
            after = min(stretch.end - size, last, start + count - 1) + 1
            found = stretch.first(pieces, start, after)
            if found >= 0:
                return found
            start, count = after, max(count, min(4 * count, STRETCH_LAST))
        return -1


class TextStretch:
    """A part of a text, from `base` to `end`, and the places of characters in it."""

    __slots__ = ("_codes", "_kept", "base", "end")

    def __init__(self, text: str, base: int, end: int) -> None:
        import numpy as np

        part = text[base:end]
        self.base, self.end = base, end
        self._codes: NDArray[Any] = (
            np.frombuffer(part.encode(), np.uint8)
            if part.isascii()
            else np.frombuffer(part.encode("utf-32-le", "surrogatepass"), np.uint32)
        )
        self._kept: dict[tuple[str, int], Bits] = {}

    def first(self, pieces: Pieces, start: int, after: int) -> int:
        """The first of the starts `start` to `after` at which all pieces stand; -1 if none."""
        import numpy as np

        if start >= after:
            return -1
        width, kept, seen = (after - start + 7) // 8, self._kept, 0
        fits = np.full(width, 0xFF, np.uint8)
        for piece, offset in pieces:
            for place, character in enumerate(piece, start - self.base + offset):
                bits = kept.get((character, place & 7))
                if bits is None:
                    here = self._codes[place & 7 :] == ord(character)
                    bits = np.packbits(here, bitorder="little")
                    if len(kept) < KEPT_MAX:
                        kept[character, place & 7] = bits
                fits &= bits[place >> 3 : (place >> 3) + width]
                seen += 1
                if seen % GLANCE == 0 and not fits.any():
                    return -1
        byte = int(fits.astype(np.bool_).argmax())
        value = int(fits[byte])
        found = start + 8 * byte + (value & -value).bit_length() - 1
        return found if value and found < after else -1
