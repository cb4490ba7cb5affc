"""Snapshot: a matcher as one file, which other processes map instead of reading.

Theory of operation
    The arena is the bulk of a compiled matcher and needs no decoding: the file holds it page
    aligned, behind everything else, pickled. Whoever opens the file maps the arena privately:
    pages come from the system's cache, shared by all processes of a host that map the file, and
    only those that are written to (a few, to match; more, to add filters) become their own.

    Layout    magic | stamp of the kernels | length of the pickle | pickle | padding | arena

A snapshot holds a pickle: open only files that you trust.
"""

from __future__ import annotations

import mmap
import pickle
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.filters.matching.compiled_index import CompiledIndex
from gapless.filters.matching.kernels import STAMP

if TYPE_CHECKING:
    from pathlib import Path

HEAD = Struct("<8sQQ")
MAGIC = b"gapless\x01"
PAGE = 4096


def write(path: Path, index: CompiledIndex, facts: Any) -> None:
    """Write the index and whatever else shall go with it. The file appears whole or not at all."""
    rest = pickle.dumps((index.rest(), facts), protocol=5)
    begin = -(-(HEAD.size + len(rest)) // PAGE) * PAGE
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        file.write(HEAD.pack(MAGIC, STAMP, len(rest)))
        file.write(rest)
        file.write(bytes(begin - file.tell()))
        file.write(memoryview(index.words()).cast("B"))  # type: ignore[arg-type]
    unfinished.replace(path)


def read(path: Path) -> tuple[CompiledIndex, Any]:
    """Map a snapshot: its index, and what went with it. ValueError if it is none of ours."""
    with path.open("rb") as file:
        head = file.read(HEAD.size)
        if len(head) < HEAD.size or not head.startswith(MAGIC):
            raise ValueError(f"{path} is not a saved matcher. Make one with Matcher.save.")
        _, stamp, length = HEAD.unpack(head)
        if stamp != STAMP:
            raise ValueError(
                f"{path} was saved by another version of gapless. Save the matcher again with "
                "this one."
            )
        rest, facts = pickle.loads(file.read(length))
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    begin = -(-(HEAD.size + length) // PAGE) * PAGE
    index = CompiledIndex()
    index.restore(np.frombuffer(pages, np.int64, offset=begin), rest)
    return index, facts
