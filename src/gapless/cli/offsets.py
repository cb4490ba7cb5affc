"""`gapless pipeline offsets`: where a streaming query stands, by its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.connection import URL, Url
from gapless.cli.job import AsJson, log_of
from gapless.cli.terminal import say, visible
from gapless.core.errors import UsageError
from gapless.core.ticks import PUBEND_BITS
from gapless.core.token import Token

if TYPE_CHECKING:
    from collections.abc import Iterator


def offsets(
    checkpoint: Annotated[Path, typer.Argument(help="The folder checkpointLocation of a query.")],
    topic: Annotated[
        str, typer.Option(metavar="TOPIC", help="Compare with what the broker has of it.")
    ] = "",
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """Show how far a streaming query has read, and what it would lose if it went on now.

    \b
    gapless pipeline offsets checkpoints/trades
    gapless pipeline offsets checkpoints/trades --topic trades

    The exit code is 1 if the broker no longer has what the query would read next.
    """
    batch, token = last_commit(checkpoint)
    positions: dict[str, tuple[int, int]] = {}
    if topic:
        with log_of(url, topic).connect() as client:
            positions = client.positions(topic)
    rows = list(compare(token, positions))
    if as_json:
        say(json.dumps({"batch": batch, "pubends": rows}))
    else:
        say(f"batch {batch} is committed")
        for row in rows:
            say(shown(row))
    if any(row.get("lost_s") for row in rows):
        raise typer.Exit(1)


def last_commit(checkpoint: Path) -> tuple[int, Token]:
    """The last batch that the query has committed, and where that ends."""
    numbers = [
        int(path.name) for path in (checkpoint / "commits").glob("[0-9]*") if path.name.isdigit()
    ]
    if not numbers:
        problem = f"{checkpoint} has no committed batch"
        raise UsageError(problem, "Give the checkpointLocation of a query that has run.")
    return max(numbers), batch_end(checkpoint, max(numbers))


def batch_end(checkpoint: Path, number: int) -> Token:
    """Where a batch ends: the lines of Spark's offset log that are tokens, of all sources."""
    try:
        lines = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()[2:]
        found = [json.loads(line) for line in lines if line.startswith("{")]
        return Token({name: int(tick) for each in found for name, tick in each.items()})
    except (OSError, ValueError, TypeError) as error:
        problem = f"the offset of batch {number} in {checkpoint} cannot be read: {error}"
        raise UsageError(problem, "Give the checkpoint of a query that reads gapless.") from None


def compare(token: Token, positions: dict[str, tuple[int, int]]) -> Iterator[dict[str, Any]]:
    """By pubend where the query stands, how far that is behind, and what is lost to it."""
    for pubend in sorted({*dict(token), *positions}):
        row: dict[str, Any] = {"pubend": pubend, "tick": token.get(pubend)}
        if pubend in positions:
            low, high = positions[pubend]
            row["behind_s"] = seconds(max(0, high - max(token.get(pubend), low)))
            row["lost_s"] = seconds(max(0, low - token.get(pubend))) if token.get(pubend) else 0.0
        yield row


def seconds(ticks: int) -> float:
    return float((ticks >> PUBEND_BITS) / 1e6)


def shown(row: dict[str, Any]) -> str:
    text = f"{visible(row['pubend'])}  tick={row['tick']}"
    if "behind_s" in row:
        text += f"  behind={row['behind_s']:.1f}s"
        text += f"  LOST={row['lost_s']:.1f}s of the log" if row["lost_s"] else "  lost=0"
    return text
