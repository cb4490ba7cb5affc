"""The disk volume when the disk fails or is full: nothing acknowledged is lost, and it says so."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import (
    StorageError,
    StorageFilesError,
    StorageFullError,
)
from gapless.storage.disk import DiskVolume
from gapless.storage.segment import Sync
from gapless.storage.volume import VolumeLimits
from tests.children import PATIENCE_S
from tests.storage.labs import NO_SYNC, SMALL_SEGMENT_BYTES, append, indices, small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_a_failed_sync_stops_the_volume_until_it_is_opened_again(tmp_path: Path) -> None:
    fails = threading.Event()

    def sync(descriptor: int) -> None:
        if fails.is_set():
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    volume = DiskVolume(tmp_path, segment_bytes=SMALL_SEGMENT_BYTES, sync=Sync(file=sync))
    volume.commit([append(1), Put("t", "k", b"acknowledged")])
    fails.set()
    with pytest.raises(StorageError, match="Input/output error"):
        volume.commit([append(2), Put("t", "k", b"never acknowledged")])
    fails.clear()
    with pytest.raises(StorageError, match="takes no commit: the disk failed"):
        volume.commit([append(2)])
    assert indices(volume) == [1]
    assert volume.get("t", "k") == b"acknowledged"
    volume.close()
    volume = small(tmp_path)
    assert not volume.recovery.clean
    assert (indices(volume), volume.get("t", "k")) in [
        ([1], b"acknowledged"),
        ([1, 2], b"never acknowledged"),
    ]
    volume.commit([append(3)])
    volume.close()


@contextmanager
def no_descriptor() -> Iterator[None]:
    """No further file can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)  # the lowest that is free
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def refused_after(volume: DiskVolume, first: int) -> int:
    """Commit until there is no room: the first that was refused."""
    for index in range(first, first + 100):
        try:
            volume.commit([append(index, size=1000)])
        except StorageFullError:
            return index
    raise AssertionError("all were taken")


@pytest.mark.parametrize("has_spare", [False, True])
def test_without_a_descriptor_for_a_new_segment_a_commit_is_refused_and_may_be_tried_again(
    tmp_path: Path, *, has_spare: bool
) -> None:
    volume, index = small(tmp_path), 0
    while has_spare and not list(tmp_path.glob("*.spare")):
        volume.commit([append(index, size=1000), Chop("a", index)])
        index += 1
    first = index
    with no_descriptor():
        index = refused_after(volume, first)
        with pytest.raises(StorageFilesError, match=r"Too many open files.*ulimit -n"):
            volume.commit([append(index, size=1000)])
    volume.commit([append(index, size=1000)])
    assert indices(volume)[-(index - first) - 1 :] == list(range(first, index + 1))
    volume.close()


def test_without_a_descriptor_to_read_a_segment_another_one_is_let_go(tmp_path: Path) -> None:
    volume = small(tmp_path)
    for index in range(100):
        volume.commit([append(index, size=1000)])
    volume.read("a", 0)
    with no_descriptor():
        assert indices(volume) == list(range(100))
    volume.close()


def test_a_segment_whose_name_may_be_lost_stops_the_volume(tmp_path: Path) -> None:
    """If it were used on, the segment before it would go on under the same numbers."""

    def sync_folder(descriptor: int) -> None:
        if "000000000002.log" in os.listdir(descriptor):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    volume = DiskVolume(
        tmp_path,
        segment_bytes=SMALL_SEGMENT_BYTES,
        sync=Sync(file=NO_SYNC.file, folder=sync_folder),
    )
    with suppress(StorageError):
        for index in range(100):
            volume.commit([append(index, size=1000)])
    with pytest.raises(StorageError, match="takes no commit"):
        volume.commit([Chop("a", 0)])
    volume.close()
    volume = small(tmp_path)
    assert indices(volume) == list(range(index))
    volume.close()


