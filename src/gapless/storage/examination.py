"""Examination: what is damaged in a volume, found by reading all of it and changing nothing.

Theory of operation
    The files are opened as at a restart, but nothing is locked, repaired or cut. Then every record
    that was not released is read and checked. A range that does not read back is reported as the
    broker would report it (`StorageDamagedError`). What would keep the broker from starting is a
    `Damage` without a stream.
    A broker may go on writing meanwhile. Its later commits are not examined. A segment that it
    drops is skipped: its records were released, or copied to another. If a segment is started while
    the files are being opened, the examination opens them again.

Cost: reads the volume once; memory for one large commit, and 250 bytes per extent.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.errors import StorageCorruptError, StorageDamagedError, StorageError
from gapless.storage.folder import read_closed, read_salt
from gapless.storage.reading import RecordReader
from gapless.storage.recovery import State, drop_chopped, load, load_newest
from gapless.storage.segment import Segments, Sync
from gapless.storage.volume import Statistics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gapless.core.store import RecordRun
    from gapless.storage.extent import Extent

TRIES_MAX = 20
"""How often the files of a serving broker are opened again before a damage counts."""

SCAN_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Damage:
    """What is lost: the records of a stream from `start` up to, without, `end`; or, without a
    stream, something that keeps the volume from being opened."""

    problem: str
    remedy: str
    stream: str = ""
    start: int = 0
    end: int = 0
    file: str = ""
    offset: int = 0


@dataclass(slots=True)
class DamageReport:
    """The findings of an examination."""

    damages: list[Damage] = field(default_factory=list)
    segments: int = 0
    streams: int = 0
    records: int = 0
    bytes_read: int = 0

    def add(self, error: StorageError) -> None:
        if isinstance(error, StorageDamagedError):
            where = error.stream, error.start, error.end, error.file, error.offset
            self.damages.append(Damage(error.problem, error.remedy, *where))
        else:
            self.damages.append(Damage(error.problem, error.remedy))


def examine(folder: Path, progress: Callable[[int, int], None]) -> DamageReport:
    """Read a whole volume. `progress` gets the bytes read so far and the bytes in all."""
    report = DamageReport()
    try:
        salt, closed_at = read_salt(folder), read_closed(folder)
        segments, state = _take_in(folder, salt, closed_at)
    except StorageError as error:
        report.add(error)
        return report
    reader = RecordReader(segments, salt, Statistics())
    report.segments, report.streams = len(segments.sizes), len(state.facts.bounds)
    catalogue = state.catalogue
    extents = [each for number in segments.sizes for each in catalogue.in_segment(number)]
    total = sum(each.kept for each in extents)
    try:
        for extent in extents:
            start = max(extent.first, state.facts.bounds[extent.stream].start)
            if _is_there(segments, extent.segment):
                _read(segments, reader, extent, start, report)
            report.bytes_read += extent.kept
            progress(report.bytes_read, total)
    finally:
        segments.close()
    return report


def _take_in(folder: Path, salt: int, closed_at: int | None) -> tuple[Segments, State]:
    """The files as they are at one moment."""
    for tries in range(TRIES_MAX):
        numbers = _numbers(folder)
        segments = Segments(folder, salt, Sync(), Statistics())
        state = State(active=numbers[-1] if numbers else 0)
        try:
            if not numbers:
                raise StorageCorruptError(f"{folder} has lost all its segments")
            for number in numbers:
                segments.check_header(number)
            for number in numbers[:-1]:
                load(segments, number, salt, state, mends=False)
            load_newest(segments, salt, state, closed_at or 0)
            drop_chopped(segments, state)
        except (StorageError, OSError) as error:
            segments.close()
            if _numbers(folder) == numbers or tries == TRIES_MAX - 1:
                if isinstance(error, OSError):
                    raise StorageError(f"cannot read {folder}: {error.strerror}") from error
                raise
        else:
            return segments, state
    raise AssertionError("the last try returns or raises")


def _numbers(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("[0-9]" * 12 + ".log"))


def _is_there(segments: Segments, number: int) -> bool:
    """Does the segment still exist? Only then does a damage in it count."""
    return os.path.exists(segments.path(number))


def _read(
    segments: Segments, reader: RecordReader, extent: Extent, start: int, report: DamageReport
) -> None:
    """Read a whole extent, past what is damaged."""
    while start <= extent.last:
        runs: list[RecordRun] = []
        end = extent.last + 1
        try:
            reader.scan(extent, start, end, SCAN_BYTES, runs)
        except StorageError as error:
            if not _is_there(segments, extent.segment):
                return
            if not isinstance(error, StorageDamagedError):
                raise
            if error.start <= start:
                report.add(error)
                start = error.end
                continue
            end, runs = error.start, []
            reader.scan(extent, start, end, SCAN_BYTES, runs)
        report.records += sum(len(run.indices) for run in runs)
        start = runs[-1].indices[-1] + 1 if runs else end
