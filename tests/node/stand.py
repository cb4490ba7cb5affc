"""One broker's interest in a topic, alone with a disk that may be full, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gapless.core.broker_messages import (
    Knowledge,
    SubscriptionChange,
    SubscriptionState,
)
from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.identity import BrokerName, CellName, Instant, PubendName
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.node.config import Config
from gapless.node.context import Context, EventEncoding
from gapless.node.durable.topic_interest import TopicInterest
from gapless.node.network import parse_network
from gapless.propagation.leaf import ClockPersisted
from gapless.propagation.stamp import StampPersisted
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.events import decode_attributes
from tests.bounds import so_long_as
from tests.node.town import NEWS, TOWN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.broker_messages import Propagated, Vector
    from gapless.core.messages import Message

TWO_WAYS = """
cell = [
    {name = "middle", brokers = [{name = "m1"}, {name = "m2"}], links = ["north", "south", "east"]},
    {name = "north", brokers = [{name = "n"}], subscribers = true},
    {name = "south", brokers = [{name = "s"}]},
    {name = "east", brokers = [{name = "e"}], subscribers = true},
]
topic = [{name = "news", pubends = ["n", "s"]}]
"""
"""Two hosts, one with subscribers of its own, on opposite sides of two relays."""

ZERO, ONE = PubendName("news/0"), PubendName("news/1")
LEFT, RIGHT = CellName("left"), CellName("right")
GATHER, PATIENCE = Config().change_gather, Config().lag_patience
RED, BLUE, ANY = "colour = 'red'", "colour = 'blue'", "TRUE"


class Stand:
    """One broker's interest in the news, with a disk that may be full."""

    def __init__(
        self,
        name: str,
        text: str = TOWN,
        now: int = 1_000,
        volume: MemoryVolume | None = None,
        survivors: dict[tuple[str, int], Filter] | None = None,
        is_full: bool = False,
        **limits: Any,
    ) -> None:
        network, config = parse_network(text), Config(**limits)
        self.now = Instant(now)
        self.volume = volume or MemoryVolume()
        self.is_full = is_full
        encoding = EventEncoding(decode_attributes)
        context = Context(BrokerName(name), network, self.volume, self.now, encoding, config)
        self.routing = context.routing
        self.interest = TopicInterest(network.topic[NEWS], context, self.now, {})
        self.begun = self.do(self.interest.begin(self.now, survivors or {}))

    def do(self, effects: Iterable[Effect]) -> list[tuple[str, Message]]:
        """Carry effects out; what was sent, to whom."""
        sent: list[tuple[str, Message]] = []
        for effect in effects:
            match effect:
                case Send(to, message):
                    sent.append((to, message))
                case Persist(writes, then, otherwise):
                    if not self.is_full:
                        self.volume.commit(writes)
                    sent += self.do(otherwise if self.is_full else then)
                case Tell(message):
                    assert isinstance(message, ClockPersisted | StampPersisted)
                    sent += self.do(self.interest.persisted(message, self.now))
        self.interest.check()
        return sent

    def subscribe(self, number: int, condition: str) -> None:
        self.interest.subscribe(("ann", number), Filter.parse(condition), self.now)

    def unsubscribe(self, number: int) -> None:
        self.interest.unsubscribe(("ann", number), self.now)

    def update(self) -> list[tuple[str, Message]]:
        return self.do(self.interest.update(self.now))

    def ask(self, number: int, condition: str) -> list[tuple[str, Message]]:
        """Subscribe, and let the gathering time pass."""
        self.now = Instant(self.now + GATHER)
        self.subscribe(number, condition)
        return self.update()

    def receive(self, sender: str, message: Propagated) -> list[tuple[str, Message]]:
        return self.do(self.interest.receive(BrokerName(sender), message, self.now))

    def learn(self, sender: str, knowledge: Knowledge) -> list[tuple[str, Message]]:
        return self.do(self.interest.learn(BrokerName(sender), knowledge, self.now))

    def wait(self, microseconds: int) -> list[tuple[str, Message]]:
        """Let time pass and fire at each deadline on the way."""
        sent, end = list[tuple[str, "Message"]](), self.now + microseconds
        for _ in so_long_as(lambda: (self.interest.deadline or end + 1) <= end):
            assert self.interest.deadline is not None
            self.now = Instant(max(self.now, self.interest.deadline))
            sent += self.do(self.interest.fire(self.now))
        self.now = Instant(end)
        return sent

    def start(self, number: int = 1) -> dict[PubendName, int] | None:
        return self.interest.start_of(("ann", number))


def change(
    cell: str, leaf: str, time: int, *added: str, removed: tuple[str, ...] = ()
) -> SubscriptionChange:
    return SubscriptionChange(CellName(cell), {leaf: time}, {leaf: time - 1}, added, removed, NEWS)


def state(cell: str, vector: Vector, *conditions: str) -> SubscriptionState:
    return SubscriptionState(CellName(cell), vector, conditions, NEWS)


def news(
    start: int,
    digest: int,
    vector: Vector | None = None,
    pubend: PubendName = ZERO,
    *,
    requested: bool = False,
) -> Knowledge:
    span = Span(start, start + 10)
    return Knowledge(pubend, span, digest=digest, vector=vector, requested=requested)
