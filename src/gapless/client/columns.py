"""Columns: a batch of events as Arrow, losing nothing.

Theory of operation
    Attributes have any of six types, and the same name may have another type in the next event. So
    they are a map from name to a struct of six nullable fields, of which exactly one is set:
    `bool`, `int`, `float`, `text`, `timestamp`, `bytes`. Nothing is converted, and every reader of
    Arrow and Parquet has maps and structs (but not unions). Columns of few events are built from
    the decoded events: one pass gathers names and values, and a mask a type makes the struct.
    Many events are not decoded one by one: compiled code (`wire.parse`) finds where everything
    stands, numpy picks what a column needs, and Arrow takes the memory as it is. Texts and bodies
    are copied once, next to each other. `flatten` is None for a batch that the compiled code
    refuses.

Cost: `python -m benchmarks ranges` has rows per second, beside decoding alone.
"""

from __future__ import annotations

from datetime import datetime
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from gapless.core.extras import missing_extra

try:
    import numpy as np
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise missing_extra(error.name or "", "a table of events") or error from None

from gapless.core.attribute_table import BOOL, BYTES, FLOAT, INT, MISSING, TEXT, TIMESTAMP
from gapless.core.errors import EventError, UsageError
from gapless.core.events import EventBatch, EventRun
from gapless.core.identity import PublisherName
from gapless.core.ticks import PUBEND_BITS
from gapless.core.timestamps import in_utc
from gapless.wire.columnar import EventColumns, check_attribute_name
from gapless.wire.events import decode_contents, encode_event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

EVENTS_MIN = 500
"""With fewer events, loading the compiled code takes longer than it saves."""

LOADED_MIN = 64
"""With fewer events, decoding them takes less time than a call of compiled code that is loaded."""

COPIED_BYTES_MAX = 1 << 30
"""A longer batch is decoded event by event: Arrow's offsets have 32 bits."""

MOMENT = pa.timestamp("us", "UTC")
VALUE = pa.struct(
    [
        ("bool", pa.bool_()),
        ("int", pa.int64()),
        ("float", pa.float64()),
        ("text", pa.string()),
        ("timestamp", MOMENT),
        ("bytes", pa.binary()),
    ]
)
KINDS = (bool, int, float, str, datetime, bytes)

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("pubend", pa.string(), nullable=False),
        pa.field("tick", pa.int64(), nullable=False),
        pa.field("published", MOMENT, nullable=False),
        pa.field("publisher", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("attributes", pa.map_(pa.string(), VALUE), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)


def to_arrow(topic: str, pubends: str | Sequence[str], run: EventRun) -> Any:
    """A `pyarrow.RecordBatch` with the columns of `SCHEMA`; `pubends`: of all, or of each."""
    count, flat = len(run), flatten(run)
    if flat is not None:
        publishers, sequences = flat.publishers(), flat.sequences()
        attributes, bodies = flat.attributes(VALUE), flat.bodies()
    else:
        contents = decode_contents(EventBatch(run.cut()))
        publishers = pa.array([content.publisher for content in contents], pa.string())
        sequences = pa.array([content.sequence for content in contents], pa.int64())
        attributes = attributes_column([content.attributes for content in contents])
        bodies = pa.array([content.body for content in contents], pa.binary())
    return pa.record_batch(
        [
            pa.repeat(pa.scalar(str(topic)), count),
            pa.repeat(pa.scalar(str(pubends)), count)
            if isinstance(pubends, str)
            else pa.array(pubends, pa.string()),
            *places(run),
            publishers,
            sequences,
            attributes,
            bodies,
        ],
        schema=SCHEMA,
    )


def places(run: EventRun) -> tuple[Any, Any]:
    """The columns of ticks and of their times."""
    numbers = np.frombuffer(run.ticks, "<i8")
    return pa.array(numbers), pa.array(numbers >> PUBEND_BITS).cast(MOMENT)


def attributes_column(maps: Sequence[Mapping[str, Any]]) -> Any:
    """The attributes of many events as one array."""
    offsets = [0, *accumulate(map(len, maps))]
    names = pa.array(list(chain.from_iterable(maps)), pa.string())
    values = list(chain.from_iterable(each.values() for each in maps))
    kinds = list(map(type, values))
    present = set(kinds)
    fields = [
        pa.array(
            [value if kind is wanted else None for value, kind in zip(values, kinds, strict=True)],
            field.type,
        )
        if wanted in present
        else pa.nulls(len(values), field.type)
        for wanted, field in zip(KINDS, VALUE, strict=True)
    ]
    structs = pa.StructArray.from_arrays(fields, fields=list(VALUE))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, structs)


def to_table(batches: Sequence[Any]) -> Any:
    """All batches as one `pyarrow.Table`; it has its columns even without a batch."""
    return pa.Table.from_batches(batches, SCHEMA)


# --- from columns --------------------------------------------------------------------------------

PLACES = ("topic", "pubend", "tick", "published", "publisher", "sequence")
"""Columns of a batch that was received: the broker gives its events new places."""

