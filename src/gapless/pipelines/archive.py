"""Archive: a topic's log, moved into a lake, each event once, before it is released.

Theory of operation
    A named subscription to everything holds the log. Work goes in rounds: look from where the
    manifest ends to where the log is settled, slice by slice of an hour; give at most `slices_max`
    of them to workers, which write files (`lake_files`); commit the files and the next manifest
    (`lake`); then acknowledge what the manifest has. So whatever the brokers release because all
    have had it, the lake has, on stable storage. An archive that was killed goes on from the
    manifest, which has what was acknowledged or more.
    Two workers may give one new column name to two things. The work of the second is done again,
    with the columns of the first (`lake_schema`).

Invariants
    I1  acknowledged <= the manifest's token
    I2  a tick is read from the log again only if no manifest has it

Early release (`docs/how-to/archive.md`): a topic with a retention releases also what the archive
has not acknowledged. What is gone before the archive comes is in the manifest as lost.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from gapless.client.delivery import Gap
from gapless.client.errors import RefusedError
from gapless.core.errors import UsageError
from gapless.pipelines.lake import HOUR_US, Lake, LakeWriter, slice_end
from gapless.pipelines.lake_files import FileTask, PubendFiles
from gapless.pipelines.manifest import Coverage, LakeFile, Manifest
from gapless.pipelines.spark_tasks import run_locally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gapless.core.token import Token
    from gapless.pipelines.lake_files import WriteResult
    from gapless.pipelines.lake_schema import LakeSchema
    from gapless.pipelines.topic_log import TopicLog
    from gapless.sync import Client

Item = TypeVar("Item")

FILE_BYTES_MAX = 128 << 20
SLICES_MAX = 16
"""Slices that one round moves, of all pubends together; the next round has the rest."""


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The ticks [start, end) of a pubend, within one hour. `grows` is the file to go on with."""

    pubend: str
    start: int
    end: int
    grows: LakeFile | None = None


class SliceRunner(Protocol):
    """Gives slices to workers: `spark_tasks.run_locally` or `spark_tasks.SparkRunner`."""

    def __call__(
        self, work: Callable[[LogSlice], WriteResult], items: Sequence[LogSlice]
    ) -> list[WriteResult]: ...


