"""`gapless spark`: where a streaming query stands, by its checkpoint, and how to move it."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.connection import URL, Url, with_credentials
from gapless.cli.job import AsJson, log_of
from gapless.cli.terminal import counted, json_text, say, visible
from gapless.core.errors import UsageError
from gapless.core.ticks import PUBEND_BITS
from gapless.core.token import Token

if TYPE_CHECKING:
    from gapless.sync import Client

spark = typer.Typer(
    name="spark", help="Spark's streaming queries: where each stands.", no_args_is_help=True
)


@spark.callback()
def _spark() -> None:
    """Spark's streaming queries: where each stands, and how to move it."""


def offsets(
    checkpoint: Annotated[Path, typer.Argument(help="The folder checkpointLocation of a query.")],
    offline: Annotated[bool, typer.Option("--offline", help="Ask no broker.")] = False,
    condition: Annotated[
        str, typer.Option("--filter", help="The query's filter, to count what it wants.")
    ] = "",
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PLACE",
            help="Move the query: earliest, latest, a time with its zone, or a token as JSON.",
        ),
    ] = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="With --to: do it. Else it is only shown.")
    ] = False,
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """Show how far a streaming query has read, and what it would lose if it went on now.

    \b
    gapless spark offsets checkpoints/trades
    gapless spark offsets checkpoints/trades --to 2026-11-18T09:00:00+00:00
    gapless spark offsets checkpoints/trades --to latest --yes

    Stop the query before you move it. The exit code is 1 if the broker no longer has what the query
    would read next.
    """
    from gapless.spark.checkpoint import batch_end, last_commit, move
    from gapless.spark.topics import topic_name

    if offline and to:
        raise UsageError("--to needs a broker, which says what would be lost", "No --offline.")
    batch = last_commit(checkpoint)
    token = batch_end(checkpoint, batch)
    rows: list[dict[str, Any]] = [{"pubend": name, "tick": tick} for name, tick in token]
    wanted: Token | None = None
    if not offline:
        rows = []
        for topic in sorted({topic_name(name) for name, _ in token}):
            with log_of(url, topic).connect() as client:
                rows += compare(client, topic, token, condition, to)
        wanted = Token({row["pubend"]: row["to"] for row in rows}) if to else None
    if as_json:
        say(json_text({"batch": batch, "pubends": rows, "moved": bool(yes and wanted)}))
    else:
        say(f"batch {batch} is committed")
        for row in rows:
            say(shown(row))
    if wanted is not None and yes:
        number = move(checkpoint, wanted)
        if not as_json:
            say(f"the query goes on from there: batch {number} says so")
    elif wanted is not None and not as_json:
        say("nothing was changed: add --yes")
    if wanted is None and any(row.get("lost_s") for row in rows):
        raise typer.Exit(1)


spark.command()(with_credentials(offsets))


def compare(
    client: Client, topic: str, token: Token, condition: str, to: str
) -> list[dict[str, Any]]:
    """By pubend of a topic, where the query stands, how far that is behind, and what is lost to it;
    with `to`, also where it would stand, and what it would skip or read again."""
    rows: list[dict[str, Any]] = []
    for pubend, (low, high) in client.positions(topic).items():
        at = token.get(pubend)
        kept = max(at, low)
        row: dict[str, Any] = {"pubend": pubend, "tick": at}
        row["behind_s"] = seconds(max(0, high - kept))
        row["behind_events"] = count(client, topic, pubend, condition, (kept, high))
        row["lost_s"] = seconds(max(0, low - at)) if at else 0.0
        if to:
            row["to"] = goal = place(to, pubend, (low, high), at)
            row["skipped_events"] = count(client, topic, pubend, condition, (kept, goal))
            row["again_events"] = count(client, topic, pubend, condition, (max(goal, low), at))
            row["lost_s"] = seconds(max(0, low - goal))
        rows.append(row)
    return rows


def place(to: str, pubend: str, kept: tuple[int, int], at: int) -> int:
    """The tick at which a pubend is to go on; where a token does not name it, where it stands."""
    low, high = kept
    if to in ("earliest", "latest"):
        return low if to == "earliest" else high
    if to.startswith("{"):
        tick = Token.from_json(to).get(pubend) or at
        if tick > high:
            raise UsageError(f"{pubend} is settled up to {high}, and not up to {tick}", "Go back.")
        return tick
    try:
        time = datetime.fromisoformat(to)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise UsageError(
            f"--to {to!r} is no place",
            'Give earliest, latest, 2026-01-31T12:00:00+00:00, or {"trades/0":1234}.',
        )
    return min(int(time.timestamp() * 1_000_000) << PUBEND_BITS, high)


def count(client: Client, topic: str, pubend: str, condition: str, ticks: tuple[int, int]) -> int:
    """Events that match; those that are gone are not among them."""
    if ticks[0] >= ticks[1]:
        return 0
    start, end = (Token({pubend: tick}) for tick in ticks)
    found = client.count(topic, condition, start=start, end=end, pubends=[pubend])
    return sum(getattr(each, "count", 0) for each in found)


def seconds(ticks: int) -> float:
    return float((ticks >> PUBEND_BITS) / 1e6)


def shown(row: dict[str, Any]) -> str:
    text = f"{visible(row['pubend'])}  tick={row['tick']}"
    if "behind_s" in row:
        text += f"  behind={counted(row['behind_events'], 'event')}, {row['behind_s']:.1f}s"
        text += f"  LOST={row['lost_s']:.1f}s of the log" if row["lost_s"] else "  lost=0"
    if "to" in row:
        text += f"\n    to {row['to']}: skips {counted(row['skipped_events'], 'event')}, reads "
        text += f"{counted(row['again_events'], 'event')} again"
    return text
