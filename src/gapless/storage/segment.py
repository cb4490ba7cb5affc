"""Segments: the files of a disk volume.

Theory of operation
    A segment is a file of fixed size that is filled from front to back with frames and then never
    written again. It is made under another name, given all its blocks, headed, synced and only
    then renamed: a segment that has its name is whole. Because its size never changes, a commit
    finds its blocks allocated, and `fdatasync` waits for little but data.
    A segment without live records becomes a spare: blocks that were written once are the quickest
    to write again. If there are enough spares, it is unlinked. Its old frames carry older sequence
    numbers than anything written later, so they are never taken for new ones.
    When a segment has its name, the one before it is sealed. Only then is the new one written to:
    if the newest file is lost, the seal of its predecessor shows that something is missing.

Invariants
    I1  a named segment is as long as its header says; a shorter one has lost blocks
    I2  numbers only grow; no number is used twice

Cost: one `pwritev` and one `fdatasync` per frame; three syncs more per segment.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from os import pread
from typing import TYPE_CHECKING
from zlib import crc32

from gapless.core.errors import StorageCorruptError, StorageError, StorageFilesError
from gapless.storage.frame import seal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gapless.storage.volume import Statistics

SEGMENT_HEADER = struct.Struct("<8sQQQI")  # magic, number, size, first sequence, checksum
SEGMENT_MAGIC = b"gapless\n"
FRAMES_START = 64
SPARES_MAX = 2
OPEN_MAX = 64
PIECES_MAX = 1000
"""Pieces in one call; systems take 1,024."""

NO_DESCRIPTOR = {errno.EMFILE, errno.ENFILE}
"""No file can be opened, because the process has too many open: in a broker, connections. It
passes."""


@dataclass(frozen=True, slots=True)
class Sync:
    """The calls that make bytes durable. A test may replace them by calls that fail or do
    nothing."""

    file: Callable[[int], None] = os.fdatasync
    folder: Callable[[int], None] = os.fsync

    def entries(self, folder: Path) -> None:
        """The names in a folder."""
        descriptor = open_folder(folder)
        try:
            self.folder(descriptor)
        finally:
            os.close(descriptor)


def open_folder(folder: Path) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def write_all(descriptor: int, pieces: Sequence[bytes], offset: int) -> None:
    size = sum(map(len, pieces))
    written = os.pwritev(descriptor, pieces, offset) if len(pieces) <= PIECES_MAX else 0
    if written < size:  # rare: too many pieces, or the disk has taken a part
        rest = memoryview(b"".join(pieces))
        while written < size:
            written += os.pwrite(descriptor, rest[written:], offset + written)


class Segments:
    """The segment files of one folder. One thread writes; other threads may read meanwhile."""

    def __init__(self, folder: Path, salt: int, sync: Sync, statistics: Statistics) -> None:
        self._folder = folder
        self._salt = salt
        self._sync = sync
        self._statistics = statistics
        self._lock = threading.Lock()  # guards what follows; never held during a sync
        self._open: dict[int, int] = {}
        self._writer = -1
        self._entries = -1  # the folder, from the first new segment on
        self.sizes: dict[int, int] = {}
        self.first_sequences: dict[int, int] = {}
        self.spares: dict[Path, int] = {}

    def path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.log"

    def index_path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.index"

    @property
    def bytes_on_disk(self) -> int:
        with self._lock:
            return sum(self.sizes.values()) + sum(self.spares.values())

    def find(self) -> list[int]:
        """The numbers of the segments in the folder, ascending; spares are noted."""
        (self._folder / "segment.new").unlink(missing_ok=True)
        self.spares = {path: path.stat().st_size for path in sorted(self._folder.glob("*.spare"))}
        numbers = sorted(int(path.stem) for path in self._folder.glob("[0-9]" * 12 + ".log"))
        for number in numbers:
            self.check_header(number)
        return numbers

    def check_header(self, number: int) -> None:
        """Open a segment; `StorageCorruptError` if its header is wrong or the file was cut."""
        path = self.path(number)
        found_bytes = path.stat().st_size
        data = self.read(number, 0, SEGMENT_HEADER.size)
        if found_bytes < FRAMES_START:
            raise StorageCorruptError(f"{path} was cut to {found_bytes} bytes")
        magic, found_number, size, first_sequence, checksum = SEGMENT_HEADER.unpack(data)
        if magic != SEGMENT_MAGIC or checksum != crc32(data[:-4], self._salt):
            raise StorageCorruptError(f"{path} does not start like a segment of this volume")
        if found_number != number:
            raise StorageCorruptError(f"{path} is segment {found_number} under a wrong name")
        if found_bytes < size:
            raise StorageCorruptError(f"{path} was cut to {found_bytes} of {size} bytes")
        self.sizes[number] = size
        self.first_sequences[number] = first_sequence

    def take_spare(self, size: int) -> Path | None:
        return next(
            (path for path, spare_bytes in self.spares.items() if spare_bytes == size), None
        )

    def create(
        self,
        number: int,
        size: int,
        first_sequence: int,
        frame: Sequence[bytes],
        sealed_at: int | None = None,
    ) -> None:
        """Make a segment that starts with `frame`; durable when this returns. The segment before
        it, if there is one, gets its seal at `sealed_at`, where its last frame ends."""
        new = self._folder / "segment.new"
        spare = self.take_spare(size)
        if self._entries < 0:  # now: once the segment has its name, nothing may fail
            self._entries = open_folder(self._folder)
        descriptor = os.open(spare or new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if spare:
                spare.rename(new)
                with self._lock:
                    del self.spares[spare]
            else:
                os.posix_fallocate(descriptor, 0, size)
            head = SEGMENT_HEADER.pack(SEGMENT_MAGIC, number, size, first_sequence, 0)[:-4]
            head += struct.pack("<I", crc32(head, self._salt))
            write_all(descriptor, [head.ljust(FRAMES_START, b"\0"), *frame], 0)
            self.sync(descriptor)
        except OSError:
            os.close(descriptor)
            new.unlink(missing_ok=True)
            raise
        try:
            new.rename(self.path(number))
            self._sync.folder(self._entries)
            if sealed_at is not None:
                self.write(sealed_at, [seal(first_sequence, self._salt)])
        except OSError as error:
            # It may or may not be there after a crash: nothing may follow in the one before it,
            # so this must not look like a disk that is merely full.
            raise OSError(errno.EIO, f"a new segment was not settled: {error.strerror}") from error
        with self._lock:
            self._replace_writer(descriptor)
            self.sizes[number] = size
            self.first_sequences[number] = first_sequence

    def open_writer(self, number: int) -> None:
        """Go on writing to this segment."""
        self._replace_writer(os.open(self.path(number), os.O_RDWR | os.O_CLOEXEC))

    def _replace_writer(self, descriptor: int) -> None:
        if self._writer >= 0:
            os.close(self._writer)
        self._writer = descriptor

    def write(self, offset: int, data: Sequence[bytes]) -> None:
        """Write to the newest segment; durable when this returns."""
        write_all(self._writer, data, offset)
        self.sync(self._writer)

    def seal(self, number: int, offset: int, following: int) -> None:
        """Write the seal of a full segment behind its last frame: the log goes on in another
        segment, with commit `following`. It may be repeated."""
        mark = seal(following, self._salt)
        if self.first_sequences.get(number + 1) != following:
            return
        if self.read(number, offset, len(mark)) == mark:
            return
        descriptor = os.open(self.path(number), os.O_RDWR | os.O_CLOEXEC)
        try:
            write_all(descriptor, [mark], offset)
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def write_index(self, number: int, data: bytes) -> None:
        """Write the index beside a full segment. Not synced: a reader checks it and can make it
        anew."""
        with suppress(OSError):
            path = self.index_path(number)
            path.touch(mode=0o600)
            path.write_bytes(data)

    def sync(self, descriptor: int) -> None:
        begin = time.perf_counter_ns()
        self._sync.file(descriptor)
        self._statistics.count_sync((time.perf_counter_ns() - begin) // 1000)

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        try:
            with self._lock:  # a reader is soon done, and its file must not be closed meanwhile
                descriptor = self._open.get(number, -1)
                if descriptor < 0:
                    descriptor = self._open_reader(number)
                data = pread(descriptor, size, offset)
                while len(data) < size:
                    more = pread(descriptor, size - len(data), offset + len(data))
                    if not more:
                        break
                    data += more
                return data
        except OSError as error:
            kind = StorageFilesError if error.errno in NO_DESCRIPTOR else StorageError
            raise kind(f"cannot read {self.path(number)}: {error.strerror}") from error

    def drop(self, number: int, spare_bytes: int) -> None:
        """Give a segment's space back: keep it as a spare if it has that size and spares are few,
        else unlink it."""
        with self._lock:
            if number in self._open:
                os.close(self._open.pop(number))
            size = self.sizes.pop(number)
            del self.first_sequences[number]
            is_spare = size == spare_bytes and len(self.spares) < SPARES_MAX
            spare = self.path(number).with_suffix(".spare")
            if is_spare:
                self.path(number).rename(spare)
                self.spares[spare] = size
            else:
                self.path(number).unlink()
        self.index_path(number).unlink(missing_ok=True)

    def drop_spares(self, spare_bytes: int) -> None:
        """Unlink the spares that do not have this size."""
        for path in [path for path, size in self.spares.items() if size != spare_bytes]:
            path.unlink()
            del self.spares[path]

    def close(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
        self._replace_writer(-1)
        if self._entries >= 0:
            os.close(self._entries)
            self._entries = -1

    def _open_reader(self, number: int) -> int:
        if len(self._open) >= OPEN_MAX:
            self._close_reader()
        while True:
            try:
                descriptor = os.open(self.path(number), os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                if error.errno not in NO_DESCRIPTOR or not self._open:
                    raise
                self._close_reader()
            else:
                self._open[number] = descriptor
                return descriptor

    def _close_reader(self) -> None:
        """The descriptor that was opened first."""
        os.close(self._open.pop(next(iter(self._open))))
