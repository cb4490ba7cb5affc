"""`gapless pipeline audit`: did every subscription get what it should? Exit code 1 if not."""

from __future__ import annotations

import shutil
import sys
import tomllib
from dataclasses import asdict, fields
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.connection import URL, Url
from gapless.cli.job import (
    MASTER,
    AsJson,
    LakeOption,
    Master,
    NoLog,
    Topic,
    new_folder,
    replay_of,
    session,
)
from gapless.cli.terminal import add_row, json_text, make_table, say, show_table, visible
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from rich.table import Table

    from gapless.pipelines.audit import AuditedSubscription
    from gapless.pipelines.verdict import Verdict

WORDS = {True: "ok", False: "VIOLATED"}
SHOWN = ("expected", "delivered", "lost", "doubled", "reordered", "unwanted")


def audit(
    topic: Topic,
    subscriptions: Annotated[
        Path, typer.Argument(help="TOML: [[subscription]] with name, condition, journals.")
    ],
    lake: LakeOption = None,
    published: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="What was published, as JSON lines; else lake and log."),
    ] = None,
    details: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write each violation there, as Parquet.")
    ] = None,
    work: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A cluster: a folder that all see.")
    ] = None,
    no_log: NoLog = False,
    as_json: AsJson = False,
    master: Master = MASTER,
    url: Url = URL,
) -> None:
    """Compare subscribers' journals with what was published: once, in order, without a gap?

    \b
    gapless pipeline audit trades audit.toml --lake lake
    gapless pipeline audit trades audit.toml --published sent.jsonl --details violations

    A subscription in the file has a name, a condition and journals (of `gapless subscribe
    --journal`); start (a token, "earliest" or "first"), end (a token, "latest" or "last") and
    total = true if they are not the defaults. The exit code is 1 if there is a violation.
    """
    from gapless.pipelines.audit import audit as judge
    from gapless.pipelines.replay import plan

    if published and (lake is not None or no_log):
        problem = "--published says what there was, and --lake or --no-log where to look"
        raise UsageError(problem, "Leave one of them out.")
    wanted = read_subscriptions(subscriptions)
    folder = new_folder(details) if details is not None else ""
    scratch = Path(mkdtemp(prefix="gapless-audit-", dir=work))
    try:
        with session(master) as spark:
            if published:
                findings = judge(spark, from_files(spark, published), wanted, scratch)
            else:
                job = replay_of(topic, "", lake, url, no_log=no_log, skip_lost=True)
                findings = judge(spark, (job, plan(job)), wanted, scratch)
            if folder:
                findings.details.write.mode("overwrite").parquet(folder)
            findings.close()
    finally:
        shutil.rmtree(scratch)
    if as_json:
        for verdict in findings.verdicts:
            say(json_text({**asdict(verdict), "ok": verdict.is_clean}))
    else:
        show(findings.verdicts)
    if not findings.is_clean:
        raise typer.Exit(1)


def from_files(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    from gapless.pipelines.journals import read_published

    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no {path}", "Give files of published events.")
    return read_published(spark, [str(path.absolute()) for path in paths])


def read_subscriptions(path: Path) -> list[AuditedSubscription]:
    """Journals are found from where the file is."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        problem = f"cannot read {path}: {error}"
        raise UsageError(problem, "Give a TOML file of subscriptions.") from None
    listed = found.get("subscription")
    if not isinstance(listed, list) or not listed:
        raise UsageError(f"{path} lists no [[subscription]]", "See gapless pipeline audit --help.")
    return [read_subscription(each, path) for each in listed]


def read_subscription(found: dict[str, Any], path: Path) -> AuditedSubscription:
    from gapless.pipelines.audit import AuditedSubscription

    name, known = str(found.get("name", "")), {field.name for field in fields(AuditedSubscription)}
    unknown = sorted(found.keys() - known)
    if unknown or not name:
        problem = f"{path}: a subscription has no name" if not name else f"{name}: {unknown[0]!r}?"
        raise UsageError(problem, f"A subscription has {', '.join(sorted(known))}.")
    journals = tuple(str((path.parent / each).absolute()) for each in found.get("journals", ()))
    for journal in journals:
        if not Path(journal).exists():
            raise UsageError(f"{name}: there is no {journal}", "Give the journals that it wrote.")
    start = _bound(name, found.get("start", "earliest"), ("earliest", "first"))
    end = _bound(name, found.get("end", "latest"), ("latest", "last"))
    condition, total = str(found.get("condition", "")), bool(found.get("total", False))
    return AuditedSubscription(name, condition, journals, start, end, total)


def _bound(name: str, given: Any, words: tuple[str, str]) -> Any:
    """A token, as JSON text or as a TOML table, or one of the words."""
    from gapless.core.token import Token

    if given in words:
        return given
    if isinstance(given, dict):
        return Token(given)
    if str(given).lstrip().startswith("{"):
        return Token.from_json(str(given))
    raise UsageError(f"{name}: {given!r} is no bound", f"Use a token, or {' or '.join(words)}.")


def show(verdicts: Sequence[Verdict]) -> None:
    """A table on a terminal, lines elsewhere."""
    if not sys.stdout.isatty():
        for line in verdict_lines(verdicts):
            say(line)
        return
    show_table(verdict_table(verdicts))


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    names = shown_columns(verdicts)
    return [
        f"{visible(each.subscription)}  {WORDS[each.is_clean]}  "
        + "  ".join(f"{name}={getattr(each, name)}" for name in names)
        for each in verdicts
    ]


def verdict_table(verdicts: Sequence[Verdict], title: str | None = None) -> Table:
    from rich.text import Text

    names = shown_columns(verdicts)
    table = make_table("subscriber", *names, "", title=title, pad_edge=False)
    for column in table.columns[1:-1]:
        column.justify = "right"
    for each in verdicts:
        figures = [f"{getattr(each, name):,}" for name in names]
        verdict = "ok" if each.is_clean else Text("NO", "bold red")
        add_row(table, [each.subscription, *figures, verdict])
    return table


def shown_columns(verdicts: Sequence[Verdict]) -> list[str]:
    """Some always; others where there is a count."""
    return [
        name
        for name in asdict(verdicts[0])
        if name in SHOWN or (name != "subscription" and any(getattr(v, name) for v in verdicts))
    ]
