"""Machine code: numba's results are kept on disk, in a folder that only this user can write.

Theory of operation
    Compiling takes up to half a minute, loading compiled code less than a second. numba keeps
    pickles: a user that can write them can run code as us. So a folder is used only if it, and
    every folder above it, can be written by this user and by root alone. The order of the search:

    1.  the folder that the environment variable NUMBA_CACHE_DIR names
    2.  `__pycache__` beside the sources, if only those can write it that can write the sources
    3.  the user's cache folder (XDG_CACHE_HOME, or ~/.cache)
    4.  the folder that this process suggests: a broker's data folder
    5.  the folder for temporary files

    In all but 2 it is a folder of this user alone below that, `gapless-UID`. Code that was compiled
    beside sources that cannot be written now, as in the image of a container, is copied from there.
    Where no folder can be used, nothing is kept: a program that asks for compiled code compiles for
    itself; every other program does without, and warns once (`complaint`).
    A file that cannot be read, or is damaged, counts as missing.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

COMPLAINT = (
    "compiled code cannot be kept: no folder is there that this user alone can write. "
    "Set NUMBA_CACHE_DIR to one."
)

_suggested: list[Path] = []
_told: list[str] = []
_deciding = threading.Lock()


def keep(function: Callable[..., Any], **options: Any) -> Any:
    """The function as numba compiles it, with options of numba; the result is kept if it can be."""
    import numba
    from numba import njit

    config: Any = numba.config  # whose names it makes while it is loaded
    source = Path(function.__code__.co_filename)
    with _deciding:
        folder = folder_for(source.parent)
        if folder is not None:
            before = config.CACHE_DIR
            config.CACHE_DIR = "" if _is_beside(folder, source.parent) else str(folder)
            try:
                made = njit(cache=True, **options)(function)
            except (RuntimeError, OSError):  # numba thinks otherwise of the folder
                made = None
            finally:
                config.CACHE_DIR = before
            if made is not None and _is_good(made, folder):
                _copy_from(source, Path(made.stats.cache_path))
                if hasattr(made, "_cache"):
                    made._cache = _Forgiving(made._cache)
                return made
    return njit(**options)(function)


def suggest(folder: Path) -> None:
    """Keep compiled code in this folder, rather than with temporary files."""
    _suggested[:] = [folder.absolute()]
    folder_for.cache_clear()


def is_kept() -> bool:
    """Will another process of this user find what this one compiles?"""
    return folder_for(Path(__file__).parent) is not None


def complaint() -> str | None:
    """Why compiled code is not kept, at the first call; None if it is kept, or at later calls."""
    if _told or is_kept():
        return None
    _told.append(COMPLAINT)
    return COMPLAINT


def environment() -> dict[str, str]:
    """The environment for a process that keeps its code where this one does."""
    folder = folder_for(Path(__file__).parent)
    if folder is None or folder.parent not in _suggested:
        return dict(os.environ)
    return {**os.environ, "NUMBA_CACHE_DIR": str(folder.parent)}


@cache
def folder_for(sources: Path) -> Path | None:
    """Where the machine code of sources in this folder is kept; None: nowhere."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    if named and (own := _own_folder(Path(named).absolute())) is not None:
        return own
    beside = sources / "__pycache__"
    if _can_write(beside) and _is_as_safe(beside, sources):
        return beside
    return next((own for base in _bases() if (own := _own_folder(base)) is not None), None)


# --- folders --------------------------------------------------------------------------------------


def _bases() -> Iterator[Path]:
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
    yield from _suggested
    with suppress(OSError):  # there is none
        temporary = Path(tempfile.gettempdir()).absolute()
        if temporary != Path.cwd():  # the last resort of `tempfile`
            yield temporary


@cache
def _own_folder(base: Path) -> Path | None:
    """The folder of this user there; None if it cannot be used."""
    folder = base / f"gapless-{_user()}"
    try:
        # A home that does not exist is not made, even by root.
        base.mkdir(mode=0o700, exist_ok=True, parents=base.name != ".cache")
        folder.mkdir(mode=0o700, exist_ok=True)
        is_usable = not folder.is_symlink() and is_ours_alone(folder) and _can_write(folder)
    except OSError:
        return None
    return folder if is_usable else None


def _user() -> int:
    return os.geteuid() if hasattr(os, "geteuid") else 0


def is_ours_alone(folder: Path) -> bool:
    """Can only this user and root change what is in the folder, or replace it?"""
    if os.name != "posix":
        return True  # rights are kept in another way; the user's folders are the user's
    folder = folder.resolve(strict=True)
    for each in (*reversed(folder.parents), folder):
        found = each.stat()
        if found.st_uid not in (0, _user()):
            return False
        if not found.st_mode & 0o077 and found.st_uid == _user():
            return True  # no other user can enter
        is_sticky = bool(found.st_mode & stat.S_ISVTX) and each != folder
        if found.st_mode & 0o022 and not is_sticky:
            return False
    return True


def _is_as_safe(beside: Path, sources: Path) -> bool:
    """Can it be written only by users that can write the sources, which we run anyway?"""
    if os.name != "posix":
        return True
    inner, outer = beside.stat(), sources.stat()
    more = inner.st_mode & ~outer.st_mode & 0o022
    is_other_group = bool(inner.st_mode & 0o020) and inner.st_gid != outer.st_gid
    is_known = inner.st_uid in (0, _user(), outer.st_uid)
    return is_known and not more and not is_other_group and not beside.is_symlink()


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


# --- functions ------------------------------------------------------------------------------------


def _is_beside(folder: Path, sources: Path) -> bool:
    return folder == sources / "__pycache__"


def _is_good(made: Any, folder: Path) -> bool:
    """Has numba taken the folder that it was given?"""
    path = Path(made.stats.cache_path).resolve()
    return path.is_relative_to(folder.resolve())


def _copy_from(source: Path, folder: Path) -> None:
    """Copy code that another user has compiled beside the sources."""
    beside = source.parent / "__pycache__"
    with suppress(OSError):
        if beside.resolve() == folder.resolve() or not _is_as_safe(beside, source.parent):
            return
        version = f"py{sys.version_info[0]}{sys.version_info[1]}"
        for path in sorted(beside.glob(f"{source.stem}.*{version}*.nb[ic]")):
            copy = folder / path.name
            if not copy.exists() or copy.stat().st_mtime < path.stat().st_mtime:
                shutil.copy2(path, copy)


class _Forgiving:
    """numba's cache of one function, which may be damaged, full or gone at any time."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return self._inner.load_overload(signature, context)
        except Exception:  # pickles: whatever damaged ones raise
            with suppress(Exception):
                self._inner.flush()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        with suppress(Exception):  # the next process compiles again
            self._inner.save_overload(signature, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
