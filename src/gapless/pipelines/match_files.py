"""Match files: events in Parquet, as the match pipeline reads them in its workers.

Theory of operation
    A file has `pubend`, `tick`, and either an `attributes` map, as a lake's have, or a column an
    attribute. Nothing else of it is read, names and texts stay the dictionaries that Parquet has
    made of them (each text is then looked up once a batch, and not once an event), and batches are
    large: all of that together is what makes reading cheaper than matching. A row group is read in
    one piece, since Arrow has no dictionary in a map that spans two of them.

Invariants
    I1  exactly the rows with ticks in [start, end) come, in the order of the file
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = 1 << 16
"""Rows of one batch."""

MAP_TEXTS = ("attributes.key_value.key", "attributes.key_value.value.text")


def read_events(path: Path, start: int, end: int) -> Iterator[Any]:
    """Batches with what is matched of a file, and where it stands."""
    schema = pq.read_schema(path)
    if "attributes" in schema.names:
        columns, texts = ["pubend", "tick", "attributes"], [*MAP_TEXTS]
    else:
        columns = schema.names
        texts = [field.name for field in schema if kinds.is_string(field.type)]
    texts.append("pubend")
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        for number in range(file.num_row_groups):
            group = file.read_row_group(number, columns, use_threads=False)
            for batch in group.combine_chunks().to_batches(ROWS):
                kept = _between(batch, start, end)
                if kept.num_rows:
                    yield kept


def _between(batch: Any, start: int, end: int) -> Any:
    """Of most batches everything: to find that out is cheaper than to copy it."""
    ticks = batch.column("tick")
    extent = pc.min_max(ticks).as_py()
    if start <= extent["min"] and extent["max"] < end:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(ticks, start), pc.less(ticks, end)))
