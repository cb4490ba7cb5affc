"""Manifest: which ticks of each pubend a lake has, in which files, and what their columns mean.

Theory of operation
    A pubend is covered from one tick to another without interruption. What was released before the
    archive came is listed as lost. Files never change. A file that grows is a new file: the next
    manifest names the new file and lists the old one as replaced, for the writer to remove.
    A file's row groups are listed by their first ticks, so that a plan can share one file among
    many workers without opening it.

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
from gapless.pipelines.lake_schema import LakeSchema

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 2
"""1 was the layout with attributes as maps, which was never released."""


@dataclass(frozen=True, slots=True)
class LakeFile:
    """The events of the ticks [start, end) of one pubend; `path` is below the topic's folder."""

    path: str
    start: int
    end: int
    rows: int
    bytes: int
    groups: tuple[int, ...] = ()
    """The first tick of each row group."""


@dataclass(frozen=True, slots=True)
class Coverage:
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
    """A topic's part of a lake at one moment. `number` counts the commits before it, and itself."""

    topic: str
    number: int = 0
    schema: LakeSchema = field(default_factory=LakeSchema)
    pubends: dict[str, Coverage] = field(default_factory=dict)
    replaced_files: tuple[str, ...] = ()

    @property
    def token(self) -> Token:
        """Everything below it is in the lake, or lost."""
        return Token({name: covered.end for name, covered in self.pubends.items()})

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def files(self) -> list[LakeFile]:
        return [file for covered in self.pubends.values() for file in covered.files]

    def to_json(self) -> str:
        return json.dumps({"version": VERSION, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            found = json.loads(text)
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']}")
            columns = found["schema"]["columns"].items()
            return cls(
                found["topic"],
                found["number"],
                LakeSchema({name: (str(pair[0]), str(pair[1])) for name, pair in columns}),
                {name: _covered(each) for name, each in found["pubends"].items()},
                tuple(found["replaced_files"]),
            )
        except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
            raise StorageCorruptError(
                f"the lake's manifest cannot be read: {error}",
                "Use the version of gapless that wrote it, or restore the file.",
            ) from None


def _covered(found: dict[str, Any]) -> Coverage:
    files = tuple(LakeFile(**{**each, "groups": tuple(each["groups"])}) for each in found["files"])
    lost = tuple((int(low), int(high)) for low, high in found["lost"])
    return Coverage(found["start"], found["end"], lost, files)
