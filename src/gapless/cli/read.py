"""`gapless read`: what is in the log of a topic, from one token to another."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url, connected
from gapless.cli.job import SkipLost  # noqa: TC001 - typer reads it
from gapless.cli.terminal import counted, say, screen_width
from gapless.core.errors import UsageError
from gapless.core.identity import Instant

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import datetime

    from gapless.client.client import Client
    from gapless.client.delivery import Gap
    from gapless.client.range_reads import RangeBatch
    from gapless.core.token import Token

NOTHING = (
    "gapless: nothing that is kept matches; an event is kept until every named subscription has "
    "acknowledged it"
)


def read(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    condition: Annotated[str, typer.Argument(help="A SQL condition; without it, all events.")] = "",
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="Where to begin: a token, or a time (ISO 8601). [default: the oldest event]",
        ),
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="PLACE", help="Where to end, likewise. [default: now]")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=1, help="The largest number of events.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Parquet file instead.")
    ] = None,
    skip_lost: SkipLost = False,
    url: Url = URL,
) -> None:
    """Print events of the log, without a subscription.

    \b
    gapless read trades "price > 90" --limit 10
    gapless read trades --from 2026-01-31T12:00:00Z --to 2026-01-31T13:00:00Z
    gapless read trades --from '{"trades/0":1234}' --json
    gapless read trades --parquet trades.parquet

    A time begins with the first event that was published then or later and is still kept; without a
    zone it is a time of this machine. The same tokens give the same events for as long as these are
    retained. If events between tokens were released, the command fails, or with --skip-lost it says
    so on standard error.
    """
    import asyncio

    from gapless.filters.filter import Filter

    if as_json and parquet is not None:
        raise UsageError("--json and --parquet contradict each other", "Leave one of them out.")
    if parquet is not None and (parquet.is_dir() or not parquet.name):
        raise UsageError(f"{parquet} is a folder", "Give a file to write.")
    Filter.parse(condition)
    low, high = (_as_place(option, text) for option, text in (("--from", start), ("--to", end)))

    async def run() -> None:
        async with connected(url) as client:
            first, last = [await _as_token(client, topic, each) for each in (low, high)]
            found = client.read(topic, condition, start=first, end=last, limit=limit, gaps="yield")
            batches = _told(found, skip_lost=skip_lost)
            await (
                _print(batches, as_json=as_json) if parquet is None else _write(batches, parquet)
            )

    asyncio.run(run())


def _as_place(option: str, text: str) -> Token | datetime | None:
    from gapless.cli.subscribe import as_time
    from gapless.core.token import Token

    if not text or text.lstrip().startswith("{"):
        return Token.from_json(text) if text else None
    try:
        return as_time(text)
    except ValueError:
        raise UsageError(
            f"{option} {text!r} is neither a time nor a token",
            "Give a time such as 2026-01-31T12:00:00Z, or a token such as '{\"trades/0\":1234}'.",
        ) from None


async def _as_token(client: Client, topic: str, place: Token | datetime | None) -> Token | None:
    """A time as a token: of each pubend the tick of then, as far as that is kept."""
    from gapless.core.ticks import tick_at
    from gapless.core.timestamps import to_microseconds
    from gapless.core.token import Token

    if place is None or isinstance(place, Token):
        return place
    tick = tick_at(Instant(max(0, to_microseconds(place))), 0)
    positions = await client.positions(topic)
    return Token({name: max(low, min(tick, high)) for name, (low, high) in positions.items()})


async def _told(
    items: AsyncIterator[RangeBatch | Gap], *, skip_lost: bool
) -> AsyncIterator[RangeBatch]:
    """The batches; what is lost is an error, or said."""
    from gapless.client.errors import LostError
    from gapless.client.range_reads import RangeBatch

    async for item in items:
        if isinstance(item, RangeBatch):
            yield item
            continue
        where = f"{item.pubend} [{item.span.start}, {item.span.end})"
        if not skip_lost:
            raise LostError(where, "Give --skip-lost to go on behind it, or a later --from.")
        say(f"gapless: {where} was released and is lost", err=True)


async def _print(batches: AsyncIterator[RangeBatch], *, as_json: bool) -> None:
    from gapless.cli.deliveries import show, show_json

    count = 0
    width = screen_width()
    async for batch in batches:
        for event in batch.events():
            say(show_json(event) if as_json else show(event, width))
        count += len(batch)
    if not count:
        say(NOTHING, err=True)


async def _write(batches: AsyncIterator[RangeBatch], path: Path) -> None:
    """Batch by batch, so that memory does not grow with the file; there only once it is whole."""
    from pyarrow.parquet import ParquetWriter

    from gapless.client.columns import SCHEMA

    count, new = 0, path.with_name(f"{path.name}.new")
    try:
        with ParquetWriter(new, SCHEMA, compression="zstd") as writer:
            async for batch in batches:
                if len(batch):
                    writer.write_batch(batch.to_arrow())
                    count += len(batch)
        new.replace(path)
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror}"
        raise UsageError(problem, "Give a file that can be written.") from None
    finally:
        new.unlink(missing_ok=True)
    say(f"{counted(count, 'event')} in {path}", err=True)
