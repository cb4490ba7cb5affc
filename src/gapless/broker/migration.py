"""Migration: a data folder that was written before 0.1 is brought to the format of this version.

Format 2 differs from format 3 in the records of filtered logs alone: pairs of 8 bytes, a taker and
the tick that it took before (decision 0020). Records cannot be written anew in place, so the volume
is copied. The new one gets its name last, and the old one stays beside it: a crash in between loses
nothing, and whoever wants to go back can.
"""

from __future__ import annotations

import shutil
from struct import iter_unpack, pack
from typing import TYPE_CHECKING

from gapless.broker.logs import logger
from gapless.core.effects import Append
from gapless.storage.backup import Snapshot, writes_of
from gapless.storage.disk import DiskVolume
from gapless.storage.folder import BEFORE, read_description
from gapless.storage.segment import Sync

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.effects import Write


def migrate(folder: Path) -> None:
    """Bring the volume of a folder to the format of this version, if it has an older one."""
    kept = folder.with_name(f"{folder.name}.format-{BEFORE}")
    made = folder.with_name(f"{folder.name}.migrated")
    if folder.exists() or not (kept.exists() and made.exists()):
        if not (folder / "volume.json").exists() or read_description(folder)[0] != BEFORE:
            return
        shutil.rmtree(made, ignore_errors=True)
        copy(folder, made)
        folder.rename(kept)
    made.rename(folder)
    Sync().entries(folder.parent)
    logger.warning(
        "the data folder was brought to a newer format; the old one can be removed",
        extra={"folder": folder, "old": kept},
    )


def copy(old: Path, new: Path) -> None:
    source, target = DiskVolume(old, version=BEFORE), DiskVolume(new)
    try:
        for content in Snapshot(source, {}).contents():
            target.commit([convert(write) for write in writes_of(content)])
    finally:
        source.close()
        target.close()


def convert(write: Write) -> Write:
    if isinstance(write, Append) and write.stream.startswith("filtered/"):
        return Append(write.stream, write.indices, tuple(map(convert_record, write.records)))
    return write


def convert_record(record: bytes) -> bytes:
    """A record of a filtered log: the same takers and back pointers, as they are written today."""
    takers, backs = zip(*iter_unpack("<qq", record), strict=True)
    shared = backs[:1] if len(set(backs)) == 1 else backs
    return pack(f"<{len(takers) + 1}I{len(shared)}q", len(takers), *takers, *shared)
