"""The memory volume: the same contract without a disk, for the simulator.

Theory of operation
    Deterministic: no thread, clock or die; one thread at a time. Faults are asked for by name
    (`inject`, `lie`, `corrupt`, `size_max`) and happen at a known commit; `crash` and `reopen`
    play a restart.

    fault        the next commit …                                       after `reopen`
    FAILED       raises, nothing was written                             it is not there
    TORN         raises, part of it was written                          it is cut, and reported
    UNANSWERED   raises, all of it was written, the answer was lost      it is there
    lie()        and all after it return, though nothing is durable      all of them are gone

    After each of the first three the volume takes no commit until it is reopened, like the disk
    volume after a failed sync.

Cost: a commit is proportional to its records, a chop to what it drops, a read is a bisection.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import (
    StorageDamagedError,
    StorageError,
    StorageFullError,
    StorageMissingError,
)
from gapless.core.store import DiskIdentity, RecordRun
from gapless.storage.draft import Draft, Facts
from gapless.storage.volume import (
    NO_BOUNDS,
    SCAN_BYTES_MAX,
    Bounds,
    Records,
    Recovery,
    Statistics,
    VolumeLimits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.core.effects import Write

RECORD_OVERHEAD_BYTES = 16


class Fault(enum.Enum):
    """What the next commit suffers; the table in the module docstring says what that means."""

    FAILED = "failed"
    TORN = "torn"
    UNANSWERED = "unanswered"


class _Content:
    """All that a volume holds."""

    __slots__ = ("facts", "record_bytes", "records", "sequence")

    def __init__(self) -> None:
        self.facts = Facts()
        self.records: dict[str, Records] = {}
        self.record_bytes = 0
        self.sequence = 0

    def copy(self) -> _Content:
        copy = _Content()
        copy.facts = self.facts.copy()
        copy.records = {
            stream: Records(list(kept.indices), list(kept.records))
            for stream, kept in self.records.items()
        }
        copy.record_bytes, copy.sequence = self.record_bytes, self.sequence
        return copy

    def apply(self, writes: Sequence[Write]) -> None:
        self.sequence += 1
        for write in writes:
            self.facts.apply(write)
            match write:
                case Append(stream, indices, records):
                    kept = self.records.setdefault(stream, Records([], []))
                    kept.indices.extend(indices)
                    kept.records.extend(records)
                    self.record_bytes += _size(records)
                case Chop(stream, index):
                    kept = self.records.setdefault(stream, Records([], []))
                    cut = bisect_left(kept.indices, index)
                    self.record_bytes -= _size(kept.records[:cut])
                    del kept.indices[:cut], kept.records[:cut]
                case _:
                    pass


def _size(records: Sequence[bytes]) -> int:
    return sum(map(len, records)) + RECORD_OVERHEAD_BYTES * len(records)


class MemoryVolume:
    """A `Volume` that can be told to fail. See the module docstring."""

    def __init__(self, *, limits: VolumeLimits | None = None, identity: bytes = b"") -> None:
        self.limits = limits or VolumeLimits()
        self.identity = DiskIdentity(identity, (identity,))
        """Tells it from its copies, as a broker's disk is told from copies; empty: nothing does."""
        self.size_max = self.limits.size_max
        """May be changed at any time: a disk that fills up or gets room."""
        self.recovery = Recovery(clean=True, sequence=0)
        self._content = _Content()
        self._durable: _Content | None = None  # what a crash goes back to; None: all there is
        self._fault: Fault | None = None
        self._cut_bytes = 0
        self._corrupt: set[tuple[str, int]] = set()
        self._before: list[tuple[_Content, Sequence[Write]]] = []  # of commits that may be cut off
        self._problem = ""
        self._is_readable = True
        self._statistics = Statistics()

    # --- faults --------------------------------------------------------------------------------

    def copy(self, identity: bytes) -> MemoryVolume:
        """What is durable now, on another disk."""
        copy = MemoryVolume(limits=self.limits, identity=identity)
        copy._content = (self._durable or self._content).copy()
        return copy

    def inject(self, fault: Fault) -> None:
        """Let the next commit suffer this fault."""
        self._fault = fault

    def lie(self) -> None:
        """From now on commits return although nothing is durable; a crash loses them."""
        self._durable = self._content.copy()

    def corrupt(self, stream: str, index: int) -> None:
        """Damage this record: reading it raises an error from now on."""
        self._corrupt.add((stream, index))

    def stage(self, writes: Sequence[Write]) -> None:
        """A commit that `cut_back` may take off again."""
        self._before.append((self._content.copy(), writes))
        self.commit(writes)

    def cut_back(self, keeps: Callable[[Put], bool]) -> None:
        """Without the first staged commit that is refused, and all behind it."""
        for content, writes in self._before:
            if not all(keeps(each) for each in writes if isinstance(each, Put)):
                self._content = content
                break
        self._before.clear()

    def crash(self) -> None:
        """The process ends here; nothing works until `reopen`."""
        if self._durable:
            self._content, self._durable = self._durable, None
            self._before.clear()
        self._fault = None
        self._problem, self._is_readable = "it has crashed", False

    def reopen(self) -> Recovery:
        """Open again what a crash or `close` left. Without either, this is a crash."""
        clean = self._problem == "it is closed"
        if not clean:
            self.crash()
        self._durable = None
        self._problem, self._is_readable = "", True
        cut_bytes, self._cut_bytes = self._cut_bytes, 0
        self.recovery = Recovery(clean=clean, sequence=self._content.sequence, cut_bytes=cut_bytes)
        return self.recovery

    # --- writing -------------------------------------------------------------------------------

    def commit(self, writes: Sequence[Write]) -> None:
        error = self.commit_each([writes])[0]
        if error:
            raise error

    def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        if self._problem:
            raise StorageError(f"the volume takes no commit: {self._problem}", "Reopen it.")
        draft = Draft(self._content.facts, self.limits)
        verdicts = draft.add_each(commits)
        if draft.writes:
            self._check_room(draft)
            self._suffer(draft)
            self._content.apply(draft.writes)
            self._statistics.commits += 1
            self._statistics.count_sync(0)
        return verdicts

    def _check_room(self, draft: Draft) -> None:
        used = self._content.record_bytes + self._content.facts.table_bytes
        if self.size_max is not None and draft.grows and used + draft.bytes > self.size_max:
            raise StorageFullError(
                f"the volume has reached its limit of {self.size_max} bytes",
                "Chop streams (acknowledge events); then commit again.",
            )

    def _suffer(self, draft: Draft) -> None:
        fault, self._fault = self._fault, None
        if not fault:
            return
        if fault is Fault.UNANSWERED:
            # Not visible now, but there after a restart.
            if self._durable is None:
                self._durable = self._content.copy()
            self._durable.apply(draft.writes)
        elif fault is Fault.TORN:
            self._cut_bytes = max(1, draft.bytes // 2)
        self._problem = f"a commit {fault.value}"
        raise StorageError(f"the commit {fault.value} (injected)", "Reopen the volume.")

    # --- reading -------------------------------------------------------------------------------

    def read(self, stream: str, index: int) -> bytes:
        bounds = self.bounds(stream)
        indices, records = self._content.records.get(stream, ((), ()))
        place = bisect_left(indices, index)
        if place == len(indices) or indices[place] != index:
            raise StorageMissingError(
                f"{stream!r} has no record {index}; it is kept from {bounds.start} to {bounds.end}"
            )
        self._check_intact(stream, index)
        return records[place]

    def read_near(self, stream: str, index: int) -> Mapping[int, bytes]:
        try:
            return {index: self.read(stream, index)}
        except StorageMissingError:
            return {}

    def scan(
        self, stream: str, start: int, end: int, *, bytes_max: int = SCAN_BYTES_MAX
    ) -> Records:
        self._check_readable()
        kept = self._content.records.get(stream, Records([], []))
        low, high = bisect_left(kept.indices, start), bisect_left(kept.indices, end)
        records = kept.records[low:high]
        sizes = accumulate(map(len, records))
        fitting = next((n for n, size in enumerate(sizes) if size > bytes_max), len(records))
        found = slice(low, low + max(fitting, 1 if records else 0))
        for index in kept.indices[found]:
            self._check_intact(stream, index)
        return Records(kept.indices[found], kept.records[found])

    def scan_runs(self, stream: str, start: int, end: int, *, bytes_max: int) -> list[RecordRun]:
        indices, records = self.scan(stream, start, end, bytes_max=bytes_max)
        ends = list(accumulate(map(len, records)))
        return [RecordRun(indices, ends, 0, b"".join(records))] if indices else []

    def _check_intact(self, stream: str, index: int) -> None:
        if (stream, index) in self._corrupt:
            problem = f"record {index} of {stream!r} is damaged (injected)"
            raise StorageDamagedError(problem, "", stream, index, index + 1)

    def bounds(self, stream: str) -> Bounds:
        self._check_readable()
        return self._content.facts.bounds.get(stream, NO_BOUNDS)

    def streams(self) -> list[str]:
        self._check_readable()
        return sorted(self._content.facts.bounds)

    def tables(self) -> list[str]:
        self._check_readable()
        return sorted(table for table, facts in self._content.facts.tables.items() if facts)

    def get(self, table: str, key: str) -> bytes | None:
        self._check_readable()
        return self._content.facts.tables.get(table, {}).get(key)

    def items(self, table: str) -> Mapping[str, bytes]:
        self._check_readable()
        return dict(sorted(self._content.facts.tables.get(table, {}).items()))

    def statistics(self) -> Statistics:
        facts = self._content.facts
        size = self._content.record_bytes + facts.table_bytes
        return Statistics(
            bytes_on_disk=size,
            bytes_live=size,
            streams=len(facts.bounds),
            facts=sum(map(len, facts.tables.values())),
            commits=self._statistics.commits,
            syncs=self._statistics.syncs,
            sync_buckets=list(self._statistics.sync_buckets),
        )

    def close(self) -> None:
        if self._problem != "it has crashed":
            self._problem, self._is_readable = "it is closed", False

    def _check_readable(self) -> None:
        if not self._is_readable:
            raise StorageError(f"the volume cannot be read: {self._problem}", "Reopen it.")
