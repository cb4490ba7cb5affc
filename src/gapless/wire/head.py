"""The head of a message: its first fields, read before the rest of its frame has arrived.

A message is a map whose first entry is its kind; the short fields of a request stand next. So a
receiver can look at kind, topic and number of a request, and decide whether it wants the megabytes
that follow. Fields that cannot be read here are left to the decoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.wire.framing import Bytes

HEAD_BYTES = 1024
"""Enough for the kind, a topic and a number, whatever their size."""

_INTEGER_BYTES = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_TEXT_LENGTH_BYTES = {0xD9: 1, 0xDA: 2}


def read_head(begin: Bytes) -> dict[str, str | int]:
    """The leading entries of a map whose values are texts and numbers, as far as they are whole."""
    found: dict[str, str | int] = {}
    if not begin or not (0x80 <= begin[0] <= 0x8F or begin[0] == 0xDE):
        return found
    at = 3 if begin[0] == 0xDE else 1
    while True:
        key, at = _read(begin, at)
        value, at = _read(begin, at)
        if type(key) is not str or value is None:
            return found
        found[key] = value


def _read(begin: Bytes, at: int) -> tuple[str | int | None, int]:
    """A text or a number, and where the next thing begins; None: neither, or not whole."""
    if at >= len(begin):
        return None, at
    first = begin[at]
    if first < 0x80:
        return first, at + 1
    if (size := _INTEGER_BYTES.get(first)) is not None:
        end = at + 1 + size
        number = int.from_bytes(begin[at + 1 : end], "big")
        return (number, end) if end <= len(begin) else (None, at)
    if 0xA0 <= first <= 0xBF:
        start, size = at + 1, first & 0x1F
    elif (length := _TEXT_LENGTH_BYTES.get(first)) is not None:
        start = at + 1 + length
        size = int.from_bytes(begin[at + 1 : start], "big")
    else:
        return None, at
    if start + size > len(begin):
        return None, at
    try:
        return bytes(begin[start : start + size]).decode(), start + size
    except UnicodeDecodeError:
        return None, at
