"""`gapless simulate` replays one seed; `gapless swarm` plays many, on all cores."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gapless.testing.run import Outcome

AT_ONCE = (signal.SIGINT, signal.SIG_DFL)
"""For workers: Ctrl-C ends them without a word, so that nobody waits for the seeds they play."""

CHUNK = 8
"""How many seeds a worker gets at a time."""

FAILURES_SHOWN_MAX = 3


SERVICES = ("durable", "reliable", "multicast", "standby", "groups")
ALL = ("durable", "reliable", "multicast")
"""What `gapless swarm --service all` plays, one after the other."""
CLIENTS = "clients"
"""Instead of a service: the durable one, used by shipped clients."""

ServiceOption = Annotated[
    str,
    typer.Option(
        metavar="SERVICE",
        help="The service: durable, reliable or multicast; standby: durable, with stores.",
    ),
]


ClientsOption = Annotated[
    bool,
    typer.Option(
        "--clients",
        help="Play the shipped client, in simulated time, and judge what it tells applications.",
    ),
]


def simulate(
    seed: Annotated[int, typer.Option(help="The run to play.")],
    trace: Annotated[bool, typer.Option("--trace", help="Show every step.")] = False,
    network: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Play on this network instead of a random one."),
    ] = None,
    planted: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Break the protocol on purpose, to see that a checker finds it."
        ),
    ] = "",
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=RATE", help="Only these faults, at this rate per virtual second."
        ),
    ] = None,
    service: ServiceOption = "durable",
    clients: ClientsOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Play one simulated run: a random network with faults, and every promise checked.

    The same seed gives the same run on every machine; compare the hash at the end.
    """
    from gapless.broker.networks import read_network
    from gapless.testing.planted.faults import parts_with
    from gapless.testing.run import simulate as play_durable

    out = typer.echo if trace and not as_json else None
    service = CLIENTS if clients else service
    if service != "durable":
        if network or planted or fault:
            raise typer.BadParameter(
                "--network, --planted and --fault are of the durable service alone"
            )
        outcome = play(service, seed, out)
    else:
        outcome = play_durable(
            seed,
            out=out,
            network=read_network(network) if network is not None else None,
            parts=parts_with(planted) if planted else None,
            fault_rates=read_faults(fault) if fault else None,
        )
    if as_json:
        typer.echo(json.dumps(summary(outcome), indent=2))
    else:
        command = command_for(outcome, network, planted, fault or [], service)
        show(outcome, command, shown=trace)
    if outcome.violation:
        raise typer.Exit(1)


def play(service: str, seed: int, out: Callable[[str], object] | None = None) -> Outcome:
    """A drawn run of a service."""
    from gapless.testing.run import Outcome
    from gapless.testing.run import simulate as play_durable

    match service:
        case "clients":
            from gapless.testing.client_run import simulate_clients

            return simulate_clients(seed, out=out)
        case "durable":
            return play_durable(seed, out=out)
        case "standby":
            from gapless.testing.replica_run import simulate_with_store

            return simulate_with_store(seed, out=out)
        case "reliable":
            from gapless.testing.tree.run import simulate_any_tree

            tree = simulate_any_tree(seed, out)
            lines, last, steps = tree.options, tree.last_lines, tree.lines
            found = (tree.digest, tree.deliveries, tree.violation)
        case "multicast":
            from gapless.testing.scribe.run import simulate_scribe

            ring = simulate_scribe(seed, out=out)
            lines, last, steps = [str(ring.options)], ring.last, ring.steps
            found = (ring.digest, ring.deliveries, ring.violation)
        case "groups":
            from gapless.testing.groups.run import simulate_group

            group = simulate_group(seed, out=out)
            lines, last, steps = group.options, group.last_lines, group.steps
            found = (group.digest, group.finished, group.violation)
        case _:
            raise typer.BadParameter(f"{service!r} is none of {', '.join(SERVICES)}")
    digest, deliveries, violation = found
    return Outcome(
        seed=seed,
        digest=digest,
        steps=steps,
        deliveries=deliveries,
        virtual_us=0,  # they do not say
        violation=violation,
        options=lines,
        last_lines=last,
    )


def read_faults(texts: list[str]) -> dict[str, float]:
    from gapless.testing.options import FAULTS, LOST_DISK, LOST_STAMP

    known = (*FAULTS, LOST_STAMP, LOST_DISK)
    rates: dict[str, float] = {}
    for text in texts:
        kind, _, rate = text.partition("=")
        try:
            rates[kind] = float(rate)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not KIND=RATE, like crash=2") from None
        if kind not in known or not rates[kind] > 0:
            raise typer.BadParameter(f"{text!r}: a rate above 0 of one of {', '.join(known)}")
    return rates


def command_for(
    outcome: Outcome,
    network: Path | None = None,
    planted: str = "",
    faults: Iterable[str] = (),
    service: str = "durable",
) -> str:
    """The one command that plays this run again, with its whole trace."""
    words = ["gapless", "simulate", "--seed", str(outcome.seed), "--trace"]
    if service != "durable":
        words += ["--clients"] if service == CLIENTS else ["--service", service]
    if network is not None:
        words += ["--network", str(network)]
    if planted:
        words += ["--planted", planted]
    for fault in faults:
        words += ["--fault", fault]
    return " ".join(words)


