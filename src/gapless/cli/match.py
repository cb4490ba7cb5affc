"""`gapless pipeline match`: which subscriptions of a table match which events."""

from __future__ import annotations

import shutil
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url
from gapless.cli.event_file import EventFileTable, is_table, open_file, read_json, utf8_lines
from gapless.cli.job import (
    MASTER,
    AsJson,
    End,
    LakeOption,
    Master,
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
from gapless.cli.terminal import counted, json_text, say, visible
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WANTED = "Give a table with the columns name and condition, which are text."
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
    from gapless.pipelines.match import match_replay
    from gapless.pipelines.replay import plan
    from gapless.pipelines.subscription_table import write_subscriptions

    watch = Stopwatch()
    folder, table = new_folder(out), out.absolute().with_name(f".{out.name}.subscriptions")
    job = replay_of(topic, "", lake, url, no_log=no_log, skip_lost=skip_lost)
    planned = plan(job, token_of(start), token_of(end))
    count, refusals = write_subscriptions(read_table(subscriptions), table)
    for refused in refusals[:SHOWN_MAX]:
        tell(f"refused: {visible(refused.name)}: {refused.reason}")
    tell(f"{counted(count, 'subscription')}, refused: {len(refusals):,}")
    with session(master) as spark:
        matches = match_replay(spark, job, planned, str(table))
        ordered = matches.sortWithinPartitions("subscription", "pubend", "tick")
        ordered.write.mode("overwrite").parquet(folder)
        found = spark.read.parquet(folder).count()
    lines = [json_text(refused._asdict()) + "\n" for refused in refusals]
    (out / "_refused.jsonl").write_text("".join(lines), encoding="utf-8")
    shutil.rmtree(table)
    result = {"subscriptions": count, "refused": len(refusals), "matches": found}
    say(json_text(result) if as_json else f"{counted(found, 'match')} in {out} ({watch})")


def read_table(path: Path) -> Iterator[tuple[str, str]]:
    """Its names and conditions, as they are needed; `UsageError` if it is no such table."""
    if not path.exists():
        raise UsageError(f"there is no {path}", WANTED)
    if path.suffix in (".jsonl", ".json"):
        return _from_json(path)
    return _from_csv(path) if is_table(path) else _from_parquet(path)


def _from_csv(path: Path) -> Iterator[tuple[str, str]]:
    with open_file(path) as file:
        table = EventFileTable(file, "", {"name": "text", "condition": "text"})
        for number, (row, _) in enumerate(table.events(), start=2):
            yield _pair(row, f"row {number} of {path}")


def _from_json(path: Path) -> Iterator[tuple[str, str]]:
    with open_file(path) as file:
        for number, row in read_json(utf8_lines(file)):
            if number == 1 and not {"name", "condition"} <= row.keys():
                raise UsageError(f"{path} has the fields {', '.join(row)}", WANTED)
            yield _pair(row, f"line {number} of {path}")


def _from_parquet(path: Path) -> Iterator[tuple[str, str]]:
    import pyarrow as pa
    import pyarrow.dataset as files

    from gapless.filters.matching.record_batch import is_text

    try:
        found = files.dataset(path, format="parquet")
        for name in ("name", "condition"):
            if name not in found.schema.names:
                raise UsageError(f"{path} has the columns {', '.join(found.schema.names)}", WANTED)
            kind = found.schema.field(name).type
            text = kind.value_type if pa.types.is_dictionary(kind) else kind
            if not is_text(text):
                raise UsageError(f"{path}: the column {name!r} is of type {kind}", WANTED)
        for batch in found.to_batches(columns=["name", "condition"]):
            for row in batch.to_pylist():
                yield _pair(row, str(path))
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"cannot read {path}: {error}", WANTED) from None


def _pair(row: Mapping[str, object], where: str) -> tuple[str, str]:
    name, condition = row.get("name"), row.get("condition")
    for what, given in (("name", name), ("condition", condition)):
        if given is not None and not isinstance(given, str):
            raise UsageError(f"{where}: the {what} is {given!r:.80}, and no text", WANTED)
    if not name:
        raise UsageError(f"{where}: a subscription has no name", WANTED)
    return str(name), str(condition or "")
