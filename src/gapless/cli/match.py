"""`gapless pipeline match`: which subscriptions of a table match which events."""

from __future__ import annotations

import json
import shutil
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url
from gapless.cli.job import (
    MASTER,
    AsJson,
    End,
    LakeOption,
    Master,
    NoLog,
    SkipLost,
    Start,
    Topic,
    new_folder,
    replay_of,
    session,
    tell,
    token_of,
)
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SHOWN_MAX = 10
"""Refused subscriptions that are shown; the file has all of them."""


def match(
    topic: Topic,
    subscriptions: Annotated[
        Path, typer.Argument(help="A table of name and condition: .parquet, .csv or .jsonl.")
    ],
    out: Annotated[Path, typer.Argument(help="A new folder for the matches, as Parquet files.")],
    lake: LakeOption = None,
    start: Start = "",
    end: End = "",
    no_log: NoLog = False,
    skip_lost: SkipLost = False,
    as_json: AsJson = False,
    master: Master = MASTER,
    url: Url = URL,
) -> None:
    """Match events with a table of subscriptions: rows of subscription, pubend and tick.

    \b
    gapless pipeline match trades subscriptions.parquet matches --lake lake

    This is the history of each subscription. A condition that is refused is reported and left out;
    the folder's _refused.jsonl has them all. On a cluster the folder must be one that all see.
    """
    from gapless.pipelines.audience import write_audience
    from gapless.pipelines.match import match_replay
    from gapless.pipelines.replay import plan

    job = replay_of(topic, "", lake, url, no_log=no_log, skip_lost=skip_lost)
    folder, audience = new_folder(out), out.absolute().with_name(f".{out.name}.audience")
    pieces = plan(job, token_of(start), token_of(end))
    with session(master) as spark:
        count, refusals = write_audience(read_table(spark, subscriptions), audience)
        for refused in refusals[:SHOWN_MAX]:
            tell(f"refused: {refused.name}: {refused.reason}")
        tell(f"{count:,} subscriptions, {len(refusals):,} were refused")
        matches = match_replay(spark, job, pieces, str(audience))
        ordered = matches.sortWithinPartitions("subscription", "pubend", "tick")
        ordered.write.mode("overwrite").parquet(folder)
        found = spark.read.parquet(folder).count()
    lines = [json.dumps(refused._asdict()) + "\n" for refused in refusals]
    (out / "_refused.jsonl").write_text("".join(lines), encoding="utf-8")
    shutil.rmtree(audience)
    result = {"subscriptions": count, "refused": len(refusals), "matches": found}
    typer.echo(json.dumps(result) if as_json else f"{found:,} matches in {out}")


def read_table(spark: SparkSession, path: Path) -> Iterator[tuple[str, str]]:
    """Its names and conditions, a batch at a time."""
    if not path.exists():
        raise UsageError(f"there is no {path}", "Give a table of name and condition.")
    reader, name = spark.read, str(path.absolute())
    if path.suffix in (".jsonl", ".json"):
        table = reader.json(name)
    else:
        table = reader.csv(name, header=True) if path.suffix == ".csv" else reader.parquet(name)
    if not {"name", "condition"} <= set(table.columns):
        problem = f"{path} has the columns {', '.join(table.columns)}"
        raise UsageError(problem, "Give a table with the columns name and condition.")
    for batch in table.select("name", "condition").toArrow().to_batches():
        conditions = batch.column("condition").to_pylist()
        for one, condition in zip(batch.column("name").to_pylist(), conditions, strict=True):
            yield str(one), condition or ""