def test_what_recovery_found_is_written_and_synced_again(tmp_path: Path) -> None:
    """After a failed sync pages may read well in memory and never reach the disk."""
    synced: list[int] = []
    volume = small(tmp_path)
    volume.commit([append(1)])
    volume.close()
    (tmp_path / "closed.json").unlink()  # as a crash leaves it
    again = DiskVolume(tmp_path, segment_bytes=SMALL_SEGMENT_BYTES, sync=Sync(file=synced.append))
    assert len(synced) == 1
    assert indices(again) == [1]
    again.close()
    synced.clear()
    again = DiskVolume(tmp_path, segment_bytes=SMALL_SEGMENT_BYTES, sync=Sync(file=synced.append))
    assert synced == []  # closed in order: nothing to repeat
    again.close()


def test_a_sync_that_fails_during_recovery_fails_the_opening(tmp_path: Path) -> None:
    def sync(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    volume = small(tmp_path)
    volume.commit([append(1)])
    volume.close()
    (tmp_path / "closed.json").unlink()
    with pytest.raises(StorageError, match="cannot open"):
        DiskVolume(tmp_path, sync=Sync(file=sync))
    volume = small(tmp_path)  # the lock was let go, and nothing is lost
    assert indices(volume) == [1]
    volume.close()


def test_the_limit_holds_for_appends_and_not_for_chops(tmp_path: Path) -> None:
    limit = 5 * SMALL_SEGMENT_BYTES
    volume = small(tmp_path, VolumeLimits(size_max=limit))
    with suppress(StorageFullError):
        for index in range(1000):
            volume.commit([append(index, size=1000)])
    assert volume.statistics().bytes_on_disk == limit
    for chop in range(30):
        volume.commit([Chop("a", chop)])
    assert volume.statistics().bytes_on_disk <= limit + SMALL_SEGMENT_BYTES
    volume.commit([append(index, size=1000)])
    assert indices(volume) == list(range(29, index + 1))
    volume.close()


def test_a_full_volume_copies_live_records_together_before_it_refuses(tmp_path: Path) -> None:
    volume = small(tmp_path, VolumeLimits(size_max=6 * SMALL_SEGMENT_BYTES))
    for index in range(400):
        volume.commit([append(index, size=1000)])
        volume.commit([Append("slow", (index,), (bytes(50),)), Chop("a", index)])
    assert len(indices(volume, "slow")) == 400
    volume.check()
    volume.close()


FULL_DISK = """
import resource, sys
from gapless.core.effects import Append, Chop
from gapless.core.errors import StorageFullError
from gapless.storage.disk import DiskVolume

path, small = sys.argv[1], 16 << 10
volume = DiskVolume(path, segment_bytes=small)
volume.commit([Append("a", (0,), (bytes(1000),))])
volume.close()
# From here on no file may be longer than the segment there is: the next one cannot be made.
room = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (small, room[1]))
volume = DiskVolume(path, segment_bytes=2 * small)
index = 1
try:
    while True:
        volume.commit([Append("a", (index,), (bytes(1000),))])
        index += 1
except StorageFullError as error:
    print(index, str(error).splitlines()[0])
for chop in range(10):
    volume.commit([Chop("a", chop)])
assert volume.scan("a", 0, 999).indices == list(range(9, index))
resource.setrlimit(resource.RLIMIT_FSIZE, room)
volume.commit([Append("a", (index,), (bytes(1000),))])  # room again: it goes on
volume.close()
"""


def test_a_disk_without_room_refuses_appends_and_takes_chops(tmp_path: Path) -> None:
    """For real, by a limit on file sizes; in a process of its own, which it limits."""
    ended = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "volume")],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "no room for a segment" in ended.stdout
    assert "File too large" in ended.stdout
    count = int(ended.stdout.split()[0])
    volume = small(tmp_path / "volume")
    assert indices(volume) == list(range(9, count + 1))
    volume.close()


def test_without_room_to_note_that_it_was_closed_a_volume_closes_all_the_same(
    tmp_path: Path,
) -> None:
    def sync(descriptor: int) -> None:
        if "closed.json" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    volume = DiskVolume(tmp_path, sync=Sync(file=sync))
    volume.commit([append(1)])
    volume.close()
    assert not list(tmp_path.glob("closed.json*"))
    volume = small(tmp_path)  # as after a crash
    assert not volume.recovery.clean
    assert indices(volume) == [1]
    volume.close()
