"""A lock on a folder: one process at a time, and its number for whoever comes second.

The kernel drops the lock when the holder ends, however it ends; a stale file locks nobody out.
"""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

from gapless.core.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path


class FolderLock:
    """Held from construction to `release`."""

    __slots__ = ("_descriptor",)

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise StorageError(
                f"{folder} is open in process {holder or '(unknown)'}",
                "Stop that process, or give this one a data folder of its own.",
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
