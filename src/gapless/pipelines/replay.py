"""Replay: the events between two tokens, from the lake and the log as if they were one.

Theory of operation
    The manifest says what the lake has; the rest is in the log, which the archive's subscription
    holds until the lake has it. So a plan cuts each pubend's ticks into ranges that follow each
    other: row groups of the lake's files, and ranges of the log. Every range is read by itself, on
    any worker, with the condition.
    The archive may go on between plan and reading. A file that was replaced is gone then; what was
    released from the log is in the lake by then. A reader that finds its file or the beginning of
    its range gone looks the rest up in the newest manifest.

Invariants
    I1  the ranges of a pubend follow each other, from start to end, without overlap; what is
        between them has no events, or is lost
    I2  what neither has is a `LostError` that names it, or is left out if that is asked for
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from gapless.client.delivery import Gap
from gapless.client.errors import LostError
from gapless.core.errors import StorageMissingError, UsageError
from gapless.core.events import Event
from gapless.core.identity import PubendName, PublisherName, TopicName
from gapless.core.ticks import Tick
from gapless.core.token import Token
from gapless.filters.matcher import Matcher
from gapless.pipelines.lake_files import read_file
from gapless.pipelines.lake_schema import (
    MAPS,
    LakeSchema,
    attributes_of_rows,
    complete,
    match_rows,
    to_lake,
)
from gapless.pipelines.spark_tasks import map_items, task_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from gapless.pipelines.lake import Lake
    from gapless.pipelines.manifest import Coverage, LakeFile, Manifest
    from gapless.pipelines.topic_log import TopicLog

Lost = Literal["raise", "skip"]

RANGE_BYTES = 4 << 20
"""Bytes of a file that one range has at least: row groups that are smaller are read together."""

LOG_BYTES = 32 << 20
"""What a range of the log counts when tasks are planned: its size is known when it is read."""

EVENT_COLUMNS = ["topic", "pubend", "tick", "publisher", "sequence", "body"]
COMPILED_EVENTS = 50_000
"""Events from which on a range compiles its condition: that takes a second."""

REMEDY = "Replay from later on, or ask for what is lost to be left out."


@dataclass(frozen=True, slots=True)
class ReplayRange:
    """The ticks [start, end) of a pubend: of a file of the lake, or (no path) of the log.

    `bytes` is about what it takes in the file.
    """

    pubend: str
    start: int
    end: int
    path: str = ""
    bytes: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Replay:
    """Where to read: a lake, a log, or both; and what of it."""

    lake: Lake | None
    log: TopicLog | None
    condition: str = ""
    lost: Lost = "raise"


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What is read, what neither the lake nor the log has, and the ticks of each pubend."""

    ranges: list[ReplayRange]
    lost: list[ReplayRange]
    extents: dict[str, tuple[int, int]] = field(default_factory=dict)
    schema: LakeSchema = field(default_factory=LakeSchema)

    @property
    def tasks(self) -> int:
        """In how many tasks it should be read."""
        return task_count(sum(each.bytes if each.path else LOG_BYTES for each in self.ranges))

    def whole(self) -> dict[str, tuple[int, int]]:
        """By pubend, ticks of which nothing is lost: all, or those behind the last loss."""
        whole = dict(self.extents)
        for each in self.lost:
            low, high = whole[each.pubend]
            whole[each.pubend] = (max(low, each.end), high)
        return whole


def plan(replay: Replay, start: Token | None = None, end: Token | None = None) -> ReplayPlan:
    """From a token to another; by default from the oldest event to what is settled now."""
    manifest = _manifest(replay)
    positions: dict[str, tuple[int, int]] = {}
    if replay.log is not None:
        with replay.log.connect() as client:
            positions = client.positions(replay.log.topic)
    found = ReplayPlan([], [], schema=manifest.schema if manifest is not None else LakeSchema())
    for pubend in sorted({*positions, *(manifest.pubends if manifest is not None else ())}):
        covered = manifest.pubends.get(pubend) if manifest is not None else None
        extents = [positions[pubend]] if pubend in positions else []
        extents += [(covered.start, covered.end)] if covered is not None else []
        oldest, settled = min(low for low, _ in extents), max(high for _, high in extents)
        low = oldest if start is None else start.get(pubend)
        high = settled if end is None else end.get(pubend)
        if high > settled:
            problem = f"{pubend!r} is settled up to {settled}, and not up to {high}"
            raise UsageError(problem, "Give an end that a subscription or `positions` has given.")
        found.extents[pubend] = (low, high)
        add_ranges(found, pubend, (low, high), covered, has_log=pubend in positions)
    return found


def _manifest(replay: Replay) -> Manifest | None:
    return replay.lake.manifest() if replay.lake is not None else None


def add_ranges(
    found: ReplayPlan,
    pubend: str,
    ticks: tuple[int, int],
    covered: Coverage | None,
    *,
    has_log: bool,
) -> None:
    """What of these ticks is in the lake, and the rest from the log, if there is one."""
    low, high = ticks
    outside = found.ranges if has_log else found.lost
    seam_low = seam_high = low
    if covered is not None and max(low, covered.start) < min(high, covered.end):
        seam_low, seam_high = max(low, covered.start), min(high, covered.end)
        if low < seam_low:
            outside.append(ReplayRange(pubend, low, seam_low))
        for file in covered.files:
            found.ranges.extend(file_ranges(pubend, file, low, high))
        lost = covered.lost_within(seam_low, seam_high)
        found.lost.extend(ReplayRange(pubend, first, last) for first, last in lost)
    if seam_high < high:
        outside.append(ReplayRange(pubend, seam_high, high))


