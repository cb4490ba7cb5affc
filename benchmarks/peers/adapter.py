"""What a workload needs of a broker: a process to start and kill, and connections to use.

A peer is a module of `benchmarks/peers/brokers` with a `PEER`. Its `Broker` starts, stops and kills
the server; its `Client` is one connection, which publishes or holds subscriptions. "lib" is the
library that people use; "lean" a thin one of ours that speaks the protocol and little more, so that
the broker is the larger part of what is measured.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.peers.model import Event, Interest

READY_S = 90.0
STOP_S = 15.0
HOST = "127.0.0.1"

PEERS = ("gapless", "redis", "nats", "mosquitto", "rabbitmq", "activemq")


@dataclass(frozen=True)
class Setting:
    """One run: which broker, through which client, for which workload. Sent to the processes."""

    peer: str
    client: str
    folder: str  # on a real disk: the broker's files
    port: int
    workload: str

    @property
    def durable(self) -> bool:
        return self.workload in ("W3", "W4", "W5")


class Broker(ABC):
    """A server process that the run owns."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.folder = Path(setting.folder)
        self.process: subprocess.Popen[bytes] | None = None

    # --- to be supplied --------------------------------------------------------------------------

    @abstractmethod
    def command(self) -> list[str]:
        """Write what it needs below `self.folder`; the command to run."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def before_start(self) -> None:  # noqa: B027
        """Start what the server needs beside it."""

    def after_stop(self) -> None:  # noqa: B027
        """End that."""

    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def pids(self) -> list[int]:
        """The server, and what was started, if that is another."""
        assert self.process is not None
        return [self.process.pid, self.pid()]

    def is_ready(self) -> bool:
        return self.answers(b"", b"")

    # --- for all ---------------------------------------------------------------------------------

    def answers(self, question: bytes, beginning: bytes) -> bool:
        """Does it accept a connection, and answer this so?"""
        try:
            with socket.create_connection((HOST, self.setting.port), 1) as connection:
                connection.settimeout(5)
                connection.sendall(question)
                return not beginning or connection.recv(256).startswith(beginning)
        except OSError:
            return False

    def start(self, *, afresh: bool = False) -> float:
        """Start it and wait until it is ready; the seconds that took."""
        if self.answers(b"", b""):
            where = f"{HOST}:{self.setting.port}"
            raise RuntimeError(f"something else answers at {where}: end it, then run this again")
        if afresh:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        begin = time.monotonic()
        self.before_start()
        with (self.folder / "broker.out").open("ab") as out:
            self.process = subprocess.Popen(
                self.command(),
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                env=self.environment(),
                cwd=self.folder,
                start_new_session=True,
            )
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() - begin > READY_S:
                said = (self.folder / "broker.out").read_text(errors="replace")[-2_000:]
                self.stop()
                raise RuntimeError(f"{self.setting.peer} does not start: {said}")
            time.sleep(0.02)
        return time.monotonic() - begin

    def kill(self) -> None:
        """kill -9."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None:
            self._end(signal.SIGTERM)

    def _end(self, with_signal: signal.Signals) -> None:
        assert self.process is not None
        for each in (with_signal, signal.SIGKILL):
            if self.process.poll() is None:
                os.kill(self.pid(), each)
            try:
                self.process.wait(STOP_S)
                break
            except subprocess.TimeoutExpired:
                continue
        self.process = None
        self.after_stop()


class Client(ABC):
    """One connection to the broker."""

    is_threaded = False  # its callbacks may come from another thread

    def __init__(self, setting: Setting, name: str) -> None:
        self.setting = setting
        self.name = name
        self.planned: list[Interest] = []  # what `subscribe` will be called with
        self.on_lost: Callable[[], object] = lambda: None
        self.on_confirm: Callable[[Sequence[int]], None] = lambda _: None

    @abstractmethod
    async def open(self) -> None:
        """Connect; `OSError` if that cannot be done."""

    @abstractmethod
    async def close(self) -> None:
        """Leave in order; durable subscriptions stay with the broker."""

    # --- publishing ------------------------------------------------------------------------------

    async def start_publisher(self, *, confirmed: bool) -> None:  # noqa: B027
        """Called once after `open` if this connection publishes."""

    @abstractmethod
    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        """Send, or keep until `flush`. With a tag, call `on_confirm([tag])` when it is durable."""

    async def flush(self) -> None:  # noqa: B027
        """Send what is kept; wait while the connection is congested."""

    # --- subscribing -----------------------------------------------------------------------------

    @abstractmethod
    async def subscribe(self, interests: list[Interest]) -> None:
        """Subscribe, or go on with what is durable. For each delivery that is wanted call
        `interest.sink(payload)`, then acknowledge if it is durable. What the broker cannot filter
        is filtered here."""


class Peer(ABC):
    """One kind of broker."""

    name: str
    port: int
    clients: Sequence[str] = ("lib", "lean")
    fsyncs = False  # before it confirms, as set up here
    filters = "topic; the client drops what does not match"
    warm_events = 0  # published at least, in closed loop, before `warm_s` begins
    warm_s = 0.0  # at least, before anything is measured

    @abstractmethod
    def is_installed(self) -> bool: ...

    @abstractmethod
    def broker(self, setting: Setting) -> Broker: ...

    @abstractmethod
    def client(self, setting: Setting, name: str) -> Client: ...

    async def prepare(self, setting: Setting) -> None:  # noqa: B027
        """Make streams, exchanges and the like before anybody connects."""


def load_peer(name: str) -> Peer:
    peer = importlib.import_module(f"benchmarks.peers.brokers.{name}").PEER
    assert isinstance(peer, Peer)
    return peer
