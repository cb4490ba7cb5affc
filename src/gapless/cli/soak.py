"""`gapless soak`: strike a network of real processes again and again; judge what clients saw."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gapless.testing.processes.soak import SoakSummary


def soak(
    cycles: Annotated[
        int, typer.Option(min=1, help="The number of failures; each takes 3 to 20 s.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="The same seed gives the same failures.")] = 1,
    only: Annotated[
        str,
        typer.Option(metavar="WORD", help="Only this kind: kill, hang, cut, stall, half or leave."),
    ] = "",
    keep_data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A new folder for the brokers' data and logs."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Kill, hang and cut off real brokers under load, and check what clients saw.

    Every subscriber must recover after each failure. At the end the simulator's checkers judge the
    journals of all clients.
    """
    import asyncio

    from gapless.core.errors import UsageError
    from gapless.testing.processes.soak import BLOWS, Soak, draw

    among = [blow for blow in BLOWS if blow.startswith(only)]
    if not among:
        raise UsageError(f"no blow begins with {only!r}", "See gapless soak --help.")
    running = Soak(seed, empty_folder(keep_data) if keep_data else None)
    total = len(str(cycles))

    def tell(cycle: int, took_s: float, blow: str) -> None:
        typer.echo(f"{cycle:{total}} of {cycles}  {took_s:5.1f} s  {blow}", err=True)

    summary = asyncio.run(running.run(draw(seed, cycles, among), tell))
    if as_json:
        typer.echo(json.dumps(vars(summary), indent=2))
    else:
        show(summary)
    if summary.problem:
        raise typer.Exit(1)


def empty_folder(path: Path) -> Path:
    """What an earlier run left there would be counted as of this one."""
    from gapless.core.errors import UsageError

    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is there already and not empty", "Give a new folder.")
    return path


def show(summary: SoakSummary) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("soak", f"seed {summary.seed}", show_header=True)
    rows = {
        "blows": ", ".join(f"{count} {how}" for how, count in sorted(summary.blows.items())),
        "published": f"{summary.published:,}",
        "deliveries that were right": f"{summary.deliveries:,}",
        "slowest recovery": f"{summary.slowest_s:.1f} s, {summary.slowest}",
        "promises": f"broken: {summary.problem}" if summary.problem else "all kept",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    Console(highlight=False).print(table)
