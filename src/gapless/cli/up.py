"""`gapless up`: a whole network on this machine, one process per broker, watched over."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
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
from gapless.cli.terminal import visible_lines
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from gapless.cli.status import Found
    from gapless.node.network import BrokerEntry

LOOK_S = 0.1
SHOW_S = 1.0
RESTART_S, RESTART_LONGEST_S = 0.2, 60.0
STEADY_S = 10.0
"""A broker that ran for so long is restarted at once; one that did not, later and later."""

QUICK_ENDS_MAX = 20
"""A broker that ended so often in a row before it had run for `STEADY_S` is not started again,
about a quarter of an hour after the first time. The others go on."""

WRONG_USAGE = 2
"""The exit code of a broker that cannot run as it was told to: to try again will not help."""

STOP_S = 15.0
LAST_WORDS_MAX = 2_000
"""So many bytes at the end of a log are looked at."""

PROGRAM = [sys.executable, "-c", "from gapless.cli import main; main()"]


class Restarts:
    """When a process that ended is to be started again."""

    def __init__(self) -> None:
        self.quick_ends = 0  # in a row

    def wait_s(self, ran_s: float) -> float | None:
        """It ran for so long, and ended: how long to wait. None: it is not worth trying again."""
        if ran_s > STEADY_S:
            self.quick_ends = 0
            return 0.0
        self.quick_ends += 1
        if self.quick_ends >= QUICK_ENDS_MAX:
            return None
        return float(min(RESTART_S * 2**self.quick_ends, RESTART_LONGEST_S))


@dataclass
class BrokerProcess:
    """One broker's process, over its restarts."""

    name: str
    command: list[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    due_s: float | None = 0.0  # None: it is not started again
    pauses: Restarts = field(default_factory=Restarts)
    restarts: int = -1
    is_ready: bool = False

    def start(self) -> int:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,  # closes when we end, however we end: then it stops too
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: we stop them in order
            )
        self.started_s = time.monotonic()
        self.is_ready = False
        self.restarts += 1
        return self.process.pid

    def look(self) -> str:
        """Start it if it is due; what there is to tell, if anything."""
        now_s = time.monotonic()
        if self.process is None:
            if self.due_s is None or now_s < self.due_s:
                return ""
            number = self.start()
            return f"{self.name} started {'again ' if self.restarts else ''}as process {number}"
        code = self.process.poll()
        if code is None:
            return self._look_ready(self.process.pid)
        self.forget()
        words = last_words(self.log)
        if code == WRONG_USAGE:
            problem = (
                f"the broker {self.name} cannot run with these settings, so all brokers are stopped"
            )
            raise UsageError(problem, f"Its log is {self.log}, and ends so:\n  {words}")
        ended = f"{self.name} ended with code {code}; see {self.log}"
        if words:
            ended += f"\n  {words}"
        wait_s = self.pauses.wait_s(now_s - self.started_s)
        self.due_s = None if wait_s is None else now_s + wait_s
        if wait_s is None:
            times = f"{QUICK_ENDS_MAX} times in a row within {STEADY_S:g} s of its start"
            return f"{ended}\n  {self.name} ended {times}: it is not started again"
        return ended

    def _look_ready(self, number: int) -> str:
        """Has it told where it is since it was started?"""
        from gapless.broker.addresses import read_addresses
        from gapless.broker.doors import show_doors

        told = read_addresses(self.log.parent) if not self.is_ready else {}
        if told.get("process") != str(number):
            return ""
        self.is_ready = True
        doors = show_doors(told, is_secure=told["url"].startswith("gapless+tls"))
        return f"{self.name} is ready at {told['url']}{doors}"

    @property
    def has_given_up(self) -> bool:
        return self.due_s is None and self.process is None

    def forget(self) -> None:
        assert self.process is not None
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None


