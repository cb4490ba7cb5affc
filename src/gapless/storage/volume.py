"""What a volume is: the contract that the disk and the memory volume both keep.

Theory of operation
    A broker has one volume. It holds log streams (records under strictly increasing indices that
    the writer chooses: a tick, or a counter) and tables (small facts by key). One commit carries
    any number of writes to any of them and is atomic and durable: after a crash at any moment
    either all of it is found or nothing, and all of it if `commit` had returned.
    A stream exists from its first write on.

Invariants (the conformance suite holds both volumes to them)
    I1  the records of a stream have ascending indices within its bounds
    I2  bounds never move back, across chops and restarts, even when a stream is chopped empty
    I3  a refused or failed commit leaves nothing to be seen
    I4  what is read is what was written, or `StorageCorruptError`

Source: Bhola et al., DSN 2003, sec. 4.2 (log volume, log stream, chop).
Deviation: the writer chooses the index, so that a pubend's log needs no map from tick to index.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gapless.core.store import RECORD_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.effects import Write
    from gapless.core.errors import StorageError
    from gapless.core.store import RecordRun

SCAN_BYTES_MAX = 1 << 20
"""How many bytes one `scan` returns by default."""

SYNC_BUCKETS = 32


class Bounds(NamedTuple):
    """Where the records of a stream may be: `start <= index < end`.

    `start` is where it was last chopped. `end` is the lowest index that the next record may have:
    one past the last record ever appended, or `start` if that is more.
    """

    start: int
    end: int


NO_BOUNDS = Bounds(0, 0)


class Records(NamedTuple):
    """Records of one stream, ascending, and the index of each."""

    indices: list[int]
    records: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeLimits:
    """The limits of a volume; a commit beyond one is refused whole, with a clear error."""

    record_bytes_max: int = RECORD_BYTES_MAX
    """One record. Refused beyond."""
    commit_bytes_max: int = 64 << 20
    """All records and facts of one commit; `group` starts a new commit beyond. Refused beyond."""
    name_bytes_max: int = 1024
    """A stream, table or key, in UTF-8. Refused beyond."""
    table_bytes_max: int = 64 << 20
    """All facts of all tables; they are kept in memory. `StorageFullError` beyond."""
    size_max: int | None = None
    """Bytes on disk. `StorageFullError` beyond; chops and deletes still go through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What was found when a volume was opened, and what was cut."""

    clean: bool
    """Was it closed in order? Then nothing can have been cut."""
    sequence: int
    """The number of the last commit that is there; the next one has the number after."""
    replayed: int = 0
    """How many commits were read again since the last checkpoint."""
    rebuilt: tuple[str, ...] = ()
    """Segments whose index had to be made anew from their records."""
    cut_bytes: int = 0
    """The size of a commit that was begun and not finished; it was never acknowledged."""

    def __str__(self) -> str:
        how = "closed in order" if self.clean else "not closed in order"
        cut = f"cut {self.cut_bytes} bytes of commit {self.sequence + 1}, never acknowledged"
        return (
            f"{how}; commits up to {self.sequence} are there ({self.replayed} replayed, "
            f"{len(self.rebuilt)} indexes rebuilt); {cut if self.cut_bytes else 'nothing was cut'}"
        )


@dataclass(slots=True)
class Statistics:
    """Figures of a volume at one moment."""

    bytes_on_disk: int = 0
    bytes_live: int = 0
    """Bytes of records that can still be read; the rest of `bytes_on_disk` is reused or freed."""
    streams: int = 0
    facts: int = 0
    commits: int = 0
    syncs: int = 0
    sync_us: int = 0
    sync_us_max: int = 0
    damaged: int = 0
    """Ranges of records that did not read back; each is counted once."""
    frames_decoded: int = 0
    """How often readers have decoded the description of a commit."""
    sync_buckets: list[int] = field(default_factory=lambda: [0] * SYNC_BUCKETS)
    """Entry n: how many syncs took less than 2^n and at least 2^(n-1) microseconds."""

    def count_sync(self, took_us: int) -> None:
        self.syncs += 1
        self.sync_us += took_us
        self.sync_us_max = max(self.sync_us_max, took_us)
        self.sync_buckets[min(took_us.bit_length(), SYNC_BUCKETS - 1)] += 1


class Volume(Protocol):
    """Log streams and tables with one atomic durable commit. See the module docstring."""

    limits: VolumeLimits
    recovery: Recovery

    def commit(self, writes: Sequence[Write]) -> None:
        """Make `writes` durable, all or none. They are durable when it returns."""
        ...

    def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        """Make many commits durable with one sync, in order. The answer holds, for each, its error
        or None: a refused commit does not stop the others. If the sync fails, it raises and no
        commit is visible."""
        ...

    def read(self, stream: str, index: int) -> bytes:
        """One record; `StorageMissingError` if there is none at that index."""
        ...

    def read_near(self, stream: str, index: int) -> Mapping[int, bytes]:
        """The record at that index by its index, perhaps with neighbours that are in memory. The
        result has no such index if there is no record."""
        ...

    def scan(
        self, stream: str, start: int, end: int, *, bytes_max: int = SCAN_BYTES_MAX
    ) -> Records:
        """The first records with `start <= index < end`: at least one if there is any, then as many
        as fit `bytes_max`; a disk volume counts `RUN_BYTES` more for each run. To go on, start at
        the last index plus one; an empty answer is the end."""
        ...

    def scan_runs(self, stream: str, start: int, end: int, *, bytes_max: int) -> list[RecordRun]:
        """What `scan` finds, as it stands in the log."""
        ...

    def bounds(self, stream: str) -> Bounds:
        """Where the stream was chopped and where it ends; zeros for one never written."""
        ...

    def streams(self) -> list[str]:
        """Every stream ever written, sorted."""
        ...

    def tables(self) -> list[str]:
        """Every table that has facts, sorted."""
        ...

    def get(self, table: str, key: str) -> bytes | None:
        """One fact."""
        ...

    def items(self, table: str) -> Mapping[str, bytes]:
        """All facts of a table as they are now, sorted by key."""
        ...

    def statistics(self) -> Statistics:
        """A copy of the figures as they are now."""
        ...

    def close(self) -> None:
        """Close the volume in order. It may be repeated."""
        ...
