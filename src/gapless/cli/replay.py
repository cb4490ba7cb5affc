"""`gapless pipeline replay`: what the lake and the log have, as one."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url
from gapless.cli.job import (
    MASTER,
    End,
    LakeOption,
    NoLog,
    SkipLost,
    Start,
    Stopwatch,
    Topic,
    new_folder,
    replay_of,
    session,
    tell,
    token_of,
)
from gapless.cli.terminal import counted, say
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.client.delivery import Gap


def replay(
    topic: Topic,
    condition: Annotated[str, typer.Argument(help="What to read; everything if left out.")] = "",
    lake: LakeOption = None,
    start: Start = "",
    end: End = "",
    gap: Annotated[
        str, typer.Option(metavar="JSON", help="Fill a gap: its line in a journal or in --json.")
    ] = "",
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write Parquet files there, with Spark.")
    ] = None,
    no_log: NoLog = False,
    skip_lost: SkipLost = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="With --out: where Spark runs; else local[*].")
    ] = None,
    url: Url = URL,
) -> None:
    """Read events from the lake, and from the log what the lake does not have yet.

    \b
    gapless pipeline replay trades "price > 90" --lake lake --from '{"trades/0":1234}'
    gapless pipeline replay trades --lake lake --out everything
    gapless pipeline replay trades "price > 90" --lake lake \\
        --gap '{"gap": {"start": 1, "end": 9}, "topic": "trades", "pubend": "trades/0"}'

    Prints events as JSON lines, as `gapless subscribe --journal` writes them. What neither the lake
    nor the log has is an error that names it.
    """
    from gapless.cli.deliveries import show_json
    from gapless.pipelines.replay import fill_gap, plan, replay_events, replay_rows

    if gap and (start or end or out):
        raise UsageError("a gap has a start and an end", "Leave out --from, --to and --out.")
    if master is not None and out is None:
        raise UsageError("--master is for --out", "Give both, or leave it out.")
    job = replay_of(topic, condition, lake, url, no_log=no_log, skip_lost=skip_lost)
    if gap:
        for event in fill_gap(job, read_gap(gap, topic)):
            say(show_json(event))
        return
    planned = plan(job, token_of(start), token_of(end))
    files = len({part.path for part in planned.ranges if part.path})
    ranges = sum(not part.path for part in planned.ranges)
    tell(f"{counted(files, 'file')} of the lake, {counted(ranges, 'range')} of the log")
    if out is None:
        for event in replay_events(job, planned):
            say(show_json(event))
        return
    folder, watch = new_folder(out), Stopwatch()
    with session(master or MASTER) as spark:
        replay_rows(spark, job, planned).write.mode("overwrite").parquet(folder)
        say(f"{counted(spark.read.parquet(folder).count(), 'event')} in {out} ({watch})")


def read_gap(text: str, topic: str) -> Gap:
    from gapless.client.delivery import Gap
    from gapless.core.identity import PubendName, TopicName
    from gapless.core.ticks import Span

    try:
        found = json.loads(text)
        span = Span(int(found["gap"]["start"]), int(found["gap"]["end"]))
        of_topic, pubend = str(found["topic"]), str(found["pubend"])
    except (ValueError, KeyError, TypeError):
        problem = f"{text!r} is no gap"
        raise UsageError(problem, "Give the line that `gapless subscribe --json` had.") from None
    if of_topic != topic:
        raise UsageError(f"the gap is of the topic {of_topic!r}", "Give that topic.")
    return Gap(TopicName(topic), PubendName(pubend), span)
