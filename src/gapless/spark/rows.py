"""Rows to events: which column of a DataFrame is what of an event, and the events of a batch.

Theory of operation
    A column `topic` says where a row goes unless the option does; `body` or `value` is the body;
    a map `attributes` holds attributes of any names, as the source gives them. Every other column
    is an attribute of its name, or those that the option `attributes` lists. Beside such a map the
    names of an event's place (`pubend`, `tick`, …) are left out: the broker gives it a new one.
    All this is decided once from the schema, on the driver, so that a column of a type that no
    attribute has is refused by name before anything is written.

    bool, whole numbers, fractions and text are what they are. A timestamp is its microseconds since
    1970 (UTC), as everywhere in gapless; a date is text, `2026-01-31`; a decimal without digits
    behind the point, of 18 digits at most, is a whole number. Other decimals are refused: which of
    text and float loses less is for their owner to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types

from gapless.core.errors import UsageError
from gapless.wire.columnar import EventColumns, check_attribute_name, encode_columns, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.spark.sink_options import SinkOptions

TOPIC, BODIES, ATTRIBUTES = "topic", ("body", "value"), "attributes"
PLACE = ("pubend", "tick", "published", "publisher", "sequence")
INTEGER_DIGITS_MAX = 18
REMEDY = "Cast it to boolean, bigint, double or string, or choose columns with option attributes."


@dataclass(frozen=True)
class Layout:
    """EventColumns by their places in the schema."""

    attributes: tuple[tuple[str, int, pa.DataType], ...]
    maps: tuple[int, pa.DataType] | None
    body: int | None
    json: tuple[str, ...]
    topic: int | None
    default_topic: str

    def encode(self, batch: Any) -> Iterator[tuple[str, list[bytes]]]:
        """The events of a `RecordBatch`, by topic; in order within each."""
        columns = EventColumns(
            batch.num_rows,
            {name: batch.column(index).cast(kind) for name, index, kind in self.attributes},
            None if self.maps is None else _cast_map(batch.column(self.maps[0]), self.maps[1]),
            self._bodies(batch),
        )
        events = list(encode_columns(columns))
        if self.topic is None:
            yield self.default_topic, events
            return
        topics = batch.column(self.topic).dictionary_encode()
        if topics.null_count:
            raise UsageError(
                "a row has no topic: its column topic is null", "Fill it, or give option topic."
            )
        names, indices = topics.dictionary.to_pylist(), topics.indices.to_pylist()
        if len(names) == 1:
            yield names[0], events
            return
        groups: list[list[bytes]] = [[] for _ in names]
        for index, event in zip(indices, events, strict=True):
            groups[index].append(event)
        yield from zip(names, groups, strict=True)

    def _bodies(self, batch: Any) -> Any:
        if self.json:
            return encode_json(batch.select(list(self.json)))
        return None if self.body is None else batch.column(self.body).cast(pa.binary())


def lay_out(schema: types.StructType, options: SinkOptions) -> Layout:
    """`UsageError` names the column that cannot be, or what is missing."""
    places = _places(schema)
    chosen = options.attributes
    for name in chosen or ():
        if name not in places:
            raise UsageError(
                f"option attributes names {name!r}, and there is no such column",
                f"There are {', '.join(places)}.",
            )
    has_map = isinstance(_type(schema, ATTRIBUTES), types.MapType) and chosen is None
    special = {TOPIC, *BODIES} | ({ATTRIBUTES, *PLACE} if has_map else set())
    names = [name for name in places if name not in special] if chosen is None else chosen
    topic = None if options.topic else places.get(TOPIC)
    if topic is not None and not isinstance(_type(schema, TOPIC), types.StringType):
        raise UsageError("column topic is not text", "Cast it to string, or give option topic.")
    if topic is None and not options.topic:
        raise UsageError(
            "nothing says which topic rows go to", "Give option topic, or a column topic."
        )
    json = tuple(name for name in places if name != TOPIC) if options.is_json else ()
    return Layout(
        tuple((name, places[name], _attribute(schema[name])) for name in names),
        (places[ATTRIBUTES], _items(schema[ATTRIBUTES])) if has_map else None,
        _body(schema, places, is_json=options.is_json),
        json,
        topic,
        options.topic,
    )


def _places(schema: types.StructType) -> dict[str, int]:
    places: dict[str, int] = {}
    for index, name in enumerate(schema.fieldNames()):
        if name in places:
            raise UsageError(f"two columns are called {name!r}", "Rename one of them.")
        places[name] = index
    return places


def _type(schema: types.StructType, name: str) -> types.DataType | None:
    return schema[name].dataType if name in schema.fieldNames() else None


def _body(schema: types.StructType, places: dict[str, int], *, is_json: bool) -> int | None:
    found = [name for name in BODIES if name in places]
    if is_json and found:
        raise UsageError(
            f"column {found[0]} and option body=json are two bodies", "Rename it, or drop one."
        )
    if len(found) > 1:
        raise UsageError("columns body and value are two bodies", "Rename or drop one of them.")
    if not found:
        return None
    if not isinstance(schema[found[0]].dataType, types.StringType | types.BinaryType):
        raise UsageError(
            f"column {found[0]} is {schema[found[0]].dataType.simpleString()}, and a body is bytes",
            "Cast it to binary or string, use to_json, or rename it to have it as an attribute.",
        )
    return places[found[0]]


def _attribute(field: types.StructField) -> pa.DataType:
    kind = _arrow(field.dataType)
    if kind is None:
        raise UsageError(
            f"column {field.name!r} is {field.dataType.simpleString()}, which no attribute can be",
            REMEDY,
        )
    check_attribute_name(field.name)
    return kind


def _arrow(kind: types.DataType) -> pa.DataType | None:
    """What a column of this type is cast to; None: it cannot be an attribute."""
    match kind:
        case types.BooleanType():
            return pa.bool_()
        case types.ByteType() | types.ShortType() | types.IntegerType() | types.LongType():
            return pa.int64()
        case types.TimestampType() | types.TimestampNTZType():
            return pa.int64()
        case types.DecimalType(scale=0, precision=digits) if digits <= INTEGER_DIGITS_MAX:
            return pa.int64()
        case types.FloatType() | types.DoubleType():
            return pa.float64()
        case types.StringType() | types.DateType():
            return pa.string()
        case _:
            return None


def _items(field: types.StructField) -> pa.DataType:
    """What the values of a map of attributes are cast to."""
    kind = field.dataType
    assert isinstance(kind, types.MapType)
    value = kind.valueType
    if isinstance(value, types.StructType):
        parts = [_arrow(each.dataType) for each in value.fields]
        target = None if None in parts else pa.struct(zip(value.fieldNames(), parts, strict=True))
    else:
        target = _arrow(value)
    if target is None or not isinstance(kind.keyType, types.StringType):
        raise UsageError(
            f"column {field.name!r} is {kind.simpleString()}, which attributes cannot be", REMEDY
        )
    return target


def _cast_map(column: Any, kind: pa.DataType) -> Any:
    items = column.items
    if pa.types.is_struct(kind):
        parts = zip(items.flatten(), kind, strict=True)
        cast = [part.cast(field.type) for part, field in parts]
        items = pa.StructArray.from_arrays(cast, fields=list(kind))
    else:
        items = items.cast(kind)
    return pa.MapArray.from_arrays(column.offsets, column.keys.cast(pa.string()), items)
