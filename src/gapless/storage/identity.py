"""Identity: what tells a folder from copies of it.

Theory of operation
    A file that is copied, restored from an archive or synchronised is another file: it has another
    number on its file system, or was born at another time. So a folder has a file `seal`, and what
    is kept in the folder says which number and birth that file has. Moving the folder, changing its
    owner or mounting it elsewhere changes neither. A snapshot of the whole file system that is put
    back is not told apart: delete the seal then.
    Each start makes a new seal, so that an older copy that is laid over the folder is told apart
    too. The new one is `seal.next` until the next start: a crash may come before it is written down
    which one counts, so at a start either may be the right one.

The birth of a file is read with `statx`, which Python does not have. Where the system does not know
it, the number alone counts.
"""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

BIRTH = 0x800  # STATX_BTIME
HERE = -100  # AT_FDCWD
STATX_BYTES = 256
EXPLANATION = b"This file tells the folder from copies of it. Do not copy it back.\n"
MASK, BIRTH_SECONDS, BIRTH_NANOSECONDS = slice(0, 4), slice(80, 88), slice(88, 92)


SEAL, NEXT = "seal", "seal.next"


def renew_seal(folder: Path, written: bytes | None) -> tuple[bytes, tuple[bytes, ...]]:
    """The identity of a new seal of the folder, and those of the seals that it had. `written` is
    the one that the folder says it has. Call it while no other process uses the folder."""
    seal, following = folder / SEAL, folder / NEXT
    had = tuple(identity_of(path) for path in (seal, following) if path.exists())
    if following.exists() and identity_of(following) == written:
        following.rename(seal)
    following.unlink(missing_ok=True)
    descriptor = os.open(following, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(descriptor, EXPLANATION)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    directory = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return identity_of(following), had


def identity_of(path: Path) -> bytes:
    """The number and the birth of a file, as text."""
    found = os.stat(path)
    born = getattr(found, "st_birthtime_ns", None)
    return f"{found.st_ino} {_birth(path) if born is None else born}".encode()


def _birth(path: Path) -> int:
    """When the file was made, in nanoseconds; 0 where the system does not know."""
    try:
        statx = ctypes.CDLL(None, use_errno=True).statx
    except (OSError, AttributeError):
        return 0
    buffer = ctypes.create_string_buffer(STATX_BYTES)
    if statx(HERE, os.fsencode(path), 0, BIRTH, buffer) != 0:
        return 0
    raw = buffer.raw
    if not int.from_bytes(raw[MASK], "little") & BIRTH:
        return 0
    seconds = int.from_bytes(raw[BIRTH_SECONDS], "little")
    return seconds * 1_000_000_000 + int.from_bytes(raw[BIRTH_NANOSECONDS], "little")
