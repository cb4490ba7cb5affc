"""Lake files: how a worker writes the events of a pubend into files, and how files are read.

Theory of operation
    Events come in order. They are gathered to row groups, and get their columns (`lake_schema`).
    A file holds events of one pubend and one hour, and is closed when it has `file_bytes_max`, or
    when a later event has an attribute that the file has no column for. The last file of the lake
    is copied first while it is small and of the same hour, so that files do not stay small.
    Files are written aside and synced, under names that no other attempt has; the driver moves
    them (`lake`).
    A reader skips the row groups and the columns that it does not need. Texts come as the
    dictionaries that Parquet has made of them: the matcher then looks up each text once a batch.

Invariants
    I1  the files of a pubend follow each other; each holds the events of its ticks, in order
    I2  exactly the rows with ticks in [start, end) are read, in the order of the file
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as kinds

from gapless.core.errors import StorageCorruptError
from gapless.pipelines.lake import slice_end
from gapless.pipelines.lake_schema import OTHERS, attribute_columns, complete, to_lake

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from gapless.pipelines.lake_schema import LakeSchema
    from gapless.pipelines.manifest import LakeFile

GROUP_BYTES = 32 << 20
"""Events are gathered up to this size, as they come in memory, and make one row group."""

BATCH_ROWS = 1 << 16
INCREASING = ("tick", "published", "sequence")
"""Columns that are kept as differences: a third of the bytes of a dictionary."""


@dataclass(frozen=True, slots=True)
class FileTask:
    """What the workers of one commit share."""

    folder: Path
    unfinished: Path
    schema: LakeSchema
    file_bytes_max: int


@dataclass(frozen=True, slots=True)
class NewFile:
    """A finished file: `name` is below `unfinished`."""

    name: str
    start: int
    end: int
    rows: int
    bytes: int
    groups: tuple[int, ...]


@dataclass(slots=True)
class WriteResult:
    """What a worker has made of some ticks of a pubend.

    `grown_file` is the file of the lake whose events are in the first of the files, too. `schema`
    is the one that the worker was given, with the columns that it has added.
    """

    pubend: str
    schema: LakeSchema
    files: list[NewFile] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    grown_file: LakeFile | None = None

    @property
    def events(self) -> int:
        """How many events are new to the lake."""
        return sum(file.rows for file in self.files) - (
            self.grown_file.rows if self.grown_file else 0
        )


class PubendFiles:
    """The files of one pubend in the making. `grows`: the last file of the lake, if it is small."""

    def __init__(self, task: FileTask, pubend: str, grows: LakeFile | None = None) -> None:
        self.result = WriteResult(pubend, task.schema)
        self._task = task
        self._grows = grows
        self._hour_end = 0
        self._batches: list[Any] = []  # the next row group
        self._batch_bytes = 0
        self._file: FileWriter | None = None

    def add(self, rows: Any) -> None:
        """Record batches with attributes as maps, in the order of ticks."""
        while rows.num_rows:
            ticks = rows.column("tick").to_numpy()
            if ticks[0] >= self._hour_end:
                self._end_file()
                self._hour_end = slice_end(int(ticks[0]))
            count = int(np.searchsorted(ticks, self._hour_end))
            self._batches.append(rows.slice(0, count))
            self._batch_bytes += self._batches[-1].nbytes
            if self._batch_bytes >= GROUP_BYTES:
                self._write()
                if self._file is not None and self._file.bytes >= self._task.file_bytes_max:
                    self._end_file()
            rows = rows.slice(count)

    def close(self) -> WriteResult:
        self._end_file()
        return self.result

    def _write(self) -> None:
        """Make a row group of what has been gathered."""
        table, self.result.schema = to_lake(self._batches, self.result.schema, grow=True)
        self._batches, self._batch_bytes = [], 0
        if self._file is not None and not self._file.takes(table.schema):
            self.result.files.append(self._file.close())
            self._file = None
        if self._file is None:
            self._file = FileWriter(self._task.unfinished, table.schema)
            self._copy_grown(self._file, int(table.column("tick")[0].as_py()))
        self._file.write(table)

    def _copy_grown(self, target: FileWriter, tick: int) -> None:
        grows, self._grows = self._grows, None
        if grows is None or tick >= slice_end(grows.start):
            return
        path = self._task.folder / grows.path
        with pq.ParquetFile(path) as file:
            if not target.takes(file.schema_arrow):
                return  # it has attributes without a column
            self.result.grown_file = grows
            gathered, size = list[Any](), 0
            for number in range(file.num_row_groups):  # small groups become large ones
                gathered.append(file.read_row_group(number))
                size += gathered[-1].nbytes
                if size >= GROUP_BYTES or number == file.num_row_groups - 1:
                    target.write(pa.concat_tables(gathered))
                    gathered, size = [], 0

    def _end_file(self) -> None:
        if self._batches:
            self._write()
        if self._file is not None:
            self.result.files.append(self._file.close())
        self._file = None


class FileWriter:
    """One Parquet file in the making."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._path = folder / f"{uuid4().hex}.parquet"
        self._file = self._path.open("wb")
        self._schema = schema
        self._groups: list[int] = []
        self._rows = self._end = 0
        self._writer = pq.ParquetWriter(
            self._file,
            schema,
            compression="zstd",
            use_dictionary=[name for name in schema.names if name not in INCREASING],
            column_encoding=dict.fromkeys(INCREASING, "DELTA_BINARY_PACKED"),
        )

    @property
    def bytes(self) -> int:
        return self._file.tell()

    def takes(self, schema: pa.Schema) -> bool:
        """Has it a column for each of these?"""
        return set(schema.names) <= set(self._schema.names)

    def write(self, table: Any) -> None:
        """A row group."""
        columns = dict(zip(table.schema.names, table.columns, strict=True))
        whole = complete(columns, len(table), self._schema)
        self._writer.write_table(whole, row_group_size=len(whole))
        self._groups.append(table.column("tick")[0].as_py())
        self._rows, self._end = self._rows + len(table), table.column("tick")[-1].as_py() + 1

    def close(self) -> NewFile:
        """Finish the file; it is durable then."""
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size, groups = self._file.tell(), tuple(self._groups)
        self._file.close()
        return NewFile(self._path.name, groups[0], self._end, self._rows, size, groups)


