"""25 of 100 durable subscribers return at once: what it costs their broker, and what it stores.

The node that ships, with its disk, in one process; every message for a client is encoded, once a
step if it is for many. Each
subscriber matches a quarter of the events, as in W3 of the peers. CPU time from the first return to
the last event; and the bytes of each commit in the log, with the pages that it touches: a disk
writes whole ones, and the last one again with the next commit.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.hops import RARE, START, TRADES, WRITER, chain
from benchmarks.report import Report
from gapless.broker.frames import Frames
from gapless.core.client_messages import (
    CaughtUp,
    Consumed,
    Deliveries,
    Publish,
    Receipt,
    Subscribe,
    Subscribed,
)
from gapless.core.effects import Persist, Send, Tell
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, SubscriptionName
from gapless.node.context import EventEncoding
from gapless.node.network import parse_network
from gapless.node.node import Node
from gapless.storage.disk import DiskVolume
from gapless.storage.frame import encode
from gapless.wire.events import check_events, decode_attributes, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gapless.core.effects import Effect, Write
    from gapless.core.messages import Message

BROKER = BrokerName("b0")
SUBSCRIBERS, AWAY = 100, 25
WARM, ROUNDS = 20, 3
PAGE_BYTES = 4096
PATIENCE = 100_000
"""Steps after which a run is given up."""


class Crowd:
    """A broker, and what its clients got. Time moves only when nothing is to be done."""

    def __init__(self, folder: Path, batch: int) -> None:
        self.batch, self.now = batch, START
        self.volume = DiskVolume(folder)
        self.node = Node(
            BROKER,
            parse_network(chain(0)),
            self.volume,
            START,
            encoding=EventEncoding(decode_attributes, check_events),
        )
        self.queue: deque[tuple[str, Message]] = deque()
        self.got: dict[str, list[int]] = {f"sub{number}": [] for number in range(SUBSCRIBERS)}
        self.told: dict[type[Message], int] = {}
        self.published = self.log_bytes = self.page_bytes = 0
        self.do(self.node.start(START))
        self.do(self.node.link_up(WRITER, START))

    def do(self, effects: Iterable[Effect]) -> None:
        rest, frames = deque(effects), Frames()
        while rest:
            match rest.popleft():
                case Send(to, message):
                    frames.of([message])
                    self.queue.append((to, message))
                case Persist(writes, then):
                    self.count(writes)
                    self.volume.commit(writes)
                    rest.extend(then)
                case Tell(message):
                    rest.extend(self.node.receive(BROKER, message, self.now))

    def count(self, writes: Sequence[Write]) -> None:
        size = sum(map(len, encode(writes, 0, 0)[:-1]))
        first = self.log_bytes // PAGE_BYTES
        self.log_bytes += size
        self.page_bytes += PAGE_BYTES * ((self.log_bytes - 1) // PAGE_BYTES - first + 1)

    def take(self) -> None:
        """What clients do with all that they got."""
        consumed: dict[str, int] = {}
        while self.queue:
            to, message = self.queue.popleft()
            self.told[type(message)] = self.told.get(type(message), 0) + 1
            if isinstance(message, Deliveries) and message.ticks:
                self.got[to] += message.ticks
                consumed[to] = consumed.get(to, 0) + len(message.ticks)
        for name, count in consumed.items():
            self.do(self.node.receive(ClientName(name), Consumed(count), self.now))

    def run(self, is_done: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            while self.queue:
                self.take()
            if is_done():
                return
            assert self.node.deadline is not None
            self.now = max(self.now, self.node.deadline)
            self.do(self.node.fire(self.now))
        raise AssertionError("it does not come to an end")

    def attach(self, number: int) -> None:
        name, got = ClientName(f"sub{number}"), self.got[f"sub{number}"]
        self.do(self.node.link_up(name, self.now))
        token = {"trades/0": got[-1] + 1} if got else None
        condition, durable = f"part = {number % RARE}", SubscriptionName(f"desk-{number}")
        wish = Subscribe(TRADES, 1, 1, condition, name=durable, token=token)
        self.do(self.node.receive(name, wish, self.now))

    def publish(self, count: int) -> None:
        for _ in range(0, count, self.batch):
            numbers = range(self.published, self.published + self.batch)
            events = tuple(encode_event({"part": n % RARE}, bytes(300)) for n in numbers)
            receipts = self.told.get(Receipt, 0)
            self.do(self.node.receive(WRITER, Publish(TRADES, 1, EventBatch(events)), self.now))
            self.run(lambda before=receipts: self.told.get(Receipt, 0) > before)  # type: ignore[misc]
            self.published += self.batch


def play(count: int, batch: int) -> tuple[float, Crowd]:
    """CPU seconds of the catch-up, and the crowd with its counts."""
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(Path(folder), batch)
        for number in range(SUBSCRIBERS):
            crowd.attach(number)
        crowd.run(lambda: crowd.told.get(Subscribed, 0) == SUBSCRIBERS)
        crowd.publish(WARM * batch)
        for number in range(AWAY):
            crowd.do(crowd.node.link_down(ClientName(f"sub{number}"), crowd.now))
        crowd.log_bytes = crowd.page_bytes = 0
        before = crowd.published
        crowd.publish(count)
        crowd.run(lambda: len(crowd.got[f"sub{SUBSCRIBERS - 1}"]) == crowd.published // RARE)
        stored = crowd.log_bytes / (crowd.published - before)
        touched = crowd.page_bytes / (crowd.published - before)
        crowd.told.clear()
        begin = time.process_time()
        for number in range(AWAY):
            crowd.attach(number)
        crowd.run(lambda: crowd.told.get(CaughtUp, 0) == AWAY)
        spent = time.process_time() - begin
        crowd.log_bytes, crowd.page_bytes = round(stored), round(touched)
        crowd.volume.close()
    for ticks in crowd.got.values():
        assert len(ticks) == crowd.published // RARE, "every event that was missed, once"
        assert ticks == sorted(set(ticks))
    return spent, crowd


def run(quick: bool) -> list[Report]:
    count = 7_680 if quick else 38_400
    wanted = AWAY * count // RARE
    report = Report(
        "returned",
        f"{AWAY} of {SUBSCRIBERS} durable subscribers return and catch up with {wanted:,} events",
        ("events in a commit", "CPU us per event", "events/s", "log bytes", "page bytes"),
    )
    for batch in (16, 128):
        spent, crowd = min((play(count, batch) for _ in range(ROUNDS)), key=lambda each: each[0])
        report.add(
            batch,
            f"{spent / wanted * 1e6:.1f}",
            f"{wanted / spent:,.0f}",
            crowd.log_bytes,
            crowd.page_bytes,
        )
    size = len(encode_event({"part": 0}, bytes(300)))
    report.notes.append(
        f"the best of {ROUNDS} rounds; bytes for each event of {size}, which {AWAY} take; events "
        "and who takes them are commits of their own here, and share one in a busy broker"
    )
    return [report]
