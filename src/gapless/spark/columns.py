"""Columns: encoded events as an Arrow batch of the query's schema.

Theory of operation
    Everything is done by column, of a few thousand events at a time, by compiled code that finds
    the attribute of a column in all of them (`client.flat`); a few events are decoded instead. Only
    where something does not fit its type are rows looked at one by one: its value is null and the
    row is marked, or the read fails (`mode`).

Invariants
    I1  a batch has exactly the schema that Spark expects: Spark checks the first one only
    I2  no value is converted, other than a whole number for a column of floating point

Cost: `python -m benchmarks spark` has rows per second.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from gapless.client.columns import VALUE, attributes_column, flatten, places
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.ticks import PUBEND_BITS
from gapless.spark.schema import LOST_UNTIL, PLACES
from gapless.spark.typed import from_flat, from_values
from gapless.wire.events import decode_contents

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.types import StructField, StructType

    from gapless.client.delivery import Gap
    from gapless.core.events import EventRun
    from gapless.spark.options import ReadOptions
    from gapless.wire.events import Content


class Columns:
    """Makes batches of one schema. Sent to executors: holds nothing but what it was made with."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        self.schema = schema
        self.options = options

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema, "options": self.options}

    @cached_property
    def _arrow(self) -> Any:
        return to_arrow_schema(self.schema, timezone="UTC")

    def batch(self, pubend: str, run: EventRun) -> Any:
        """A `pyarrow.RecordBatch` of these events, in order."""
        rows = Rows(self.options, pubend, run)
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


class Rows:
    """The events of one batch, on the way to columns."""

    def __init__(self, options: ReadOptions, pubend: str, run: EventRun) -> None:
        self.options = options
        self.pubend = pubend
        self.run = run
        self.count = len(run)
        self.flat = flatten(run)
        self._corrupt: set[int] = set()

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        return self.run.cut()

    @cached_property
    def contents(self) -> list[Content]:
        return decode_contents(EventBatch(self.encoded))

    def column(self, field: StructField, arrow: Any) -> Any:
        """Of an attribute, or of what is known of every event."""
        if field.name in MAKERS:
            return MAKERS[field.name](self)
        if self.flat is not None:
            array, unfit = from_flat(self.flat.find(field.name), field.dataType, arrow)
        else:
            values = [content.attributes.get(field.name) for content in self.contents]
            array, unfit = from_values(values, field.dataType, arrow)
        if unfit and self.options.mode == "FAILFAST":
            raise self._refusal(unfit[0], field)
        self._corrupt.update(unfit)
        return array

    def _refusal(self, row: int, field: StructField) -> UsageError:
        value = self._attributes(row)[field.name]
        return UsageError(
            f"the event at tick {self.run.tick_numbers()[row]} of {self.pubend} has {field.name}="
            f"{value!r:.80}, which is no {field.dataType.simpleString()}",
            "Give the column another type, or mode=PERMISSIVE to read null in its place.",
        )

    def _attributes(self, row: int) -> dict[str, Any]:
        return decode_contents(EventBatch((self.encoded[row],)))[0].attributes

    def corrupt(self) -> Any:
        """The attributes, as JSON, of the rows of which something did not fit."""
        texts: list[str | None] = [None] * self.count
        for row in self._corrupt:
            texts[row] = json.dumps(self._attributes(row))
        return pa.array(texts, pa.string())

    # --- what is known of every event -------------------------------------------------------------

    def publishers(self) -> Any:
        if self.flat is not None:
            return self.flat.publishers()
        return pa.array([each.publisher for each in self.contents], pa.string())

    def sequences(self) -> Any:
        if self.flat is not None:
            return self.flat.sequences()
        return pa.array([each.sequence for each in self.contents], pa.int64())

    def attributes(self) -> Any:
        if self.flat is not None:
            return self.flat.attributes(VALUE)
        return attributes_column([each.attributes for each in self.contents])

    def bodies(self) -> Any:
        if self.flat is not None:
            return self.flat.bodies()
        return pa.array([each.body for each in self.contents], pa.binary())


MAKERS: dict[str, Callable[[Rows], Any]] = {
    "topic": lambda rows: pa.repeat(pa.scalar(rows.options.topic), rows.count),
    "pubend": lambda rows: pa.repeat(pa.scalar(rows.pubend), rows.count),
    "tick": lambda rows: places(rows.run)[0],
    "published": lambda rows: places(rows.run)[1],
    "publisher": Rows.publishers,
    "sequence": Rows.sequences,
    "attributes": Rows.attributes,
    "body": Rows.bodies,
    LOST_UNTIL: lambda rows: pa.nulls(rows.count, pa.int64()),
}
assert MAKERS.keys() == {*PLACES, LOST_UNTIL}
