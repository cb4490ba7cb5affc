"""Writing: a worker's part of the archive: one hour of one pubend, from the log into files.

Theory of operation
    A unit of work names the ticks to read and, where the last file of the hour is still small, that
    file: it is copied first, up to the tick where the manifest ends it, so that it grows instead of
    a small one coming beside it. A file that has reached `file_bytes_max` is closed and the next
    one begun with the next event. All are written aside, synced, under names that no other attempt
    has; the driver moves them (`lake`). What was released meanwhile is reported as lost.

Invariants
    I1  the files of a unit follow each other from its first event to its end
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.compute as pc
import pyarrow.parquet as pq

from gapless.client.columns import SCHEMA, to_table
from gapless.client.delivery import Gap
from gapless.pipelines.source import read_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gapless.pipelines.manifest import LakeFile
    from gapless.pipelines.source import Source

GROUP_BYTES = 16 << 20
"""Events are gathered up to this size (in memory) and make one row group."""

COPY_ROWS = 10_000

VALUES = "attributes.key_value.value"
NUMBERS = (f"{VALUES}.bool", f"{VALUES}.int", f"{VALUES}.float")
LAYOUT: dict[str, Any] = {
    "compression": {
        **dict.fromkeys([*SCHEMA.names, f"{VALUES}.text"], "zstd"),
        **dict.fromkeys(["attributes.key_value.key", *NUMBERS], "lz4"),
    },
    "use_dictionary": [
        *("topic", "pubend", "publisher", "body", "attributes.key_value.key"),
        *(*NUMBERS[1:], f"{VALUES}.text"),
    ],
    "column_encoding": dict.fromkeys(("tick", "published", "sequence"), "DELTA_BINARY_PACKED"),
}
"""How Parquet keeps the columns. What only grows is kept as differences: a third of the bytes, and
read in less than half the time that a dictionary takes in which nothing comes twice. Numbers in a
dictionary, and names, are packed as they are: the better compression saves half a percent of their
bytes and takes half as long again to read."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The ticks [start, end) of a pubend, within one hour. `grows` is the file to go on with."""

    pubend: str
    start: int
    end: int
    grows: LakeFile | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """What all units of a round have in common."""

    source: Source
    folder: Path
    unfinished: Path
    file_bytes_max: int


@dataclass(slots=True)
class Written:
    """What became of a unit: its files, as (name below `unfinished`, first tick, end, rows, bytes),
    and what could not be read."""

    unit: Unit
    files: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)


def write_unit(task: Task, unit: Unit) -> Written:
    written = Written(unit)
    target = FileWriter(task.unfinished)
    if unit.grows is not None:
        for batch in read_file(task.folder / unit.grows.path, unit.grows.start, unit.grows.end):
            target.add(batch)
    with task.source.connect() as client:
        for item in read_ticks(client, task.source, unit.pubend, unit.start, unit.end):
            if isinstance(item, Gap):
                written.lost.append((item.span.start, item.span.end))
            elif len(item):
                if target.size_bytes >= task.file_bytes_max:
                    written.files.append(target.close(item.ticks[0]))
                    target = FileWriter(task.unfinished)
                target.add(item.to_arrow())
    if target.rows:
        written.files.append(target.close(unit.end))
    return written


def read_file(
    path: Path, start: int, end: int, columns: Sequence[str] | None = None
) -> Iterator[Any]:
    """The batches of a lake's file, with the ticks [start, end) only; `tick` is a column."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(COPY_ROWS, columns=columns):
            ticks = batch.column("tick")
            inside = pc.and_(pc.greater_equal(ticks, start), pc.less(ticks, end))
            kept = batch.filter(inside)
            if kept.num_rows:
                yield kept


class FileWriter:
    """One file in the making; nothing is created before there is something to write."""

    def __init__(self, folder: Path) -> None:
        self.rows = 0
        self._path = folder / f"{uuid4().hex}.parquet"
        self._first_tick = -1
        self._waiting: list[Any] = []
        self._waiting_bytes = 0
        self._writer: pq.ParquetWriter | None = None

    @property
    def size_bytes(self) -> int:
        """Of the file so far; what waits counts as if it were not compressed."""
        return self._waiting_bytes + (self._file.tell() if self._writer is not None else 0)

    def add(self, batch: Any) -> None:
        if not self.rows:
            self._first_tick = batch.column("tick")[0].as_py()
        self.rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            self._file = self._path.open("wb")
            self._writer = pq.ParquetWriter(self._file, SCHEMA, **LAYOUT)
        self._writer.write_table(to_table([batch.cast(SCHEMA) for batch in self._waiting]))
        self._waiting, self._waiting_bytes = [], 0

    def close(self, end: int) -> tuple[str, int, int, int, int]:
        """Durable: its name, first tick, end, rows and bytes."""
        if self._waiting:
            self._write()
        assert self._writer is not None
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        return self._path.name, self._first_tick, end, self.rows, size
