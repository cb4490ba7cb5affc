"""`gapless pipeline archive`: a topic's log into a lake of Parquet files."""

from __future__ import annotations

import time
from contextlib import ExitStack
from enum import Enum
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url
from gapless.cli.job import (
    MASTER,
    AsJson,
    Stopwatch,
    Topic,
    log_of,
    progress_bar,
    session,
    tell,
)
from gapless.cli.terminal import counted, json_text, say
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from gapless.pipelines.archive import ArchiveLimits, ArchiveProgress, SliceRunner
    from gapless.pipelines.table_archive import TableProgress
    from gapless.pipelines.topic_log import TopicLog

EVERY_S = 30.0


class TableFormat(Enum):
    """What an archive makes of a log."""

    lake = "lake"
    delta = "delta"
    iceberg = "iceberg"


def archive(
    topic: Topic,
    lake: Annotated[Path, typer.Argument(help="The folder of the lake; made if it is new.")],
    follow: Annotated[bool, typer.Option(help="Go on with what comes, until Ctrl-C.")] = False,
    every: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="With --follow: how often; else 30."),
    ] = None,
    name: Annotated[
        str, typer.Option(help="The subscription that holds the log; else archive-TOPIC.")
    ] = "",
    slice_seconds: Annotated[
        int, typer.Option(min=1, help="What one worker takes at most; a whole part of an hour.")
    ] = 3600,
    file_mb: Annotated[int, typer.Option(min=1, help="Files grow up to this size.")] = 128,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Spread over Spark's workers; else done right here.")
    ] = "",
    stream: Annotated[
        bool, typer.Option("--stream", help="As a Structured Streaming query, on --master.")
    ] = False,
    table_format: Annotated[
        TableFormat, typer.Option("--format", help="A lake of Parquet files, or a table.")
    ] = TableFormat.lake,
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """Move what is in the log of a topic into Parquet files, each event once.

    \b
    gapless pipeline archive trades lake
    gapless pipeline archive trades lake --follow --every 60
    gapless pipeline archive trades lake --slice-seconds 600 --master local[*]
    gapless pipeline archive trades lake --stream --follow --every 5
    gapless pipeline archive trades table --format delta --master local[*]

    Files are in lake/TOPIC/data, by date and hour, with one column for each attribute. A named
    subscription holds the log until the files are on stable storage. Run it again, also after a
    kill: it goes on where it was.
    """
    from gapless.pipelines.archive import ArchiveLimits
    from gapless.pipelines.spark_tasks import SparkRunner, run_locally

    if every is not None and not follow:
        raise UsageError("--every is for --follow", "Give both, or leave it out.")
    if table_format is not TableFormat.lake and stream:
        problem = f"--stream makes a lake, not a table of {table_format.value}"
        raise UsageError(problem, "Leave out --stream; --master spreads the work over Spark.")
    every, watch = every or EVERY_S, Stopwatch()
    limits = ArchiveLimits(file_mb << 20, slice_seconds * 1_000_000)
    with ExitStack() as stack:
        master = master or (MASTER if stream else "")
        spark = stack.enter_context(session(master)) if master else None
        run: SliceRunner = run_locally if spark is None else SparkRunner(spark)
        job = Job(log_of(url, topic), lake, name, run, limits, table_format)
        if stream and spark is not None:
            job.stream(spark, every if follow else None)
        else:
            job.once()
        while follow and not stream:
            time.sleep(every)
            job.once_more()
    if as_json:
        say(json_text({"events": job.events, "token": dict(job.token)}))
    else:
        verb = "was" if job.events == 1 else "were"
        files = f", {counted(job.files, 'file')}" if job.files else ""
        say(f"{counted(job.events, 'event')} {verb} moved to {lake} ({watch}{files})")


class Job:
    """All rounds of one command."""

    def __init__(
        self,
        log: TopicLog,
        lake: Path,
        name: str,
        run: SliceRunner,
        limits: ArchiveLimits,
        table_format: TableFormat = TableFormat.lake,
    ) -> None:
        self.events = self.files = 0
        self._advance: Callable[[int], None] = lambda _: None
        self.token: dict[str, int] = {}
        self._log, self._lake, self._name = log, lake, name
        self._run, self._limits, self._table_format = run, limits, table_format

    def once(self) -> None:
        if self._table_format is not TableFormat.lake:
            self._once_into_table()
            return
        from gapless.pipelines.archive import archive as move
        from gapless.pipelines.lake import Lake

        options = {"name": self._name, "run": self._run, "limits": self._limits}
        before = Lake(self._lake, self._log.topic).manifest().token
        with progress_bar(self._log, before) as self._advance:
            move(self._log, self._lake, tell=self._tell, **options)  # type: ignore[arg-type]

    def _once_into_table(self) -> None:
        from gapless.pipelines.spark_tasks import run_locally
        from gapless.pipelines.table_archive import (
            DeltaEvents,
            IcebergEvents,
            archive_table,
            archive_table_by,
        )

        is_delta = self._table_format is TableFormat.delta
        table = (DeltaEvents if is_delta else IcebergEvents)(self._lake, self._log.topic)
        name = self._name or f"archive-{self._log.topic}-{self._table_format.value}"
        if self._run is run_locally:
            archive_table(self._log, table, name, self._tell_table)
        else:
            archive_table_by(self._run, self._log, table, name, self._limits, self._tell_table)

    def _tell_table(self, progress: TableProgress) -> None:
        self.token, self.events = dict(progress.token), self.events + progress.events
        lost = f"; lost before: {counted(len(progress.lost), 'range')}" if progress.lost else ""
        tell(f"{counted(progress.events, 'event')} in a commit{lost}")

    def stream(self, spark: SparkSession, every_s: float | None) -> None:
        """A query: until it has what there is, or until Ctrl-C.

        Over Spark Connect its batches are told elsewhere; so what was moved is seen in the lake.
        """
        from gapless.pipelines.archive_query import start_archive
        from gapless.pipelines.lake import Lake

        lake = Lake(self._lake, self._log.topic)
        before = lake.manifest().rows
        given = {"name": self._name, "limits": self._limits, "every_s": every_s}
        query = start_archive(spark, self._log, self._lake, tell=show, **given)  # type: ignore[arg-type]
        try:
            query.awaitTermination()
        finally:
            query.stop()
            manifest = lake.manifest()
            self.events, self.token = manifest.rows - before, dict(manifest.token)

    def once_more(self) -> None:
        """A broker that is away is no reason to stop: what is there stays there."""
        from gapless.client.errors import LinkError

        try:
            self.once()
        except LinkError as error:
            tell(f"archive: {error}")

    def _tell(self, progress: ArchiveProgress) -> None:
        self.token = dict(progress.manifest.token)
        if progress.stage == "committed":
            self.events, self.files = self.events + progress.events, self.files + progress.files
            self._advance(progress.events)
        show(progress)


def show(progress: ArchiveProgress) -> None:
    if progress.stage == "committed" and progress.events:
        lost = sum(len(each.lost) for each in progress.manifest.pubends.values())
        note = f"; lost before: {counted(lost, 'range')} of the log" if lost else ""
        files = counted(progress.files, "file")
        tell(f"{counted(progress.events, 'event')} in {files}{note}")
