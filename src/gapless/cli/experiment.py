"""`gapless experiment`: measure a paper's claims again, draw them, and say which hold."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.sim.experiments.claims import Verdict
    from gapless.sim.experiments.exactly_once import Job, Results

NAMES = ("exactly-once",)

PIPE_WIDTH = 140
"""How wide the table is where nobody tells us."""


def experiment(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(NAMES)}.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw the figures here, as PNG.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same figures.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Play little: to see that it works.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all data as JSON.")] = False,
) -> None:
    """Measure a paper's claims in the simulated network, and say which hold.

    \b
    exactly-once  faults and overhead (DSN 2002): delay is local, nacks do not
                  explode, recovery takes another path. About four minutes.
    """
    if name not in NAMES:
        raise typer.BadParameter(f"there is no experiment {name!r}; one of: {', '.join(NAMES)}")
    if out is not None:
        prepare(out)
    from gapless.sim.experiments.claims import judge
    from gapless.sim.experiments.exactly_once import FULL, QUICK, Results, jobs

    results = Results(seed=seed, size=QUICK if quick else FULL)
    for _, play in shown(jobs(results, time.process_time)):
        play()
    verdicts = judge(results)
    figures = draw(out, results) if out is not None else []
    if as_json:
        data = {**results.plain(), "claims": [each._asdict() for each in verdicts]}
        typer.echo(json.dumps(data, indent=1))
    else:
        show(verdicts)
        for path in figures:
            typer.echo(f"drew {path}")


def prepare(out: Path) -> None:
    """Before minutes of work: can figures be drawn, and is there a place for them?"""
    from gapless.core.errors import UsageError

    try:
        import matplotlib
    except ImportError:
        raise UsageError(
            "figures are drawn with matplotlib, which is not installed",
            "Install gapless with the extra 'plots', or leave out --out.",
        ) from None
    matplotlib.use("Agg")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot make the folder {out}: {error.strerror}", "Name another."
        ) from None


def draw(out: Path, results: Results) -> list[Path]:
    from gapless.cli.experiment_figures import crashes, overhead, stalls

    made = []
    for name, figure in (("link-stall", stalls), ("crashes", crashes), ("overhead", overhead)):
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


def show(verdicts: list[Verdict]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("experiment", "claim", "our value", "holds", show_lines=True)
    for each in verdicts:
        holds = "[green]yes[/]" if each.holds else "[bold red]no[/]"
        table.add_row(each.experiment, each.claim, each.value, holds)
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table)
    held = sum(each.holds for each in verdicts)
    console.print(f"{held} of {len(verdicts)} claims hold.")
