"""`gapless demo --matching`: a stock feed against many SQL conditions, checked as it goes."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rich.console import Console

    from gapless.core.events import Attributes
    from gapless.filters.filter import Filter
    from gapless.filters.matcher import Matcher

Result = TypeVar("Result")

SYMBOL_COUNT = 5_000
BATCH_SIZE = 4_096
CHECKED_COUNT = 3
"""How many trades are also matched one condition after the other: that is the slow way."""


def match_feed(subscriptions: int, events: int, seed: int, *, as_json: bool) -> None:
    """Match every trade against all conditions at once, and some the slow way too.

    The slow way is one condition after the other: to show that both agree, and what the index is
    worth.
    """
    from rich.console import Console
    from rich.progress import track

    from gapless.filters.filter import Filter
    from gapless.filters.matcher import Matcher

    console = Console(stderr=as_json, highlight=False)
    dice = random.Random(seed)
    texts = [random_condition(dice) for _ in range(subscriptions)]
    console.print(f"[bold]{subscriptions:,} subscriptions[/], each a SQL condition, such as")
    for text in texts[:3]:
        console.print(f"  {text}", style="cyan")
    begin = time.perf_counter()
    filters, matcher = [], Matcher[int]()
    for number, text in enumerate(track(texts, "adding", console=console, transient=True)):
        filters.append(Filter.parse(text))
        matcher.add(number, filters[-1])
    added = time.perf_counter() - begin

    console.print(f"[bold]{events:,} trades[/], such as")
    feed = [random_trade(dice) for _ in range(events)]
    console.print(f"  {feed[0]}", style="cyan")
    agrees, slow = scan(matcher, filters, feed[:CHECKED_COUNT])
    deliveries, single = timed(lambda: sum(len(matcher.match(trade)) for trade in feed))
    batched_deliveries, batched = match_batches(matcher, feed)
    result = {
        "subscriptions": subscriptions,
        "events": events,
        "deliveries": deliveries,
        "added_per_second": round(subscriptions / added),
        "scan_per_second": round(len(feed[:CHECKED_COUNT]) / slow, 1),
        "single_per_second": round(events / single),
        "batch_per_second": round(events / batched),
        "agrees": agrees and deliveries == batched_deliveries,
        "engine": matcher.statistics()["engine"],
    }
    if as_json:
        typer.echo(json.dumps(result, indent=2))
    else:
        show(console, result)
    if not result["agrees"]:
        typer.echo("gapless: the index and the scan disagree; please report this.", err=True)
        raise typer.Exit(1)


def random_condition(dice: random.Random) -> str:
    text = f"symbol = '{random_symbol(dice)}' AND price > {dice.randint(1, 999) / 10}"
    if dice.random() < 0.5:
        low = dice.randrange(1, 900)
        text += f" AND volume BETWEEN {low} AND {low + dice.randrange(1, 400)}"
    return text


def random_trade(dice: random.Random) -> Attributes:
    return {
        "symbol": random_symbol(dice),
        "price": dice.randint(1, 1000) / 10,
        "volume": dice.randrange(1, 1000),
        "exchange": dice.choice(["NYSE", "NASDAQ", "LSE"]),
    }


def random_symbol(dice: random.Random) -> str:
    """A few symbols are traded a lot and most hardly ever, as in a real market."""
    return f"S{int(SYMBOL_COUNT * dice.random() ** 2):04}"


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    begin = time.perf_counter()
    return work(), time.perf_counter() - begin


def scan(
    matcher: Matcher[int], filters: list[Filter], sample: list[Attributes]
) -> tuple[bool, float]:
    """Match the sample one condition after the other: whether that agrees, and its seconds."""
    for each in filters:
        each.matches(sample[0])  # whatever is made on first use is not part of the figure
    slow, seconds = timed(
        lambda: [[n for n, each in enumerate(filters) if each.matches(trade)] for trade in sample]
    )
    quick = [sorted(matcher.match(trade)) for trade in sample]
    return slow == quick, seconds


def match_batches(matcher: Matcher[int], feed: list[Attributes]) -> tuple[int, float]:
    """Match the feed in Arrow record batches: how many deliveries that makes, and its seconds."""
    import pyarrow as pa

    batches = [
        pa.RecordBatch.from_pylist(feed[start : start + BATCH_SIZE])
        for start in range(0, len(feed), BATCH_SIZE)
    ]
    matcher.match_batch(batches[0])  # whatever is made on first use is not part of the figure
    return timed(lambda: sum(len(matcher.match_batch(batch)) for batch in batches))


def show(console: Console, result: Mapping[str, object]) -> None:
    from rich.table import Table

    table = Table("how", "trades per second", "times faster", title="Matching all conditions")
    slowest = float(str(result["scan_per_second"]))
    for how, name in (
        ("one condition after the other", "scan_per_second"),
        ("index, one trade at a time", "single_per_second"),
        (f"index, Arrow batches of {BATCH_SIZE:,}", "batch_per_second"),
    ):
        figure = float(str(result[name]))
        table.add_row(how, f"{figure:,.{figure < 10:d}f}", f"{figure / slowest:,.0f}")
    console.print(table)
    console.print(
        f"{result['deliveries']:,} deliveries decided; {result['added_per_second']:,} conditions "
        f"parsed and added per second; engine: {result['engine']}"
    )
    if result["agrees"]:
        console.print(
            "The index and the scan agree on every trade that was checked.", style="green"
        )
