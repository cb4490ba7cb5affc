"""A broker that is simple enough to be right: it logs, sends receipts, and delivers at once.

It stands in for the node in tests of the world itself. One broker, one pubend, no matching.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gapless.core.client_messages import Deliveries, Publish, Receipt, Subscribe, Subscribed
from gapless.core.effects import Append, Effect, Persist, Send
from gapless.core.identity import BrokerName, Instant, PubendName, TopicName
from gapless.core.messages import Ping, Pong
from gapless.core.ticks import PUBEND_BITS
from gapless.node.config import Config
from gapless.node.network import Network, Topic
from gapless.testing.record import Record
from gapless.testing.shapes import cell
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.events import EventBatch
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.checkers.checker import Checker
    from gapless.testing.links import LinkOptions

PUBEND = PubendName("t/0")


class Simple:
    """Answers pings, and serves one pubend to everyone who subscribes."""

    def __init__(self, name: BrokerName, store: Store, now: Instant) -> None:
        self.name = name
        self.deadline: Instant | None = None
        self.heard: list[tuple[str, Message]] = []
        self._end = max(store.bounds("log/t/0")[1], now << PUBEND_BITS)
        self._takers: dict[PeerName, list[int]] = {}

    def start(self, now: Instant) -> list[Effect]:
        return []

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        self.heard.append((sender, message))
        match message:
            case Ping(number):
                return [Send(sender, Pong(number))]
            case Subscribe(_, request, subscription):
                self._takers.setdefault(sender, []).append(subscription)
                return [Send(sender, Subscribed(request, subscription, {PUBEND: self._end}))]
            case Publish():
                return [self._log(sender, message)]
            case _:
                return []

    def _log(self, sender: PeerName, message: Publish) -> Persist:
        ticks = tuple(self._end + (i << PUBEND_BITS) for i in range(len(message.events)))
        self._end = ticks[-1] + (1 << PUBEND_BITS)
        receipt = Send(sender, Receipt(message.request, PUBEND, ticks))
        return Persist(
            (Append("log/t/0", ticks, tuple(message.events)),),
            (receipt, *(self._delivery(to, ticks, message.events) for to in self._takers)),
        )

    def _delivery(self, to: PeerName, ticks: tuple[int, ...], events: EventBatch) -> Send:
        takers = tuple(tuple(self._takers[to]) for _ in ticks)
        return Send(to, Deliveries(TopicName("t"), ticks[-1] + 1, PUBEND, ticks, events, takers))

    def fire(self, now: Instant) -> list[Effect]:
        return []

    def link_up(self, peer: PeerName, now: Instant) -> list[Effect]:
        return []

    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]:
        self._takers.pop(peer, None)
        return []

    def check(self) -> None:
        assert self._end >= 0

    def statistics(self) -> dict[str, object]:
        return {"heard": len(self.heard)}


def two_brokers() -> Network:
    """A host with subscribers of its own, and a neighbour."""
    host = cell("a", 1, subscribers=True)
    return Network((host, cell("b", 1, ["a"])), (Topic(TopicName("t"), (BrokerName("a"),)),))


def make_world(
    seed: int = 1,
    *,
    links: LinkOptions | None = None,
    checkers: Sequence[type[Checker]] = (),
    make: Callable[[BrokerName, Store, Instant], Simple] = Simple,
    out: Callable[[str], object] | None = None,
) -> World:
    network = two_brokers()
    record = Record(network)
    watch = Watch(record, [each(record, Config()) for each in checkers])
    dice, trace = random.Random(seed), Trace(out)
    world = (
        World(network, make, dice, trace, watch, links=links)
        if links
        else World(network, make, dice, trace, watch)
    )
    world.start()
    return world
