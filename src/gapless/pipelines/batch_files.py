"""Batch files: a worker's part of an archive query: rows of some pubends, in order, into files.

Theory of operation
    Rows come sorted by pubend and tick. A file holds one hour of one pubend, and is closed when it
    has `file_bytes_max`; the last file of the lake is copied first while it is small and of the
    same hour, so that it grows. What the lake has already is left out, and a row that tells of a
    loss is no event. Files are written aside, synced, under names that no other attempt has; the
    driver moves them.

Invariants
    I1  the files of a pubend follow each other, and begin where the lake ends
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapless.client.columns import SCHEMA
from gapless.pipelines.lake import slice_end
from gapless.pipelines.writing import FileWriter, Unit, Written, read_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gapless.pipelines.archive import Limits
    from gapless.pipelines.manifest import LakeFile


@dataclass(frozen=True, slots=True)
class Part:
    """What all workers of a batch are told: where the lake ends, and which file may grow."""

    folder: Path
    unfinished: Path
    ends: Mapping[str, int]
    grows: Mapping[str, LakeFile | None]
    limits: Limits


def write_part(part: Part, batches: Iterator[Any]) -> Iterator[Any]:
    """A row for each pubend that has come: a pickled `Written`."""
    files: PubendFiles | None = None
    for batch in batches:
        for pubend, rows in by_pubend(batch):
            if files is None or files.pubend != pubend:
                if files is not None:
                    yield _row(files.close())
                files = PubendFiles(part, pubend)
            files.add(rows)
    if files is not None:
        yield _row(files.close())


def _row(written: Written) -> Any:
    return pa.record_batch({"written": pa.array([pickle.dumps(written)], pa.binary())})


def by_pubend(batch: Any) -> Iterator[tuple[str, Any]]:
    """A sorted batch, cut where another pubend begins."""
    if not batch.num_rows:
        return
    codes = batch.column("pubend").dictionary_encode().indices.to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), batch.num_rows]
    for first, end in pairwise(cuts):
        yield batch.column("pubend")[first].as_py(), batch.slice(first, end - first)


class PubendFiles:
    """The files of one pubend in the making."""

    def __init__(self, part: Part, pubend: str) -> None:
        self.pubend = pubend
        self._part = part
        self._done = part.ends.get(pubend, 0)
        self._grown: LakeFile | None = None
        self._target: FileWriter | None = None
        self._target_end = 0  # where its hour ends
        self._next = self._done
        self._files: list[tuple[str, int, int, int, int]] = []
        self._lost: list[tuple[int, int]] = []

    def add(self, rows: Any) -> None:
        is_event = rows.column("lost_until").is_null()
        for row in rows.filter(pc.invert(is_event)).select(["tick", "lost_until"]).to_pylist():
            if row["lost_until"] > self._done:
                self._lost.append((max(row["tick"], self._done), row["lost_until"]))
        is_new = pc.greater_equal(rows.column("tick"), self._done)
        events = rows.filter(pc.and_(is_event, is_new)).select(SCHEMA.names)
        while events.num_rows:
            ticks = events.column("tick").to_numpy()
            self._open(int(ticks[0]))
            assert self._target is not None
            count = int(np.searchsorted(ticks, self._target_end))
            self._target.add(events.slice(0, count).cast(SCHEMA))
            self._next = int(ticks[count - 1]) + 1
            events = events.slice(count)

    def _open(self, tick: int) -> None:
        """A file that takes this tick."""
        size_max = self._part.limits.file_bytes_max
        if self._target is not None:
            if tick < self._target_end and self._target.size_bytes < size_max:
                return
            self._files.append(self._target.close(self._next))
        is_first = not self._files
        self._target, self._target_end = FileWriter(self._part.unfinished), slice_end(tick)
        grows = self._part.grows.get(self.pubend) if is_first else None
        if grows is not None and tick < slice_end(grows.start):
            self._grown = grows
            for batch in read_file(self._part.folder / grows.path, grows.start, grows.end):
                self._target.add(batch)

    def close(self) -> Written:
        if self._target is not None:
            self._files.append(self._target.close(self._next))
        unit = Unit(self.pubend, self._done, self._next, self._grown)
        return Written(unit, self._files, self._lost)
