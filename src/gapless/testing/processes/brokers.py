"""The brokers of a network as processes on loopback: started, killed, hung, and measured.

Theory of operation
    Each broker is a process of its own with a folder below one that is removed at the end, unless
    a folder is given. Its port is any free one, and the same after a restart. It holds our end of
    its standard input and stops when that closes, so none outlives us, however we end.
    A *detour* makes one broker dial another at an address that is not its own: there is a proxy.
    Processor time and memory are as `/proc/<pid>` has them. Where there is no such file they are
    None, and what is judged by them is left out and said so.

Invariants
    I1  a broker counts as ready once it has written its address with its present process number
    I2  after `async with` none of the processes is left
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.node.network import Network

PROGRAM = f"import sys; from {__name__} import run_broker; run_broker(sys.argv[1])"
ANSWER_S = 5.0
LOOK_S = 0.01
READY_S = 120.0
"""How long a broker may take to be ready: much longer than it does."""


def run_broker(options: str) -> None:
    """What each process runs; `options` is what `Processes.start` made of its arguments."""
    from gapless.broker.networks import joining_network, read_network
    from gapless.broker.process import run
    from gapless.broker.settings import Settings
    from gapless.core.identity import BrokerName
    from gapless.node.config import Config

    given = json.loads(options)
    network = read_network(Path(given["file"]))
    if given["join"]:
        network = joining_network(given["name"])
    run(
        BrokerName(given["name"]),
        with_detours(network, given["detours"]),
        Settings(
            **{"data": Path(given["data"]), "admin": None, **given["settings"]},
            join=given["join"],
            security_folder=Path(given["file"]).parent,
        ),
        config=Config(**given["config"]),
        with_parent=True,
    )


def with_detours(network: Network, detours: Mapping[str, str]) -> Network:
    """The same network where these brokers seem to be elsewhere."""
    cells = tuple(
        replace(
            cell,
            brokers=tuple(
                replace(each, listen=detours.get(each.name, each.listen)) for each in cell.brokers
            ),
        )
        for cell in network.cells
    )
    return replace(network, cells=cells)


def cell(name: str, brokers: Sequence[str], above: str = "", *, subscribers: bool = False) -> str:
    """One cell of a network file."""
    listed = ", ".join(f'{{ name = "{each}", listen = "127.0.0.1:0" }}' for each in brokers)
    links = f'links = ["{above}"]\n' if above else ""
    return (
        f'[[cell]]\nname = "{name}"\nbrokers = [{listed}]\n{links}'
        f"subscribers = {str(subscribers).lower()}\n"
    )


def topic(name: str, *hosts: str) -> str:
    """One topic of a network file, with a pubend at each of these brokers."""
    return f'[[topic]]\nname = "{name}"\npubends = {json.dumps(hosts)}\n'


class Processes:
    """The brokers of one network, by name; `async with` kills what is left."""

    program = PROGRAM
    """Python code that takes the options of a broker as its argument, and runs it."""

    def __init__(
        self,
        *text: str,
        folder: Path | None = None,
        has_admin: bool = False,
        config: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`text`: parts of a network file. `config`, `settings`: unlike the defaults."""
        self._text = "".join(text)
        self._config = dict(config or {})
        self._settings = {"admin": "127.0.0.1:0"} if has_admin else {}
        self._settings |= settings or {}
        self._scratch: TemporaryDirectory[str] | None = None
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.detours: dict[str, dict[str, str]] = {}
        """By broker that dials: where it finds others. For those that are started afterwards."""
        if folder is not None:
            self.folder = folder

    # --- starting --------------------------------------------------------------------------------

    async def start(self, *names: str, join: str | None = None) -> None:
        """Start these, and wait until all are ready. `join`: they are not in the network file, and
        join it at this address."""
        for name in names:
            self._spawn(name, join)
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

    def _spawn(self, name: str, join: str | None) -> None:
        (self.folder / name).mkdir(exist_ok=True)
        detours = self.detours.get(name, {})
        options = {
            "file": str(self.folder / "network.toml"),
            "name": name,
            "data": str(self.folder),
            "join": join,
            "config": self._config,
            # Its own port is any free one, whatever the others are told.
            "settings": {**self._settings, "listen": "127.0.0.1:0"} if detours else self._settings,
            "detours": detours,
        }
        with (self.folder / name / "log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-c", self.program, json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us
            )

    def _is_ready(self, name: str) -> bool:
        process = self.running[name]
        if process.poll() is not None:
            raise UsageError(
                f"the broker {name} ended with code {process.returncode}: "
                f"{' '.join(self.log(name).splitlines()[-1:])}",
                "Report this.",
            )
        return self._addresses(name).get("process") == str(process.pid)

    # --- stopping --------------------------------------------------------------------------------

    def kill(self, *names: str) -> None:
        """As `kill -9` does; all of them at once."""
        for name in names:
            self.running[name].kill()
        for name in names:
            self._forget(name)

    def hang(self, name: str) -> None:
        """It does nothing any more, and closes nothing."""
        self.signal(name, signal.SIGSTOP)

    def wake(self, name: str) -> None:
        self.signal(name, signal.SIGCONT)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.running[name].send_signal(number)

    async def ended(self, name: str) -> int:
        """Wait for one to end by itself; its exit code."""
        process = self.running[name]
        while process.poll() is None:  # noqa: ASYNC110 - another process
            await asyncio.sleep(LOOK_S)
        self._forget(name)
        return process.returncode

    async def stop(self, *names: str) -> None:
        """In order, as SIGTERM does."""
        for name in names:
            self.signal(name, signal.SIGTERM)
        for name in names:
            await self.ended(name)

    def _forget(self, name: str) -> None:
        process = self.running.pop(name)
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    async def __aenter__(self) -> Self:
        if not hasattr(self, "folder"):
            self._scratch = TemporaryDirectory(prefix="gapless-")
            self.folder = Path(self._scratch.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "network.toml").write_text(self._text, encoding="utf-8")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.kill(*self.running)
        if self._scratch is not None:
            self._scratch.cleanup()

    # --- looking ---------------------------------------------------------------------------------

    def _addresses(self, name: str) -> dict[str, str]:
        from gapless.broker.addresses import read_addresses

        return read_addresses(self.folder / name)

    def address(self, name: str) -> str:
        told = self._addresses(name).get("listen")
        if told is None:
            raise ConnectionError(f"{name} has not told its address yet")
        return told

    def url(self, *names: str) -> str:
        """Of these brokers, the first that answers."""
        scheme = self._addresses(names[0])["url"].partition("://")[0]
        return f"{scheme}://{','.join(map(self.address, names))}"

    def admin(self, name: str) -> str | None:
        """The address of its admin port, if it `has_admin` and what that needs is installed."""
        return self._addresses(name).get("admin")

    def log(self, name: str) -> str:
        return (self.folder / name / "log").read_text(encoding="utf-8")

    async def statistics(self, name: str) -> dict[str, Any] | None:
        """All figures of a broker, if it `has_admin` and what that needs is installed."""
        found = await self._ask(name, "statistics")
        return found if isinstance(found, dict) else None

    async def subscriptions(self, name: str) -> list[dict[str, Any]]:
        """The durable subscriptions of a broker that `has_admin`."""
        found = await self._ask(name, "subscriptions")
        if not isinstance(found, list):
            raise UsageError(f"{name} does not answer at its admin port", "See its log.")
        return found

    async def _ask(self, name: str, what: str) -> Any | None:
        address = self.admin(name)
        return await asyncio.to_thread(ask, address, what) if address else None

    def cpu_s(self, name: str) -> float | None:
        """Processor time of a broker so far; None where the system does not tell."""
        return cpu_s(self.running[name].pid)

    def memory_bytes(self, name: str) -> int | None:
        """Memory that it holds now; None where the system does not tell."""
        return memory_bytes(self.running[name].pid)


def ask(address: str, what: str) -> Any | None:
    """What a broker answers at its admin port; None if it does not."""
    from urllib.request import urlopen

    try:
        with urlopen(f"http://{address}/{what}", timeout=ANSWER_S) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return None


def cpu_s(process: int) -> float | None:
    """User and system time of a process so far, in steps of about 10 ms."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_bytes(process: int) -> int | None:
    """The resident set of a process."""
    try:
        text = Path(f"/proc/{process}/statm").read_text(encoding="utf-8")
    except OSError:
        return None
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
