"""Archive query: a topic's log into a lake, as a Structured Streaming query.

Theory of operation
    `format("gapless")` makes micro-batches of the log, and keeps the subscription. Workers get the
    rows sorted by pubend and tick, and write them into files (`lake_files`); the driver commits the
    files and the next manifest (`lake`); only then Spark commits the batch in its checkpoint, and
    only then the source acknowledges it. If the query was killed in between, Spark runs the batch
    again; the worker leaves out what the manifest has already. So the manifest decides, and not
    the checkpoint.
    A batch lies between two offsets, which Spark has written down before it runs. The manifest goes
    on to the end of them, over silence too: so whatever is released, the lake has.

Invariants
    I1  acknowledged <= the offset of the last batch that Spark has committed <= the manifest
    I2  a batch that begins beyond the manifest is refused: the lake would have a hole

The checkpoint is in the lake, LAKE/TOPIC/_checkpoint: neither is of use without the other. Without
it the query begins where the manifest ends.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gapless.client.columns import SCHEMA
from gapless.core.errors import StorageCorruptError, StorageError, UsageError
from gapless.core.token import Token
from gapless.pipelines.archive import (
    ArchiveLimits,
    ArchiveProgress,
    agree,
    hold_log,
    settle,
    small_file,
)
from gapless.pipelines.lake import Lake, LakeWriter
from gapless.pipelines.lake_files import FileTask, PubendFiles, WriteResult
from gapless.pipelines.manifest import Coverage, Manifest
from gapless.spark import register
from gapless.spark.checkpoint import batch_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from gapless.pipelines.manifest import LakeFile
    from gapless.pipelines.topic_log import TopicLog

CHECKPOINT = "_checkpoint"


def start_archive(
    spark: SparkSession,
    log: TopicLog,
    root: str | Path,
    *,
    name: str = "",
    every_s: float | None = None,
    limits: ArchiveLimits = ArchiveLimits(),  # noqa: B008 - immutable
    tell: Callable[[ArchiveProgress], None] = lambda _: None,
) -> StreamingQuery:
    """A query that takes what there is and ends, or goes on, with a batch `every_s` seconds.

    `name` is that of the subscription, `archive-TOPIC` if left out. Of `limits`, `file_bytes_max`
    alone is used: a batch is what Spark makes of it.
    """
    lake, name = hold_log(log, root, name), name or f"archive-{log.topic}"
    register(spark)
    rows = (
        spark.readStream.format("gapless")
        .options(url=log.url, topic=log.topic, subscription=name, gaps="rows")
        .options(attributesAs="typed", keepLastBatch="false")  # the manifest decides
        .options(**{key: str(value) for key, value in log.options.items() if value})
        .option("startingOffsets", lake.manifest().token.to_json())
        .load()
    )
    writing = rows.writeStream.foreachBatch(Batches(lake, limits, tell))
    if every_s is None:
        writing = writing.trigger(availableNow=True)
    else:
        writing = writing.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
    return writing.option("checkpointLocation", (lake.folder / CHECKPOINT).as_uri()).start()


@dataclass(frozen=True)
class Batches:
    """What the query does with each batch, in the driver."""

    lake: Lake
    limits: ArchiveLimits
    tell: Callable[[ArchiveProgress], None]

    def __call__(self, rows: DataFrame, number: int) -> None:
        start, end = batch_range(self.lake.folder / CHECKPOINT, number)
        with LakeWriter(self.lake) as writer:
            manifest = self.lake.manifest()
            check_joined(manifest, start)
            before = {
                pubend: manifest.pubends.get(pubend, Coverage(start.get(pubend), start.get(pubend)))
                for pubend in dict(end)
            }
            size_max = self.limits.file_bytes_max
            task = FileTask(self.lake.folder, writer.unfinished, manifest.schema, size_max)
            write = partial(self._write, rows, before)
            results, schema = agree(task, write, sorted(before))
            after = {
                pubend: replace(covered, end=max(covered.end, end.get(pubend)))
                for pubend, covered in before.items()
            }
            covered = {**manifest.pubends, **after}
            new, moves = settle(self.lake, replace(manifest, schema=schema), covered, results)
            events = sum(each.events for each in results)
            self.tell(ArchiveProgress("written", events, len(moves), new))
            if new != manifest:
                new = writer.commit(new, moves)
            self.tell(ArchiveProgress("committed", events, len(moves), new))

    def _write(
        self,
        rows: DataFrame,
        before: Mapping[str, Coverage],
        task: FileTask,
        pubends: Sequence[str],
    ) -> list[WriteResult]:
        """A worker takes all rows of a pubend, in order."""
        task_rows = TaskRows(
            task,
            {pubend: before[pubend].end for pubend in pubends},
            {pubend: small_file(before[pubend], self.limits) for pubend in pubends},
        )
        ordered = rows.repartition(len(pubends), "pubend").sortWithinPartitions("pubend", "tick")
        done = ordered.mapInArrow(partial(write_rows, task_rows), "result binary").collect()
        results = {each.pubend: each for each in (pickle.loads(row["result"]) for row in done)}
        return [results.get(pubend) or WriteResult(pubend, task.schema) for pubend in pubends]


@dataclass(frozen=True, slots=True)
class TaskRows:
    """What the workers of a batch are told: where the lake ends, and which file may grow. Pubends
    that are not among `ends` are left out."""

    task: FileTask
    ends: Mapping[str, int]
    grows: Mapping[str, LakeFile | None]


def write_rows(rows_task: TaskRows, batches: Iterator[Any]) -> Iterator[Any]:
    """A row for each pubend that has come: a pickled `WriteResult`."""
    files: PubendFiles | None = None
    for batch in batches:
        for pubend, rows in by_pubend(batch):
            if pubend not in rows_task.ends:
                continue
            if files is None or files.result.pubend != pubend:
                if files is not None:
                    yield _row(files.close())
                files = PubendFiles(rows_task.task, pubend, rows_task.grows.get(pubend))
            add_rows(files, rows, rows_task.ends[pubend])
    if files is not None:
        yield _row(files.close())


def add_rows(files: PubendFiles, rows: Any, lake_end: int) -> None:
    """The events that the lake does not have; a row that tells of a loss is no event."""
    is_event = rows.column("lost_until").is_null()
    for row in rows.filter(pc.invert(is_event)).select(["tick", "lost_until"]).to_pylist():
        if row["lost_until"] > lake_end:
            files.result.lost.append((max(row["tick"], lake_end), row["lost_until"]))
    is_new = pc.greater_equal(rows.column("tick"), lake_end)
    files.add(rows.filter(pc.and_(is_event, is_new)).select(SCHEMA.names).cast(SCHEMA))


def _row(result: WriteResult) -> Any:
    return pa.record_batch({"result": pa.array([pickle.dumps(result)], pa.binary())})


def by_pubend(batch: Any) -> Iterator[tuple[str, Any]]:
    """A sorted batch, cut where another pubend begins."""
    if not batch.num_rows:
        return
    codes = batch.column("pubend").dictionary_encode().indices.to_numpy()
    cuts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), batch.num_rows]
    for first, end in pairwise(cuts):
        yield batch.column("pubend")[first].as_py(), batch.slice(first, end - first)


def check_joined(manifest: Manifest, start: Token) -> None:
    for pubend, tick in start:
        covered = manifest.pubends.get(pubend)
        if covered is not None and covered.end < tick:
            raise StorageError(
                f"the lake ends at {covered.end} of {pubend}, and its query goes on at {tick}",
                f"Remove the folder {CHECKPOINT} in it: the query then begins where the lake ends.",
            )


def batch_range(checkpoint: Path, number: int) -> tuple[Token, Token]:
    """Where a batch begins and ends, from what Spark wrote down before it ran.

    The first one begins where the manifest ends, which is empty here.
    """
    start = _offset(checkpoint, number - 1) if number else Token()
    return start, _offset(checkpoint, number)


def _offset(checkpoint: Path, number: int) -> Token:
    try:
        return batch_end(checkpoint, number)
    except UsageError as error:
        raise StorageCorruptError(
            f"the checkpoint of the lake has no offset of batch {number}: {error.problem}",
            f"Remove the folder {CHECKPOINT}: the query then begins where the lake ends.",
        ) from None
