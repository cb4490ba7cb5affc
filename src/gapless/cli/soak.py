"""`gapless soak`: strike a network of real processes again and again; judge what clients saw."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gapless.testing.processes.service_soak import ServiceSoak
    from gapless.testing.processes.soak import Soak, SoakSummary

SERVICES = ("durable", "reliable", "multicast")


def soak(
    cycles: Annotated[
        int, typer.Option(min=1, help="The number of failures; each takes 3 to 20 s.")
    ] = 300,
    seed: Annotated[int, typer.Option(help="The same seed gives the same failures.")] = 1,
    only: Annotated[
        str,
        typer.Option(metavar="WORD", help="Only this kind: kill, hang, cut, stall, half or leave."),
    ] = "",
    service: Annotated[
        str,
        typer.Option(metavar="SERVICE", help="The service: durable, reliable, multicast or all."),
    ] = "durable",
    brokers: Annotated[
        int | None,
        typer.Option(min=6, help="Brokers of the reliable tree (8) or the multicast ring (24)."),
    ] = None,
    keep_data: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A new folder for the brokers' data and logs."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Kill, hang and cut off real brokers under load, and check what clients saw.

    Every subscriber must recover after each failure. What clients of durable topics saw is judged
    at the end by the simulator's checkers. Reliable topics run on a tree and multicast topics on a
    ring of brokers that are killed or hang, one or two at a time: there every event must come once
    and in order, or a gap must be told.
    """
    import asyncio

    if service not in (*SERVICES, "all"):
        raise typer.BadParameter(f"{service!r} is none of {', '.join(SERVICES)}, all")
    services = SERVICES if service == "all" else (service,)
    if brokers is not None and services == ("durable",):
        raise typer.BadParameter("--brokers is for the services reliable and multicast")
    total = len(str(cycles))

    def tell(cycle: int, took_s: float, blow: str) -> None:
        typer.echo(f"{cycle:{total}} of {cycles}  {took_s:5.1f} s  {blow}", err=True)

    summaries = {}
    for each in services:
        folder = (
            None
            if keep_data is None
            else empty_folder(keep_data / each if len(services) > 1 else keep_data)
        )
        soak_of, drawn = prepared(each, seed, cycles, only, brokers, folder)
        summaries[each] = asyncio.run(soak_of.run(drawn, tell))
        if not as_json:
            show(summaries[each], each)
    if as_json:
        found = {each: vars(summary) for each, summary in summaries.items()}
        typer.echo(json.dumps(found if len(found) > 1 else found[services[0]], indent=2))
    if any(summary.problem for summary in summaries.values()):
        raise typer.Exit(1)


def prepared(
    service: str, seed: int, cycles: int, only: str, brokers: int | None, folder: Path | None
) -> tuple[Soak | ServiceSoak, list[str]]:
    """What is to be run, and the blows that fall."""
    from gapless.core.errors import UsageError
    from gapless.testing.processes.service_soak import NETWORKS, ServiceSoak
    from gapless.testing.processes.soak import BLOWS, Soak, draw

    network = None
    if service != "durable":
        network = NETWORKS[service]() if brokers is None else NETWORKS[service](brokers)
    among = [blow for blow in (network.blows if network else BLOWS) if blow.startswith(only)]
    if not among:
        raise UsageError(f"no blow begins with {only!r}", "See gapless soak --help.")
    running = ServiceSoak(seed, network, folder) if network else Soak(seed, folder)
    return running, draw(seed, cycles, among)


def empty_folder(path: Path) -> Path:
    """What an earlier run left there would be counted as of this one."""
    from gapless.core.errors import UsageError

    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError(f"{path} is there already and not empty", "Give a new folder.")
    return path


def show(summary: SoakSummary, service: str = "durable") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(f"soak, {service}", f"seed {summary.seed}", show_header=True)
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
