"""The folder of a disk volume: its format, its salt, its lock and how it was closed.

Theory of operation
    `volume.json` says which format this is and holds the salt of all checksums. It gets its name
    last: as long as it is called `volume.json.new`, the volume was never finished and nothing was
    ever acknowledged, so it is made anew. `closed.json` exists only while a volume is closed in
    order, and says with which commit; it goes before the first new commit.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from gapless.core.errors import StorageCorruptError, StorageError
from gapless.storage.lock import FolderLock
from gapless.storage.segment import write_all

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.storage.segment import Sync

FORMAT = 3
"""What this version writes."""

BEFORE = 2
"""It had longer records in filtered logs (decision 0020); `broker.migration` brings it up to date.
"""


class Folder:
    """A locked folder; `salt` is its secret, `is_new` says that segments are still to be made."""

    def __init__(self, path: Path, sync: Sync, version: int = FORMAT) -> None:
        self.path = path
        self._sync = sync
        missing = [one for one in (path, *path.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir(mode=0o700)
            sync.entries(one.parent)
        self._lock = FolderLock(path)
        try:
            self.is_new = not (path / "volume.json").exists()
            self.salt = self._begin() if self.is_new else read_salt(path, version)
        except BaseException:
            self.release()
            raise

    def _begin(self) -> int:
        begun = self.path / "volume.json.new"
        leftovers = [path for path in sorted(self.path.iterdir()) if path.name != "lock"]
        if leftovers and not begun.exists():
            raise StorageCorruptError(
                f"{self.path} has no volume.json and is not empty ({leftovers[0].name})",
                "Give an empty folder, or restore the whole folder from a copy.",
            )
        for path in leftovers:
            path.unlink()
        salt = int.from_bytes(os.urandom(4), "little")
        text = json.dumps({"format": FORMAT, "salt": salt}, indent=1) + "\n"
        self._write(begun, text.encode())
        return salt

    def finish(self) -> None:
        """All that a new volume needs is there: from now on it is one."""
        (self.path / "volume.json.new").rename(self.path / "volume.json")
        self._sync.entries(self.path)
        self.is_new = False

    def closed_at(self) -> int | None:
        """The last commit if the volume was closed in order, else None."""
        return read_closed(self.path)

    def forget_closed(self) -> None:
        """The volume is in use again."""
        (self.path / "closed.json").unlink(missing_ok=True)
        self._sync.entries(self.path)

    def mark_closed(self, sequence: int) -> None:
        new = self.path / "closed.json.new"
        try:
            self._write(new, (json.dumps({"sequence": sequence}) + "\n").encode())
        except OSError:
            new.unlink(missing_ok=True)
            raise
        new.rename(self.path / "closed.json")
        self._sync.entries(self.path)

    def _write(self, path: Path, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, [data], 0)
            self._sync.file(descriptor)
        finally:
            os.close(descriptor)

    def release(self) -> None:
        self._lock.release()


def read_salt(folder: Path, version: int = FORMAT) -> int:
    """The secret of a volume that is there, and has this format."""
    found, salt = read_description(folder)
    if found != version:
        problem = f"{folder} has format {found}; this version of gapless knows {version}"
        if found == BEFORE:
            raise StorageError(problem, "Start its broker once: it brings the folder up to date.")
        raise StorageError(problem, "Open it with the version of gapless that wrote it.")
    return salt


def read_description(folder: Path) -> tuple[int, int]:
    """The format of a volume that is there, and its secret."""
    try:
        found = json.loads((folder / "volume.json").read_bytes())
        version, salt = int(found["format"]), int(found["salt"])
        if not 0 <= salt < 1 << 32:
            raise ValueError("not 32 bits")
    except OSError as error:
        raise StorageError(f"cannot read {folder / 'volume.json'}: {error.strerror}") from error
    except (ValueError, TypeError, KeyError, OverflowError):
        raise StorageCorruptError(f"{folder / 'volume.json'} is damaged") from None
    return version, salt


def read_closed(folder: Path) -> int | None:
    """With which commit a volume was closed in order; None if it was not, or is open."""
    try:
        return int(json.loads((folder / "closed.json").read_bytes())["sequence"])
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return None
