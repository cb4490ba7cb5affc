"""`gapless bench`: what a broker does here, and how soon, as its clients see it."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url
from gapless.cli.terminal import is_terminal, json_text, make_table, say, show_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.cli.load import BenchSummary


def bench(
    seconds: Annotated[float, typer.Option(min=0.1, help="For how many seconds to publish.")] = 5.0,
    subscribers: Annotated[
        int, typer.Option(min=0, max=1_000, help="The number of subscribers.")
    ] = 1,
    share: Annotated[
        float,
        typer.Option(min=0.001, max=1, help="The share of the events that each subscriber wants."),
    ] = 1.0,
    size: Annotated[
        int, typer.Option(min=8, max=1 << 19, help="The size of an event's body in bytes.")
    ] = 250,
    rate: Annotated[
        float, typer.Option(min=0, help="Events a second; 0 is as fast as possible.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    url: Url = URL,
) -> None:
    """Measure the throughput and the latency of a running broker.

    \b
    gapless bench
    gapless bench --subscribers 20 --share 0.1
    gapless bench --rate 200 --seconds 10

    The command creates a topic and deletes it at the end. The publisher and all subscribers run in
    this one process, so with many subscribers you measure this process. Give a rate to measure the
    latency. An event counts once it is on stable storage. The exit code is 1 if a delivery is
    missing or out of order.
    """
    import asyncio
    from dataclasses import asdict

    from gapless.cli.load import PARTS, BenchLoad, measure

    load = BenchLoad(seconds, subscribers, round(share * PARTS), size, rate)
    with telling(seconds) as tell:
        summary = asyncio.run(measure(url, load, tell))
    if as_json:
        say(json_text(asdict(summary)))
    else:
        show(summary)
    if summary.missing or summary.wrong:
        raise typer.Exit(1)


@contextmanager
def telling(seconds: float) -> Iterator[Callable[[float], None]]:
    """Call it with the seconds that have passed, to show them on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("publishing", total=seconds)
        yield lambda passed_s: shown.update(task, completed=passed_s)


def show(summary: BenchSummary) -> None:
    rows = [
        (
            "published, on stable storage",
            f"{summary.published:,}",
            f"{summary.published_per_s:,.0f}",
        ),
        ("delivered", f"{summary.delivered:,}", f"{summary.delivered_per_s:,.0f}"),
        ("missing", f"{summary.missing:,}", ""),
        ("not the next one", f"{summary.wrong:,}", ""),
    ]
    p50, p99 = summary.latency_p50_ms, summary.latency_p99_ms
    if is_terminal():
        table = make_table("events", "", "a second", rows=rows)
        for column in table.columns[1:]:
            column.justify = "right"
        show_table(table)
    else:
        for name, count, per_s in rows:
            say(f"{name}: {count}" + (f", {per_s} a second" if per_s else ""))
    if p50 is not None and p99 is not None:
        say(f"from sending to delivery: {p50:.1f} ms in the middle, 99 % within {p99:.1f} ms")
