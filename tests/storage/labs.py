"""Labs: a volume that a test can crash and open again, alike for memory and disk."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Protocol, TypeVar

from gapless.core.effects import Append
from gapless.core.errors import StorageDamagedError
from gapless.storage.disk import DiskVolume
from gapless.storage.segment import Sync
from gapless.testing.memory_volume import MemoryVolume

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gapless.storage.volume import Volume, VolumeLimits

SMALL_SEGMENT_BYTES = 16 << 10
"""So small that a few commits fill it, and every test meets full segments."""


def _nothing(descriptor: int) -> None:
    pass


NO_SYNC = Sync(file=_nothing, folder=_nothing)
"""For tests that play a crash by copying files: what was written is what they see."""


class Lab(Protocol):
    """Opens one volume, over and over."""

    def open(self, limits: VolumeLimits | None = None) -> Volume: ...

    def crash(self) -> Volume:
        """The process ends here and now; the volume as it is found after that."""
        ...

    def restart(self) -> Volume:
        """Close it in order and open it again."""
        ...

    def close(self) -> None: ...


class MemoryLab:
    """A memory volume; a crash is played by the volume itself."""

    def open(self, limits: VolumeLimits | None = None) -> MemoryVolume:
        self.volume = MemoryVolume(limits=limits)
        return self.volume

    def crash(self) -> MemoryVolume:
        self.volume.crash()
        self.volume.reopen()
        return self.volume

    def restart(self) -> MemoryVolume:
        self.volume.close()
        self.volume.reopen()
        return self.volume

    def close(self) -> None:
        self.volume.close()


class DiskLab:
    """A disk volume; a crash is played by going on with a copy of its files as they are."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._life = 0
        self._limits: VolumeLimits | None = None

    def path(self) -> Path:
        return self._folder / f"life-{self._life}"

    def open(self, limits: VolumeLimits | None = None) -> DiskVolume:
        self._limits = limits
        self.volume = DiskVolume(
            self.path(), limits=limits, segment_bytes=SMALL_SEGMENT_BYTES, sync=NO_SYNC
        )
        return self.volume

    def crash(self) -> DiskVolume:
        before = self.path()
        self._life += 1
        shutil.copytree(before, self.path())
        self.volume.close()
        shutil.rmtree(before)
        return self.open(self._limits)

    def restart(self) -> DiskVolume:
        self.volume.close()
        return self.open(self._limits)

    def close(self) -> None:
        self.volume.check()
        self.volume.close()


def small(path: Path, limits: VolumeLimits | None = None) -> DiskVolume:
    """A volume of small segments that does not sync."""
    return DiskVolume(path, limits=limits, segment_bytes=SMALL_SEGMENT_BYTES, sync=NO_SYNC)


Result = TypeVar("Result")


def tried(call: Callable[[], Result]) -> Result | StorageDamagedError:
    """What a read gives, or what it says to be damaged."""
    try:
        return call()
    except StorageDamagedError as damage:
        return damage


def append(*indices: int, size: int = 100) -> Append:
    return Append("a", indices, tuple(b"%d," % index * (size // 4) for index in indices))


def indices(volume: DiskVolume, stream: str = "a") -> list[int]:
    return volume.scan(stream, 0, 1 << 60, bytes_max=1 << 30).indices
