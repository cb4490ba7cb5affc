"""The disk volume: a journal of commits in segment files.

Theory of operation
    A commit is one frame, appended to the newest segment with one `pwritev` and one `fdatasync`
    (`journal`). That frame is log and table alike: there is no second copy and no second sync.
    Where records are is kept in memory (`extent`), and so are the tables, which are small by
    contract. Opening replays the newest segment (`recovery`).

    After a failed write or sync it is unknown what the disk holds: the volume takes no more commits
    until it is opened again and recovered. The failed commit is then there as a whole, or not.

Threads: any may call anything. Commits go one after the other; readers do not wait for syncs.
Cost and comparison: docs/decisions/0006-log-volume.md, `python -m benchmarks storage`.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gapless.core.errors import StorageError, StorageMissingError
from gapless.core.store import NO_IDENTITY
from gapless.storage.draft import Draft
from gapless.storage.extent_cache import ExtentCache
from gapless.storage.folder import FORMAT, Folder
from gapless.storage.journal import NO_ROOM, Journal, storage_error
from gapless.storage.reading import RecordReader, records_of
from gapless.storage.segment import Segments, Sync
from gapless.storage.volume import (
    NO_BOUNDS,
    SCAN_BYTES_MAX,
    Bounds,
    Records,
    Statistics,
    VolumeLimits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.core.effects import Write
    from gapless.core.errors import StorageDamagedError
    from gapless.core.store import RecordRun
    from gapless.storage.journal import StagedFrame
    from gapless.storage.recovery import Keeps

SEGMENT_BYTES = 16 << 20


class Mirror(Protocol):
    """A second place for commits; readers see none that it does not have (`replica`)."""

    def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        """Return when the second place has them, and the volume too."""
        ...


class DiskVolume:
    """A `Volume` in a folder of its own. See the module docstring."""

    def __init__(
        self,
        path: Path | str,
        *,
        limits: VolumeLimits | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        sync: Sync | None = None,
        version: int = FORMAT,
        keeps: Keeps | None = None,
    ) -> None:
        """`keeps`: the first commit that it refuses is erased, with all behind it (`recovery`)."""
        assert sys.byteorder == "little", "the format is little-endian and read in place"
        self.limits = limits or VolumeLimits()
        self._statistics = Statistics()
        self._committing = threading.RLock()
        sync = sync or Sync()
        try:
            self._folder = Folder(Path(path), sync, version)
        except OSError as error:
            raise storage_error(error, f"cannot open {path}") from error
        salt = self._folder.salt
        self._segments = Segments(self._folder.path, salt, sync, self._statistics)
        self._reader = RecordReader(self._segments, salt, self._statistics)
        self._extent_cache = ExtentCache(self._reader)
        self._journal = Journal(
            self._folder, self._segments, self._reader, self.limits, segment_bytes
        )
        try:
            self.recovery = self._journal.open(keeps)
        except OSError as error:
            self._release()
            raise storage_error(error, f"cannot open {path}") from error
        except BaseException:
            self._release()
            raise
        self.identity = NO_IDENTITY
        """What tells the disk from copies of it, once the broker has sealed its folder."""
        self.mirror: Mirror | None = None
        self._reading = self._journal.reading
        self._state = self._journal.state

    # --- writing -------------------------------------------------------------------------------

    def commit(self, writes: Sequence[Write]) -> None:
        error = self.commit_each([writes])[0]
        if error:
            raise error

    def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        if self.mirror is not None:
            return self.mirror.commit_each(commits)
        with self._committing:
            draft, verdicts = self.draft(commits)
            if draft.writes:
                self._check_open()
                self._journal.commit(draft.writes, grows=draft.grows)
                self._statistics.commits += 1
            return verdicts

    # --- writing in steps, for a mirror ----------------------------------------------------------

    def draft(
        self,
        commits: Sequence[Sequence[Write]],
        ahead: Mapping[str, Bounds] | None = None,
        fact_bytes: int = 0,
    ) -> tuple[Draft, list[StorageError | None]]:
        """Those of the commits that may be written, and for each its error or None. `ahead`,
        `fact_bytes`: of earlier drafts that are not written yet."""
        with self._committing, self._reading:
            self._check_open()
            draft = Draft(self._state.facts, self.limits, ahead, fact_bytes)
            return draft, draft.add_each(commits)

    def has_room(self, frame_bytes: int, *, grows: bool) -> bool:
        """Does the newest segment take so much?"""
        with self._committing:
            return self._journal.fits(frame_bytes, grows=grows)

    def make_room(self, frame_bytes: int, *, grows: bool) -> None:
        """Start a segment that takes so much; `StorageFullError` if there is no room for it."""
        with self._committing:
            self._check_open()
            self._journal.make_segment(frame_bytes, grows=grows)

    def stage(self, writes: Sequence[Write]) -> StagedFrame:
        """Make the writes of a draft durable; readers do not see them before `show`."""
        with self._committing:
            self._check_open()
            return self._journal.stage(writes, grows=False)

    def show(self, staged: StagedFrame) -> None:
        """Let readers see what was staged, in the order of that. Does not wait for a sync."""
        has_chopped = self._journal.show(staged)
        self._statistics.commits += 1
        if has_chopped and self._committing.acquire(blocking=False):  # or a later one gives back
            try:
                self._journal.reclaim()
            finally:
                self._committing.release()

    # --- reading -------------------------------------------------------------------------------

    def read(self, stream: str, index: int) -> bytes:
        self._check_readable()
        with self._reading:
            bounds = self._state.facts.bounds.get(stream, NO_BOUNDS)
            if bounds.start <= index < bounds.end:
                extent = self._state.catalogue.find(stream, index)
                record = self._reader.read(extent, index) if extent else None
                if record is not None:
                    return record
        raise StorageMissingError(
            f"{stream!r} has no record {index}; it is kept from {bounds.start} to {bounds.end}"
        )

    def read_near(self, stream: str, index: int) -> Mapping[int, bytes]:
        self._check_readable()
        with self._reading:
            bounds = self._state.facts.bounds.get(stream, NO_BOUNDS)
            if not bounds.start <= index < bounds.end:
                return {}
            extent = self._state.catalogue.find(stream, index)
            if extent is None:
                return {}
            if extent.first < bounds.start:  # some of it was chopped, and is not to be seen
                record = self._reader.read(extent, index)
                return {} if record is None else {index: record}
            return self._extent_cache.near(extent, index)

    def scan(
        self, stream: str, start: int, end: int, *, bytes_max: int = SCAN_BYTES_MAX
    ) -> Records:
        return records_of(self.scan_runs(stream, start, end, bytes_max=bytes_max))

    def scan_runs(self, stream: str, start: int, end: int, *, bytes_max: int) -> list[RecordRun]:
        found: list[RecordRun] = []
        with self._reading:
            start = max(start, self.bounds(stream).start)
            for extent in self._state.catalogue.from_index(stream, start):
                if extent.first >= end:
                    break
                bytes_max = self._reader.scan(extent, start, end, bytes_max, found)
                if bytes_max < 0:
                    break
        return found

    def bounds(self, stream: str) -> Bounds:
        self._check_readable()
        return self._state.facts.bounds.get(stream, NO_BOUNDS)

    def streams(self) -> list[str]:
        self._check_readable()
        with self._reading:
            return sorted(self._state.facts.bounds)

    def tables(self) -> list[str]:
        self._check_readable()
        with self._reading:
            return sorted(table for table, facts in self._state.facts.tables.items() if facts)

    def get(self, table: str, key: str) -> bytes | None:
        self._check_readable()
        with self._reading:
            return self._state.facts.tables.get(table, {}).get(key)

    def items(self, table: str) -> Mapping[str, bytes]:
        self._check_readable()
        with self._reading:
            return dict(sorted(self._state.facts.tables.get(table, {}).items()))

    def snapshot(self) -> tuple[dict[str, dict[str, bytes]], dict[str, Bounds]]:
        """All facts by table, and the bounds of all streams, at one instant between commits."""
        self._check_readable()
        with self._committing, self._reading:
            facts = self._state.facts
            return {name: dict(each) for name, each in facts.tables.items()}, dict(facts.bounds)

    # --- the volume itself ---------------------------------------------------------------------

    def on_damage(self, tell: Callable[[StorageDamagedError], None]) -> None:
        """Call `tell` once for each range of records that does not read back, on the thread of the
        reader that finds it."""
        self._reader.tell = tell

    def statistics(self) -> Statistics:
        with self._reading:
            facts = self._state.facts
            return replace(
                self._statistics,
                bytes_on_disk=self._segments.bytes_on_disk,
                bytes_live=sum(self._state.catalogue.live_bytes.values()) + facts.table_bytes,
                streams=len(facts.bounds),
                facts=sum(map(len, facts.tables.values())),
                sync_buckets=list(self._statistics.sync_buckets),
            )

    def check(self) -> None:
        """Assert the invariants."""
        with self._committing, self._reading:
            self._journal.check()
            self._extent_cache.check()

    def close(self) -> None:
        with self._committing, self._reading:
            if self._journal.problem == "it is closed":
                return
            try:
                if not self._journal.problem:
                    self._folder.mark_closed(self._state.sequence)
            except OSError as error:
                if error.errno in NO_ROOM:
                    return  # without the mark it opens as after a crash, which loses nothing
                raise storage_error(error, f"cannot close {self._folder.path} in order") from error
            finally:
                self._journal.problem = "it is closed"
                self._release()

    def _release(self) -> None:
        self._segments.close()
        self._folder.release()

    def _check_open(self) -> None:
        if self._journal.problem:
            raise StorageError(f"{self._folder.path} takes no commit: {self._journal.problem}")

    def _check_readable(self) -> None:
        if self._journal.problem == "it is closed":
            raise StorageError(f"{self._folder.path} cannot be read: it is closed")
