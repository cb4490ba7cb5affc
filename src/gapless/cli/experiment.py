"""`gapless experiment`: measure a paper's claims again, draw them, and say which hold."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    Job = tuple[str, Callable[[], None]]
    """What is played, and the call that plays it."""

PIPE_WIDTH = 140
"""How wide the table is where nobody tells us."""

HEADINGS = {"paper": "the paper", "value": "our value"}
"""Of the table's columns, where they are not called as the fields of a verdict are."""


class Experiment(NamedTuple):
    """One experiment: what it plays, how that is judged and drawn. All of it imported late."""

    results: Callable[[int, bool], Any]
    """From seed, and whether it is to be quick: where everything measured is kept."""
    jobs: Callable[[Any, Callable[[], float]], list[Job]]
    judge: Callable[[Any], list[Any]]
    """Verdicts: named tuples, of which the last says whether the claim holds."""
    figures: Callable[[], dict[str, Callable[[Any], Any]]]
    """By file name."""
    notes: Callable[[Any], list[str]]


def exactly_once() -> Experiment:
    from gapless.sim.experiments.claims import judge
    from gapless.sim.experiments.exactly_once import FULL, QUICK, Results, jobs

    def figures() -> dict[str, Callable[[Any], Any]]:
        from gapless.cli.experiment_figures import crashes, overhead, stalls

        return {"link-stall": stalls, "crashes": crashes, "overhead": overhead}

    return Experiment(
        lambda seed, quick: Results(seed=seed, size=QUICK if quick else FULL),
        jobs,
        judge,
        figures,
        lambda _results: [],
    )


def propagation() -> Experiment:
    from gapless.sim.experiments.propagation.claims import judge
    from gapless.sim.experiments.propagation.experiment import FULL, QUICK, Results, jobs

    def figures() -> dict[str, Callable[[Any], Any]]:
        from gapless.cli.propagation_figures import failure, latency, load, vectors

        return {"load": load, "latency": latency, "vectors": vectors, "failure": failure}

    return Experiment(
        lambda seed, quick: Results(seed=seed, size=QUICK if quick else FULL),
        jobs,
        judge,
        figures,
        lambda results: results.notes(),
    )


def durable() -> Experiment:
    from gapless.sim.experiments.durable.claims import judge
    from gapless.sim.experiments.durable.experiment import FULL, QUICK, Results, jobs

    def figures() -> dict[str, Callable[[Any], Any]]:
        from gapless.cli.durable_figures import absences, auto_acknowledge, host_crash, peaks

        return {
            "peaks": peaks,
            "absences": absences,
            "host-crash": host_crash,
            "auto-acknowledge": auto_acknowledge,
        }

    return Experiment(
        lambda seed, quick: Results(seed=seed, size=QUICK if quick else FULL),
        jobs,
        judge,
        figures,
        lambda results: results.notes(),
    )


def real_propagation() -> Experiment:
    from gapless.cli.real.propagation import FULL, QUICK, Results, jobs
    from gapless.cli.real.propagation_claims import judge

    return Experiment(
        lambda _seed, quick: Results(QUICK if quick else FULL),
        lambda results, _read_cpu_s: jobs(results),
        judge,
        dict,
        lambda results: results.notes(),
    )


def real_durable() -> Experiment:
    from gapless.cli.real.durable import FULL, QUICK, Results, jobs
    from gapless.cli.real.durable_claims import judge

    return Experiment(
        lambda _seed, quick: Results(QUICK if quick else FULL),
        lambda results, _read_cpu_s: jobs(results),
        judge,
        dict,
        lambda results: results.notes(),
    )


EXPERIMENTS = {"exactly-once": exactly_once, "propagation": propagation, "durable": durable}
REAL = {"propagation": real_propagation, "durable": real_durable}
NAMES = tuple(EXPERIMENTS)


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
    real: Annotated[
        bool, typer.Option("--real", help=f"With broker processes: {', '.join(REAL)}.")
    ] = False,
) -> None:
    """Measure a paper's claims in the simulated network, and say which hold.

    \b
    exactly-once  faults and overhead (DSN 2002): delay is local, nacks do not
                  explode, recovery takes another path. About four minutes.
    propagation   filtering on the way against flooding (Middleware 2004): load,
                  latency, long vectors, failing relays. About six minutes.
    durable       subscribers that are away, or whose host was down (DSN 2003):
                  peak rates, catch-up, recovery, logging. About four minutes.

    With --real, brokers are processes on this machine and rates are low; the seed
    has no say then. About a minute.
    """
    if name not in NAMES:
        raise typer.BadParameter(f"there is no experiment {name!r}; one of: {', '.join(NAMES)}")
    if real and (name not in REAL or out is not None):
        raise typer.BadParameter(f"--real is for {' and '.join(REAL)}, and draws no figures")
    if out is not None:
        prepare(out)
    chosen = (REAL if real else EXPERIMENTS)[name]()
    results = chosen.results(seed, quick)
    for _, play in shown(chosen.jobs(results, time.process_time)):
        play()
    verdicts = chosen.judge(results)
    figures = draw(out, results, chosen.figures()) if out is not None else []
    if as_json:
        data = {**results.plain(), "claims": [each._asdict() for each in verdicts]}
        typer.echo(json.dumps(data, indent=1))
    else:
        show(verdicts, chosen.notes(results), "real processes" if real else None)
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


def draw(out: Path, results: Any, figures: dict[str, Callable[[Any], Any]]) -> list[Path]:
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


def show(verdicts: list[Any], notes: Sequence[str] = (), title: str | None = None) -> None:
    from rich.console import Console
    from rich.table import Table

    headings = [HEADINGS.get(field, field) for field in verdicts[0]._fields]
    table = Table(*headings, show_lines=True, title=title)
    for each in verdicts:
        *texts, holds = each
        table.add_row(*texts, "[green]yes[/]" if holds else "[bold red]no[/]")
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)
    held = sum(each.holds for each in verdicts)
    console.print(f"{held} of {len(verdicts)} claims hold.")
