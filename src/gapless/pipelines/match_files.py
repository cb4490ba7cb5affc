"""Match files: events in Parquet, as the match pipeline reads them in its workers.

Theory of operation
    A file has `pubend`, `tick`, and either an `attributes` map, as a lake's have, or a column an
    attribute. Nothing else of it is read, nor what the file's figures tell: a kind of values that
    is not there, a pubend that is the only one. Names and texts stay the dictionaries that Parquet
    has made of them (each text is then looked up once a batch, and not once an event), and batches
    are large: all of that together is what makes reading cheaper than matching. A row group is read
    in one piece, since Arrow has no dictionary in a map that spans two of them.

Invariants
    I1  exactly the rows with ticks in [start, end) come, in the order of the file
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 1 << 16
"""Rows of one batch."""

NAMES, VALUES = "attributes.key_value.key", "attributes.key_value.value."


def read_events(path: Path, start: int, end: int) -> Iterator[Any]:
    """Batches with what is matched of a file, and where it stands."""
    schema = pq.read_schema(path)
    has_maps = "attributes" in schema.names
    texts = [field.name for field in schema if kinds.is_string(field.type)]
    if has_maps:
        texts += [NAMES, f"{VALUES}text"]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        for number in range(file.num_row_groups):
            part = file.metadata.row_group(number)
            columns = ["pubend", "tick", *_leaves(part)] if has_maps else [*schema.names]
            pubend = _only_text(part, "pubend")
            if pubend is not None:
                columns.remove("pubend")
            group = file.read_row_group(number, columns, use_threads=False)
            if pubend is not None:
                group = group.add_column(0, "pubend", _repeated(pubend, group.num_rows))
            for batch in group.combine_chunks().to_batches(ROWS):
                kept = _between(batch, start, end)
                if kept.num_rows:
                    yield kept


def _leaves(group: Any) -> list[str]:
    """The columns that attributes stand in, without those that no value is in."""
    found = [NAMES]
    for number in range(group.num_columns):
        column = group.column(number)
        figures = column.statistics
        if column.path_in_schema.startswith(VALUES) and not (
            figures is not None
            and figures.has_null_count
            and figures.null_count == column.num_values
        ):
            found.append(column.path_in_schema)
    return found if len(found) > 1 else [NAMES, f"{VALUES}int"]


def _only_text(group: Any, name: str) -> str | None:
    """What stands in every row of a column, if that can be told without reading it."""
    for number in range(group.num_columns):
        column = group.column(number)
        figures = column.statistics
        if (
            column.path_in_schema == name
            and figures is not None
            and figures.has_min_max
            and figures.has_null_count
            and not figures.null_count
            and figures.min == figures.max
        ):
            return str(figures.min)
    return None


def _repeated(text: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([text]))


def _between(batch: Any, start: int, end: int) -> Any:
    """Of most batches everything: to find that out is cheaper than to copy it."""
    ticks = batch.column("tick")
    extent = pc.min_max(ticks).as_py()
    if start <= extent["min"] and extent["max"] < end:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(ticks, start), pc.less(ticks, end)))
