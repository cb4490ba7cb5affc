"""`gapless read`: what is in the log of a topic, from one token to another."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url, connected

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gapless.client.delivery import Gap
    from gapless.client.range import RangeBatch
    from gapless.core.token import Token

NOTHING = (
    "gapless: nothing that is kept matches; an event is kept until every named subscription has "
    "acknowledged it"
)


def read(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    condition: Annotated[str, typer.Argument(help="What to read; everything if left out.")] = "",
    start: Annotated[
        str, typer.Option("--from", metavar="TOKEN", help="Everything below was read before.")
    ] = "",
    end: Annotated[
        str, typer.Option("--to", metavar="TOKEN", help="Read up to there; else up to now.")
    ] = "",
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many events.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    parquet: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a Parquet file instead.")
    ] = None,
    url: Url = URL,
) -> None:
    """Read events that are in the log, without subscribing, and end.

    \b
    gapless read trades "price > 90" --limit 10
    gapless read trades --from '{"trades/0":1234}' --json
    gapless read trades --parquet trades.parquet

    The same tokens give the same events as long as they are retained. What was released is an
    error, never left out in silence.
    """
    import asyncio

    from gapless.core.token import Token

    low = Token.from_json(start) if start else None
    high = Token.from_json(end) if end else None
    asyncio.run(_read(url, topic, condition, (low, high), limit, parquet, as_json=as_json))


async def _read(
    url: str,
    topic: str,
    condition: str,
    bounds: tuple[Token | None, Token | None],
    limit: int | None,
    parquet: Path | None,
    *,
    as_json: bool,
) -> None:
    from gapless.cli.deliveries import show, show_json
    from gapless.client.range import RangeBatch

    start, end = bounds
    async with connected(url) as client:
        batches = client.read(topic, condition, start=start, end=end, limit=limit)
        if parquet is not None:
            count = await _write(batches, parquet)
            typer.echo(f"{count} events in {parquet}", err=True)
            return
        count = 0
        async for batch in batches:
            assert isinstance(batch, RangeBatch)  # a gap raises
            for event in batch.events():
                typer.echo(show_json(event) if as_json else show(event))
            count += len(batch)
        if not count:
            typer.echo(NOTHING, err=True)


async def _write(batches: AsyncIterator[RangeBatch | Gap], path: Path) -> int:
    """Batch by batch, so that memory does not grow with the file; there only once it is whole."""
    from pyarrow.parquet import ParquetWriter

    from gapless.client.columns import SCHEMA
    from gapless.client.range import RangeBatch
    from gapless.core.errors import UsageError

    count, new = 0, path.with_name(f"{path.name}.new")
    try:
        with ParquetWriter(new, SCHEMA, compression="zstd") as writer:
            async for batch in batches:
                if isinstance(batch, RangeBatch) and len(batch):
                    writer.write_batch(batch.to_arrow())
                    count += len(batch)
        new.replace(path)
    except OSError as error:
        problem = f"cannot write {path}: {error.strerror}"
        raise UsageError(problem, "Give a file that can be written.") from None
    finally:
        new.unlink(missing_ok=True)
    return count
