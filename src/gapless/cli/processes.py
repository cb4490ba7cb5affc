"""`gapless serve --processes N`: one broker as several processes, for machines with many cores.

Theory of operation
    The processes are brokers of one small network (`broker.networks`), each with a folder of its
    own below the data folder. All of them listen at the one address that clients know, and the
    system spreads connections over them. Each has an address of its own besides, where redirects
    lead. This process starts the others, starts one again that ended, and stops all in order.

    Which pubends and which named subscriptions are in which folder depends on the number of
    processes. So the data folder remembers the number, and another one is refused.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gapless.broker.addresses import EVERYWHERE, parse_address, show_endpoint
from gapless.broker.networks import process_name, processes_network, single_network
from gapless.broker.process import tell_manager
from gapless.cli.supervision import PROGRAM, BrokerProcess, listen, stop_all, watch
from gapless.core.errors import UsageError
from gapless.core.identity import BrokerName

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gapless.broker.settings import Settings
    from gapless.node.network import Network

PROCESSES_MAX = 64
RECORD = "processes.json"


@dataclass(frozen=True)
class Plan:
    """How many processes one broker is, and where it is."""

    name: str
    count: int
    data: Path
    listen: str

    @property
    def record(self) -> Path:
        return self.data / f"{self.name}-{RECORD}"

    def check(self, store: str | None = None) -> None:
        """`UsageError` if it cannot run so, or if the data folder is that of another plan."""
        if not 1 <= self.count <= PROCESSES_MAX:
            raise UsageError(
                f"{self.count} is no number of processes", f"Give 1 to {PROCESSES_MAX}."
            )
        if store is not None and self.count > 1:
            raise UsageError(
                "--store is for a broker of one process",
                "Leave --processes out, or describe the processes in a network file: gapless up.",
            )
        before = self._recorded()
        if before is None and self.count > 1 and (self.data / self.name / "volume").exists():
            before = 1
        if before is not None and before != self.count:
            raise UsageError(
                f"{self.data} was made with --processes {before}, not {self.count}: which pubends "
                "and subscriptions a process has depends on how many there are",
                f"Start it with --processes {before}, or give another folder with --data.",
            )
        if self.count > 1 and parse_address(self.listen)[0] in EVERYWHERE:
            raise UsageError(
                f"with --processes nobody can be sent on from {self.listen}",
                "Give --listen one address of this machine, which clients reach.",
            )

    def _recorded(self) -> int | None:
        try:
            return int(json.loads(self.record.read_bytes())["processes"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsageError(f"cannot read {self.record}: {error}", "Restore it.") from None

    def keep(self, address: str) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        self.record.write_text(json.dumps({"processes": self.count, "listen": address}) + "\n")

    def address(self) -> str:
        """Where clients connect: if any port may be taken, the one of last time, if it is free.
        `UsageError` if another program listens there: the system would give it connections."""
        host, port = parse_address(self.listen)
        if port == 0 and self.record.exists():
            last = parse_address(json.loads(self.record.read_bytes())["listen"])[1]
            if (found := _free(host, last)) is not None:
                return found
        found = _free(host, port)
        if found is None:
            raise UsageError(f"{self.listen} is in use", "Give another address with --listen.")
        return found


def _free(host: str, port: int) -> str | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()  # two that are bound may both listen, but not to the same connections
        except OSError:
            return None
        return show_endpoint(*probe.getsockname()[:2])


@dataclass
class OneOfMany(BrokerProcess):
    """One process of a broker; the last one to be ready tells where clients connect."""

    url: str = ""
    fellows: list[OneOfMany] = field(default_factory=list)

    def _look_ready(self, number: int) -> str:
        told = super()._look_ready(number)
        if told and all(each.is_ready for each in self.fellows):
            tell_manager("READY=1")
            told += f"\nbroker is ready at {self.url}, {len(self.fellows)} processes"
        return told


def run_processes(plan: Plan, *, is_secure: bool) -> None:
    """Start all processes of a broker and watch them, until a signal comes."""
    plan.check()
    address = plan.address()
    plan.keep(address)
    url = f"{'gapless+tls' if is_secure else 'gapless'}://{address}"
    children: list[OneOfMany] = []
    for number in range(plan.count):
        name = process_name(plan.name, number)
        command = [*PROGRAM, *sys.argv[1:], "--listen", address, "--process", str(number)]
        log = plan.data / name / "log"
        children.append(OneOfMany(name, command, log, url=url, fellows=children))
    stop = threading.Event()
    listen(children, stop)
    try:
        watch(children, stop)
    finally:
        stop_all(children)


def serve_part(
    plan: Plan,
    number: int | None,
    settings: Settings,
    calls: tuple[Callable[..., None], Callable[..., object]],
    topics: Sequence[str],
    security: object,
) -> None:
    """Be the one process, or that of this number, or the one that starts all others. The calls
    run a broker, and make what reads its files anew."""
    begin, anew = calls
    if plan.count == 1:
        own = BrokerName(plan.name)

        def alone() -> Network:
            return single_network(topics, security, own)

        begin(own, alone(), settings, reread=anew(alone, settings))
        return
    if number is None:
        run_processes(plan, is_secure=security is not None)
        return
    os.environ.pop("NOTIFY_SOCKET", None)  # the process that started us tells when all are ready
    if number:  # the first one has the doors
        admin = settings.admin and "127.0.0.1:0"
        settings = replace(settings, admin=admin, http=None, mqtt=None, mqtt_ws=None)
    settings = replace(settings, listen=None, shared_listen=plan.listen)
    host = parse_address(plan.listen)[0]
    part = process_name(plan.name, number)

    def network() -> Network:
        return processes_network(plan.name, plan.count, host, topics, security)

    begin(part, network(), settings, reread=anew(network, settings), with_parent=True)