def last_words(log: Path) -> str:
    """What a broker that gave up says of it, last of all; nothing of one that was killed."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - LAST_WORDS_MAX))
        *_, last = file.read().decode(errors="replace").splitlines() or [""]
    return last if last.startswith("gapless: ") else ""


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

    Each broker uses one core, so this is also the way to use several cores. Ctrl-C stops all
    brokers in order. With security, give --ca and --access-token to see their statistics.

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
    children = [
        BrokerProcess(name, [*command, name], data / name / "log")
        for name in names
        if not only or name in only
    ]
    keep_up(children, data)
    if all(child.has_given_up for child in children):
        raise typer.Exit(1)


def keep_up(children: list[BrokerProcess], data: Path) -> None:
    """Start all brokers and watch them, until a signal comes or all have given up."""
    stop = threading.Event()
    listen(children, stop)
    try:
        if sys.stdout.isatty():
            watch_live(children, data, stop)
        else:
            watch(children, stop)
    finally:
        stop_all(children)


def listen(children: list[BrokerProcess], stop: threading.Event) -> None:
    """Signals: most stop us; SIGHUP is for the brokers, unless our terminal is closed."""
    from gapless.broker.process import Terminal

    terminal = Terminal()

    def on_hang_up(*_: object) -> None:
        if terminal.is_gone():
            stop.set()
            return
        for child in children:
            if child.is_ready and child.process is not None:
                child.process.send_signal(signal.SIGHUP)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    signal.signal(signal.SIGHUP, on_hang_up)


def check_addresses(brokers: list[BrokerEntry]) -> None:
    """On one machine each needs an address of its own; the file may be of several machines."""
    from gapless.broker.addresses import parse_address

    taken: dict[tuple[str, int], str] = {}
    for each in brokers:
        at = parse_address(each.listen)
        if at[1] and (other := taken.setdefault(at, each.name)) != each.name:
            problem = f"{other} and {each.name} would both listen on {each.listen}"
            raise UsageError(problem, "Give each a port of its own in the network file (0: any).")


def watch(children: list[BrokerProcess], stop: threading.Event) -> None:
    """For pipes: a line for each thing that happens."""
    while is_wanted(children, stop):
        for child in children:
            if told := child.look():
                say(told)
        stop.wait(LOOK_S)


def is_wanted(children: list[BrokerProcess], stop: threading.Event) -> bool:
    """Go on watching? Not when we are told to stop, nor when there is nobody left to start."""
    return not stop.is_set() and not all(child.has_given_up for child in children)


def say(line: str) -> None:
    """To whoever still listens: brokers are not stopped because nobody reads about them."""
    with contextlib.suppress(OSError):
        typer.echo(line)


def watch_live(children: list[BrokerProcess], data: Path, stop: threading.Event) -> None:
    """For a terminal: a table that stays up to date."""
    from rich.live import Live

    shown_s = 0.0
    with Live(auto_refresh=False) as live:
        while is_wanted(children, stop):
            for child in children:
                if told := child.look():
                    live.console.print(visible_lines(told), markup=False)
                    shown_s = 0.0
            if time.monotonic() - shown_s > SHOW_S:
                shown_s = time.monotonic()
                live.update(table(children, data), refresh=True)
            stop.wait(LOOK_S)


def table(children: list[BrokerProcess], data: Path) -> Table:
    from gapless.broker.addresses import read_addresses
    from gapless.cli.status import admin_of, ask, brokers_table

    found: Found = {}
    for child in children:
        address = admin_of(read_addresses(data / child.name))
        try:
            found[child.name] = ask(address) if address and child.process else None
        except UsageError:  # we may not look: give --ca and --access-token
            found[child.name] = "not shown"
    restarts = {child.name: max(0, child.restarts) for child in children}
    return brokers_table(found, restarts)


def stop_all(children: list[BrokerProcess]) -> None:
    running = [child for child in children if child.process is not None]
    for child in running:
        assert child.process is not None
        child.process.terminate()
    deadline_s = time.monotonic() + STOP_S
    for child in running:
        assert child.process is not None
        try:
            child.process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()
        say(f"{child.name} stopped")
        child.forget()