@dataclass(frozen=True, slots=True)
class ArchiveProgress:
    """One round: `stage` is "written" (aside), "committed" or "acknowledged"."""

    stage: str
    events: int
    files: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How work is cut: into files of about this size, and slices of at most this time.

    Slices of less than an hour let more workers share an hour; a backlog then has a file for each.
    """

    file_bytes_max: int = FILE_BYTES_MAX
    slice_us: int = HOUR_US
    slices_max: int = SLICES_MAX

    def __post_init__(self) -> None:
        if self.slice_us < 1 or HOUR_US % self.slice_us:
            problem = f"an hour is not made of slices of {self.slice_us} µs"
            raise UsageError(problem, "Give a whole part of an hour, such as 600 seconds.")


@dataclass(frozen=True, slots=True)
class Round:
    """Slices for workers, and what the lake covers when they are done."""

    slices: list[LogSlice]
    covered: dict[str, Coverage]
    is_last: bool

    @property
    def ticks(self) -> dict[str, int]:
        return {pubend: covered.end for pubend, covered in self.covered.items()}


def archive(
    log: TopicLog,
    root: str | Path,
    *,
    name: str = "",
    run: SliceRunner = run_locally,
    limits: ArchiveLimits = ArchiveLimits(),  # noqa: B008 - immutable
    tell: Callable[[ArchiveProgress], None] = lambda _: None,
) -> int:
    """Move what is settled now; how many events that were. Call it again for what came since.

    `name` is that of the subscription, `archive-TOPIC` if left out.
    """
    lake, name = Lake(root, log.topic), name or f"archive-{log.topic}"
    total = 0
    with _opened(log, lake) as (writer, client):
        hold(client, log.topic, name, lake.manifest().token)
        ends = {pubend: end for pubend, (_, end) in client.positions(log.topic).items()}
        is_last = False
        while not is_last:
            before = lake.manifest()
            plan = plan_round(client, log, before, ends, limits)
            task = FileTask(lake.folder, writer.unfinished, before.schema, limits.file_bytes_max)
            results, schema = write_slices(log, run, task, plan.slices)
            manifest, moves = settle(lake, replace(before, schema=schema), plan.covered, results)
            events = sum(each.events for each in results)
            tell(ArchiveProgress("written", events, len(moves), manifest))
            if manifest != before:
                manifest = writer.commit(manifest, moves)
                tell(ArchiveProgress("committed", events, len(moves), manifest))
            hold(client, log.topic, name, manifest.token)
            tell(ArchiveProgress("acknowledged", events, len(moves), manifest))
            total, is_last = total + events, plan.is_last
    return total


def hold_log(log: TopicLog, root: str | Path, name: str = "") -> Lake:
    """From now on the log is held for the lake, whether a query runs or not."""
    lake, name = Lake(root, log.topic), name or f"archive-{log.topic}"
    with _opened(log, lake) as (writer, client):
        manifest = lake.manifest()
        hold(client, log.topic, name, manifest.token)
        positions = client.positions(log.topic)
        new = {pubend: Coverage(low, low) for pubend, (low, _) in positions.items()}
        if new.keys() - manifest.pubends.keys():
            writer.commit(replace(manifest, pubends=new | manifest.pubends), {})
    return lake


@contextmanager
def _opened(log: TopicLog, lake: Lake) -> Iterator[tuple[LakeWriter, Client]]:
    """The lake and the broker; a topic that the broker does not know gets no folder."""
    with log.connect() as client:
        client.positions(log.topic)
        with LakeWriter(lake) as writer:
            yield writer, client


def hold(client: Client, topic: str, name: str, token: Token) -> None:
    """The subscription exists, and has acknowledged all below the token and nothing else."""
    try:
        client.acknowledge(name, token)
    except RefusedError:  # there is none; or it is another's, which the broker says again
        start = token if len(token) else "earliest"
        with client.subscribe(topic, name=name, start=start):
            pass  # what comes is not taken, nor is silence, which would count as consumed
        client.acknowledge(name, token)


def plan_round(
    client: Client,
    log: TopicLog,
    manifest: Manifest,
    ends: Mapping[str, int],
    limits: ArchiveLimits,
) -> Round:
    """Slices with events, up to `slices_max` of all pubends together."""
    positions = client.positions(log.topic)
    slices, covered, is_last = list[LogSlice](), dict(manifest.pubends), True
    for pubend, end in ends.items():
        before = covered.get(pubend) or Coverage(positions[pubend][0], positions[pubend][0])
        at, lost, grows = before.end, list[tuple[int, int]](), small_file(before, limits)
        while at < end and len(slices) < limits.slices_max:
            first = end
            for item in log.read(client, pubend, (at, end), limit=1):
                if isinstance(item, Gap):
                    lost.append((item.span.start, item.span.end))
                elif len(item):
                    first = item.ticks[0]
            at = min(slice_end(first, limits.slice_us), end)
            if first < end:
                slices.append(LogSlice(pubend, first, at, grows))
                grows = None
        is_last = is_last and at >= end
        covered[pubend] = replace(before, end=max(at, before.end), lost=(*before.lost, *lost))
    return Round(slices, covered, is_last)


def small_file(covered: Coverage, limits: ArchiveLimits) -> LakeFile | None:
    """The last file, if it is small: it may grow."""
    last = covered.files[-1] if covered.files else None
    return last if last is not None and last.bytes < limits.file_bytes_max else None


def write_slice(log: TopicLog, task: FileTask, part: LogSlice) -> WriteResult:
    """What a worker does: read a slice of the log, and write its files."""
    files = PubendFiles(task, part.pubend, part.grows)
    with log.connect() as client:
        for item in log.read(client, part.pubend, (part.start, part.end)):
            if isinstance(item, Gap):
                files.result.lost.append((item.span.start, item.span.end))
            elif len(item):
                files.add(item.to_arrow())
    return files.close()


def write_slices(
    log: TopicLog, run: SliceRunner, task: FileTask, slices: Sequence[LogSlice]
) -> tuple[list[WriteResult], LakeSchema]:
    """What workers have made of all slices, and a schema for it."""

    def write(task: FileTask, slices: Sequence[LogSlice]) -> list[WriteResult]:
        return run(partial(write_slice, log, task), slices) if slices else []

    return agree(task, write, slices)


def agree(
    task: FileTask,
    write: Callable[[FileTask, Sequence[Item]], list[WriteResult]],
    items: Sequence[Item],
) -> tuple[list[WriteResult], LakeSchema]:
    """The results of all items, and a schema for them all. An item whose columns disagree with
    those of the items before it is written again; the first one never disagrees."""
    results: dict[Item, WriteResult] = {}
    schema, remaining = task.schema, list(items)
    while remaining:
        done = write(replace(task, schema=schema), remaining)
        for item, result in zip(remaining, done, strict=True):
            merged = schema.merge(result.schema)
            if merged is not None:
                schema, results[item] = merged, result
        remaining = [item for item in remaining if item not in results]
    return [results[item] for item in items], schema


def settle(
    lake: Lake, before: Manifest, covered: Mapping[str, Coverage], results: Sequence[WriteResult]
) -> tuple[Manifest, dict[str, str]]:
    """The manifest with what was written, and where each file goes."""
    after, moves = dict(covered), dict[str, str]()
    for result in results:
        files = list(after[result.pubend].files)
        if result.grown_file is not None:
            files.remove(result.grown_file)
        for new in result.files:
            place = lake.place(new.start, before.number + 1)
            moves[new.name] = place
            files.append(LakeFile(place, new.start, new.end, new.rows, new.bytes, new.groups))
        lost = tuple(sorted({*after[result.pubend].lost, *result.lost}))
        after[result.pubend] = replace(after[result.pubend], files=tuple(files), lost=lost)
    return replace(before, pubends=after), moves
