"""`gapless experiment`: measure a paper's claims again, draw them, and say which hold."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from gapless_lab.experiments.catalogue import EXPERIMENTS, NAMES, REAL, SEEDED
from gapless_lab.experiments.verdict import Verdict, summary

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gapless_lab.experiments.catalogue import Experiment, Figures
    from gapless_lab.experiments.players import Kept

PIPE_WIDTH = 140
"""How wide the table is where nobody tells us."""

STYLES = {True: "[green]{}[/]", False: "[bold red]{}[/]", None: "[dim]{}[/]"}
"""Of what a verdict says."""

HEADINGS = {"paper": "the paper", "value": "our value"}
"""Of the table's columns, where they are not called as the fields of a verdict are."""


def experiment(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(NAMES)}; or all of them.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw the figures here, as PNG; keep runs.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the page and its figures here.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same figures.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Play little: to see that it works.")
    ] = False,
    kept: Annotated[
        bool, typer.Option("--kept", help="Play nothing: judge what was kept in --out.")
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
                  peak rates, catch-up, recovery, logging. About ten minutes.
    partitions    brokers that fail for good (SRDS 2011): who is cut off, what is
                  delivered, what brokers know. Hours with ten runs.
    multicast     trees on rings of 1,000 to 100,000 nodes (Scribe): hops, delay
                  and stress against IP multicast, repair. An hour with ten runs.
    all           one after the other, at full size.

    With --out all that was played is kept, and the same command goes on after a
    kill. The last two play many runs, on all cores or by Spark. With --page the
    page of docs/experiments is written.
    With --real, brokers are processes on this machine and rates are low; the seed
    has no say then. About a minute.
    """
    if name not in (*NAMES, "all"):
        raise typer.BadParameter(
            f"there is no experiment {name!r}; one of: {', '.join(NAMES)}, all"
        )
    if real and (name not in REAL or out is not None or page is not None):
        raise typer.BadParameter(f"--real is for {' and '.join(REAL)}, and draws no figures")
    if name not in (*SEEDED, "all") and (runs is not None or master is not None):
        raise typer.BadParameter(f"--runs and --master are for {' and '.join(SEEDED)}")
    if kept and out is None:
        raise typer.BadParameter("--kept needs --out, the folder in which runs were kept")
    for folder in (out, page):
        if folder is not None:
            prepare(folder)
    wish = Wish(seed, out, page, runs, master, quick, kept, as_json, real)
    for each in NAMES if name == "all" else (name,):
        measure(each, wish)


class Wish(NamedTuple):
    """What the caller wants of an experiment."""

    seed: int
    out: Path | None
    page: Path | None
    runs: int | None
    master: str | None
    is_quick: bool
    is_kept: bool
    is_json: bool
    is_real: bool


def measure(name: str, wish: Wish) -> None:
    """Play one experiment; judge, draw and show it."""
    out = wish.out
    chosen = (REAL if wish.is_real else EXPERIMENTS)[name]()
    results = chosen.results(wish.seed, wish.is_quick)
    if wish.runs is not None and name in SEEDED:
        results.size = replace(results.size, runs=wish.runs)
    kept = None if out is None else keeper(name, out, chosen)
    play(chosen, results, kept, wish.master, is_over=wish.is_kept)
    verdicts = chosen.judge(results)
    figures = draw(out, results, chosen.figures()) if out is not None else []
    if wish.page is not None:
        figures += write_page(wish.page, name, results, verdicts, chosen, is_quick=wish.is_quick)
    if wish.is_json:
        data = {**results.plain(), "claims": [each._asdict() for each in verdicts]}
        typer.echo(json.dumps(data, indent=1))
        return
    show(verdicts, chosen.notes(results), "real processes" if wish.is_real else None)
    for path in figures:
        typer.echo(f"drew {path}")


def keeper(name: str, out: Path, chosen: Experiment) -> Kept:
    """Where what is played of an experiment is kept."""
    from gapless_lab.experiments.fingerprint import fingerprint
    from gapless_lab.experiments.players import Kept

    kind = "runs.jsonl" if chosen.jobs is None else "jobs.pickle"
    return Kept(out / f"{name}-{kind}", fingerprint(name))


def play(
    chosen: Experiment, results: Any, kept: Kept | None, master: str | None, *, is_over: bool
) -> None:
    from gapless_lab.experiments.players import play_jobs, play_runs

    if chosen.jobs is None:
        play_runs(results.runs(), results.outcomes, kept, master, is_over=is_over)
    else:
        play_jobs(chosen.jobs(results, time.process_time), results, kept, is_over=is_over)


def write_page(
    folder: Path,
    name: str,
    results: Any,
    verdicts: list[Verdict],
    chosen: Experiment,
    *,
    is_quick: bool,
) -> list[Path]:
    from gapless_lab.experiments.pages import Page

    figures = draw(folder, results, chosen.figures(), f"{name}-")
    drawn = [path.name for path in figures]
    command = f"gapless experiment {name} --seed {results.seed}" + " --quick" * is_quick
    page = Page(name, command, verdicts, chosen.notes(results), drawn)
    path = folder / f"{name}.md"
    path.write_text(page.text())
    return [path, *figures]


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


def draw(out: Path, results: Any, figures: Figures, prefix: str = "") -> list[Path]:
    made = []
    for name, figure in figures.items():
        made.append(out / f"{prefix}{name}.png")
        figure(results).savefig(made[-1], dpi=80)
    return made


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
