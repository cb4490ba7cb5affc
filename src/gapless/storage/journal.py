"""The journal of a disk volume: frames into segments, and space back out of them.

Theory of operation
    `store` appends one frame to the newest segment. When that is full, the next one starts with a
    checkpoint of all facts and of which older segments hold records of which streams; so a
    segment is needed only as long as it holds records that were not chopped.

    Space comes back in two ways. A segment without live records becomes the next one or is
    unlinked. If the folder is more than half dead because a few old records pin whole segments,
    the live records of the emptiest segment are copied forward in one commit, one segment per
    chop, and the segment is dropped. Small neighbouring extents become one section of that commit:
    readers decode a commit of copies as a whole, so it must not have thousands of sections.

    The volume is full when a new segment does not fit `size_max` or the disk. That shows before
    anything of the commit is written. The end of each segment is reserved for chops and deletes, so
    that they go through on a full disk.

    A commit has two halves: `stage` makes a frame durable, `show` makes it visible. For a mirror
    other frames may be staged between the two. While a frame is staged and not shown, no segment is
    started and no record is copied: what stands behind such a frame may have to be cut back.

Invariants (checked by `check`)
    I1  a change is durable before it is applied to the state that readers see
    I2  every live record is in a segment that exists
    I3  frames are shown in the order in which they were staged
"""

from __future__ import annotations

import errno
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import (
    StorageCorruptError,
    StorageError,
    StorageFilesError,
    StorageFullError,
)
from gapless.storage.extent import BY_LAST, Extent, FrameRange, encode_index
from gapless.storage.frame import (
    ENTRY_BYTES,
    TERMINATOR,
    Mark,
    Move,
    Section,
    SegmentHolding,
    encode,
)
from gapless.storage.reading import records_of
from gapless.storage.recovery import State, recover
from gapless.storage.segment import FRAMES_START, NO_DESCRIPTOR, Segments
from gapless.storage.volume import Recovery, VolumeLimits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.effects import Write
    from gapless.core.store import RecordRun
    from gapless.storage.folder import Folder
    from gapless.storage.reading import RecordReader
    from gapless.storage.recovery import Keeps

RESERVE_BYTES = 16 << 10
"""The end of each segment, for chops and deletes; at most an eighth of it."""

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} | NO_DESCRIPTOR
"""Nothing is broken: after one of these a retry may succeed."""


def storage_error(error: OSError, problem: str) -> StorageError:
    """The error of the kind that has the right remedy."""
    kind = StorageFullError if error.errno in NO_ROOM else StorageError
    kind = StorageFilesError if error.errno in NO_DESCRIPTOR else kind
    return kind(f"{problem}: {error.strerror}")


@dataclass(frozen=True, slots=True)
class StagedFrame:
    """A frame that is durable and not visible yet."""

    writes: Sequence[Write]
    place: FrameRange
    sizes: list[int]
    """The bytes of each append that has records."""


