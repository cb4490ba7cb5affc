"""The brokers of a network as processes on loopback: started, killed, and their processor time.

Theory of operation
    Each broker is a process of its own with a data folder below one that is removed at the end.
    Its port is any free one, and the same after a restart. It holds our end of its standard input
    and stops when that closes, so none outlives us, however we end.
    Processor time is user and system time as `/proc/<pid>/stat` has it, in steps of about 10 ms.
    Where there is no such file it is None, and what is judged by it is left out and said so.

Invariants
    I1  a broker counts as ready once it has written its address with its present process number
    I2  after `async with` none of the processes is left
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "quotes"
HOST = "p"
"""The broker that publishers connect to, in every network here."""

PROGRAM = "import sys; from gapless.cli.real.network import run_broker; run_broker(*sys.argv[1:])"
LOOK_S = 0.01
READY_S = 60.0
"""How long a broker may take to be ready: much longer than it does."""


def run_broker(file: str, name: str, data: str, scheme: str, admin: str) -> None:
    """What each process runs."""
    from gapless.broker.process import run
    from gapless.broker.settings import Settings
    from gapless.cli.broker import read_network
    from gapless.core.identity import BrokerName
    from gapless.node.config import Config

    run(
        BrokerName(name),
        read_network(Path(file)),
        Settings(data=Path(data), admin=admin or None),
        config=Config(propagates=scheme == "propagation"),
        with_parent=True,
    )


def cell(name: str, brokers: Sequence[str], above: str = "", *, subscribers: bool = False) -> str:
    """One cell of a network file."""
    listed = ", ".join(f'{{ name = "{each}", listen = "127.0.0.1:0" }}' for each in brokers)
    links = f'links = ["{above}"]\n' if above else ""
    return (
        f'[[cell]]\nname = "{name}"\nbrokers = [{listed}]\n{links}'
        f"subscribers = {str(subscribers).lower()}\n"
    )


class Processes:
    """The brokers of one network, by name; `async with` kills what is left."""

    def __init__(self, *cells: str, scheme: str = "propagation", has_figures: bool = False) -> None:
        self._options = [scheme, "127.0.0.1:0" if has_figures else ""]
        self._text = "".join(cells) + f'[[topic]]\nname = "{TOPIC}"\npubends = ["{HOST}"]\n'
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._scratch: TemporaryDirectory[str]
        self._folder: Path

    async def start(self, *names: str) -> None:
        """Start these, and wait until all are ready."""
        for name in names:
            self._spawn(name)
        try:
            async with asyncio.timeout(READY_S):
                for name in names:
                    while not self._is_ready(name):  # noqa: ASYNC110 - another process
                        await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise UsageError(
                f"the brokers {', '.join(names)} are not ready after {READY_S:g} s",
                "Try again on a machine that has less to do.",
            ) from None

    def _spawn(self, name: str) -> None:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        command = [sys.executable, "-c", PROGRAM]
        command += [str(self._folder / "network.toml"), name, str(self._folder), *self._options]
        with (folder / "log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def _is_ready(self, name: str) -> bool:
        process = self._running[name]
        if process.poll() is not None:
            said = (self._folder / name / "log").read_text(encoding="utf-8").splitlines()
            raise UsageError(
                f"the broker {name} ended with code {process.returncode}: {' '.join(said[-1:])}",
                "Report this.",
            )
        return self._addresses(name).get("process") == str(process.pid)

    def _addresses(self, name: str) -> dict[str, str]:
        from gapless.broker.address import read_addresses

        return read_addresses(self._folder / name)

    def url(self, name: str) -> str:
        return f"gapless://{self._addresses(name)['listen']}"

    async def figures(self, name: str) -> dict[str, Any] | None:
        """All statistics of a broker, if it `has_figures` and what those need is installed."""
        from gapless.cli.status import ask

        address = self._addresses(name).get("admin")
        found = await asyncio.to_thread(ask, address) if address else None
        return found if isinstance(found, dict) else None

    def cpu_s(self, name: str) -> float | None:
        """Processor time of a broker so far; None where the system does not tell."""
        return cpu_s(self._running[name].pid)

    def kill(self, name: str) -> None:
        """As `kill -9` does."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    async def __aenter__(self) -> Self:
        self._scratch = TemporaryDirectory(prefix="gapless-real-")
        self._folder = Path(self._scratch.name)
        (self._folder / "network.toml").write_text(self._text, encoding="utf-8")
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in list(self._running):
            self.kill(name)
        self._scratch.cleanup()


def cpu_s(process: int) -> float | None:
    """User and system time of a process so far."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
