"""`gapless up`: a whole network on this machine, one process per broker, watched over."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.broker import NetworkFile  # noqa: TC001 - typer reads it
from gapless.cli.configuration import Limits, SettingsFile, read_limits
from gapless.cli.serve import (
    DATA,
    AdminHosts,
    Data,
    HttpHosts,
    HttpOrigins,
    Insecure,
    LogJson,
    LogLevel,
    MetricsOpen,
    MqttJson,
)
from gapless.cli.supervision import (
    LOOK_S,
    PROGRAM,
    BrokerProcess,
    is_wanted,
    listen,
    look_at,
    stop_all,
    watch,
)
from gapless.cli.terminal import visible_lines
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from gapless.cli.status import Found
    from gapless.node.network import BrokerEntry

SHOW_S = 1.0


def up(
    network: NetworkFile,
    data: Data = DATA,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run only this broker of the network; repeatable."),
    ] = None,
    admin_host: AdminHosts = None,
    metrics_open: MetricsOpen = False,
    http_host: HttpHosts = None,
    http_origin: HttpOrigins = None,
    mqtt_json: MqttJson = False,
    insecure: Insecure = False,
    config: SettingsFile = None,
    limits: Limits = None,
    log_json: LogJson = False,
    log_level: LogLevel = "info",
) -> None:
    """Run every broker of a network on this machine; restart a broker that crashes.

    Each broker is a process and uses one core, so this is also the way to use several cores.
    Brokers with the same `process = "left"` in the file share one. Ctrl-C stops all brokers in
    order. With security, give --ca and --access-token to see their statistics.

    \b
    [[cell]]
    name = "publishers"
    brokers = [{ name = "p", listen = "127.0.0.1:7117" }]
    links = ["subscribers"]
    [[cell]]
    name = "subscribers"
    subscribers = true
    brokers = [{ name = "s", listen = "127.0.0.1:7119" }]
    [[topic]]
    name = "trades"
    pubends = ["p"]

    With `store = "postgresql://…"` under [network], or at one broker, commits go there too. For
    each address in `standbys = ["127.0.0.1:7217"]` of a broker a process stands by to take over.
    """
    from gapless.broker.networks import read_network

    brokers = [broker for cell in read_network(network).cells for broker in cell.brokers]
    names = [broker.name for broker in brokers]
    if unknown := sorted(set(only or ()) - set(names)):
        problem = f"the network has no broker {unknown[0]!r}"
        raise UsageError(problem, f"It has: {', '.join(names)}.")
    check_addresses([each for each in brokers if not only or each.name in only])
    command = [*PROGRAM, "broker", str(network), "--with-parent", "--data", str(data)]
    command += ["--insecure"] if insecure else []
    command += [f"--admin-host={each}" for each in admin_host or ()]
    command += ["--metrics-open"] if metrics_open else []
    command += [f"--http-host={each}" for each in http_host or ()]
    command += [f"--http-origin={each}" for each in http_origin or ()]
    command += ["--mqtt-json"] if mqtt_json else []
    read_limits(limits, config)  # refuses here what no broker would take
    command += [f"--config={config}"] if config is not None else []
    command += ["--log-json"] if log_json else []
    command += [f"--log-level={log_level}"]
    command += [f"--set={pair}" for pair in limits or ()]
    crew = Crew(network, data, command, tuple(only or ()))
    keep_up(crew)
    if all(child.has_given_up for child in crew.children):
        raise typer.Exit(1)


def by_process(brokers: Sequence[BrokerEntry]) -> list[list[str]]:
    """Names of the brokers that run in each process, in the order of the file."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in brokers:
        key = (each.process, "" if each.process else each.name)
        found.setdefault(key, []).append(each.name)
    return list(found.values())


def standbys_of(broker: BrokerEntry, command: list[str], data: Path) -> list[BrokerProcess]:
    """A process for each address where a standby of the broker is to listen."""
    from gapless.cli.where import STANDBYS

    made = []
    for number, address in enumerate(broker.standbys, 1):
        folder = data / STANDBYS / str(number)
        options = ["--data", str(folder), "--listen", address]  # the last --data counts
        name, log = f"{broker.name} ({number})", folder / broker.name / "log"
        made.append(BrokerProcess(name, [*command, *options, broker.name], log))
    return made


