"""One run: a broker, the processes of its clients, and the counters they share.

Whatever a session starts it ends, however it is left.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from benchmarks.peers.counters import (
    CONFIRMED,
    CONNECTIONS_MAX,
    DELIVERED,
    EXPECTED,
    PUBLISHED,
    PUBLISHERS_MAX,
    STOP,
    Counters,
)
from benchmarks.peers.publishers import Order
from benchmarks.peers.usage import usage
from benchmarks.peers.worker import work

if TYPE_CHECKING:
    from benchmarks.peers.adapter import Peer, Setting
    from benchmarks.peers.model import Interest
    from benchmarks.peers.subscribers import Mode
    from benchmarks.peers.usage import Usage

WARM_MAX_S = 30.0
ANSWER_S = 240.0
SUBSCRIBER_PROCESSES = 2


class Process:
    """A worker process, seen from here."""

    def __init__(self, setting: Setting, kind: str, counters: str, plan: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=work, args=(theirs, setting, kind, counters, plan), daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid or 0

    def send(self, command: str, argument: object = None) -> None:
        self._pipe.send((command, argument))

    def receive(self, patience_s: float = ANSWER_S) -> Any:
        if not self._pipe.poll(patience_s):
            raise RuntimeError(f"worker {self.pid} does not answer")
        is_well, value = self._pipe.recv()
        if not is_well:
            raise RuntimeError(value)
        return value

    def end(self) -> None:
        with suppress(OSError):
            self.send("quit")
        self._process.join(6)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._pipe.close()


def ask(processes: list[Process], command: str, argument: object = None) -> list[Any]:
    for process in processes:
        process.send(command, argument)
    return [process.receive() for process in processes]


@dataclass(frozen=True)
class Moment:
    """All counts and costs at one time."""

    time_s: float
    published: int
    confirmed: int
    expected: int
    delivered: int
    usage: Usage


class Session:
    """See the module docstring."""

    def __init__(self, peer: Peer, setting: Setting) -> None:
        self.peer = peer
        self.setting = setting
        self.broker = peer.broker(setting)
        self.publishers: list[Process] = []
        self.subscribers: list[Process] = []
        self._publisher_count = 0
        self._interests: list[Interest] = []

    def __enter__(self) -> Self:
        self.broker.start(afresh=True)
        try:
            self._path = str(Path(self.setting.folder) / "counters")
            self._counters = Counters(self._path, create=True)
            self.slots = self._counters.slots
            asyncio.run(self.peer.prepare(self.setting))
        except BaseException:
            self.broker.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in (*self.publishers, *self.subscribers):
            process.end()
        self.broker.stop()

    # --- setting up ------------------------------------------------------------------------------

    def add_subscribers(self, connections: list[list[Interest]], mode: Mode) -> None:
        """One connection for each list of interests, spread over the processes."""
        self._interests = [each for interests in connections for each in interests]
        numbered = list(enumerate(connections))
        for index in range(min(SUBSCRIBER_PROCESSES, len(numbered))):
            plan = {"connections": numbered[index::SUBSCRIBER_PROCESSES], "mode": mode}
            self.subscribers.append(Process(self.setting, "subscribers", self._path, plan))
        ask(self.subscribers, "connect")

    def add_publishers(self, count: int, *, confirmed: bool, remember: bool = False) -> None:
        self._publisher_count = count
        processes = min(count, 2)
        for index in range(processes):
            plan = {
                "publishers": list(range(index, count, processes)),
                "interests": self._interests,
                "confirmed": confirmed,
                "remember": remember,
            }
            self.publishers.append(Process(self.setting, "publishers", self._path, plan))
        ask(self.publishers, "connect")

    # --- running ---------------------------------------------------------------------------------

    def now(self) -> Moment:
        total = self._counters.sum
        return Moment(
            time.monotonic(),
            total(PUBLISHED, PUBLISHERS_MAX),
            total(CONFIRMED, PUBLISHERS_MAX),
            total(EXPECTED, PUBLISHERS_MAX),
            total(DELIVERED, CONNECTIONS_MAX),
            usage(
                self.broker.pids(),
                [process.pid for process in self.publishers],
                [process.pid for process in self.subscribers],
            ),
        )

    def begin(
        self,
        seconds: float,
        *,
        rate: float | None = None,
        window: int | None = None,
        in_flight: int = 256,
    ) -> None:
        self.slots[STOP] = 0
        each = None if rate is None else rate / self._publisher_count
        for process in self.publishers:
            process.send("run", Order(seconds, each, window, in_flight))

    def finish(self) -> None:
        self.slots[STOP] = 1
        for process in self.publishers:
            process.receive()

    def measure(
        self,
        warm_s: float,
        seconds: float,
        *,
        rate: float | None = None,
        window: int | None = None,
        in_flight: int = 256,
    ) -> tuple[Moment, Moment]:
        """Publish; the moments at both ends of the time that counts."""
        self.begin(
            max(warm_s, self.peer.warm_s) + seconds + WARM_MAX_S + 60,
            rate=rate,
            window=window,
            in_flight=in_flight,
        )
        if rate is None:
            self._wait_published(self.peer.warm_events)
        time.sleep(max(warm_s, self.peer.warm_s))
        ask(self.subscribers, "reset")
        first = self.now()
        time.sleep(seconds)
        last = self.now()
        self.finish()
        return first, last

    def _wait_published(self, events: int) -> None:
        """Until so many were, or it takes too long."""
        end_s = time.monotonic() + WARM_MAX_S
        while self._counters.sum(PUBLISHED, PUBLISHERS_MAX) < events and time.monotonic() < end_s:
            time.sleep(0.02)

    def drain(self, patience_s: float = 10.0, quiet_s: float = 1.0) -> int:
        """Wait for what is outstanding; how many deliveries never came."""
        end = changed = time.monotonic()
        end += patience_s
        delivered = -1
        while time.monotonic() < end:
            outstanding = self._counters.sum(EXPECTED, PUBLISHERS_MAX) - (
                now := self._counters.sum(DELIVERED, CONNECTIONS_MAX)
            )
            if outstanding <= 0:
                return outstanding
            if now != delivered:
                delivered, changed = now, time.monotonic()
            elif time.monotonic() - changed > quiet_s:
                break
            time.sleep(0.02)
        return outstanding
