"""Manifest: which ticks of each pubend a lake has, and in which files.

Theory of operation
    A pubend is covered from one tick to another without interruption; what was already released
    when the archive came by is listed as lost. A file is named by its first tick and may grow: it
    is replaced by one with more events under the same name. So a reader takes from each file the
    ticks that the manifest gives it and no more, and never sees an event twice, or half a file.

Invariants
    I1  files of a pubend are in order, do not overlap, and lie within what is covered
    I2  every event of the covered ticks that was not lost is in exactly one file
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Self

from gapless.core.errors import StorageCorruptError
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 1


@dataclass(frozen=True, slots=True)
class LakeFile:
    """The events of the ticks [start, end) of one pubend; `path` is below the topic's folder."""

    path: str
    start: int
    end: int
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Covered:
    """One pubend: what of it is in the lake."""

    start: int
    end: int
    lost: tuple[tuple[int, int], ...] = ()
    files: tuple[LakeFile, ...] = ()

    def check(self) -> None:
        at = self.start
        for file in self.files:
            assert at <= file.start < file.end <= self.end, "I1"
            at = file.end

    def lost_within(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        for low, high in self.lost:
            if max(low, start) < min(high, end):
                yield max(low, start), min(high, end)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A topic's part of a lake at one moment."""

    topic: str
    pubends: dict[str, Covered] = field(default_factory=dict)

    @property
    def token(self) -> Token:
        """Everything below it is in the lake, or lost."""
        return Token({name: covered.end for name, covered in self.pubends.items()})

    @property
    def rows(self) -> int:
        return sum(file.rows for covered in self.pubends.values() for file in covered.files)

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            found = json.loads(text)
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']}")
            pubends = {name: _covered(each) for name, each in found["pubends"].items()}
            return cls(found["topic"], pubends)
        except (ValueError, KeyError, TypeError) as error:
            raise StorageCorruptError(
                f"the lake's manifest cannot be read: {error}",
                "Use the version of gapless that wrote it, or restore the file.",
            ) from None


def _covered(found: dict[str, Any]) -> Covered:
    files = tuple(LakeFile(**each) for each in found["files"])
    lost = tuple((int(low), int(high)) for low, high in found["lost"])
    return Covered(found["start"], found["end"], lost, files)
