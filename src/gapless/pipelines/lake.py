"""Lake: a topic's folder of Parquet files, and the manifests that say which of them count.

    LAKE/TOPIC/data/published_date=DATE/published_hour=HOUR/FIRST_TICK-COMMIT-RANDOM.parquet
    LAKE/TOPIC/_manifests/NUMBER.json     which files count from commit NUMBER on (`manifest`)
    LAKE/TOPIC/_unfinished/               files that are being written

Dates and hours are UTC. Topic names are quoted as in a URL.

Theory of operation
    The manifest decides. A file is written once, under a name that no other file ever has, and does
    not change. A commit puts its files into their places, then creates the next manifest, then
    removes the files that the manifest has replaced. The manifest is one small file that is created
    whole, and only if there is none of that number: so of two writers one is refused, and a killed
    writer leaves either the old manifest or the new one. No rename has to be atomic, and nothing is
    ever overwritten: an object store, where a finished upload appears at once, can do all of it.
    A killed writer may leave files that no manifest names. The next writer removes them: it knows
    them by the number of the commit in their names. Readers that go by the manifest never see them.
    A reader whose file was replaced meanwhile looks it up in the newest manifest (`replay`).

Invariants
    I1  a file in its place is whole and synced, and never changes
    I2  every file that a manifest names is in its place, until a later manifest replaces it
    I3  one process at a time changes a lake: it holds the lock, and the number of its commit is new

Decision: docs/decisions/0030-typed-lakes.md.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote
from uuid import uuid4

from gapless.core.errors import StorageError, UsageError
from gapless.core.ticks import PUBEND_BITS
from gapless.pipelines.lake_schema import DATE, HOUR
from gapless.pipelines.manifest import Manifest
from gapless.storage.lock import FolderLock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DATA, MANIFESTS, UNFINISHED, LOCK = "data", "_manifests", "_unfinished", "_lock"
OLD_MANIFEST = "_manifest.json"
HOUR_US = 3_600_000_000
MANIFESTS_KEPT = 10
"""The newest ones: a reader that has listed the folder still finds the one that it has chosen."""

FOLDER_NAME_MAX, CUT = 240, 160
"""File systems have 255 bytes; a longer name is cut, and told apart by a hash of the whole."""


class Lake:
    """A topic's part of a lake, for readers."""

    def __init__(self, root: str | Path, topic: str) -> None:
        if not topic:
            raise UsageError("a topic has a name", "Give the topic whose lake it is.")
        self.topic = topic
        self.folder = Path(root).absolute() / folder_name(topic)

    @property
    def data(self) -> Path:
        """The folder that engines read: Parquet files in partitions, and nothing else."""
        return self.folder / DATA

    def manifest(self) -> Manifest:
        """As it is now; an empty one where there is no lake yet."""
        if (self.folder / OLD_MANIFEST).exists():
            raise StorageError(
                f"the lake {self.folder} has the layout of an earlier version, with attributes in "
                "maps, which this version does not read",
                "Archive the topic into a new folder; what its log has released is in the old lake "
                "alone, and the version that wrote it can still replay it.",
            )
        while (newest := max(self._manifests(), default=None)) is not None:
            with suppress(FileNotFoundError):  # ten commits later: list again
                return Manifest.from_json(newest.read_text(encoding="utf-8"))
        return Manifest(self.topic)

    def _manifests(self) -> Iterator[Path]:
        return (self.folder / MANIFESTS).glob("[0-9]*.json")

    def files(self) -> list[Path]:
        """The files that count now, for readers such as DuckDB and Polars."""
        return [self.folder / file.path for file in self.manifest().files]

    def place(self, tick: int, commit: int) -> str:
        """A new name for a file that begins with this tick, below the folder."""
        hour = published(tick)
        partition = f"{DATE}={hour:%Y-%m-%d}/{HOUR}={hour.hour}"
        return f"{DATA}/{partition}/{tick:019d}-{commit:08d}-{uuid4().hex[:8]}.parquet"


def published(tick: int) -> datetime:
    """When the event of this tick was published."""
    return datetime.fromtimestamp((tick >> PUBEND_BITS) / 1_000_000, UTC)


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
    """Changes a lake; `with` holds the lock, and removes what a killed writer left."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake

    def __enter__(self) -> Self:
        folder = self.lake.folder
        try:
            (folder / LOCK).mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(folder / LOCK)
            try:
                (folder / MANIFESTS).mkdir(exist_ok=True)
                self._sweep(self.lake.manifest())
            except BaseException:
                self._lock.release()
                raise
        except OSError as error:
            problem = f"cannot write to the lake {folder}: {error.strerror}"
            raise StorageError(problem, "Give a folder that can be written.") from None
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # it is not there, or a killed worker's files are in it
            (self.lake.folder / UNFINISHED).rmdir()
        self._lock.release()

    @property
    def unfinished(self) -> Path:
        """Where workers write; empty at the start and after each commit."""
        folder = self.lake.folder / UNFINISHED
        folder.mkdir(exist_ok=True)
        return folder

    def commit(self, manifest: Manifest, moves: Mapping[str, str]) -> Manifest:
        """Make this the manifest, with these synced files moved from `unfinished` to their places.

        It is durable when this returns.
        """
        for covered in manifest.pubends.values():
            covered.check()
        before, folder = self.lake.manifest(), self.lake.folder
        kept = {file.path for file in manifest.files}
        gone = tuple(file.path for file in before.files if file.path not in kept)
        after = replace(manifest, number=before.number + 1, replaced_files=gone)
        changed = {folder}
        for name, place in moves.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            (self.unfinished / name).replace(target)
            changed |= set(target.parents[: len(Path(place).parts)])
        for each in sorted(changed):
            sync_folder(each)
        create_durably(folder / MANIFESTS / f"{after.number:020d}.json", after.to_json())
        self._sweep(after)
        return after

    def _sweep(self, manifest: Manifest) -> None:
        """Remove what this manifest replaced, and what a commit left that was never finished: then
        `unfinished` is there."""
        folder = self.lake.folder
        for path in manifest.replaced_files:
            (folder / path).unlink(missing_ok=True)
        for old in sorted((folder / MANIFESTS).iterdir())[:-MANIFESTS_KEPT]:
            old.unlink()
        if (folder / UNFINISHED).exists():
            for leftover in (folder / DATA).glob(f"*/*/*-{manifest.number + 1:08d}-*.parquet"):
                leftover.unlink()
            shutil.rmtree(folder / UNFINISHED)


def create_durably(path: Path, text: str) -> None:
    """A new file, whole and on stable storage, or none; an error if there is one of this name."""
    new = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
    except FileExistsError:
        raise StorageError(
            f"another process has changed the lake: there is {path}", "Run one archive at a time."
        ) from None
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
