"""A lock on a folder: one process at a time may hold it, and its number is shown to the next.

The folder itself is locked, by its own descriptor: only moving the folder would take the lock away.
The file `lock` in it holds the number of the holder's process, and is locked as well: that keeps
out processes on file systems that lock no folders (NFS). The kernel drops both locks when the
holder ends, however it ends; a stale file keeps no process out.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gapless.core.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB


class FolderLock:
    """Held from construction to `release`."""

    __slots__ = ("_descriptors",)

    def __init__(self, folder: Path) -> None:
        self._descriptors = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
        try:
            try:
                fcntl.flock(self._descriptors[0], EXCLUSIVE)
            except BlockingIOError:
                raise
            except OSError:
                pass  # the file system locks no folders: the file has to do
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._descriptors.append(os.open(folder / "lock", flags, 0o600))
            fcntl.flock(self._descriptors[1], EXCLUSIVE)
            with suppress(OSError):  # a full disk: only the error message misses the number
                os.ftruncate(self._descriptors[1], 0)
                os.pwrite(self._descriptors[1], f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            self.release()
            raise StorageError(
                f"{folder} is open in process {_holder(folder) or '(unknown)'}",
                "Stop that process, or give this one a data folder of its own.",
            ) from None
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def _holder(folder: Path) -> str:
    """The number of the process that has the folder open, as it left it in the file."""
    try:
        return (folder / "lock").read_bytes()[:32].decode("ascii", "replace").strip()
    except OSError:
        return ""