def summary(outcome: Outcome) -> dict[str, object]:
    return {
        "seed": outcome.seed,
        "hash": outcome.digest,
        "steps": outcome.steps,
        "deliveries": outcome.deliveries,
        "virtual_seconds": outcome.virtual_us / 1e6,
        "violation": outcome.violation or None,
        "situations": dict(sorted(outcome.reached.items())),
    }


def show(outcome: Outcome, command: str, *, shown: bool = False) -> None:
    """The outcome for people; a failure with its last lines and how to repeat it."""
    if not outcome.violation:
        took = outcome.virtual_us / 1e6
        virtual = f" in {took:.3f} virtual seconds" if took else ""
        typer.echo(
            f"seed {outcome.seed}: {outcome.steps} steps, {outcome.deliveries} deliveries"
            f"{virtual}, all promises kept; hash {outcome.digest}"
        )
        return
    if not shown:
        for line in (*outcome.options, "…", *outcome.last_lines):
            typer.echo(line)
    typer.echo(f"seed {outcome.seed} violates: {outcome.violation}", err=True)
    typer.echo(f"hash {outcome.digest}; to repeat it: {command}", err=True)


def swarm(
    seeds: Annotated[int, typer.Option(min=1, help="The number of seeds.")] = 1_000,
    first: Annotated[int, typer.Option("--from", min=0, help="The first seed.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="The number of processes.")] = os.cpu_count()
    or 1,
    service: ServiceOption = "durable",
    clients: ClientsOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Play many seeds on all cores, and count the rare situations they met.

    With --service all, so many seeds of each of the three services.
    """
    if service not in (*SERVICES, "all"):
        raise typer.BadParameter(f"{service!r} is none of {', '.join(SERVICES)}, all")
    services = (CLIENTS,) if clients else ALL if service == "all" else (service,)
    results = {each: play_swarm(first, seeds, jobs, each, as_json=as_json) for each in services}
    if as_json:
        one_or_all = results if len(results) > 1 else results[services[0]]
        typer.echo(json.dumps(one_or_all, indent=2))
    if any(each["violations"] for each in results.values()):
        raise typer.Exit(1)


def play_swarm(
    first: int, seeds: int, jobs: int, service: str, *, as_json: bool
) -> dict[str, object]:
    """All seeds of one service, with what they came to; it is shown, unless as JSON by the
    caller."""
    begin = time.perf_counter()
    failed: list[Outcome] = []
    reached: Counter[str] = Counter()
    done = steps = deliveries = 0
    for outcome in progress(play_all(first, seeds, jobs, service), seeds, quiet=as_json):
        done += 1
        steps += outcome.steps
        deliveries += outcome.deliveries
        reached.update(outcome.reached)
        if outcome.violation:
            failed.append(outcome)
    took = time.perf_counter() - begin
    failed.sort(key=lambda outcome: outcome.seed)
    if not as_json:
        if service == "durable":
            show_situations(reached)
        typer.echo(
            f"{service}: {done} seeds in {took:.1f} s ({done / took:.1f} a second), {steps} steps, "
            f"{deliveries} deliveries, {len(failed)} violations"
        )
        for outcome in failed[:FAILURES_SHOWN_MAX]:
            show(outcome, command_for(outcome, service=service))
    return {
        "seeds": done,
        "first": first,
        "seconds": round(took, 1),
        "seeds_per_second": round(done / took, 1),
        "steps": steps,
        "deliveries": deliveries,
        "violations": [summary(outcome) for outcome in failed],
        "situations": dict(sorted(reached.items())),
    }


def play_chunk(seeds: range, service: str) -> list[Outcome]:
    """In a worker: play these seeds."""
    return [play(service, seed) for seed in seeds]


def play_all(first: int, count: int, jobs: int, service: str) -> Iterator[Outcome]:
    """Outcomes as they come. Closing it, also by Ctrl-C, leaves no process behind."""
    chunks = iter(
        [range(low, min(low + CHUNK, first + count)) for low in range(first, first + count, CHUNK)]
    )
    from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait

    pool = ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=AT_ONCE)
    try:
        running = {pool.submit(play_chunk, chunk, service) for chunk in islice(chunks, 2 * jobs)}
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for each in finished:
                more = islice(chunks, 1)
                running.update(pool.submit(play_chunk, chunk, service) for chunk in more)
                yield from each.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def progress(outcomes: Iterator[Outcome], count: int, *, quiet: bool) -> Iterator[Outcome]:
    """Pass outcomes on with a bar on a terminal, a line now and then elsewhere; where standard
    output is for a program (`quiet`), the lines go to standard error."""
    if sys.stdout.isatty() and not quiet:
        from rich.progress import track

        yield from track(outcomes, "playing seeds", total=count, transient=True)
    else:
        step = max(count // 10, 1)
        for number, outcome in enumerate(outcomes, start=1):
            if number % step == 0 or outcome.violation:
                found = f" seed {outcome.seed}: {outcome.violation}" if outcome.violation else ""
                typer.echo(f"{number} of {count} seeds{found}", err=quiet)
            yield outcome


def show_situations(reached: Counter[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from gapless.testing.situations import EXPECTED

    table = Table("situation", "times", title="situations met")
    for name in EXPECTED:
        table.add_row(name, f"{reached[name]:,}" if reached[name] else "[bold red]never[/]")
    Console().print(table)
