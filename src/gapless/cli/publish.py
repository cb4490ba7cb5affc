"""`gapless publish`: one event from the command line, or a file of them."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
import time
from contextlib import AsyncExitStack, contextmanager
from datetime import datetime
from itertools import islice
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from gapless.cli.connection import URL, Url, connected
from gapless.cli.event_file import EventFileTable, is_table, json_events, open_file, read_types
from gapless.cli.terminal import json_text, say, visible
from gapless.client.json_values import from_json
from gapless.core.errors import EventError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.client.client import Client
    from gapless.core.events import Attributes, Value

BATCH_EVENTS = 256
BATCH_SIZE = 1 << 20
"""Characters and bytes of the body: well below what one publication may have."""

PACE_S = 0.05
"""Where a rate is given: how much of it goes out at a time."""


def publish(
    topic: Annotated[str, typer.Argument(help="The topic.")],
    attributes: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="The attributes of one event.")
    ] = None,
    body: Annotated[str, typer.Option(help="The body of that event, as text.")] = "",
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Events as JSON lines or .csv; - is standard input."),
    ] = None,
    body_field: Annotated[
        str, typer.Option(metavar="NAME", help="The field of the file that becomes the body.")
    ] = "",
    types: Annotated[
        str,
        typer.Option(
            metavar="NAME=TYPE,…",
            help="The types of .csv columns: bool, int, float, text, timestamp, bytes (in hex).",
        ),
    ] = "",
    name: Annotated[
        str, typer.Option(help="A publisher's name: run again, it publishes nothing twice.")
    ] = "",
    rate: Annotated[
        float, typer.Option(min=0, help="Events a second; 0 is as fast as possible.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    url: Url = URL,
) -> None:
    """Publish one event, or every event of a file; returns when all are on stable storage.

    \b
    gapless publish trades symbol=IBM price=92.5 --body hello
    gapless publish trades --file trades.jsonl --name load-7

    Values are numbers, true, false or text; quote a number to make it text: id='"7"'.
    A column of a .csv file has one type: the narrowest that all its values fit, or that of --types.
    A file published under a name may be interrupted and run again: it goes on where it was.
    """
    import asyncio

    if file is None and not attributes and not body:
        problem = "there is nothing to publish"
        raise UsageError(problem, "Give KEY=VALUE…, --body, or --file; see gapless publish --help.")
    if file is not None and attributes:
        raise UsageError("attributes are for one event", "Leave them out, or --file.")
    if file is None and (name or body_field or rate or types):
        problem = "--name, --body-field, --types and --rate are for the events of a file"
        raise UsageError(problem, "Leave them out, or give --file (-: standard input).")
    if file is not None and types and not is_table(file):
        raise UsageError("--types is for .csv files", "Leave it out: JSON has its types.")
    if file is not None and body:
        raise UsageError("--body is for one event", "Give --body-field with --file.")
    if file is None:
        event = read_pairs(attributes or [])
        with notices_told():
            asyncio.run(publish_one(url, topic, event, os.fsencode(body), as_json=as_json))
        return
    opened = open_file(file)
    with opened:
        if is_table(file):
            events = read_table(opened, body_field, types)
        else:
            events = json_events(opened, body_field)
        with interruption_told(name) as count, progress(opened, count) as tell, notices_told():
            asyncio.run(publish_file(url, topic, events, name, rate, tell, as_json=as_json))


class NoticeLine(logging.Handler):
    """Prints what the client has to say about publications."""

    def emit(self, record: logging.LogRecord) -> None:
        if hasattr(record, "notice"):
            say(f"gapless: {visible(record.getMessage())}", err=True)


@contextmanager
def notices_told() -> Iterator[None]:
    logger, line = logging.getLogger("gapless.client"), NoticeLine()
    logger.addHandler(line)
    try:
        yield
    finally:
        logger.removeHandler(line)


def read_table(file: TextIO, body_field: str, types: str) -> Iterator[tuple[Attributes, bytes]]:
    """The events of a table, which was looked through; which types it has is told."""
    try:
        table = EventFileTable(file, body_field, read_types(types))
    except EventError as fault:
        raise stopped_by(fault, 0, "") from None
    say(f"types: {table.told()}", err=True)
    return table.events()


async def publish_one(
    url: str, topic: str, event: Attributes, body: bytes, *, as_json: bool
) -> None:
    async with connected(url) as client:
        receipt = await client.publish(topic, event, body)
    if as_json:
        say(json_text(receipt._asdict()))
    else:
        tick = f", tick {receipt.tick}" if receipt.tick >= 0 else ""
        say(f"published at {visible(receipt.pubend)}{tick}")


async def publish_file(
    url: str,
    topic: str,
    events: Iterator[tuple[Attributes, bytes]],
    name: str,
    rate: float,
    tell: Callable[[int], None],
    *,
    as_json: bool,
) -> None:
    begin = time.monotonic()
    async with connected(url) as client:
        skipped, count = await send_all(client, topic, events, name, rate, tell)
    seconds = time.monotonic() - begin
    if as_json:
        say(json_text({"published": count, "skipped": skipped, "seconds": seconds}))
    else:
        again = f" ({skipped} were published before)" if skipped else ""
        what = "event" if count == 1 else "events"
        say(f"published {count} {what}{again}, {count / seconds:,.0f} a second")


async def send_all(
    client: Client,
    topic: str,
    events: Iterator[tuple[Attributes, bytes]],
    name: str,
    rate: float,
    tell: Callable[[int], None],
) -> tuple[int, int]:
    """How many were skipped because they were published before, and how many were not."""
    import asyncio

    begin = time.monotonic()
    skipped = count = 0
    faults: list[EventError] = []
    readable = until_fault(events, faults)
    batch_size = max(1, min(BATCH_EVENTS, int(rate * PACE_S))) if rate else BATCH_EVENTS
    async with AsyncExitStack() as stack:
        publisher = None
        if name:
            publisher = await stack.enter_async_context(client.publisher(topic, name=name))
            skipped = sum(1 for _ in islice(readable, publisher.sequence))
        while batch := take(readable, batch_size):
            if publisher is not None:
                await publisher.send_many(batch)
            else:
                await client.publish_many(topic, batch)
            count += len(batch)
            tell(len(batch))
            if rate:
                await asyncio.sleep(max(0.0, begin + count / rate - time.monotonic()))
    if faults:
        raise stopped_by(faults[0], skipped + count, name)
    return skipped, count


def until_fault(
    events: Iterator[tuple[Attributes, bytes]], faults: list[EventError]
) -> Iterator[tuple[Attributes, bytes]]:
    """All before the first line that is no event; what is wrong with that one goes to `faults`."""
    try:
        yield from events
    except EventError as error:
        faults.append(error)


def stopped_by(fault: EventError, before: int, name: str) -> EventError:
    """How far a file went, and how to go on without publishing anything twice."""
    if not before:
        return EventError(f"{fault.problem}; nothing is published", fault.remedy)
    what = "1 event" if before == 1 else f"{before} events"
    problem = f"{fault.problem}; what stands before it, {what}, is published"
    again = "again: it goes on there" if name else "with the lines from there on"
    return EventError(problem, f"{fault.remedy} Then run this {again}.")


def take(
    events: Iterator[tuple[Attributes, bytes]], count_max: int
) -> list[tuple[Attributes, bytes]]:
    """The next events: so many, or fewer that are large enough together."""
    batch: list[tuple[Attributes, bytes]] = []
    size = 0
    for attributes, body in islice(events, count_max):
        batch.append((attributes, body))
        texts = (value for value in attributes.values() if isinstance(value, str | bytes))
        size += len(body) + sum(map(len, texts)) + sum(map(len, attributes))
        if size >= BATCH_SIZE:
            break
    return batch


@contextmanager
def interruption_told(name: str) -> Iterator[Callable[[int], None]]:
    """Call it with the number of events that went out: Ctrl-C leaves nobody guessing."""
    published = 0

    def count(more: int) -> None:
        nonlocal published
        published += more

    try:
        yield count
    except KeyboardInterrupt:
        told = "run it again: it goes on where it was" if name else f"{published} are published"
        say(f"gapless: interrupted; {told}", err=True)
        raise


@contextmanager
def progress(file: TextIO, also: Callable[[int], None]) -> Iterator[Callable[[int], None]]:
    """The same on a terminal, to show how far it is; `also` is told in any case."""
    if not sys.stderr.isatty():
        yield also
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.fields[events]:,} events, {task.fields[rate]:,.0f} a second"),
        TimeElapsedColumn(),
    )
    begin_s, count = time.monotonic(), 0
    is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        total = os.fstat(file.fileno()).st_size if is_file else None
        task = shown.add_task("", total=total, events=0, rate=0.0)

        def tell(more: int) -> None:
            nonlocal count
            count += more
            also(more)
            rate = count / max(1e-9, time.monotonic() - begin_s)
            read_bytes = file.buffer.tell() if is_file else 0
            shown.update(task, completed=read_bytes, events=count, rate=rate)

        yield tell


def read_pairs(pairs: list[str]) -> Attributes:
    found: Attributes = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair!r} is no attribute", "Write KEY=VALUE, such as price=92.5.")
        if key in found:
            raise UsageError(f"{key!r} is there twice", "Give each attribute one value.")
        found[key] = read_value(value)
    return found


def read_value(text: str) -> Value:
    """A number, true, false, or text; JSON where it is JSON, and TIMESTAMP '…' and X'…' as in
    conditions."""
    from gapless.filters.lexer import MARKED, tokenise

    if MARKED.fullmatch(text):
        return tokenise(text)[1][0]
    try:
        value = from_json({"": json.loads(text)})[""]
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str | datetime | bytes) else text
