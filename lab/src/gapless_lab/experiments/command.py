"""`gapless experiment`: measure a paper's claims again, draw them, and say which hold."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from gapless_lab.experiments.catalogue import EXPERIMENTS, NAMES, REAL, SEEDED
from gapless_lab.experiments.verdict import Verdict, summary

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from gapless_lab.experiments.catalogue import Experiment, Figures, Job

PIPE_WIDTH = 140
"""How wide the table is where nobody tells us."""

STYLES = {True: "[green]{}[/]", False: "[bold red]{}[/]", None: "[dim]{}[/]"}
"""Of what a verdict says."""

HEADINGS = {"paper": "the paper", "value": "our value"}
"""Of the table's columns, where they are not called as the fields of a verdict are."""


def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(NAMES)}.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw the figures here, as PNG; keep runs.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same figures.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Play little: to see that it works.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all data as JSON.")] = False,
    real: Annotated[
        bool, typer.Option("--real", help=f"With broker processes: {', '.join(REAL)}.")
    ] = False,
    runs: Annotated[
        int | None, typer.Option(min=1, help=f"Runs of each point: {', '.join(SEEDED)}.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Let Spark play the runs: local[2], yarn, …")
    ] = None,
) -> None:
    """Measure a paper's claims in the simulated network, and say which hold.

    \b
    exactly-once  faults and overhead (DSN 2002): delay is local, nacks do not
                  explode, recovery takes another path. About four minutes.
    propagation   filtering on the way against flooding (Middleware 2004): load,
                  latency, long vectors, failing relays. About six minutes.
    durable       subscribers that are away, or whose host was down (DSN 2003):
                  peak rates, catch-up, recovery, logging. About four minutes.
    partitions    brokers that fail for good (SRDS 2011): who is cut off, what is
                  delivered, what brokers know. Hours with 100 runs.
    multicast     trees on rings of 1,000 to 100,000 nodes (Scribe): hops, delay
                  and stress against IP multicast, repair. Hours with 100 runs.

    The last two play many runs, on all cores of this machine or by Spark; with
    --out each is kept, and the same command goes on after a kill.
    With --real, brokers are processes on this machine and rates are low; the seed
    has no say then. About a minute.
    """
    if name not in NAMES:
        raise typer.BadParameter(f"there is no experiment {name!r}; one of: {', '.join(NAMES)}")
    if real and (name not in REAL or out is not None):
        raise typer.BadParameter(f"--real is for {' and '.join(REAL)}, and draws no figures")
    if name not in SEEDED and (runs is not None or master is not None):
        raise typer.BadParameter(f"--runs and --master are for {' and '.join(SEEDED)}")
    if out is not None:
        prepare(out)
    chosen = (REAL if real else EXPERIMENTS)[name]()
    results = chosen.results(seed, quick)
    if runs is not None:
        results.size = replace(results.size, runs=runs)
    play(chosen, results, out and out / f"{name}-runs.jsonl", master)
    verdicts = chosen.judge(results)
    figures = draw(out, results, chosen.figures()) if out is not None else []
    if as_json:
        data = {**results.plain(), "claims": [each._asdict() for each in verdicts]}
        typer.echo(json.dumps(data, indent=1))
    else:
        show(verdicts, chosen.notes(results), "real processes" if real else None)
        for path in figures:
            typer.echo(f"drew {path}")


def play(chosen: Experiment, results: Any, kept: Path | None, master: str | None) -> None:
    if chosen.jobs is None:
        from gapless_lab.experiments.players import play_runs

        play_runs(results.runs(), results.outcomes, kept, master)
    else:
        for _, job in shown(chosen.jobs(results, time.process_time)):
            job()


def prepare(out: Path) -> None:
    """Before minutes of work: is there a place for figures?"""
    import matplotlib

    from gapless.core.errors import UsageError

    matplotlib.use("Agg")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {out}: {error.strerror}", "Name another."
        ) from None


def draw(out: Path, results: Any, figures: Figures) -> list[Path]:
    made = []
    for name, figure in figures.items():
        made.append(out / f"{name}.png")
        figure(results).savefig(made[-1])
    return made


def shown(todo: list[Job]) -> Iterator[Job]:
    """The jobs, with a bar on a terminal. It goes to stderr, so it never mixes with data."""
    if not sys.stderr.isatty():
        yield from todo
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(todo))
        for job in todo:
            progress.update(task, description=job[0])
            yield job
            progress.advance(task)


def show(verdicts: list[Verdict], notes: Sequence[str] = (), title: str | None = None) -> None:
    from rich.console import Console
    from rich.table import Table

    headings = [HEADINGS.get(field, field) for field in Verdict._fields]
    table = Table(*headings, show_lines=True, title=title)
    for each in verdicts:
        table.add_row(*each[:-1], STYLES[each.holds].format(each.word))
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)
    console.print(summary(verdicts))