class Crew:
    """The processes of all brokers of a network file, which may change meanwhile."""

    def __init__(
        self, network: Path, data: Path, command: list[str], only: tuple[str, ...]
    ) -> None:
        self._network = network
        self._data = data
        self._command = command
        self._only = only
        self.children: list[BrokerProcess] = []
        self._digest = self._take()

    def _take(self) -> str:
        """Have a process for each broker of the file, and no other; the digest of the file."""
        from gapless.broker.networks import read_network

        file = read_network(self._network)
        brokers = [each for cell in file.cells for each in cell.brokers]
        wanted: list[BrokerProcess] = []
        chosen = [each for each in brokers if not self._only or each.name in self._only]
        for names in by_process(chosen):
            folders = [self._data / name for name in names]
            command = [*self._command, *names]
            shown = ", ".join(names)
            wanted.append(BrokerProcess(shown, command, folders[0] / "log", folders[1:]))
        for each in chosen:
            wanted += standbys_of(each, self._command, self._data)
        known = {each.name: each for each in self.children}
        gone = [each for each in self.children if each.name not in {one.name for one in wanted}]
        self.children[:] = [known.get(each.name, each) for each in wanted]
        stop_all([each for each in gone if each.process is not None])
        return f"{file.digest:016x}"

    def look(self, children: Sequence[BrokerProcess]) -> list[str]:
        """What there is to tell. When brokers have read another file, it counts here too."""
        from gapless.broker.addresses import read_addresses

        if any(each.process and each.process.poll() == 0 for each in children):
            with contextlib.suppress(UsageError):  # a broker that was taken out ends by itself
                self._digest = self._take()
        told = look_at(self.children)
        for child in self.children:
            digest = read_addresses(child.log.parent).get("network", self._digest)
            if child.is_ready and digest != self._digest:
                with contextlib.suppress(UsageError):
                    self._digest = self._take()
                break
        return told


def keep_up(crew: Crew) -> None:
    """Start all brokers and watch them, until a signal comes or all have given up."""
    stop = threading.Event()
    listen(crew.children, stop)
    try:
        if sys.stdout.isatty():
            watch_live(crew, stop)
        else:
            watch(crew.children, stop, crew.look)
    finally:
        stop_all(crew.children)


def check_addresses(brokers: list[BrokerEntry]) -> None:
    """On one machine each needs an address of its own; the file may be of several machines."""
    from gapless.broker.addresses import parse_address

    taken: dict[tuple[str, int], str] = {}
    for each in brokers:
        for address in (each.listen, *each.standbys):
            at = parse_address(address)
            if at[1] and (other := taken.setdefault(at, each.name)) != each.name:
                problem = f"{other} and {each.name} would both listen on {address}"
                remedy = "Give each a port of its own in the network file (0: any)."
                raise UsageError(problem, remedy)


def watch_live(crew: Crew, stop: threading.Event) -> None:
    """For a terminal: a table that stays up to date."""
    from rich.live import Live

    shown_s = 0.0
    with Live(auto_refresh=False) as live:
        while is_wanted(crew.children, stop):
            for told in crew.look(crew.children):
                live.console.print(visible_lines(told), markup=False)
                shown_s = 0.0
            if time.monotonic() - shown_s > SHOW_S:
                shown_s = time.monotonic()
                live.update(table(crew.children), refresh=True)
            stop.wait(LOOK_S)


def table(children: list[BrokerProcess]) -> Table:
    from gapless.broker.addresses import read_addresses
    from gapless.cli.status import ask, brokers_table
    from gapless.cli.where import admin_of

    found: Found = {}
    restarts: dict[str, int] = {}
    for child in children:
        for name, folder in child.brokers():
            address = admin_of(read_addresses(folder))
            try:
                found[name] = ask(address) if address and child.process else child.state or None
            except UsageError:  # we may not look: give --ca and --access-token
                found[name] = "not shown"
            restarts[name] = max(0, child.restarts)
    return brokers_table(found, restarts)
