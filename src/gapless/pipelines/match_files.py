"""Match files: events in Parquet, as the match pipeline reads them in its workers.

Theory of operation
    A file has `pubend`, `tick`, and either an `attributes` map, as a lake's have, or a column an
    attribute. Nothing else of it is read, nor what the file's figures tell: a kind of values that
    is not there, a pubend that is the only one. Names and texts stay the dictionaries that Parquet
    has made of them (each text is then looked up once a batch, and not once an event), and batches
    are large: all of that together is what makes reading cheaper than matching. Maps of events that
    have the same names come as columns, without Arrow (`regular_maps`). A row group is read in one
    piece, since Arrow has no dictionary in a map that spans two of them.

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

from gapless.core.errors import StorageCorruptError, StorageMissingError, UsageError
from gapless.pipelines.regular_maps import (
    NAMES,
    VALUES,
    has_known_maps,
    is_empty,
    read_regular,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ROWS = 1 << 16
"""Rows of one batch."""

PLACES = ("pubend", "tick")
PLACES_WANTED = "Give each event a pubend (text) and a tick (a whole number of 64 bits)."
ENCODINGS = frozenset(["PLAIN", "RLE", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "BIT_PACKED"])


def read_events(path: Path, start: int, end: int) -> Iterator[Any]:
    """Batches with what is matched of a file, and where it stands."""
    try:
        with pa.OSFile(str(path)) as data:  # opened once: another may take its place meanwhile
            for table in _tables(data, path):
                for batch in table.combine_chunks().to_batches(ROWS):
                    kept = _between(batch, start, end)
                    if kept.num_rows:
                        yield kept
    except FileNotFoundError:
        raise missing(path) from None
    except (OSError, pa.ArrowException) as error:
        problem = f"{path} cannot be read: {error}"
        raise StorageCorruptError(problem, "Restore the file, or match without it.") from error


def missing(path: Path) -> StorageMissingError:
    return StorageMissingError(f"there is no {path}", "Restore the file, or match without it.")


def is_text(kind: pa.DataType) -> bool:
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def check_places(found: dict[str, str], where: str) -> None:
    """`UsageError` if the columns, by name the type of each, are not those of events."""
    for name, kind in (("pubend", "string"), ("tick", "int64")):
        if name not in found:
            raise UsageError(f"{where}: there is no column {name!r}", PLACES_WANTED)
        if found[name] != kind:
            problem = f"{where}: the column {name!r} is of type {found[name]}, and not {kind}"
            raise UsageError(problem, PLACES_WANTED)


def _check(schema: pa.Schema, path: Path) -> None:
    types = {each.name: "string" if is_text(each.type) else str(each.type) for each in schema}
    check_places(types, str(path))
    kind = schema.field("attributes").type if "attributes" in schema.names else None
    if kind is not None and kinds.is_map(kind) and not is_text(kind.key_type):
        problem = f"{path}: the column 'attributes' is of type {kind}"
        raise UsageError(problem, "Give a map whose keys are text, or a column an attribute.")


def _tables(data: pa.NativeFile, path: Path) -> Iterator[Any]:
    """One a row group: with a column an attribute, or with maps."""
    facts = pq.read_metadata(data)
    schema = facts.schema.to_arrow_schema()
    _check(schema, path)
    # Of columns that are called so, and of maps in which other names stand, Arrow reads everything.
    has_maps = "attributes" in schema.names and kinds.is_map(schema.field("attributes").type)
    paths = {facts.schema.column(place).path for place in range(len(facts.schema))}
    is_known = NAMES in paths and has_maps and has_known_maps(schema.field("attributes").type)
    file = pq.ParquetFile(data, metadata=facts, read_dictionary=_texts(facts, schema))
    for number in range(file.num_row_groups):
        group = facts.row_group(number)
        cut = read_regular(data, facts.schema, group) if is_known else None
        if cut is not None and cut.keys().isdisjoint(PLACES):
            places = _read(file, number, PLACES)
            yield pa.table({name: places[name] for name in PLACES} | cut)
        elif has_maps:
            leaves = _leaves(facts, number) if is_known else ["attributes"]
            yield _read(file, number, [*PLACES, *leaves])
        else:
            yield _read(file, number, schema.names)


def _texts(facts: Any, schema: pa.Schema) -> list[str]:
    """The columns that can come as dictionaries: of other encodings, Arrow makes none."""
    wanted = {field.name for field in schema if kinds.is_string(field.type)}
    wanted |= {NAMES, f"{VALUES}text"}
    found, others = set[str](), set[str]()
    for number in range(facts.num_row_groups):
        group = facts.row_group(number)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in wanted:
                is_known = ENCODINGS.issuperset(column.encodings)
                (found if is_known else others).add(column.path_in_schema)
    return sorted(found - others)


def _read(file: pq.ParquetFile, number: int, columns: Sequence[str]) -> Any:
    """A row group; its pubend is not read if it is known."""
    pubend = _only_text(file.metadata, number, "pubend")
    if pubend is None:
        return file.read_row_group(number, columns, use_threads=False)
    rest = [name for name in columns if name != "pubend"]
    group = file.read_row_group(number, rest, use_threads=False)
    return group.add_column(0, "pubend", _repeated(pubend, group.num_rows))


def _leaves(facts: Any, number: int) -> list[str]:
    """The columns that attributes stand in, without those that no value is in."""
    found = [
        column.path_in_schema
        for column, figures in _told(facts, number)
        if column.path_in_schema.startswith(VALUES) and not is_empty(figures, column)
    ]
    return [NAMES, *(found or [f"{VALUES}int"])]


def _only_text(facts: Any, number: int, name: str) -> str | None:
    """What stands in every row of a column, if that can be told without reading it."""
    for column, figures in _told(facts, number):
        if (
            column.path_in_schema == name
            and figures is not None
            and figures.has_min_max
            and figures.has_null_count
            and not figures.null_count
            and figures.min == figures.max
        ):
            return figures.min if isinstance(figures.min, str) else None
    return None


def _told(facts: Any, number: int) -> Iterator[tuple[Any, Any]]:
    """The columns of a row group, and the figures of each, if there are any. Where a damaged file
    has a column in another type than its schema, Arrow must not be asked: it ends the process."""
    group = facts.row_group(number)
    for place in range(group.num_columns):
        column, leaf = group.column(place), facts.schema.column(place)
        is_sound = column.physical_type == leaf.physical_type
        yield column, column.statistics if is_sound else None


def _repeated(text: str, count: int) -> Any:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int8), pa.array([text]))


def _between(batch: Any, start: int, end: int) -> Any:
    """Of most batches everything: to find that out is cheaper than to copy it."""
    ticks = batch.column("tick")
    extent = pc.min_max(ticks).as_py()
    if not ticks.null_count and start <= extent["min"] and extent["max"] < end:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(ticks, start), pc.less(ticks, end)))
