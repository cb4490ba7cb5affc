"""`gapless demo`: a stock feed, brokers that are killed, and an account of each subscriber."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gapless_lab.demo.story import Story


def demo(
    seconds: Annotated[
        float, typer.Option(min=5, max=3600, help="How long the feed runs; the rest takes a few.")
    ] = 40,
    seed: Annotated[int, typer.Option(help="The same seed gives the same feed.")] = 1,
    keep_data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep data and logs of the brokers here: a new one."),
    ] = None,
    no_spark: Annotated[
        bool, typer.Option("--no-spark", help="Without the lake that Spark fills, and the audit.")
    ] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep brokers and console afterwards, until Ctrl-C.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    matching: Annotated[
        bool,
        typer.Option("--matching", help="Instead: match a feed against many conditions, timed."),
    ] = False,
    subscriptions: Annotated[
        int, typer.Option(min=1, max=2_000_000, help="With --matching: how many conditions.")
    ] = 100_000,
    events: Annotated[
        int, typer.Option(min=1, max=10_000_000, help="With --matching: how many trades.")
    ] = 50_000,
) -> None:
    """Run five brokers and kill two of them; show that no subscriber misses anything.

    Each broker is a process: one hosts the feed, two relay it, two host subscribers. One of four
    subscribers leaves and returns; a relay, then a broker of subscribers, are killed with -9 and
    started again. A fifth is a Spark query that archives the feed into Parquet files; its driver is
    killed, too. At the end each subscriber's events are compared with what was published, and Spark
    audits the journals of all. The exit code is 1 if a promise is broken.

    A line says where the console is: open it in a browser. With --stay the network goes on after
    the result, so that you can kill brokers yourself and watch them come back.
    """
    if matching:
        from gapless_lab.demo.matching import match_feed

        match_feed(subscriptions, events, seed, as_json=as_json)
        return
    import asyncio

    from gapless.cli.soak import empty_folder
    from gapless_lab.demo.story import Story
    from gapless_lab.demo.view import make_view

    folder = empty_folder(keep_data) if keep_data else None
    story = Story(seed, seconds, folder, has_spark=not no_spark)

    async def run() -> bool:
        async with story:
            with make_view(story, quiet=as_json) as view:
                await story.play(view.tell)
            if as_json:
                typer.echo(json.dumps(result(story), indent=2))
            else:
                view.show_result()
            is_right = story.is_right  # journals are not kept while it stays
            if stay:
                await story.stay(lambda happening: typer.echo(happening, err=as_json))
            return is_right

    if not asyncio.run(run()):
        raise typer.Exit(1)


def result(story: Story) -> dict[str, Any]:
    conditions = {desk.name: desk.condition for desk in story.desks}
    return {
        "seed": story.seed,
        "published": len(story.feed.trades),
        "killed": story.killed,
        "subscribers": {
            name: {"condition": conditions.get(name, ""), **account._asdict()}
            for name, account in story.accounts().items()
        },
        "audit": [{**asdict(each), "ok": each.is_clean} for each in story.verdicts],
        "right": story.is_right,
    }
