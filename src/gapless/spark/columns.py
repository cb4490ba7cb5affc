"""Columns: encoded events as an Arrow batch of the query's schema.

Theory of operation
    Everything is done by column. Events are decoded once; the attribute of a column is gathered
    from all of them, and if what is there fits the type, which one look at the set of their types
    tells, Arrow takes it as it is. Only where something does not fit are rows looked at one by one:
    its value becomes null and the row is marked, or the read fails (`mode`).

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

from gapless.client.columns import attributes_column
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.ticks import PUBEND_BITS
from gapless.spark.schema import ATTRIBUTE_TYPES, LOST_UNTIL, PLACES, WHOLE_TYPES
from gapless.wire.events import decode_contents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql.types import StructField, StructType

    from gapless.client.delivery import Gap
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

    def batch(self, pubend: str, ticks: Sequence[int], encoded: Sequence[bytes]) -> Any:
        """A `pyarrow.RecordBatch` of these events, in order."""
        rows = Rows(self.options, pubend, ticks, decode_contents(EventBatch(tuple(encoded))))
        arrays = {
            field.name: self._array(rows, field, kind.type)
            for field, kind in zip(self.schema, self._arrow, strict=True)
            if field.name != self.options.corrupt_column
        }
        if self.options.corrupt_column in self.schema.names:
            arrays[self.options.corrupt_column] = rows.corrupt_column()
        return pa.record_batch([arrays[name] for name in self.schema.names], schema=self._arrow)

    def _array(self, rows: Rows, column: StructField, kind: Any) -> Any:
        make = MAKERS.get(column.name)
        return make(rows) if make else rows.attribute(column, kind)

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

    def __init__(
        self,
        options: ReadOptions,
        pubend: str,
        ticks: Sequence[int],
        contents: list[Content],
    ) -> None:
        self.options = options
        self.pubend = pubend
        self.ticks = ticks
        self.contents = contents
        self.count = len(contents)
        self._corrupt: set[int] = set()

    @cached_property
    def maps(self) -> list[dict[str, Any]]:
        return [content.attributes for content in self.contents]

    def attribute(self, column: StructField, kind: Any) -> Any:
        """One attribute of all events."""
        name, fitting = column.name, ATTRIBUTE_TYPES[type(column.dataType)]
        values = [each.get(name) for each in self.maps]
        if set(map(type, values)) <= {*fitting, type(None)}:
            try:
                return pa.array(values, kind)
            except pa.ArrowInvalid:  # a whole number that is too large for this column
                pass
        bits = WHOLE_TYPES.get(type(column.dataType))
        for row, value in enumerate(values):
            if value is None or (
                type(value) in fitting
                and (bits is None or -(1 << bits - 1) <= value < 1 << bits - 1)
            ):
                continue
            self._mark(row, column)
            values[row] = None
        if bits is None and bool not in fitting and str not in fitting:
            values = [None if value is None else float(value) for value in values]
        return pa.array(values, kind)

    def _mark(self, row: int, column: StructField) -> None:
        """This row does not fit the schema."""
        if self.options.mode == "FAILFAST":
            value = self.maps[row][column.name]
            raise UsageError(
                f"the event at tick {self.ticks[row]} of {self.pubend} has {column.name}="
                f"{value!r:.80}, which is no {column.dataType.simpleString()}",
                "Give the column another type, or mode=PERMISSIVE to read null in its place.",
            )
        self._corrupt.add(row)

    def corrupt_column(self) -> Any:
        """The attributes, as JSON, of the rows of which something did not fit."""
        texts = [
            json.dumps(self.maps[row]) if row in self._corrupt else None
            for row in range(self.count)
        ]
        return pa.array(texts, pa.string())


def _published(rows: Rows) -> Any:
    return pa.array([tick >> PUBEND_BITS for tick in rows.ticks], pa.timestamp("us", "UTC"))


MAKERS: dict[str, Callable[[Rows], Any]] = {
    "topic": lambda rows: pa.repeat(pa.scalar(rows.options.topic), rows.count),
    "pubend": lambda rows: pa.repeat(pa.scalar(rows.pubend), rows.count),
    "tick": lambda rows: pa.array(rows.ticks, pa.int64()),
    "published": _published,
    "publisher": lambda rows: pa.array([each.publisher for each in rows.contents], pa.string()),
    "sequence": lambda rows: pa.array([each.sequence for each in rows.contents], pa.int64()),
    "attributes": lambda rows: attributes_column(rows.maps),
    "body": lambda rows: pa.array([each.body for each in rows.contents], pa.binary()),
    LOST_UNTIL: lambda rows: pa.nulls(rows.count, pa.int64()),
}
assert MAKERS.keys() == {*PLACES, LOST_UNTIL}