def read_file(
    path: Path, start: int, end: int, attributes: Collection[str] | None = None
) -> Iterator[Any]:
    """Record batches in the lake's form, with the ticks [start, end). With `attributes`: only their
    columns, and where the events stand."""
    try:
        with pq.ParquetFile(path) as plain:
            schema, facts = plain.schema_arrow, plain.metadata
        texts = [each.name for each in schema if kinds.is_string(each.type)]
        columns = None if attributes is None else _columns(schema, attributes)
        with pq.ParquetFile(path, metadata=facts, read_dictionary=texts) as file:
            groups = [n for n in range(facts.num_row_groups) if _overlaps(facts, n, start, end)]
            for number in groups:
                table = file.read_row_group(number, columns, use_threads=False).combine_chunks()
                for batch in table.to_batches(BATCH_ROWS):
                    kept = _between(batch, start, end)
                    if kept.num_rows:
                        yield kept
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        problem = f"{path} cannot be read: {error}"
        raise StorageCorruptError(problem, "Restore the file, or read without it.") from error


def _columns(schema: pa.Schema, attributes: Collection[str]) -> list[str]:
    found = attribute_columns(schema)
    wanted = [name for attribute in attributes for name, _ in found.get(attribute, ())]
    return ["pubend", "tick", *wanted, *([OTHERS] if OTHERS in schema.names else [])]


def _overlaps(facts: Any, number: int, start: int, end: int) -> bool:
    """May this row group have a tick in [start, end)?"""
    group = facts.row_group(number)
    for place in range(group.num_columns):
        column = group.column(place)
        if column.path_in_schema == "tick":
            ticks = column.statistics
            return (
                ticks is None or not ticks.has_min_max or (ticks.min < end and ticks.max >= start)
            )
    return True


def _between(batch: Any, start: int, end: int) -> Any:
    """Of most batches everything: to find that out is cheaper than to copy it."""
    ticks = batch.column("tick")
    if start <= ticks[0].as_py() and ticks[-1].as_py() < end:
        return batch
    return batch.filter(pc.and_(pc.greater_equal(ticks, start), pc.less(ticks, end)))
