"""Survey: the kind and a number of a few attributes in many encoded events, by compiled code.

Theory of operation
    To find few events among many, a caller need not decode them: a rough value of each attribute is
    enough. A number is its nearest float, a timestamp that of its microseconds, a boolean 0 or 1, a
    text or bytes their CRC-32. One walk over the
    bytes (`wire.parse`) finds these for all names at once, and makes no object for an event.
    The walk refuses forms that it does not know, and the caller decodes instead.

Invariants
    I1  an accepted value means what `wire.events.decode_attributes` gives

Cost: some 15 ns for each attribute of an event, wanted or not. Loading the compiled code takes
0.5 s once a process, compiling it some seconds once a machine: call `prepare` beside other work.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from gapless.core.attribute_table import BOOL, BYTES, FLOAT, INT, MISSING, TEXT, TIMESTAMP
from gapless.wire import parse
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Piece = tuple[bytes | memoryview, NDArray[np.int64]]
    Surveyed = tuple[NDArray[np.uint8], NDArray[np.float64]]

NOTHING, BOOLEAN, NUMBER, WORDS, MOMENT, OCTETS = range(6)
GROSS = np.zeros(7, np.uint8)  # by kind of `core.attribute_table`: the kind of a survey
GROSS[[MISSING, BOOL, INT, FLOAT, TEXT]] = NOTHING, BOOLEAN, NUMBER, NUMBER, WORDS
GROSS[[TIMESTAMP, BYTES]] = MOMENT, OCTETS

# What zlib does to one byte, with what it does before and behind taken out again.
TABLE = np.array([crc32(bytes([0xFF ^ byte])) ^ 0xFF000000 for byte in range(256)], np.uint32)


def survey(pieces: Sequence[Piece], names: Sequence[str]) -> list[Surveyed] | None:
    """For each name, by event, kinds and numbers; None: decode them. Event i of a piece stands at
    `bounds[i]:bounds[i + 1]` of its bytes."""
    wanted = [name.encode() for name in names]
    ends = np.array([0, *accumulate(map(len, wanted))], np.int64)
    joined = np.frombuffer(b"".join(wanted), np.uint8)
    count = sum(len(bounds) - 1 for _, bounds in pieces)
    kinds = np.zeros((len(names), count), np.uint8)
    values = np.zeros(kinds.shape, np.float64)
    first = 0
    for data, bounds in pieces:
        whole = np.frombuffer(data, np.uint8)
        if not parse.survey(whole, bounds, joined, ends, TABLE, kinds, values, first):
            return None
        first += len(bounds) - 1
    return list(zip(GROSS[kinds], values, strict=True))


def prepare() -> None:
    """Load the compiled code, or compile it."""
    event = encode_event({"a": "b", "n": 1.5})
    assert survey([(event, np.array([0, len(event)]))], ["a", "n"]) is not None