def file_ranges(pubend: str, file: LakeFile, low: int, high: int) -> Iterator[ReplayRange]:
    """A file's part of [low, high), cut between row groups, so that several workers share it."""
    groups = max(1, len(file.groups))
    step = max(1, -(-RANGE_BYTES * groups // max(1, file.bytes)))  # row groups of one range
    cuts = [file.start, *file.groups[step::step], file.end]
    for first, last in pairwise(cuts):
        first, last = max(first, low), min(last, high)
        if first < last:
            size = file.bytes * min(step, groups) // groups
            yield ReplayRange(pubend, first, last, file.path, size)


def check_lost(replay: Replay, planned: ReplayPlan) -> None:
    if planned.lost and replay.lost == "raise":
        first = planned.lost[0]
        raise LostError(f"{first.pubend} [{first.start}, {first.end})", REMEDY)


# --- reading --------------------------------------------------------------------------------------


def replay_rows(spark: SparkSession, replay: Replay, planned: ReplayPlan) -> DataFrame:
    """A DataFrame with the columns of the lake; rows of a pubend come in order of ticks.

    What comes from the log has the same columns. Attributes without a column in the lake are in
    `other_attributes`.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    check_lost(replay, planned)
    fields = [each.with_nullable(True) for each in planned.schema.to_arrow(has_others=True)]
    arrow = pa.schema([each.remove_metadata() for each in fields])
    work = partial(_rows, replay, planned.schema, arrow)
    return map_items(spark, work, planned.ranges, from_arrow_schema(arrow), planned.tasks)


def _rows(replay: Replay, schema: LakeSchema, arrow: pa.Schema, part: ReplayRange) -> Iterator[Any]:
    for batch in read_range(replay, part):
        if MAPS in batch.schema.names:
            table, _ = to_lake([batch], schema, grow=False)
        else:
            table = pa.Table.from_batches([batch])
        columns = dict(zip(table.schema.names, table.columns, strict=True))
        plain = {
            each.name: columns[each.name].cast(each.type) for each in arrow if each.name in columns
        }
        yield from complete(plain, len(table), arrow).to_batches()


def replay_events(replay: Replay, planned: ReplayPlan) -> Iterator[Event]:
    """One by one in this process, pubend by pubend, in order."""
    check_lost(replay, planned)
    for part in planned.ranges:
        for batch in read_range(replay, part):
            yield from events_of(batch)


def events_of(batch: Any) -> Iterator[Event]:
    """The events of a batch in the lake's form, or with attributes as maps."""
    rows = batch.select(EVENT_COLUMNS).to_pylist()
    for row, attributes in zip(rows, attributes_of_rows(batch), strict=True):
        publisher = row["publisher"]
        yield Event(
            attributes,
            row["body"],
            TopicName(row["topic"]),
            PubendName(row["pubend"]),
            Tick(row["tick"]),
            None if publisher is None else PublisherName(publisher),
            row["sequence"],
        )


def fill_gap(replay: Replay, gap: Gap) -> Iterator[Event]:
    """What a subscription missed: the events of its gap that match, in order."""
    start, end = Token({gap.pubend: gap.span.start}), Token({gap.pubend: gap.span.end})
    return replay_events(replay, plan(replay, start, end))


def read_range(
    replay: Replay, part: ReplayRange, attributes: Collection[str] | None = None
) -> Iterator[Any]:
    """Record batches with the matching events of a range: from a file in the lake's form, from the
    log with attributes as maps. With `attributes`, other attributes may be left out."""
    if part.path:
        yield from select(_read_lake(replay, part, attributes), replay.condition)
        return
    assert replay.log is not None
    with replay.log.connect() as client:
        ticks = (part.start, part.end)
        for item in replay.log.read(client, part.pubend, ticks, replay.condition):
            if isinstance(item, Gap):
                yield from _read_newest(replay, part.pubend, item.span.start, item.span.end)
            elif len(item):
                yield item.to_arrow()


def _read_lake(
    replay: Replay, part: ReplayRange, attributes: Collection[str] | None
) -> Iterator[Any]:
    """The events of a file; if the archive has replaced it, of the files that have them now."""
    assert replay.lake is not None
    path, at = replay.lake.folder / part.path, part.start
    try:
        for batch in read_file(path, part.start, part.end, attributes):
            yield batch
            at = batch.column("tick")[-1].as_py() + 1
    except FileNotFoundError:
        if any(file.path == part.path for file in replay.lake.manifest().files):
            problem = f"there is no {path}, which the manifest names"
            raise StorageMissingError(problem, "Restore the file, or read without it.") from None
        yield from _read_newest(replay, part.pubend, at, part.end, attributes)


def _read_newest(
    replay: Replay,
    pubend: str,
    start: int,
    end: int,
    attributes: Collection[str] | None = None,
) -> Iterator[Any]:
    """What the lake has now of these ticks; what it does not have is lost."""
    manifest, found = _manifest(replay), ReplayPlan([], [])
    covered = manifest.pubends.get(pubend) if manifest is not None else None
    add_ranges(found, pubend, (start, end), covered, has_log=False)
    check_lost(replay, found)
    for part in found.ranges:
        yield from read_range(replay, part, attributes)


def select(batches: Iterator[Any], condition: str) -> Iterator[Any]:
    """The rows that match."""
    if not condition:
        yield from batches
        return
    matcher, count = Matcher[int]({0: condition}, engine="python"), 0
    for batch in batches:
        if count < COMPILED_EVENTS <= (count := count + batch.num_rows):
            matcher = Matcher[int]({0: condition})
        counts, _ = match_rows(matcher, batch)
        if counts.any():
            yield batch.take(pa.array(np.flatnonzero(counts)))
