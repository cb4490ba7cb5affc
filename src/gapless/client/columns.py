"""Columns: a batch of events as Arrow, losing nothing.

Theory of operation
    Attributes have any of four types, and the same name may have another one in the next event. So
    they are a map from name to a struct of four nullable fields, of which exactly one is set:
    `bool`, `int`, `float`, `text`. Nothing is converted, and every reader of Arrow and Parquet has
    maps and structs (not so unions). Everything is built by column: of many events by compiled
    code (`client.flat`); of few, one pass over the decoded events gathers names and values, and
    four masks make the struct.

Cost: `python -m benchmarks ranges` has rows per second, beside decoding alone.
"""

from __future__ import annotations

from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gapless.client.flat import flatten
from gapless.core.events import EventBatch
from gapless.core.ticks import PUBEND_BITS
from gapless.wire.events import decode_contents

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.events import EventRun

VALUE = pa.struct(
    [("bool", pa.bool_()), ("int", pa.int64()), ("float", pa.float64()), ("text", pa.string())]
)
KINDS = (bool, int, float, str)

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("pubend", pa.string(), nullable=False),
        pa.field("tick", pa.int64(), nullable=False),
        pa.field("published", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("publisher", pa.string()),
        pa.field("sequence", pa.int64()),
        pa.field("attributes", pa.map_(pa.string(), VALUE), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
    ]
)


def to_arrow(topic: str, pubend: str, run: EventRun) -> Any:
    """A `pyarrow.RecordBatch` with the columns of `SCHEMA`."""
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
            pa.repeat(pa.scalar(str(pubend)), count),
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
    return pa.array(numbers), pa.array(numbers >> PUBEND_BITS).cast(pa.timestamp("us", "UTC"))


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
    """All of them as one `pyarrow.Table`, which has its columns though there be none."""
    return pa.Table.from_batches(batches, SCHEMA)


def attributes_of(row: Sequence[tuple[str, dict[str, Any] | None]]) -> dict[str, Any]:
    """The attributes of one row, as they were published, from what `to_pylist` makes of it.

    A name without a value, as others may write it, is as if it were not there."""
    return {
        name: next(value for value in fields.values() if value is not None)
        for name, fields in row
        if fields is not None and any(value is not None for value in fields.values())
    }
