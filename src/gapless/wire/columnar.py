"""Events encoded by column: Arrow arrays in, the bytes of one event for each row out.

Theory of operation
    An encoded event is a sequence of pieces (see `gapless.wire.events`): a head with the number of
    attributes, a name and a value for each of them, and the body. Each column is turned into an
    array of pieces at once, null where the value is; one join by row, which leaves nulls out, makes
    the events. So a null is an absent attribute, and no Python object is made per value.
    Numbers of a column take the narrowest width that all of them fit into, timestamps the widest.

Invariants
    I1  `check_events` accepts the result, unless a text is not UTF-8 or a map has a bad name, which
        the broker checks
    I2  it decodes to the attributes and body that `encode_event` would give for the row

Deviation: numbers and timestamps may be wider than necessary. A name that is both in the map and a
column occurs twice; by the rule of `gapless.wire.events` the column counts.

Cost: `python -m benchmarks spark_sink` has rows per second, beside `encode_event`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapless.core.errors import EventError
from gapless.core.timestamps import BEYOND, FIRST, LAST, to_microseconds
from gapless.wire.events import ATTRIBUTE_COUNT_MAX, EVENT_BYTES_MAX, TEXT_MAX, encode_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SLICE_BYTES_MAX = 64 << 20
"""Bytes of columns that are encoded at a time; memory use is in proportion."""

BINARY = pa.binary()
EMPTY = pa.scalar(b"", BINARY)
INTEGERS = ((0xD0, ">i1"), (0xD1, ">i2"), (0xD2, ">i4"), (0xD3, ">i8"))
FALSE, FLOAT = 0xC2, 0xCB
TIMESTAMP_HEAD, TIMESTAMP = b"\xc7\x0c", 0xFF  # 12 bytes: nanoseconds, and seconds since 1970
TIMESTAMP_BYTES = np.dtype([("nanoseconds", ">u4"), ("seconds", ">i8")])
SECOND = 1_000_000  # microseconds
UNSIGNED, SIGNED = b"\x92", b"\x94"  # an array without, and with, publisher and sequence

_json = msgspec.json.Encoder()


@dataclass(frozen=True)
class EventColumns:
    """Rows to encode. Attributes are boolean, int64, float64, string, binary or timestamp arrays,
    these in microseconds with a time zone.

    `maps`: more attributes, of any names; a map to one of these types, or to a struct of several
    of which one is set in each value. `bodies`: binary; none: all empty.
    """

    count: int
    attributes: dict[str, Any] = field(default_factory=dict)
    maps: Any = None
    bodies: Any = None

    def slice(self, start: int, count: int) -> EventColumns:
        return EventColumns(
            count,
            {name: column.slice(start, count) for name, column in self.attributes.items()},
            None if self.maps is None else self.maps.slice(start, count),
            None if self.bodies is None else self.bodies.slice(start, count),
        )

    @property
    def nbytes(self) -> int:
        arrays = [*self.attributes.values(), self.maps, self.bodies]
        return sum(array.nbytes for array in arrays if array is not None)


def encode_columns(
    columns: EventColumns, event_bytes_max: int = EVENT_BYTES_MAX, *, is_signed: bool = False
) -> Iterator[bytes]:
    """The events of all rows, in order. With `is_signed`, `sign_events` has to complete them."""
    step = max(1, columns.count * SLICE_BYTES_MAX // max(columns.nbytes, SLICE_BYTES_MAX))
    for start in range(0, columns.count, step):
        head = SIGNED if is_signed else UNSIGNED
        joined = _join(columns.slice(start, min(step, columns.count - start)), head)
        ends = np.frombuffer(joined.buffers()[1], np.int32, len(joined) + 1)
        if (longest := int(np.diff(ends).max())) > event_bytes_max:
            raise EventError(
                f"an event has {longest} bytes, the limit is {event_bytes_max}",
                "Store large bodies outside of gapless, and publish their place.",
            )
        data = joined.buffers()[2].to_pybytes()
        yield from [data[low:high] for low, high in pairwise(ends.tolist())]


def sign_events(events: Iterable[bytes], publisher: str, sequence: int) -> Iterator[bytes]:
    """Events that `encode_columns` made with `is_signed`, with the publisher and their numbers."""
    name = publisher.encode()
    tail = _text_head(len(name)) + name + bytes([INTEGERS[-1][0]])
    for number, event in enumerate(events, sequence):
        yield event + tail + number.to_bytes(8)


def encode_json(rows: Any) -> Any:
    """Each row of a `RecordBatch` as a JSON object, in a binary array. Nulls are left out."""
    return pa.array(
        [
            _json.encode({name: value for name, value in row.items() if value is not None})
            for row in rows.to_pylist(maps_as_pydicts="strict")
        ],
        BINARY,
    )


def to_json_texts(values: Iterable[Any]) -> Any:
    """Each value as JSON, in a string array; null where it is None."""
    return pa.array(
        [None if value is None else _json.encode(value) for value in values], BINARY
    ).cast(pa.string())


def from_json_text(text: str) -> Any:
    """`ValueError` if it is no JSON."""
    return msgspec.json.decode(text)


def check_attribute_name(name: str) -> None:
    """`EventError` if an attribute must not have this name."""
    encode_event({name: True})


def _join(columns: EventColumns, fields: bytes) -> Any:
    pieces: list[Any] = []
    counts = np.zeros(columns.count, np.int64)
    if columns.maps is not None:
        piece, counts = _maps(columns.maps)
        pieces.append(piece)
    for name, column in columns.attributes.items():
        pieces += _values(_text_head(len(name.encode())) + name.encode(), column)
        counts = counts + column.is_valid().to_numpy(zero_copy_only=False)
    most = int(counts.max(initial=0))
    if most > ATTRIBUTE_COUNT_MAX:
        raise EventError(
            f"an event has {most} attributes, the limit is {ATTRIBUTE_COUNT_MAX}",
            "Keep what filters ask for; put the rest into the body.",
        )
    heads = pa.array([fields + _map_head(count) for count in range(most + 1)], BINARY)
    bodies = columns.bodies
    if bodies is None:
        pieces.append(pa.repeat(pa.scalar(_body_head(0), BINARY), columns.count))
    else:
        bodies = bodies.fill_null(EMPTY)
        pieces += [_by_length(bodies, _body_head, b""), bodies]
    return pc.binary_join_element_wise(
        heads.take(pa.array(counts)), *pieces, EMPTY, null_handling="skip"
    )


# --- pieces of one column ------------------------------------------------------------------------


def _values(name: bytes, column: Any) -> list[Any]:
    """For each row the encoded name and value, in one array or in two; null where it is null."""
    kind = column.type
    if pa.types.is_string(kind):
        if (pc.max(pc.binary_length(column)).as_py() or 0) > TEXT_MAX:
            _check_texts(column)
        return [_by_length(column, _text_head, name), column.cast(BINARY)]
    if pa.types.is_boolean(kind):
        codes = FALSE + column.fill_null(False).to_numpy(zero_copy_only=False).astype(np.uint8)
        return [_cells(name, codes, None, column)]
    if pa.types.is_int64(kind):
        numbers = column.fill_null(0).to_numpy()
        low, high = int(numbers.min(initial=0)), int(numbers.max(initial=0))
        code, width = next(
            (code, width)
            for code, width in INTEGERS
            if np.iinfo(width).min <= low and high <= np.iinfo(width).max
        )
        return [_cells(name, code, numbers.astype(width), column)]
    if pa.types.is_binary(kind):
        return [_by_length(column, _body_head, name), column]
    if pa.types.is_timestamp(kind):
        return [_cells(name + TIMESTAMP_HEAD, TIMESTAMP, _timestamps(column), column)]
    assert pa.types.is_float64(kind), kind
    return [_cells(name, FLOAT, column.fill_null(0.0).to_numpy().astype(">f8"), column)]


def _check_texts(column: Any) -> None:
    longest = pc.max(pc.utf8_length(column)).as_py()
    if longest > TEXT_MAX:
        raise EventError(
            f"a text has {longest} characters, the limit is {TEXT_MAX}",
            "Put it into the body; conditions look at attributes only.",
        )


def _timestamps(column: Any) -> Any:
    """The numbers of each timestamp; any where it is null."""
    moments = column.cast(pa.int64()).fill_null(0).to_numpy()
    low, high = int(moments.min(initial=0)), int(moments.max(initial=0))
    if low < to_microseconds(FIRST) or high > to_microseconds(LAST):
        raise EventError(f"a timestamp is {BEYOND}", "Correct it, or leave it out.")
    parts = np.empty(len(moments), TIMESTAMP_BYTES)
    parts["seconds"], parts["nanoseconds"] = moments // SECOND, moments % SECOND * 1000
    return parts


def _cells(name: bytes, code: Any, numbers: Any, column: Any) -> Any:
    """Pieces of equal length: the name, a byte that says what follows, a number."""
    count = len(column)
    width = 0 if numbers is None else numbers.dtype.itemsize
    size = len(name) + 1 + width
    cells = np.empty((count, size), np.uint8)
    cells[:, : len(name)] = np.frombuffer(name, np.uint8)
    cells[:, len(name)] = code
    if numbers is not None:
        cells[:, len(name) + 1 :] = numbers.view(np.uint8).reshape(count, width)
    ends = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    valid = column.is_valid().buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(BINARY, count, [valid, pa.py_buffer(ends), pa.py_buffer(cells)])


def _by_length(column: Any, head: Any, name: bytes) -> Any:
    """What stands before each value, which depends on its length; null where the value is."""
    lengths = pc.binary_length(column).dictionary_encode()
    heads = pa.array([name + head(length) for length in lengths.dictionary.to_pylist()], BINARY)
    return heads.take(lengths.indices)


def _maps(maps: Any) -> tuple[Any, Any]:
    """All entries of each row as one piece, and how many they are. Null values are left out."""
    ends = maps.offsets.to_numpy()
    first, last = int(ends[0]), int(ends[-1])
    names, items = maps.keys.slice(first, last - first), maps.items.slice(first, last - first)
    if pa.types.is_struct(items.type):
        values = [piece for each in items.flatten() for piece in _values(b"", each)]
    else:
        values = _values(b"", items)
    is_set = np.logical_or.reduce(
        [piece.is_valid().to_numpy(zero_copy_only=False) for piece in values]
    )
    # Empty, not null: a join that leaves nulls out forgets a row that has nothing else.
    head = [
        pc.if_else(pa.array(is_set), piece, EMPTY)
        for piece in (_by_length(names, _text_head, b""), names.cast(BINARY))
    ]
    entries = pc.binary_join_element_wise(*head, *values, EMPTY, null_handling="skip")
    rows = pa.ListArray.from_arrays(pa.array(ends - first, pa.int32()), entries)
    before = np.concatenate([[0], np.cumsum(is_set)])
    return pc.binary_join(rows, EMPTY), np.diff(before[ends - first])


# --- heads ---------------------------------------------------------------------------------------


def _map_head(count: int) -> bytes:
    return bytes([0x80 | count]) if count < 16 else b"\xde" + count.to_bytes(2)


def _text_head(length: int) -> bytes:
    if length < 32:
        return bytes([0xA0 | length])
    return _sized(length, (0xD9, 0xDA, 0xDB))


def _body_head(length: int) -> bytes:
    return _sized(length, (0xC4, 0xC5, 0xC6))


def _sized(length: int, codes: tuple[int, int, int]) -> bytes:
    """A length in one, two or four bytes, after the code that says in how many."""
    for code, width in zip(codes, (1, 2, 4), strict=True):
        if length < 1 << 8 * width:
            return bytes([code]) + length.to_bytes(width)
    raise EventError(
        f"a value has {length} bytes", "Store it outside of gapless, and publish its place."
    )
