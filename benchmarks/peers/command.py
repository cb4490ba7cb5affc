"""`python -m benchmarks peers`: every broker that is installed, in one run, interleaved."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from rich.console import Console

from benchmarks.peers.adapter import PEERS, Setting, load_peer
from benchmarks.peers.brokers.gapless import BEST_EFFORT
from benchmarks.peers.details import plot, tables
from benchmarks.peers.physical import limits
from benchmarks.peers.verdict import Contestant, Results, report
from benchmarks.peers.workloads import WORKLOADS, Figures, Length

QUICK, FULL = Length(1.0, 3.0), Length(2.0, 8.0)
ONLY_OURS = ("W1-1", "latency")
WITH_BEST_EFFORT = ("W1-1", "W1-10", "W1-100")


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks peers",
        description="gapless and its peers on the same workloads. Install the peers first: "
        "Debian has redis-server, nats-server, mosquitto, rabbitmq-server and activemq.",
    )
    parser.add_argument("--quick", action="store_true", help="one short repeat, for a first look")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results")
    parser.add_argument("--repeats", type=int, help="of everything; default 3, with --quick 1")
    parser.add_argument("--peers", default=",".join(PEERS), help="default: all of %(default)s")
    parser.add_argument("--clients", default="lib,lean", help="default: %(default)s")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="default: %(default)s")
    options = parser.parse_args(words)
    console = Console()
    contestants = _contestants(options.peers.split(","), options.clients.split(","), console)
    results = Results({}, {})
    length = QUICK if options.quick else FULL
    folder = Path(tempfile.mkdtemp(prefix=".bench-", dir=Path.cwd()))  # on a real disk
    try:
        for workload in _workloads(options.workloads.split(",")):
            for _ in range(options.repeats or (1 if options.quick else 3)):
                results.limits.setdefault(workload, []).append(
                    limits(workload, quick=options.quick)
                )
                for who in _in(workload, contestants):
                    figures = _run(who, workload, length, folder, console)
                    if figures is not None:
                        results.figures.setdefault((workload, who), []).append(figures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    command = " ".join(["python -m benchmarks peers", *words])
    for table in (*tables(results), report(results)):
        table.show()
        if options.keep:
            table.keep(command)
    path = plot(results)
    if path is not None:
        console.print(f"plot: {path}")


def _contestants(peers: list[str], clients: list[str], console: Console) -> list[Contestant]:
    found = []
    for name in dict.fromkeys(("gapless", *peers)):
        peer = load_peer(name)
        if not peer.is_installed():
            console.print(f"{name} is not installed: left out", style="dim")
            continue
        found += [Contestant(name, each) for each in peer.clients if each in clients]
    return found


def _workloads(names: list[str]) -> list[str]:
    """W1 stands for all its sizes."""
    known = {name: [each for each in WORKLOADS if each.startswith(name)] for name in names}
    found = [each for name in names for each in ([name] if name in WORKLOADS else known[name])]
    return list(dict.fromkeys(found))


def _in(workload: str, contestants: list[Contestant]) -> list[Contestant]:
    found = [who for who in contestants if who.peer == "gapless" or workload not in ONLY_OURS]
    if workload in WITH_BEST_EFFORT:
        found.insert(1, Contestant("gapless", BEST_EFFORT))
    return found


def _run(
    who: Contestant, workload: str, length: Length, folder: Path, console: Console
) -> Figures | None:
    peer = load_peer(who.peer)
    setting = Setting(who.peer, who.client, str(folder / who.peer), peer.port, workload)
    begin = time.monotonic()
    try:
        figures = WORKLOADS[workload](peer, setting, length)
    except (OSError, RuntimeError, EOFError) as error:
        console.print(f"{workload} {who}: {str(error)[-600:]}", style="red", markup=False)
        return None
    told = ", ".join(f"{name} {value:,.1f}" for name, value in figures.items())
    console.print(f"{workload} {who} ({time.monotonic() - begin:.0f} s): {told}", style="dim")
    return figures
