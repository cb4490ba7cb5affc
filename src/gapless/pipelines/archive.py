"""Archive: a topic's log, moved into a lake, each event once, before it is released.

Theory of operation
    A named subscription to everything holds the log. Work goes in rounds: look from where the
    manifest ends to where the log is settled, slice by slice of an hour, and give at most
    `units_max` of them to workers (`writing`); commit their files and the next manifest as one
    change (`lake`); then acknowledge what the manifest has. So whatever the brokers release because
    all have had it, the lake has, on stable storage; and whoever is killed goes on from the
    manifest, which tells the same as what was acknowledged or more.
    Small files: the last file of an hour grows with each round until it is `file_bytes_max`.

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
from typing import TYPE_CHECKING, Protocol

from gapless.client.delivery import Gap
from gapless.core.errors import UsageError
from gapless.pipelines.lake import HOUR_US, Lake, LakeWriter, slice_end
from gapless.pipelines.manifest import Covered, LakeFile, Manifest
from gapless.pipelines.source import Source, read_ticks
from gapless.pipelines.spread import run_here
from gapless.pipelines.writing import Task, Unit, Written, write_unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gapless.sync import Client

FILE_BYTES_MAX = 128 << 20
UNITS_MAX = 16
"""Slices that one round moves, of all pubends together; the next round has the rest."""


class Run(Protocol):
    """Who does the work: `spread.run_here`, or `spread.InSpark`."""

    def __call__(self, work: Callable[[Unit], Written], items: Sequence[Unit]) -> list[Written]: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """One round: `stage` is "written" (aside), "committed" or "acknowledged"."""

    stage: str
    events: int
    files: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Limits:
    """How work is cut: into files of about this size, and units of at most this time.

    Slices of less than an hour let more workers share an hour; a backlog then has a file for each.
    """

    file_bytes_max: int = FILE_BYTES_MAX
    slice_us: int = HOUR_US
    units_max: int = UNITS_MAX

    def __post_init__(self) -> None:
        if self.slice_us < 1 or HOUR_US % self.slice_us:
            problem = f"an hour is not made of slices of {self.slice_us} µs"
            raise UsageError(problem, "Give a whole part of an hour, such as 600 seconds.")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round does: units for workers, and what will be covered then."""

    units: list[Unit]
    covered: dict[str, Covered]
    is_last: bool


def archive(
    source: Source,
    root: str | Path,
    *,
    name: str = "",
    run: Run = run_here,
    limits: Limits = Limits(),  # noqa: B008 - immutable
    tell: Callable[[Progress], None] = lambda _: None,
) -> int:
    """Move what is settled now; how many events that were. Call it again for what came since.

    `name` is that of the subscription, `archive-TOPIC` if left out.
    """
    lake, name = Lake(root, source.topic), name or f"archive-{source.topic}"
    total = 0
    with _opened(source, lake) as (writer, client):
        hold(client, source.topic, name, lake.manifest())
        ends = {pubend: end for pubend, (_, end) in client.positions(source.topic).items()}
        is_last = False
        while not is_last:
            plan = make_plan(client, source, lake.manifest(), ends, limits)
            task = Task(source, lake.folder, writer.unfinished, limits.file_bytes_max)
            written = run(partial(write_unit, task), plan.units) if plan.units else []
            manifest, moves = settle(lake, plan, written)
            events = sum(rows for each in written for _, _, _, rows, _ in each.files)
            events -= sum(unit.grows.rows for unit in plan.units if unit.grows is not None)
            tell(Progress("written", events, len(moves), manifest))
            if manifest != lake.manifest():
                writer.commit(manifest, moves)
                tell(Progress("committed", events, len(moves), manifest))
            hold(client, source.topic, name, manifest)
            tell(Progress("acknowledged", events, len(moves), manifest))
            total, is_last = total + events, plan.is_last
    return total


def hold_log(source: Source, root: str | Path, name: str = "") -> Lake:
    """From now on the log is held for the lake, whether a query runs or not."""
    lake, name = Lake(root, source.topic), name or f"archive-{source.topic}"
    with _opened(source, lake) as (writer, client):
        manifest = lake.manifest()
        hold(client, source.topic, name, manifest)
        positions = client.positions(source.topic)
        new = {pubend: Covered(low, low) for pubend, (low, _) in positions.items()}
        if new.keys() - manifest.pubends.keys():
            writer.commit(replace(manifest, pubends=new | manifest.pubends), {})
    return lake


@contextmanager
def _opened(source: Source, lake: Lake) -> Iterator[tuple[LakeWriter, Client]]:
    """The lake and the broker; a topic that the broker does not know gets no folder."""
    with source.connect() as client:
        client.positions(source.topic)
        with LakeWriter(lake) as writer:
            yield writer, client


def hold(client: Client, topic: str, name: str, manifest: Manifest) -> None:
    """The subscription exists, and has acknowledged what the manifest has and nothing else."""
    token = manifest.token
    start = token if len(token) else "earliest"
    with client.subscribe(topic, name=name, start=start):
        pass  # what comes is not taken, nor is silence, which would count as consumed
    if len(token):
        client.acknowledge(name, token)


def make_plan(
    client: Client,
    source: Source,
    manifest: Manifest,
    ends: Mapping[str, int],
    limits: Limits,
) -> Plan:
    """Slices with events, up to `units_max` of all pubends together."""
    positions = client.positions(source.topic)
    units, covered, is_last = list[Unit](), dict(manifest.pubends), True
    for pubend, end in ends.items():
        before = covered.get(pubend) or Covered(positions[pubend][0], positions[pubend][0])
        at, lost, grows = before.end, list[tuple[int, int]](), growing(before, limits)
        while at < end and len(units) < limits.units_max:
            first = end
            for item in read_ticks(client, source, pubend, at, end, limit=1):
                if isinstance(item, Gap):
                    lost.append((item.span.start, item.span.end))
                elif len(item):
                    first = item.ticks[0]
            at = min(slice_end(first, limits.slice_us), end)
            if first < end:
                goes_on = grows if grows is not None and first < slice_end(grows.start) else None
                units.append(Unit(pubend, first, at, goes_on))
                grows = None
        is_last = is_last and at >= end
        covered[pubend] = replace(before, end=max(at, before.end), lost=(*before.lost, *lost))
    return Plan(units, covered, is_last)


def growing(covered: Covered, limits: Limits) -> LakeFile | None:
    """The last file, if it is small."""
    last = covered.files[-1] if covered.files else None
    return last if last is not None and last.bytes < limits.file_bytes_max else None


def settle(lake: Lake, plan: Plan, written: Sequence[Written]) -> tuple[Manifest, dict[str, str]]:
    """The manifest with what was written, and where each file goes."""
    covered, moves = dict(plan.covered), dict[str, str]()
    for each in written:
        pubend, grows = each.unit.pubend, each.unit.grows
        files = list(covered[pubend].files)
        if grows is not None and each.files:
            files.pop()
        for name, first, end, rows, size in each.files:
            place = lake.place(pubend, first)
            moves[name] = place
            files.append(LakeFile(place, first, end, rows, size))
        lost = tuple(sorted({*covered[pubend].lost, *each.lost}))
        covered[pubend] = replace(covered[pubend], files=tuple(files), lost=lost)
    return Manifest(lake.topic, covered), moves
