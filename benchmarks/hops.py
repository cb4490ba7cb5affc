"""Catch-up over hops: a durable subscriber returns to a broker 0, 1 or 2 hops below the pubend.

The nodes that ship, in one process; every message is encoded and decoded on its way, and disks are
real. CPU time of all brokers together, from the return to the last event: what one core could do.
"Each alone" is the same with every message of scattered events taken apart on its way, one event in
each, as if there were no such messages.
"""

from __future__ import annotations

import tempfile
import time
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.core.broker_messages import Knowledge, Nack
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
from gapless.core.identity import (
    BrokerName,
    ClientName,
    Instant,
    PeerName,
    SubscriptionName,
    TopicName,
)
from gapless.core.messages import Message
from gapless.node.context import EventEncoding
from gapless.node.network import parse_network
from gapless.node.node import Node
from gapless.storage.disk import DiskVolume
from gapless.testing.checkers.nack_fan_in import apart
from gapless.wire.events import check_events, decode_attributes, encode_event
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.effects import Effect

TRADES, DESK = TopicName("trades"), SubscriptionName("desk")
READER, WRITER = ClientName("reader"), ClientName("writer")
RARE, BATCH = 4, 100
START = Instant(1_700_000_000_000_000)
ROUNDS = 3


def chain(hops: int) -> str:
    """A network file: brokers in a row, the pubend at the first, subscribers at the last."""
    cells = [
        f'[[cell]]\nname = "c{at}"\nbrokers = [{{ name = "b{at}" }}]\n'
        + (f'links = ["c{at + 1}"]\n' if at < hops else "subscribers = true\n")
        for at in range(hops + 1)
    ]
    return "\n".join([*cells, '[[topic]]\nname = "trades"\npubends = ["b0"]\n'])


class Row:
    """Brokers in a row, and what their clients got. Time moves only when nothing is to be done."""

    def __init__(self, hops: int, folder: Path, *, alone: bool, text: str = "") -> None:
        network, self.alone, self.now = parse_network(text or chain(hops)), alone, START
        self.first, self.last = BrokerName("b0"), BrokerName(f"b{hops}")
        self.volumes = {name: DiskVolume(folder / name) for name in network.cell_of}
        self.nodes = {
            name: Node(
                name,
                network,
                volume,
                START,
                encoding=EventEncoding(decode_attributes, check_events),
            )
            for name, volume in self.volumes.items()
        }
        self.queue: deque[tuple[PeerName, PeerName, bytes]] = deque()  # to, from, payload
        self.got: list[int] = []
        self.told: list[Message] = []
        self.messages = self.nacks = 0
        for name, node in self.nodes.items():
            self.do(name, node.start(START))
        for name, node in self.nodes.items():
            for peer in (each for each in self.nodes if abs(int(each[1:]) - int(name[1:])) == 1):
                self.do(name, node.link_up(peer, START))

    def do(self, name: BrokerName, effects: Iterable[Effect]) -> None:
        rest = deque(effects)
        while rest:
            match rest.popleft():
                case Send(to, message):
                    self.send(name, to, message)
                case Persist(writes, then):
                    self.volumes[name].commit(writes)
                    rest.extend(then)
                case Tell(message):
                    rest.extend(self.timed(name, "receive", name, message))

    def timed(self, name: BrokerName, what: str, *arguments: object) -> list[Effect]:
        """One step of a broker: a call of its node."""
        effects: list[Effect] = getattr(self.nodes[name], what)(*arguments, self.now)
        return effects

    def send(self, sender: PeerName, to: PeerName, message: Message) -> None:
        if to in self.nodes:
            self.messages += isinstance(message, Knowledge | Nack)
            self.nacks += isinstance(message, Nack) and sender == self.last
        if self.alone and isinstance(message, Knowledge) and message.scattered:
            self.messages += len(message.ticks) - 1
            self.queue += [(to, sender, codec().encode(each)) for each in apart(message)]
        else:
            self.queue.append((to, sender, codec().encode(message)))

    def client(self, name: ClientName, to: BrokerName, message: Message) -> None:
        self.do(to, self.timed(to, "receive", name, message))

    def take_for(self, to: str, message: Message) -> None:
        """What a client does with what it gets."""
        self.told.append(message)
        if isinstance(message, Deliveries) and message.ticks:
            self.got += message.ticks
            self.client(READER, self.last, Consumed(len(message.ticks)))

    def run(self, until: type[Message]) -> None:
        """Until a client is told so."""
        self.told.clear()
        self.run_until(lambda: any(isinstance(each, until) for each in self.told))

    def run_until(self, is_done: Callable[[], bool]) -> None:
        while True:
            self.deliver()
            if is_done():
                return
            self.run_on()

    def deliver(self) -> None:
        """All that is on its way."""
        while self.queue:
            to, sender, payload = self.queue.popleft()
            message = codec().decode(payload)
            assert isinstance(message, Message)
            name = BrokerName(to)
            if name in self.nodes:
                self.do(name, self.timed(name, "receive", sender, message))
            else:
                self.take_for(to, message)

    def run_on(self) -> None:
        """To the next deadline of all, and deliver what follows."""
        due = [node.deadline for node in self.nodes.values() if node.deadline is not None]
        self.now = max(self.now, min(due))
        for name, node in self.nodes.items():
            if node.deadline is not None and node.deadline <= self.now:
                self.do(name, self.timed(name, "fire"))
        self.deliver()

    # --- the play -------------------------------------------------------------------------------

    def attach(self) -> None:
        """The reader connects, and goes on from the last event that it got, or starts."""
        self.do(self.last, self.nodes[self.last].link_up(READER, self.now))
        token = {"trades/0": self.got[-1] + 1} if self.got else None
        wish = Subscribe(TRADES, 1, 1, "rare = 1", name=DESK, token=token)
        self.client(READER, self.last, wish)

    def leave(self) -> None:
        self.do(self.last, self.nodes[self.last].link_down(READER, self.now))

    def publish(self, count: int) -> None:
        self.do(self.first, self.nodes[self.first].link_up(WRITER, self.now))
        for start in range(0, count, BATCH):
            numbers = range(start, start + BATCH)
            events = [encode_event({"rare": int(n % RARE == 0)}, bytes(200)) for n in numbers]
            publish = Publish(TRADES, 1, EventBatch(tuple(events)))
            self.client(WRITER, self.first, publish)
            self.run(Receipt)

    def close(self) -> None:
        for volume in self.volumes.values():
            volume.close()


