"""Changes: what a commit leaves behind, in the form in which a store keeps it.

Theory of operation
    A store has no use for the order of writes within a commit, only for their outcome: the records
    that were appended (one `StoredExtent` for each append), the bounds of each stream that was
    touched, and the last value of each fact, None where it was deleted. `Changes.of` works that
    out; a reader of the store gets `Changes` too, of many commits at once.

    An extent is one value of bytes: a header, the indices (first and step where these are equal),
    the length of each record, the records end to end.

Source: docs/protocols/replicated-commits.md, 3.
"""

from __future__ import annotations

import struct
import sys
from array import array
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.core.errors import StorageCorruptError
from gapless.storage.draft import chopped
from gapless.storage.volume import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.effects import Write

HEADER = struct.Struct("<BIQQ")  # kind, count, first, step
REGULAR, IRREGULAR = 0, 1


class StoredExtent(NamedTuple):
    """Records of one append, encoded."""

    stream: str
    first: int
    last: int
    data: bytes


@dataclass(slots=True)
class Changes:
    """What has changed: of one commit, or of several in their order."""

    extents: list[StoredExtent] = field(default_factory=list)
    bounds: dict[str, Bounds] = field(default_factory=dict)
    facts: dict[tuple[str, str], bytes | None] = field(default_factory=dict)

    @classmethod
    def of(cls, writes: Sequence[Write], bounds_of: Callable[[str], Bounds]) -> Changes:
        """What `writes` change, where `bounds_of` tells the bounds before them."""
        changes = cls()
        bounds = changes.bounds
        for write in writes:
            match write:
                case Append(stream, indices, records):
                    if indices:
                        start = (bounds.get(stream) or bounds_of(stream)).start
                        bounds[stream] = Bounds(start, indices[-1] + 1)
                        data = encode_extent(indices, records)
                        changes.extents.append(StoredExtent(stream, indices[0], indices[-1], data))
                case Chop(stream, index):
                    bounds[stream] = chopped(bounds.get(stream) or bounds_of(stream), index)
                case Put(table, key, value):
                    changes.facts[table, key] = bytes(value)
                case Delete(table, key):
                    changes.facts[table, key] = None
        return changes


def encode_extent(indices: Sequence[int], records: Sequence[bytes]) -> bytes:
    """Indices and records as one value."""
    first, count = indices[0], len(indices)
    step = indices[1] - first if count > 1 else 1
    kind = REGULAR
    if not isinstance(indices, range) and any(b - a != step for a, b in pairwise(indices)):
        kind = IRREGULAR
    parts = [HEADER.pack(kind, count, first, step)]
    if kind == IRREGULAR:
        parts.append(_bytes_of(array("q", indices)))
    parts.append(_bytes_of(array("I", map(len, records))))
    return b"".join((*parts, *records))


def decode_extent(data: bytes) -> tuple[Sequence[int], list[bytes]]:
    """The indices and the records of an extent."""
    try:
        kind, count, first, step = HEADER.unpack_from(data)
        place = HEADER.size
        indices: Sequence[int] = range(first, first + count * step, step)
        if kind == IRREGULAR:
            indices = _array_of("q", data, place, count)
            place += 8 * count
        lengths = _array_of("I", data, place, count)
        place += 4 * count
        ends = list(accumulate(lengths, initial=place))
        if ends[-1] != len(data):
            raise ValueError("its length is wrong")
    except (struct.error, ValueError) as error:
        raise StorageCorruptError(
            f"the store has an extent that cannot be read: {error}",
            "Restore the database from a backup.",
        ) from None
    return indices, [data[start:end] for start, end in pairwise(ends)]


def _bytes_of(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _array_of(code: str, data: bytes, place: int, count: int) -> array[int]:
    numbers = array(code)
    numbers.frombytes(data[place : place + count * numbers.itemsize])
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
