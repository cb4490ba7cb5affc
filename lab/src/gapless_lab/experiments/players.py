"""The runs of an experiment, played on all cores or by Spark, and kept so that a kill costs little.

Theory of operation
    A run shares nothing with others (`runs`), so anybody who has time plays it: processes of this
    machine, or the workers of a Spark cluster. Spark plays runs in waves, each one job of about
    `WAVE_S` seconds. Every outcome is written to a file when it is known; a second start, with more
    runs too, plays only what is not there. Experiments without runs have jobs, which are played in
    turn and kept in the same way.

Invariants
    I1  outcomes do not depend on where runs were played, or whether they were kept in between
    I2  what a kill leaves of the last line is not taken for an outcome
    I3  Ctrl-C leaves no process behind, and says where to go on
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from gapless_lab.experiments.catalogue import Job
    from gapless_lab.experiments.runs import Outcomes, Run

    Played = tuple[Run, Any]
    """A run and its outcome."""

AT_ONCE = (signal.SIGINT, signal.SIG_DFL)
"""For workers: Ctrl-C ends them without a word."""

WAVE_S = 60.0
"""About how long Spark works before outcomes are kept: so much is lost by a kill."""

WAVE_MAX = 10_000
"""Runs of one wave."""

SLOTS = 64
"""How many workers a cluster is thought to have where it does not say."""

LINE_EVERY_S = 30.0
"""In a pipe, how often it is said how far things are."""


class Kept(NamedTuple):
    """Where outcomes are kept, and of which code."""

    path: Path
    code: str
    """The fingerprint: outcomes of other code do not count."""


def play_runs(
    runs: list[Run],
    outcomes: Outcomes,
    kept: Kept | None,
    master: str | None = None,
    *,
    is_over: bool = False,
) -> None:
    """Play what was not kept, with a bar on a terminal, lines elsewhere; if it `is_over`, play
    nothing."""
    by_name = read_kept(kept) if kept is not None else {}
    todo = []
    for run in runs:
        if run.name in by_name:
            outcomes.keep(run, by_name[run.name])
        else:
            todo.append(run)
    if len(todo) < len(runs):
        assert kept is not None
        typer.echo(f"{len(runs) - len(todo)} of {len(runs)} runs are in {kept.path}", err=True)
    todo = [] if is_over else todo
    left = len(todo)
    try:
        with closing(in_processes(todo) if master is None else in_spark(todo, master)) as played:
            for run, outcome in shown(played, todo):
                outcomes.keep(run, outcome)
                left -= 1
                if kept is not None:
                    add_kept(kept, run, outcome)
    except KeyboardInterrupt:
        if kept is not None:
            done = f"{len(runs) - left} of {len(runs)} runs are in {kept.path}"
            typer.echo(f"{done}; the same command goes on from there", err=True)
        raise


# --- what is kept ---------------------------------------------------------------------------------


def read_kept(kept: Kept) -> dict[str, Any]:
    """Outcomes by name of the run."""
    found = {}
    for line in kept.path.read_text().splitlines() if kept.path.exists() else []:
        try:
            each = json.loads(line)
        except json.JSONDecodeError:
            continue  # I2
        if each["code"] == kept.code:
            found[each["run"]] = each["outcome"]
    return found


def add_kept(kept: Kept, run: Run, outcome: Any) -> None:
    # A line of its own also after one that a kill cut short.
    line = json.dumps({"code": kept.code, "run": run.name, "outcome": outcome})
    with kept.path.open("a") as file:
        file.write(f"\n{line}" if is_cut_short(kept.path) else line)
        file.write("\n")


def is_cut_short(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return False
        file.seek(size - 1)
        return file.read() != b"\n"


def play_jobs(todo: list[Job], results: Any, kept: Kept | None, *, is_over: bool = False) -> None:
    """Play jobs one after the other; the results so far are kept after each."""
    done: list[str] = []
    if kept is not None and kept.path.exists():
        code, names, state = pickle.loads(kept.path.read_bytes())  # our own file
        same = all(vars(results).get(each) == state.get(each) for each in ("seed", "size"))
        if code == kept.code and same:
            done = names
            vars(results).update(state)
            typer.echo(f"{len(done)} of {len(todo)} jobs are in {kept.path}", err=True)
    for number, (name, job) in enumerate(todo, start=1):
        if name in done or is_over:
            continue
        typer.echo(f"{number} of {len(todo)}: {name}", err=True)
        job()
        done.append(name)
        if kept is not None:
            new = kept.path.with_suffix(".new")
            new.write_bytes(pickle.dumps((kept.code, done, vars(results))))
            new.replace(kept.path)  # whole, whatever happens meanwhile


# --- who plays ------------------------------------------------------------------------------------


def in_processes(runs: list[Run]) -> Generator[Played]:
    """Outcomes as they come, from a process for each core that we may use (`taskset`)."""
    workers = max(1, min(len(os.sched_getaffinity(0)), len(runs)))
    waiting = iter(runs)
    pool = ProcessPoolExecutor(workers, initializer=signal.signal, initargs=AT_ONCE)
    try:
        running = {pool.submit(run.play): run for run in islice(waiting, 2 * workers)}
        while running:
            for each in wait(running, return_when=FIRST_COMPLETED).done:
                run = running.pop(each)
                running.update((pool.submit(more.play), more) for more in islice(waiting, 1))
                yield run, each.result()
    except BrokenProcessPool:
        raise UsageError(
            "a process that played runs was killed, maybe for want of memory",
            "Play fewer at once: --master 'local[1]'.",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def in_spark(runs: list[Run], master: str) -> Generator[Played]:
    """Outcomes wave by wave, from the workers of a session."""
    from gapless.cli.job import session
    from gapless.pipelines.spark_tasks import SparkRunner

    if not runs:
        return
    with session(master) as spark:
        everywhere = SparkRunner(spark)
        for wave in waves(runs, WAVE_S * slots(spark, master)):
            yield from zip(wave, everywhere(play, wave), strict=True)


def play(run: Run) -> Any:
    return run.play()


def slots(spark: SparkSession, master: str) -> int:
    return SLOTS if master.startswith("sc://") else spark.sparkContext.defaultParallelism


def waves(runs: Iterable[Run], weight_max: float) -> Iterator[list[Run]]:
    """Cut into pieces of at most this weight, or one run."""
    wave: list[Run] = []
    weight = 0.0
    for run in runs:
        if wave and (weight + run.weight > weight_max or len(wave) == WAVE_MAX):
            yield wave
            wave, weight = [], 0.0
        wave.append(run)
        weight += run.weight
    if wave:
        yield wave


# --- how far things are ---------------------------------------------------------------------------


def shown(played: Iterable[Played], runs: list[Run]) -> Iterator[Played]:
    """Pass outcomes on and say on stderr how far things are, and how long it will take."""
    if sys.stderr.isatty():
        yield from with_bar(played, runs)
    else:
        yield from with_lines(played, runs)


def with_bar(played: Iterable[Played], runs: list[Run]) -> Iterator[Played]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Remaining

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), Remaining())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=sum(run.weight for run in runs))
        for number, (run, outcome) in enumerate(played, start=1):
            text = f"{number} of {len(runs)} runs: {run.point}"
            progress.update(task, advance=run.weight, description=text)
            yield run, outcome


def with_lines(played: Iterable[Played], runs: list[Run]) -> Iterator[Played]:
    total, done = sum(run.weight for run in runs), 0.0
    start = said = time.monotonic()
    for number, (run, outcome) in enumerate(played, start=1):
        done += run.weight
        now = time.monotonic()
        if now - said >= LINE_EVERY_S and done < total:
            said = now
            left = time_left(now - start, done / total)
            typer.echo(f"{number} of {len(runs)} runs, about {left} left", err=True)
        yield run, outcome


def time_left(elapsed_s: float, share_done: float) -> str:
    left_s = elapsed_s * (1 - share_done) / share_done
    hours, minutes = divmod(round(left_s / 60), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{round(left_s)} s"