def catch_up(hops: int, count: int, *, alone: bool) -> tuple[float, Row]:
    """CPU seconds of the catch-up, and the row with its counts."""
    with tempfile.TemporaryDirectory() as folder:
        row = Row(hops, Path(folder), alone=alone)
        row.attach()
        row.run(Subscribed)
        row.publish(RARE * BATCH)
        row.leave()
        missed = len(row.got)
        row.publish(count)
        row.messages = row.nacks = 0
        begin = time.process_time()
        row.attach()
        row.run(CaughtUp)
        spent = time.process_time() - begin
        row.close()
    assert len(row.got) - missed == count // RARE, "every event that was missed, once"
    assert row.got == sorted(set(row.got))
    return spent, row


def run(quick: bool) -> list[Report]:
    count = 8_000 if quick else 80_000
    wanted = count // RARE
    report = Report(
        "hops",
        f"Catching up with {wanted:,} events of {count:,}, so many hops below the pubend",
        ("hops", "way", "nacks", "messages", "CPU us per event", "events/s", "ratio"),
    )
    for hops in (0, 1, 2):
        best: dict[bool, tuple[float, Row]] = {}
        for _ in range(ROUNDS):
            for alone in (True, False) if hops else (False,):
                found = catch_up(hops, count, alone=alone)
                best[alone] = min(best.get(alone, found), found, key=lambda each: each[0])
        slowest = max(spent for spent, _ in best.values())
        for alone, (spent, row) in best.items():
            report.add(
                hops,
                "each alone" if alone else "scattered",
                f"{row.nacks:,}",
                f"{row.messages:,}",
                f"{spent / wanted * 1e6:.1f}",
                f"{wanted / spent:,.0f}",
                f"{slowest / spent:.1f}",
            )
    report.notes.append(f"the best of {ROUNDS} rounds; knowledge and nacks between brokers counted")
    return [report]
