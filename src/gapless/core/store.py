"""What a machine may ask of its broker's volume: to read. Writing is the `Persist` effect.

Reading is part of the machine's input, like `now`: it is answered at once, and the same state
gives the same answer, in the broker (memory-mapped or cached) and in the simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCAN_BYTES = 1 << 20

RUN_BYTES = 4 << 10
"""What each run of a scan counts besides its bytes: to find a run takes as long as to read these. A
log of tiny commits has a run for each commit."""

RECORD_BYTES_MAX = 16 << 20
"""The longest record that a volume takes."""


class RecordRun(NamedTuple):
    """Records that stand end to end, not cut into pieces."""

    indices: Sequence[int]
    ends: Sequence[int]
    """Of each record; the first one begins at `start`, which is the first byte of `data`."""
    start: int
    data: bytes | memoryview


class DiskIdentity(NamedTuple):
    """What tells a disk from copies of it."""

    current: bytes
    """From this start on; empty: nothing tells it apart."""

    earlier: tuple[bytes, ...] = ()
    """What it may have been since the start before."""


NO_IDENTITY = DiskIdentity(b"")


class Store(Protocol):
    """The reading half of a volume: durable records and facts only."""

    def read(self, stream: str, index: int) -> bytes:
        """One record; `StorageMissingError` if there is none at that index."""
        ...

    def read_near(self, stream: str, index: int) -> Mapping[int, bytes]:
        """The record at that index by its index, perhaps with neighbours that are in memory. The
        result has no such index if there is no record. A caller that wants many records looks for
        the next one here before it asks again."""
        ...

    def scan(
        self, stream: str, start: int, end: int, *, bytes_max: int = SCAN_BYTES
    ) -> tuple[list[int], list[bytes]]:
        """Indices and records with `start <= index < end`, ascending: at least one if there is
        any, then as many as fit, each run counting `RUN_BYTES` more."""
        ...

    def scan_runs(self, stream: str, start: int, end: int, *, bytes_max: int) -> list[RecordRun]:
        """What `scan` finds, as it stands in the log: for a caller that looks at many and wants
        few."""
        ...

    def bounds(self, stream: str) -> tuple[int, int]:
        """Where the stream was chopped, and the lowest index that the next record may have."""
        ...

    def get(self, table: str, key: str) -> bytes | None:
        """One fact."""
        ...

    def items(self, table: str) -> Mapping[str, bytes]:
        """All facts of a table, sorted by key."""
        ...
