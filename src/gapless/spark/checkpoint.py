"""Checkpoint: where a streaming query stands, from the files that Spark keeps, and how to move it.

Theory of operation
    Spark writes `offsets/N` before it runs batch N and `commits/N` when the batch is done: a
    version, a line about the batch, and a line for each source. A line whose names have slashes is
    an offset of ours: a token, and the query's name (`subscription_lease`).
    To move a query, one batch is added that is committed already: its offset is the new position.
    So nothing that Spark knows is changed, and numbers of batches go on ascending: a sink that
    knows batches by their numbers takes no new batch for an old one. A query with state (windows,
    deduplication) is refused, because its state would not fit. The query must not run meanwhile.

Only checkpoints on a file system that this machine has can be read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gapless.core.errors import UsageError
from gapless.core.token import Token
from gapless.spark.subscription_lease import token_of

if TYPE_CHECKING:
    from pathlib import Path

GIVE = "Give the checkpointLocation of a query that reads gapless."


def last_commit(checkpoint: Path) -> int:
    """The number of the last batch that the query has committed."""
    names = [path.name for path in (checkpoint / "commits").glob("[0-9]*")]
    numbers = [int(name) for name in names if name.isdigit()]
    if not numbers:
        problem = f"{checkpoint} has no committed batch"
        raise UsageError(problem, "Give the checkpointLocation of a query that has run.")
    return max(numbers)


def batch_end(checkpoint: Path, number: int) -> Token:
    """Where a batch ends, in all topics that the query reads."""
    offsets = [each for each in _lines(checkpoint, number) if isinstance(each, dict)]
    return Token({name: tick for each in offsets for name, tick in token_of(each)})


def _lines(checkpoint: Path, number: int) -> list[Any]:
    """The lines of the sources: ours as objects, others as text."""
    try:
        lines = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()
        if lines[0] != "v1":
            raise ValueError(f"its version is {lines[0]!r}")
        found = [_ours(line) for line in lines[2:]]
        if not any(isinstance(each, dict) for each in found):
            raise ValueError("no source of it is gapless")
    except (OSError, ValueError, IndexError) as error:
        problem = f"the offset of batch {number} in {checkpoint} cannot be read: {error}"
        raise UsageError(problem, GIVE) from None
    return found


def _ours(line: str) -> Any:
    try:
        found = json.loads(line)
    except ValueError:
        return line
    is_ours = isinstance(found, dict) and all(type(each) in (int, str) for each in found.values())
    return found if is_ours and any("/" in name for name in found) else line


def move(checkpoint: Path, token: Token) -> int:
    """Let the query go on from this token, at the pubends that it names; the number of the batch
    that says so."""
    if any((checkpoint / "state").glob("*")):
        problem = f"the query of {checkpoint} keeps state, which would not fit another position"
        raise UsageError(problem, "Start it with a new checkpoint, and startingOffsets.")
    number = last_commit(checkpoint)
    lines = _lines(checkpoint, number)
    known = {name for each in lines if isinstance(each, dict) for name in each}
    if unknown := [name for name, _ in token if name not in known]:
        raise UsageError(f"the query does not read {unknown[0]!r}", f"It reads {_names(known)}.")
    moved = [
        json.dumps({name: token.get(name) or tick for name, tick in each.items()})
        if isinstance(each, dict)
        else each
        for each in lines
    ]
    head = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()[:2]
    commit = (checkpoint / "commits" / str(number)).read_text("utf-8")
    _replace(checkpoint / "offsets" / str(number + 1), "\n".join([*head, *moved]))
    _replace(checkpoint / "commits" / str(number + 1), commit)
    return number + 1


def _names(known: set[str]) -> str:
    return ", ".join(sorted(name for name in known if "/" in name))


def _replace(path: Path, text: str) -> None:
    """Hadoop keeps a checksum beside a file, which would be that of the file before."""
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8")
    new.replace(path)
