"""Processes of brokers that are watched over: started again when they end, stopped in order."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from gapless.core.errors import UsageError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

LOOK_S = 0.1
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
    """The process of a broker, or of several, over its restarts."""

    name: str
    command: list[str]
    log: Path
    others: Sequence[Path] = ()
    """Folders of further brokers in the process; the log is in that of the first."""
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    due_s: float | None = 0.0  # None: it is not started again
    pauses: Restarts = field(default_factory=Restarts)
    restarts: int = -1
    is_ready: bool = False
    state: str = ""

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
        self.is_ready, self.state = False, ""
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

        if self.is_ready:
            return ""
        told, *others = (read_addresses(folder) for _, folder in self.brokers())
        if any(each.get("process") != str(number) for each in (told, *others)):
            return ""
        self.is_ready = True
        if told.get("state"):
            self.is_ready = False  # it may become ready later
            is_news, self.state = self.state != told["state"], told["state"]
            return f"{self.name} {self.state}" if is_news else ""
        self.state = ""
        lines = []
        for (name, _), each in zip(self.brokers(), (told, *others), strict=True):
            doors = show_doors(each, is_secure=each["url"].startswith("gapless+tls"))
            lines.append(f"{name} is ready at {each['url']}{doors}")
        return "\n".join(lines)

    def brokers(self) -> list[tuple[str, Path]]:
        """What each broker of the process is called, and its folder."""
        if not self.others:
            return [(self.name, self.log.parent)]
        return [(folder.name, folder) for folder in (self.log.parent, *self.others)]

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


def listen(children: Sequence[BrokerProcess], stop: threading.Event) -> None:
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


def look_at(children: Sequence[BrokerProcess]) -> list[str]:
    """Start what is due; what there is to tell of each."""
    return [line for child in children if (line := child.look())]


def watch(
    children: Sequence[BrokerProcess],
    stop: threading.Event,
    look: Callable[[Sequence[BrokerProcess]], list[str]] = look_at,
) -> None:
    """For pipes: a line for each thing that happens."""
    while is_wanted(children, stop):
        for told in look(children):
            say(told)
        stop.wait(LOOK_S)


def is_wanted(children: Sequence[BrokerProcess], stop: threading.Event) -> bool:
    """Go on watching? Not when we are told to stop, nor when there is nobody left to start."""
    return not stop.is_set() and not all(child.has_given_up for child in children)


def say(line: str) -> None:
    """To whoever still listens: brokers are not stopped because nobody reads about them."""
    with contextlib.suppress(OSError):
        typer.echo(line)


def stop_all(children: Sequence[BrokerProcess]) -> None:
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
