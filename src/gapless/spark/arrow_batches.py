"""Arrow batches: encoded events as record batches of the query's schema.

Theory of operation
    Everything is done by column, of a few thousand events at a time, by compiled code that finds
    the attribute of a column in all of them (`client.columns`); a few events are decoded instead.
    Only where something does not fit its type (`attribute_types`) are rows looked at one by one:
    its value is null and the row is marked, or the read fails (`mode`).

Invariants
    I1  a batch has exactly the schema that Spark expects: Spark checks the first one only

Cost: `python -m benchmarks spark` has rows per second.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import MapType, StringType

from gapless.client.columns import VALUE, attributes_column, flatten, places
from gapless.client.json_values import to_json
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.ticks import PUBEND_BITS
from gapless.spark.attribute_types import from_flat, from_values
from gapless.spark.schema import ATTRIBUTES, LOST_UNTIL, PLACES
from gapless.wire.columnar import to_json_texts
from gapless.wire.events import decode_contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import DataType, StructField, StructType

    from gapless.client.delivery import Gap
    from gapless.core.events import EventRun
    from gapless.spark.options import ReadOptions
    from gapless.wire.events import Content


class ArrowBatches:
    """Makes batches of one schema. Sent to executors: holds nothing but what it was made with."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = schema
        self.options = options

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema, "options": self.options}

    @cached_property
    def _arrow(self) -> Any:
        return to_arrow_schema(self.schema, timezone="UTC")

    def batch(self, topic: str, pubend: str, run: EventRun) -> Any:
        """A `pyarrow.RecordBatch` of these events, in order."""
        rows = EventRows(self.options, topic, pubend, run)
        corrupt = self.options.corrupt_column
        arrays = {
            field.name: rows.column(field, arrow.type)
            for field, arrow in zip(self.schema, self._arrow, strict=True)
            if field.name != corrupt
        }
        if corrupt in self.schema.names:
            arrays[corrupt] = rows.corrupt()
        return pa.record_batch([arrays[name] for name in self.schema.names], schema=self._arrow)

    def gap(self, gap: Gap) -> Any:
        """One row that tells of what is lost: from `tick` up to, but without, `lost_until`."""
        known = {
            "topic": str(gap.topic),
            "pubend": str(gap.pubend),
            "tick": gap.span.start,
            "published": gap.span.start >> PUBEND_BITS,
            LOST_UNTIL: gap.span.end,
        }
        arrays = [pa.array([known.get(field.name)], field.type) for field in self._arrow]
        return pa.record_batch(arrays, schema=self._arrow)


class EventRows:
    """The events of one batch, on the way to columns."""

    def __init__(self, options: ReadOptions, topic: str, pubend: str, run: EventRun) -> None:
        self.options = options
        self.topic = topic
        self.pubend = pubend
        self.run = run
        self.count = len(run)
        self.flat = flatten(run)
        self.names = {column: attribute for attribute, column in options.rename.items()}
        self._corrupt_rows: set[int] = set()

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        return self.run.cut()

    @cached_property
    def contents(self) -> list[Content]:
        return decode_contents(EventBatch(self.encoded))

    def column(self, field: StructField, arrow: Any) -> Any:
        """Of an attribute, or of what is known of every event."""
        if field.name == ATTRIBUTES:
            return self.attributes(field.dataType)
        if field.name in MAKERS:
            return MAKERS[field.name](self)
        name = self.names.get(field.name, field.name)
        if self.flat is not None:
            array, unfit = from_flat(self.flat.find(name), field.dataType, arrow)
        else:
            values = [content.attributes.get(name) for content in self.contents]
            array, unfit = from_values(values, field.dataType, arrow)
        if unfit and self.options.mode == "FAILFAST":
            raise self._refusal(unfit[0], field)
        self._corrupt_rows.update(unfit)
        return array

    def _refusal(self, row: int, field: StructField) -> UsageError:
        value = self._attributes(row)[self.names.get(field.name, field.name)]
        return UsageError(
            f"the event at tick {self.run.tick_numbers()[row]} of {self.pubend} has {field.name}="
            f"{value!r:.80}, which is no {field.dataType.simpleString()}",
            "Give the column another type, or mode=PERMISSIVE to read null in its place.",
        )

    def _attributes(self, row: int) -> dict[str, Any]:
        return decode_contents(EventBatch((self.encoded[row],)))[0].attributes

    def corrupt(self) -> Any:
        """The attributes, as JSON, of the rows of which something did not fit."""
        texts: list[Any] = [None] * self.count
        for row in self._corrupt_rows:
            texts[row] = to_json(self._attributes(row))
        return to_json_texts(texts)

    # --- what is known of every event -------------------------------------------------------------

    def publishers(self) -> Any:
        if self.flat is not None:
            return self.flat.publishers()
        return pa.array([each.publisher for each in self.contents], pa.string())

    def sequences(self) -> Any:
        if self.flat is not None:
            return self.flat.sequences()
        return pa.array([each.sequence for each in self.contents], pa.int64())

    def attributes(self, kind: DataType) -> Any:
        """As JSON, as a map of texts, or as the map that keeps every type."""
        if isinstance(kind, StringType):
            return to_json_texts(to_json(each.attributes) for each in self.contents)
        if self.flat is not None:
            maps = self.flat.attributes(VALUE)
        else:
            maps = attributes_column([each.attributes for each in self.contents])
        assert isinstance(kind, MapType)
        return as_texts(maps) if isinstance(kind.valueType, StringType) else maps

    def bodies(self) -> Any:
        if self.flat is not None:
            return self.flat.bodies()
        return pa.array([each.body for each in self.contents], pa.binary())


def as_texts(maps: Any) -> Any:
    """A map of texts: true, 17, 92.5; a timestamp and bytes as JSON has them, without the mark."""
    fields = [_as_text(each) for each in maps.items.flatten()]
    return pa.MapArray.from_arrays(maps.offsets, maps.keys, pc.coalesce(*fields))


def _as_text(values: Any) -> Any:
    if not (pa.types.is_timestamp(values.type) or pa.types.is_binary(values.type)):
        return values.cast(pa.string())
    if values.null_count == len(values):
        return pa.nulls(len(values), pa.string())
    marks = [{} if each is None else to_json({"": each})[""] for each in values.to_pylist()]
    return pa.array([next(iter(each.values()), None) for each in marks], pa.string())


MAKERS: dict[str, Callable[[EventRows], Any]] = {
    "topic": lambda rows: pa.repeat(pa.scalar(rows.topic), rows.count),
    "pubend": lambda rows: pa.repeat(pa.scalar(rows.pubend), rows.count),
    "tick": lambda rows: places(rows.run)[0],
    "published": lambda rows: places(rows.run)[1],
    "publisher": EventRows.publishers,
    "sequence": EventRows.sequences,
    "body": EventRows.bodies,
    LOST_UNTIL: lambda rows: pa.nulls(rows.count, pa.int64()),
}
assert {*MAKERS, ATTRIBUTES} == {*PLACES, LOST_UNTIL}
