"""Backups: everything durable of a broker in one file, made while it runs, and back again.

Theory of operation
    A snapshot takes all facts and the bounds of all streams at one instant, between two commits.
    The records follow piece by piece, up to these bounds; whoever writes the file sets the pace.
    Records that are chopped meanwhile are no longer needed by anybody and are left out: the file
    says where each stream begins in it.
    The file is a line with its format, then frames: length, checksum, MessagePack. Its last frame
    counts the others. So a file that was cut is refused, as is a damaged one, before anything is
    restored from it.
    A folder that is restored has no seal: the broker that starts there knows that it is a copy.
"""

from __future__ import annotations

import threading
from struct import Struct
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import StorageCorruptError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from gapless.core.effects import Write
    from gapless.storage.disk import DiskVolume

MAGIC = b"gapless backup 1\n"
FRAME = Struct("<II")
PIECE_BYTES = 1 << 20
FACTS_AT_ONCE = 1_000


class Snapshot:
    """A volume at one instant, as frames."""

    def __init__(self, volume: DiskVolume, head: dict[str, Any]) -> None:
        self._volume = volume
        tables, bounds = volume.snapshot()
        self._tables, self._bounds = tables, bounds
        self.head = head | {"bytes": volume.statistics().bytes_live}
        self._frames = self._make()
        self._taking = threading.Lock()

    def take(self, bytes_max: int) -> bytes:
        """The next bytes of the file, about so many; none at its end."""
        found, size = [], 0
        with self._taking:
            for frame in self._frames:
                found.append(frame)
                size += len(frame)
                if size >= bytes_max:
                    break
        return b"".join(found)

    def _make(self) -> Iterator[bytes]:
        yield MAGIC
        count = 0
        for each in self.contents():
            count += 1
            yield framed(each)
        yield framed(("end", count))

    def contents(self) -> Iterator[tuple[Any, ...]]:
        """What the frames hold, one by one."""
        yield ("head", self.head)
        for table, facts in sorted(self._tables.items()):
            items = sorted(facts.items())
            for first in range(0, len(items), FACTS_AT_ONCE):
                yield ("facts", table, dict(items[first : first + FACTS_AT_ONCE]))
        for stream, (start, end) in sorted(self._bounds.items()):
            position = start
            while position < end:
                indices, records = self._volume.scan(stream, position, end, bytes_max=PIECE_BYTES)
                if not indices:
                    break
                yield ("records", stream, list(indices), list(map(bytes, records)))
                position = indices[-1] + 1
            yield ("bounds", stream, max(start, self._volume.bounds(stream)[0]), end)


def framed(content: tuple[Any, ...]) -> bytes:
    data = msgspec.msgpack.encode(content)  # noqa: TID251 - a format of its own
    return FRAME.pack(len(data), crc32(data)) + data


def read_backup(file: BinaryIO) -> Iterator[list[Any]]:
    """The contents of a backup; raises where it is damaged or cut, at the latest at its end."""
    if file.read(len(MAGIC)) != MAGIC:
        raise UsageError(
            "this is no backup of gapless, or of a later version", "Give another file."
        )
    count = 0
    while True:
        head = file.read(FRAME.size)
        size, checksum = FRAME.unpack(head) if len(head) == FRAME.size else (0, 0)
        data = file.read(size)
        if not size or len(data) < size or crc32(data) != checksum:
            problem = f"the backup is cut or damaged after {count} frames"
            raise StorageCorruptError(problem, "Use another copy of it.")
        content = msgspec.msgpack.decode(data)  # noqa: TID251 - a format of its own
        if content[0] == "end":
            if content[1] != count:
                raise StorageCorruptError("frames are missing in the backup", "Use another copy.")
            return
        count += 1
        yield content


def check_backup(path: Path) -> dict[str, Any]:
    """Read a whole backup; what it says of itself."""
    head: dict[str, Any] = {}
    with path.open("rb") as file:
        for content in read_backup(file):
            head = content[1] if content[0] == "head" else head
    return head


def restore(path: Path, volume: DiskVolume, progress: Callable[[int], None]) -> None:
    """Write what a checked backup has to an empty volume."""
    if volume.streams() or volume.tables():
        raise UsageError("the folder has data already", "Give an empty one with --data.")
    with path.open("rb") as file:
        for content in read_backup(file):
            volume.commit(list(writes_of(content)))
            progress(file.tell())


def writes_of(content: Sequence[Any]) -> Iterator[Write]:
    match content:
        case ["facts", table, facts]:
            for key, value in facts.items():
                yield Put(table, key, value)
        case ["records", stream, indices, records]:
            yield Append(stream, tuple(indices), tuple(records))
        case ["bounds", stream, start, _]:
            yield Chop(stream, start)
        case _:
            pass  # what the file says of itself
