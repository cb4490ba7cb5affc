"""Archive query: a topic's log into a lake, as a Structured Streaming query.

Theory of operation
    `format("gapless")` makes micro-batches of the log, and keeps the subscription. Workers write
    the rows of a batch into files aside (`batch_files`); the driver commits them and the next
    manifest as one change (`lake`); only then Spark commits the batch in its checkpoint, and only
    then the source acknowledges it. Spark runs a batch again if it was killed in between: what the
    manifest has already is left out, so that the manifest decides and not the checkpoint.
    What a batch covers lies between two offsets, which Spark has written down before it runs. The
    manifest goes on to the end of them, over silence too: so whatever is released, the lake has.

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
from typing import TYPE_CHECKING

from gapless.core.errors import StorageCorruptError, StorageError
from gapless.core.token import Token
from gapless.pipelines.archive import Limits, Plan, Progress, growing, hold_log, settle
from gapless.pipelines.batch_files import Part, write_part
from gapless.pipelines.lake import Lake, LakeWriter
from gapless.pipelines.manifest import Covered, Manifest
from gapless.spark import register

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from gapless.pipelines.source import Source
    from gapless.pipelines.writing import Written

CHECKPOINT = "_checkpoint"


def start_archive(
    spark: SparkSession,
    source: Source,
    root: str | Path,
    *,
    name: str = "",
    every_s: float | None = None,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    tell: Callable[[Progress], None] = lambda _: None,
) -> StreamingQuery:
    """A query that takes what there is and ends, or goes on, with a batch `every_s` seconds.

    `name` is that of the subscription, `archive-TOPIC` if left out. Of `limits`, `units_max` is not
    used: a batch is what Spark makes of it.
    """
    lake, name = hold_log(source, root, name), name or f"archive-{source.topic}"
    register(spark)
    rows = (
        spark.readStream.format("gapless")
        .options(url=source.url, topic=source.topic, subscription=name, gaps="rows")
        .options(**{key: str(value) for key, value in source.options.items() if value})
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
    limits: Limits
    tell: Callable[[Progress], None]

    def __call__(self, rows: DataFrame, number: int) -> None:
        start, end = batch_range(self.lake.folder / CHECKPOINT, number)
        with LakeWriter(self.lake) as writer:
            manifest = self.lake.manifest()
            check_joined(manifest, start)
            before = {
                pubend: manifest.pubends.get(pubend, Covered(start.get(pubend), start.get(pubend)))
                for pubend in dict(end)
            }
            written = self._write(rows, before, writer.unfinished)
            after = {
                pubend: replace(covered, end=max(covered.end, end.get(pubend)))
                for pubend, covered in before.items()
            }
            plan = Plan([], {**manifest.pubends, **after}, is_last=True)
            new, moves = settle(self.lake, plan, written)
            events = sum(rows for each in written for _, _, _, rows, _ in each.files)
            events -= sum(each.unit.grows.rows for each in written if each.unit.grows is not None)
            self.tell(Progress("written", events, len(moves), new))
            if new != manifest:
                writer.commit(new, moves)
            self.tell(Progress("committed", events, len(moves), new))

    def _write(
        self, rows: DataFrame, before: dict[str, Covered], unfinished: Path
    ) -> list[Written]:
        """A worker takes all rows of a pubend, in order."""
        part = Part(
            self.lake.folder,
            unfinished,
            {pubend: covered.end for pubend, covered in before.items()},
            {pubend: growing(covered, self.limits) for pubend, covered in before.items()},
            self.limits,
        )
        ordered = rows.repartition(len(before), "pubend").sortWithinPartitions("pubend", "tick")
        found = ordered.mapInArrow(partial(write_part, part), "written binary").collect()
        return [pickle.loads(row["written"]) for row in found]


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
    """A file of Spark's offset log: its version, a line about the batch, a line for each source."""
    try:
        version, _, offset = (checkpoint / "offsets" / str(number)).read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        version, offset = f"unknown: {error}", ""
    if version != "v1":
        raise StorageCorruptError(
            f"the checkpoint of the lake has no offset of batch {number} ({version})",
            f"Remove the folder {CHECKPOINT}: the query then begins where the lake ends.",
        )
    return Token.from_json(offset)