TABLE_REMEDY = (
    "Cast it to bool, int64, float64, string, timestamp('us', 'UTC') or binary, or leave the "
    "column out."
)


def event_columns(
    batch: Any, body: str | None, context: Mapping[str, Any] | None = None
) -> EventColumns:
    """The rows of a `RecordBatch` as events: each column is an attribute, a null an absent one.
    A batch as `to_arrow` makes it becomes the events that it was made of. Any other gets the
    attributes of `context`, unless it has columns of these names."""
    names = batch.schema.names
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"two columns are called {twice!r}", "Rename one of them.")
    was_received = "attributes" in names and pa.types.is_map(batch.schema.field("attributes").type)
    body = "body" if was_received and body is None else body
    if body is not None and body not in names:
        raise UsageError(f"there is no column {body!r}", f"There are {', '.join(names)}.")
    special = {body, "attributes", *PLACES} if was_received else {body}
    attributes = {}
    for name in names:
        if name not in special and not pa.types.is_null(batch.schema.field(name).type):
            check_attribute_name(name)
            attributes[name] = _attribute(name, batch.column(name))
    for name, text in (context or {}).items():
        if not was_received and name not in names:
            attributes[name] = pa.repeat(pa.scalar(text, pa.string()), batch.num_rows)
    return EventColumns(
        batch.num_rows,
        attributes,
        batch.column("attributes") if was_received else None,
        None if body is None else _bodies(body, batch.column(body)),
    )


def _attribute(name: str, column: Any) -> Any:
    """The column as one of the types that attributes have."""
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        return _attribute(name, column.dictionary_decode())
    if types.is_boolean(kind):
        return column
    if types.is_timestamp(kind) and kind.tz is None:
        remedy = "Give it one: pyarrow.compute.assume_timezone(column, 'UTC')."
        raise UsageError(f"column {name!r} is {kind}, without a time zone", remedy)
    for is_kind, wanted in (
        (types.is_integer, pa.int64()),
        (types.is_floating, pa.float64()),
        (types.is_string, pa.string()),
        (types.is_large_string, pa.string()),
        (types.is_string_view, pa.string()),
        (types.is_timestamp, MOMENT),
        (types.is_binary, pa.binary()),
        (types.is_large_binary, pa.binary()),
        (types.is_binary_view, pa.binary()),
        (types.is_fixed_size_binary, pa.binary()),
    ):
        if is_kind(kind):
            try:
                return column.cast(wanted)
            except pa.ArrowInvalid as error:
                raise EventError(f"column {name!r}: {error}", TABLE_REMEDY) from None
    raise UsageError(f"column {name!r} is {kind}, which no attribute can be", TABLE_REMEDY)


def _bodies(name: str, column: Any) -> Any:
    try:
        return column.cast(pa.binary())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        problem = f"column {name!r} is {column.type}, and a body is bytes"
        raise UsageError(problem, "Cast it to binary or string.") from None


def attributes_of(row: Sequence[tuple[str, dict[str, Any] | None]]) -> dict[str, Any]:
    """The attributes of one row, as they were published, from what `to_pylist` makes of it.

    A name without a value, as others may write it, is as if it were not there."""
    found = {
        name: next(value for value in fields.values() if value is not None)
        for name, fields in row
        if fields is not None and any(value is not None for value in fields.values())
    }
    for name, value in found.items():
        if isinstance(value, datetime):  # Arrow has a time zone of its own that is UTC
            found[name] = in_utc(value)
    return found


# --- without decoding ----------------------------------------------------------------------------


class Demand:
    """Events that this process has made columns of: once they are many, compiled code is loaded,
    however few events a batch has."""

    events = 0


def _pays(count: int) -> bool:
    Demand.events += count
    return count >= (min(LOADED_MIN, EVENTS_MIN) if Demand.events >= EVENTS_MIN else EVENTS_MIN)


def flatten(run: EventRun) -> ParsedBatch | None:
    """The places of all that is in these events; None: decode them one by one."""
    if not _pays(len(run)) or len(run.data) > COPIED_BYTES_MAX:
        return None
    from gapless.wire import parse

    data = np.frombuffer(run.data, np.uint8)
    bounds = np.zeros(len(run) + 1, np.int64)
    bounds[1:] = np.frombuffer(run.ends, "<u4")
    firsts = np.empty(len(bounds), np.int64)
    if not parse.count(data, bounds, firsts):  # as it does if ends go back, or beyond the last
        return None
    places = int(firsts[-1])
    names, kinds = np.empty((places, 3), np.int64), np.empty(places, np.uint8)
    values, rest = np.empty(places, np.int64), np.empty((len(run), 5), np.int64)
    if not parse.parse(data, bounds, firsts, names, kinds, values, rest):
        return None
    return ParsedBatch(data, firsts, names, kinds, values, rest)


