"""Lake: a topic's folder of Parquet files, changed so that nobody sees a half-made change.

    LAKE/TOPIC/PUBEND/HOUR/FIRST_TICK.parquet      events; names are quoted as in a URL, hours UTC
    LAKE/TOPIC/_manifest.json                      which ticks are there (`manifest`)
    LAKE/TOPIC/_intent.json                        a change that is under way
    LAKE/TOPIC/_unfinished/                        files that are being written

Theory of operation
    New files are written and synced aside. Then the change is written down whole: the next manifest
    and which file goes where. From that moment on it will happen: files are renamed into their
    places, the manifest is replaced, the intent removed; who finds an intent finishes it. So a
    process may be killed anywhere. What it had written aside before the intent is removed by the
    next one, and was never seen: readers of Parquet skip names that begin with an underscore.

Invariants
    I1  a file in its place is whole, synced, and named in the manifest or the intent
    I2  the manifest names only files that are in their places
    I3  one process at a time changes a lake; it holds the lock

It wants a file system with atomic renames that all workers share: a local disk, NFS, and not S3.
"""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from gapless.core.errors import StorageError, UsageError
from gapless.core.ticks import PUBEND_BITS
from gapless.pipelines.manifest import Manifest
from gapless.storage.lock import FolderLock

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST, INTENT, UNFINISHED, LOCK = "_manifest.json", "_intent.json", "_unfinished", "_lock"
HOUR_US = 3_600_000_000
FOLDER_NAME_MAX, CUT = 240, 160
"""File systems have 255 bytes; a longer name is cut, and told apart by a hash of the whole."""


class Lake:
    """A topic's part of a lake, for readers."""

    def __init__(self, root: str | Path, topic: str) -> None:
        self.topic = topic
        self.folder = topic_folder(Path(root).absolute(), topic)

    def manifest(self) -> Manifest:
        """As it is now; an empty one where there is no lake yet."""
        try:
            return Manifest.from_json((self.folder / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return Manifest(self.topic)

    def place(self, pubend: str, tick: int) -> str:
        """Where the file that begins with this tick belongs, below the folder."""
        hour = datetime.fromtimestamp((tick >> PUBEND_BITS) / 1_000_000, UTC)
        return f"{folder_name(pubend)}/{hour:%Y-%m-%dT%H}/{tick:019d}.parquet"


def topic_folder(root: Path, topic: str) -> Path:
    """Where a topic's files are. Lakes of before have some under a name that readers skip."""
    if not topic:
        raise UsageError("a topic has a name", "Give the topic whose lake it is.")
    before = quote(topic, safe="")
    # False, too, for a name that is too long for a file.
    is_there = before not in (".", "..") and os.path.isfile(root / before / MANIFEST)
    return root / (before if is_there else folder_name(topic))


def folder_name(name: str) -> str:
    """Quoted as in a URL, so that it names one folder below: not itself, nor one above. A dot or an
    underscore at the beginning is quoted too, for readers of Parquet skip such folders."""
    quoted = quote(name, safe="")
    if quoted.startswith((".", "_")):
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if len(quoted) <= FOLDER_NAME_MAX:
        return quoted
    return f"{quoted[:CUT]}~{sha256(name.encode()).hexdigest()[:32]}"


def slice_end(tick: int, slice_us: int = HOUR_US) -> int:
    """The first tick of the next hour, or of the next slice of it."""
    instant = tick >> PUBEND_BITS
    return (instant - instant % slice_us + slice_us) << PUBEND_BITS


class LakeWriter:
    """The one that changes a lake; `with` holds the lock. Finishes what a killed one began."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def __enter__(self) -> Self:
        folder = self.lake.folder
        try:
            (folder / LOCK).mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(folder / LOCK)
            if (folder / INTENT).exists():
                self._carry_out()
            self._sweep()
        except OSError as error:
            problem = f"cannot write to the lake {folder}: {error.strerror}"
            raise StorageError(problem, "Give a folder that can be written.") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    @property
    def unfinished(self) -> Path:
        """Where workers write; empty at the start and after each commit."""
        folder = self.lake.folder / UNFINISHED
        folder.mkdir(exist_ok=True)
        return folder

    def commit(self, manifest: Manifest, moves: Mapping[str, str]) -> None:
        """Make this the manifest, with these files moved from `unfinished` to their places.

        They are synced. It is durable when this returns.
        """
        for covered in manifest.pubends.values():
            covered.check()
        assert all((self.unfinished / name).exists() for name in moves), "a file is not there"
        intent = {"manifest": manifest.to_json(), "moves": dict(moves)}
        replace_durably(self.lake.folder / INTENT, json.dumps(intent))
        self._carry_out()
        self._sweep()

    def _carry_out(self) -> None:
        folder = self.lake.folder
        intent = json.loads((folder / INTENT).read_text(encoding="utf-8"))
        changed = set[Path]()
        for name, place in intent["moves"].items():
            source, target = folder / UNFINISHED / name, folder / place
            if source.exists():  # else it was moved before
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
            changed |= {target.parent, target.parent.parent, folder}
        for each in sorted(changed):
            sync_folder(each)
        replace_durably(folder / MANIFEST, intent["manifest"])
        (folder / INTENT).unlink()

    def _sweep(self) -> None:
        shutil.rmtree(self.lake.folder / UNFINISHED, ignore_errors=True)


def replace_durably(path: Path, text: str) -> None:
    """The old content is there until the new one is on stable storage."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