class Journal:
    """The writing half of a disk volume. One thread at a time writes; readers take `reading`."""

    def __init__(
        self,
        folder: Folder,
        segments: Segments,
        reader: RecordReader,
        limits: VolumeLimits,
        segment_bytes: int,
    ) -> None:
        self.state = State()
        self.reading = threading.RLock()  # guards the state; never held during a sync
        self.problem = ""  # why no commit is taken any more
        self._folder = folder
        self._salt = folder.salt
        self._segments = segments
        self._reader = reader
        self._limits = limits
        self._segment_bytes = segment_bytes
        self._reserve_bytes = min(RESERVE_BYTES, segment_bytes // 8)
        self._holds: dict[int, list[SegmentHolding]] = {}
        self._unmovable: set[int] = set()
        self._staged = 0

    def open(self, keeps: Keeps | None = None) -> Recovery:
        """`keeps`: see `recover`."""
        if self._folder.is_new:
            self._start_segment(0)
            self._folder.finish()
            return Recovery(clean=True, sequence=self.state.sequence)
        closed_at = self._folder.closed_at()
        self.state, recovery = recover(self._segments, self._salt, closed_at, keeps)
        self._folder.forget_closed()
        self._segments.drop_spares(self._segment_bytes)
        self._drop_dead()
        return recovery

    def commit(self, writes: Sequence[Write], *, grows: bool) -> None:
        """All of `writes`, durable and then visible."""
        if self.show(self.stage(writes, grows=grows)):
            self.reclaim()

    def check(self) -> None:
        self.state.catalogue.check()
        live = {n for n, size in self.state.catalogue.live_bytes.items() if size}
        assert live <= set(self._segments.sizes), "I2"

    def stage(self, writes: Sequence[Write], *, grows: bool) -> StagedFrame:
        """Write one frame durably. Visible only after `show`, which must follow."""
        state = self.state
        try:
            frame = encode(writes, state.sequence + 1, self._salt)
            sizes = list(map(len, frame))
            size = sum(sizes)
            if not self.fits(size, grows=grows):
                self._check_shown()
                self._roll(size, grows=grows)
                frame = encode(writes, state.sequence + 1, self._salt)
            self._segments.write(state.offset, frame)
        except OSError as error:
            raise self._failed(error) from error
        start = state.offset
        state.sequence += 1
        state.offset += size - len(TERMINATOR)
        self._staged += 1
        return StagedFrame(writes, FrameRange(state.active, start, state.offset), sizes[1:-1])

    def show(self, staged: StagedFrame) -> bool:
        """Make a frame visible; whether it has chopped something."""
        with self.reading:
            self._staged -= 1
            return self._apply(staged)

    def _check_shown(self) -> None:
        if self._staged:
            raise StorageError("a commit did not fit the room that was reserved for it")

    def make_segment(self, frame_bytes: int, *, grows: bool) -> None:
        """Start a new segment if a frame of this size does not fit; `StorageFullError` if there is
        no room for that."""
        try:
            if not self.fits(frame_bytes, grows=grows):
                self._check_shown()
                self._roll(frame_bytes, grows=grows)
                self.reclaim()  # a mirror has little chance to copy records else
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        self.problem = f"the disk failed: {error.strerror}"
        return StorageError(f"cannot write to {self._folder.path}: {error.strerror}")

    def fits(self, frame_bytes: int, *, grows: bool) -> bool:
        room = self._segments.sizes[self.state.active] - self.state.offset
        return frame_bytes <= room - (self._reserve_bytes if grows else 0)

    def _apply(self, staged: StagedFrame) -> bool:
        state, rest, has_chopped = self.state, iter(staged.sizes), False
        for write in staged.writes:
            state.facts.apply(write)
            match write:
                case Append(stream, indices, records) if indices:
                    kept = next(rest) + ENTRY_BYTES * len(records)
                    moved = isinstance(write, Move)
                    extent = Extent(stream, indices[0], indices[-1], kept, staged.place, moved)
                    state.catalogue.add(extent)
                case Chop(stream, index):
                    state.catalogue.chop(stream, index)
                    has_chopped = True
                case _:
                    pass
        return has_chopped

    def _roll(self, frame_bytes: int, *, grows: bool) -> None:
        """Start a new segment with room for a frame of this size."""
        if grows:
            self._make_room(self._size_for(frame_bytes, self.state.facts.table_bytes))
            if self.fits(frame_bytes, grows=grows):
                return  # making room has started a segment already
        sealed, last_sequence = self.state.active, self.state.sequence
        try:
            self._start_segment(frame_bytes)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise storage_error(error, f"no room for a segment in {self._folder.path}") from error
        index = encode_index(
            self.state.catalogue.in_segment(sealed), sealed, last_sequence, self._salt
        )
        self._segments.write_index(sealed, index)
        self._drop_dead()

    def _start_segment(self, frame_bytes: int) -> None:
        state = self.state
        checkpoint: list[Section] = [
            Mark(stream, *bounds) for stream, bounds in state.facts.bounds.items()
        ]
        for table, facts in state.facts.tables.items():
            checkpoint += (Put(table, key, value) for key, value in facts.items())
        for segment in self._segments.sizes:
            checkpoint += self._holds_of(segment)
        frame = encode(checkpoint, state.sequence + 1, self._salt)
        checkpoint_bytes = sum(map(len, frame))
        size = self._size_for(frame_bytes, checkpoint_bytes)
        sealed_at = state.offset if state.active else None
        self._segments.create(state.active + 1, size, state.sequence + 1, frame, sealed_at)
        state.active += 1
        state.sequence += 1
        state.offset = FRAMES_START + checkpoint_bytes - len(TERMINATOR)

    def _size_for(self, frame_bytes: int, checkpoint_bytes: int) -> int:
        # Twice the checkpoint: large tables make large segments, so that writing them again with
        # each segment never costs more than the log itself.
        needed = FRAMES_START + 2 * checkpoint_bytes + frame_bytes + 2 * self._reserve_bytes
        return max(self._segment_bytes, needed)

    def _holds_of(self, segment: int) -> list[SegmentHolding]:
        """What a full segment holds of each stream; computed once, less what was chopped since."""
        holds = self._holds.get(segment)
        if holds is None:
            extents = self.state.catalogue.in_segment(segment)
            lasts = {extent.stream: extent.last for extent in sorted(extents, key=BY_LAST)}
            holds = [SegmentHolding(segment, stream, last) for stream, last in lasts.items()]
        bounds = self.state.facts.bounds
        holds = [one for one in holds if one.last >= bounds[one.stream].start]
        if segment != self.state.active:  # that one may still grow, if no other can be made
            self._holds[segment] = holds
        return holds

    # --- giving space back ---------------------------------------------------------------------

    def _drop_dead(self) -> None:
        live_bytes = self.state.catalogue.live_bytes
        for segment in list(self._segments.sizes):
            if segment != self.state.active and not live_bytes.get(segment):
                with self.reading:
                    self.state.catalogue.forget(segment)
                    self._segments.drop(segment, self._segment_bytes)
                self._holds.pop(segment, None)
                self._unmovable.discard(segment)

    def reclaim(self) -> None:
        """Give back what chops have freed. Never raises: they are durable, whatever happens."""
        try:
            self._drop_dead()
            live = sum(self.state.catalogue.live_bytes.values())
            is_sparse = self._segments.bytes_on_disk > 2 * live + 4 * self._segment_bytes
            if is_sparse and not self._staged:
                self._clean()
        except StorageError:
            pass  # no room to copy to: a later chop tries again; a failed disk is in `_problem`
        except OSError as error:
            self.problem = f"a segment could not be let go: {error.strerror}"

    def _make_room(self, size: int) -> None:
        """Before a new segment of this size: be within `size_max`, or make room, or refuse."""
        size_max = self._limits.size_max
        while size_max and not self._segments.take_spare(size):
            if self._segments.bytes_on_disk + size <= size_max:
                return
            if not self._clean():
                raise StorageFullError(
                    f"{self._folder.path} has reached its limit of {size_max} bytes",
                    "Chop streams (acknowledge events); then commit again.",
                )

    def _clean(self) -> bool:
        """Copy the live records of the emptiest segment forward and let it go, if that gains."""
        live_bytes, sizes = self.state.catalogue.live_bytes, self._segments.sizes
        candidates = [n for n in sizes if n != self.state.active and n not in self._unmovable]
        victim = min(candidates, key=lambda n: live_bytes.get(n, 0) / sizes[n], default=0)
        if not victim or 2 * live_bytes.get(victim, 0) > sizes[victim]:
            return False
        try:
            moves = [self._copy(extents) for extents in self.state.catalogue.stretches(victim)]
        except StorageCorruptError:
            self._unmovable.add(victim)  # it stays; reading the damaged record raises the error
            return False
        self.commit(moves, grows=False)
        self._drop_dead()
        return True

    def _copy(self, extents: list[Extent]) -> Move:
        """The live records of neighbouring extents of one stream, as one section."""
        runs: list[RecordRun] = []
        for extent in extents:
            start = max(extent.first, self.state.facts.bounds[extent.stream].start)
            self._reader.scan(extent, start, extent.last + 1, sys.maxsize, runs)
        found = records_of(runs)
        return Move(extents[0].stream, tuple(found.indices), tuple(found.records))