def join_runs(runs: Sequence[EventRun]) -> EventRun:
    """The events of all runs, as one run."""
    if len(runs) == 1:
        return runs[0]
    bases = np.repeat(
        np.cumsum([0, *(len(run.data) for run in runs[:-1])]), [len(run) for run in runs]
    )
    ends = np.frombuffer(b"".join([run.ends for run in runs]), "<u4") + bases
    ticks, data = b"".join([run.ticks for run in runs]), b"".join([run.data for run in runs])
    return EventRun(ticks, ends.astype("<u4").tobytes(), data)


def prepare() -> None:
    """Compile what is not compiled yet, once a machine."""
    event = encode_event({"a": "b", "n": 1}, b"c", PublisherName("d"), 0)
    flat = flatten(EventRun.of(range(EVENTS_MIN), [event] * EVENTS_MIN))
    assert flat is not None
    flat.find("a").texts()


class ParsedBatch:
    """Where everything stands in the bytes of one batch."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        firsts: NDArray[np.int64],
        names: NDArray[np.int64],
        kinds: NDArray[np.uint8],
        values: NDArray[np.int64],
        rest: NDArray[np.int64],
    ) -> None:
        self._data = data
        self._firsts = firsts
        self._names = names
        self._kinds = kinds
        self._values = values
        self._rest = rest
        self.count = len(firsts) - 1

    # --- columns of attributes -------------------------------------------------------------------

    def find(self, name: str) -> ParsedValues:
        """The values of one attribute in all events."""
        from gapless.wire import parse

        places = np.empty(self.count, np.int64)
        wanted = np.frombuffer(name.encode(), np.uint8)
        parse.find(self._data, self._firsts, self._names, wanted, places)
        return self._at(places)

    def _at(self, places: NDArray[np.int64]) -> ParsedValues:
        if not len(self._kinds):
            empty = np.zeros(len(places), np.int64)
            return ParsedValues(self, empty.astype(np.uint8), empty, empty)
        kinds = np.where(places < 0, np.uint8(MISSING), self._kinds[places])
        return ParsedValues(self, kinds, self._values[places], self._names[places, 2])

    def attributes(self, value_type: Any) -> Any:
        """All attributes, as maps from name to a struct in which one field is set."""
        values = ParsedValues(self, self._kinds, self._values, self._names[:, 2])
        fields = [
            values.numbers(BOOL, pa.bool_()),
            values.numbers(INT, pa.int64()),
            values.numbers(FLOAT, pa.float64()),
            values.texts(),
            values.numbers(TIMESTAMP, MOMENT),
            values.byte_strings(),
        ]
        structs = pa.StructArray.from_arrays(fields, fields=list(value_type))
        names = self.pieces(self._names[:, 0], self._names[:, 1], None, pa.string())
        return pa.MapArray.from_arrays(pa.array(self._firsts.astype(np.int32)), names, structs)

    # --- other columns ---------------------------------------------------------------------

    def bodies(self) -> Any:
        return self.pieces(self._rest[:, 0], self._rest[:, 1], None, pa.binary())

    def publishers(self) -> Any:
        is_named = self._rest[:, 2] >= 0
        return self.pieces(self._rest[:, 2], self._rest[:, 3], is_named, pa.string())

    def sequences(self) -> Any:
        return pa.array(self._rest[:, 4], pa.int64(), mask=self._rest[:, 4] < 0)

    def pieces(
        self,
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        valid: NDArray[np.bool_] | None,
        kind: Any,
    ) -> Any:
        """Texts or bytes that stand in the events."""
        from gapless.wire import parse

        if valid is not None:
            lengths = np.where(valid, lengths, 0)
        ends = np.zeros(len(starts) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        out = np.empty(int(ends[-1]), np.uint8)
        parse.gather(self._data, np.ascontiguousarray(starts), ends, out)
        buffers = [_bitmap(valid), pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
        return pa.Array.from_buffers(kind, len(starts), buffers)


class ParsedValues:
    """One value of any kind for each place; kind 0: there is no value."""

    def __init__(
        self,
        flat: ParsedBatch,
        kinds: NDArray[np.uint8],
        values: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        self._flat = flat
        self.kinds = kinds
        self.values = values
        self._lengths = lengths

    def texts(self) -> Any:
        return self._flat.pieces(self.values, self._lengths, self.kinds == TEXT, pa.string())

    def byte_strings(self) -> Any:
        return self._flat.pieces(self.values, self._lengths, self.kinds == BYTES, pa.binary())

    def numbers(self, kind: int, arrow: Any) -> Any:
        """The values of one kind; all others are null."""
        values: Any = self.values
        if kind == BOOL:
            values = values != 0
        elif kind == FLOAT:
            values = values.view(np.float64)
        elif kind == TIMESTAMP:
            return pa.array(values, pa.int64(), mask=self.kinds != kind).cast(arrow)
        return pa.array(values, arrow, mask=self.kinds != kind)


def _bitmap(valid: NDArray[np.bool_] | None) -> Any:
    if valid is None:
        return None
    return pa.py_buffer(np.packbits(valid, bitorder="little"))
