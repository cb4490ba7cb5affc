"""Sink layout: which column of a DataFrame is what of an event, and the events of a batch.

Theory of operation
    A column `topic` says where a row goes unless the option does; `body` or `value` is the body;
    a column `attributes`, a map or JSON as the source gives it, holds attributes of any names.
    Every other column is an attribute of its name, or of the name that the option `rename` gives;
    or only those columns that the option `attributes` lists.
    A frame that has such a column `attributes` was read from a topic: the columns of an event's
    place (`pubend`, `tick`, …) are left out, for the broker gives it a new one. In any other frame
    a column of that name is refused: a reader would see the event's own in its place.
    All this is decided once from the schema, on the driver, so that a column of a type that no
    attribute has (`attribute_types`) is refused by name before anything is written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa
from pyspark.sql import types

from gapless.client.columns import KINDS, attributes_column
from gapless.client.json_values import from_json
from gapless.core.errors import UsageError
from gapless.spark.attribute_types import attribute_type, to_attribute
from gapless.wire.columnar import (
    EventColumns,
    check_attribute_name,
    encode_columns,
    encode_json,
    from_json_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from gapless.spark.sink_options import SinkOptions

TOPIC, BODIES, ATTRIBUTES = "topic", ("body", "value"), "attributes"
PLACE = ("pubend", "tick", "published", "publisher", "sequence")
REMEDY = (
    "Cast it to boolean, bigint, double, string, timestamp or binary, or choose columns with "
    "option attributes."
)


@dataclass(frozen=True)
class SinkLayout:
    """EventColumns by their places in the schema. `attributes`: by name of the attribute."""

    attributes: dict[str, tuple[int, types.DataType]]
    maps: tuple[int, types.DataType] | None
    body: int | None
    json: tuple[str, ...]
    topic: int | None
    default_topic: str
    spread: int | None = None
    """The column whose values say which rows go together, to one pubend."""

    def encode(
        self, batch: Any, lane_count: Callable[[str], int] = lambda _: 1
    ) -> Iterator[tuple[str, int, list[bytes]]]:
        """The events of a `RecordBatch`, by topic and lane; in order within each. The value of the
        column `spread` picks one of so many lanes of the topic."""
        columns = EventColumns(
            batch.num_rows,
            {
                name: to_attribute(batch.column(index), kind)
                for name, (index, kind) in self.attributes.items()
            },
            None if self.maps is None else _to_maps(batch.column(self.maps[0]), self.maps[1]),
            self._bodies(batch),
        )
        events = list(encode_columns(columns))
        hashes = None if self.spread is None else _hashes(batch.column(self.spread))
        for topic, rows in self._by_topic(batch):
            if hashes is None:
                some = events if len(rows) == len(events) else [events[row] for row in rows]
                yield topic, 0, some
                continue
            count = lane_count(topic)
            lanes: list[list[bytes]] = [[] for _ in range(count)]
            for row in rows:
                lanes[hashes[row] % count].append(events[row])
            for number, lane in enumerate(lanes):
                yield topic, number, lane

    def _by_topic(self, batch: Any) -> Iterator[tuple[str, Sequence[int]]]:
        """The rows of each topic."""
        if self.topic is None:
            yield self.default_topic, range(batch.num_rows)
            return
        topics = batch.column(self.topic).dictionary_encode()
        if topics.null_count:
            raise UsageError(
                "a row has no topic: its column topic is null", "Fill it, or give option topic."
            )
        names, indices = topics.dictionary.to_pylist(), topics.indices.to_pylist()
        groups: list[list[int]] = [[] for _ in names]
        for row, index in enumerate(indices):
            groups[index].append(row)
        yield from zip(names, groups, strict=True)

    def _bodies(self, batch: Any) -> Any:
        if self.json:
            return encode_json(batch.select(list(self.json)))
        return None if self.body is None else batch.column(self.body).cast(pa.binary())


def lay_out(schema: types.StructType, options: SinkOptions) -> SinkLayout:
    """`UsageError` names the column that cannot be, or what is missing."""
    places = _places(schema)
    spread = (options.spread_by,) if options.spread_by else ()
    for option, names in (
        ("attributes", options.attributes or ()),
        ("rename", options.rename),
        ("spreadBy", spread),
    ):
        if unknown := [name for name in names if name not in places]:
            problem = f"option {option} names {unknown[0]!r}, and there is no such column"
            raise UsageError(problem, f"There are {', '.join(places)}.")
    kind = schema[ATTRIBUTES].dataType if ATTRIBUTES in places else None
    was_read = isinstance(kind, types.MapType | types.StringType) and options.attributes is None
    topic = None if options.topic else places.get(TOPIC)
    if topic is not None and not isinstance(schema[TOPIC].dataType, types.StringType):
        raise UsageError("column topic is not text", "Cast it to string, or give option topic.")
    if topic is None and not options.topic:
        raise UsageError(
            "nothing says which topic rows go to", "Give option topic, or a column topic."
        )
    json = tuple(name for name in places if name != TOPIC) if options.is_json else ()
    return SinkLayout(
        _attributes(schema, places, options, was_read=was_read),
        (places[ATTRIBUTES], _check_maps(schema[ATTRIBUTES])) if was_read else None,
        _body(schema, places, is_json=options.is_json),
        json,
        topic,
        options.topic,
        places[options.spread_by] if spread else None,
    )


def _places(schema: types.StructType) -> dict[str, int]:
    places: dict[str, int] = {}
    for index, name in enumerate(schema.fieldNames()):
        if name in places:
            raise UsageError(f"two columns are called {name!r}", "Rename one of them.")
        places[name] = index
    return places


def _attributes(
    schema: types.StructType, places: dict[str, int], options: SinkOptions, *, was_read: bool
) -> dict[str, tuple[int, types.DataType]]:
    special = {TOPIC, *BODIES} | ({ATTRIBUTES, *PLACE} if was_read else set())
    columns = options.attributes
    if columns is None:
        columns = tuple(name for name in places if name not in special or name in options.rename)
    attributes: dict[str, tuple[int, types.DataType]] = {}
    for column in columns:
        name = options.rename.get(column, column)
        if name in PLACE or (name in (TOPIC, ATTRIBUTES) and options.attributes is None):
            raise UsageError(
                f"column {column!r} has the name of a column that every event has: a reader would "
                "see that one in its place",
                f"Rename it: rename=NAME={column}.",
            )
        if name in attributes:
            raise UsageError(f"two columns become the attribute {name!r}", "Correct rename.")
        _check_attribute(schema[column], name)
        attributes[name] = (places[column], schema[column].dataType)
    is_chosen = options.attributes is not None or TOPIC in options.rename
    if TOPIC in places and options.topic and not was_read and not is_chosen:
        raise UsageError(
            "column topic and option topic both say where rows go",
            "Leave one of them out, or make the column an attribute: rename=NAME=topic.",
        )
    return attributes


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


def _check_attribute(field: types.StructField, name: str) -> None:
    if attribute_type(field.dataType) is None:
        raise UsageError(
            f"column {field.name!r} is {field.dataType.simpleString()}, which no attribute can be",
            REMEDY,
        )
    check_attribute_name(name)


def _check_maps(field: types.StructField) -> types.DataType:
    """The type of the column `attributes`, which is JSON or a map of attributes."""
    kind = field.dataType
    if isinstance(kind, types.StringType):
        return kind
    assert isinstance(kind, types.MapType)
    value = kind.valueType
    parts = [each.dataType for each in value] if isinstance(value, types.StructType) else [value]
    if not isinstance(kind.keyType, types.StringType) or None in map(attribute_type, parts):
        raise UsageError(
            f"column {field.name!r} is {kind.simpleString()}, which attributes cannot be", REMEDY
        )
    return kind


def _hashes(column: Any) -> list[int]:
    """A number for each row, the same for equal values, in every process."""
    values = column.dictionary_encode()
    known = [crc32(repr(each).encode()) for each in values.dictionary.to_pylist()]
    return [0 if index is None else known[index] for index in values.indices.to_pylist()]


def _to_maps(column: Any, kind: types.DataType) -> Any:
    """The map of attributes that `encode_columns` takes."""
    if isinstance(kind, types.StringType):
        return attributes_column([_from_json(text) for text in column.to_pylist()])
    assert isinstance(kind, types.MapType)
    items, value = column.items, kind.valueType
    if isinstance(value, types.StructType):
        fields = zip(items.flatten(), value, strict=True)
        parts = [to_attribute(part, field.dataType) for part, field in fields]
        items = pa.StructArray.from_arrays(parts, value.fieldNames())
    else:
        items = to_attribute(items, value)
    return pa.MapArray.from_arrays(column.offsets, column.keys.cast(pa.string()), items)


def _from_json(text: str | None) -> dict[str, Any]:
    try:
        found = from_json_text(text or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        problem = f"column attributes has {text!r:.80}, which is no JSON object"
        raise UsageError(problem, "Give an object, or rename the column.")
    attributes = from_json(found)
    for name, value in attributes.items():
        if value is not None and type(value) not in KINDS:
            raise UsageError(
                f"column attributes has {value!r:.80} for {name!r}, which no attribute can be",
                "Give booleans, numbers, texts, and timestamps and bytes under their marks.",
            )
    return {name: value for name, value in attributes.items() if value is not None}
