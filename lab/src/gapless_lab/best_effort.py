"""Best effort: the same brokers with everything left out that makes delivery certain.

An event is sent on as it comes, through the same routing and to the same matcher; there is no log,
no receipt, no acknowledgement, no nack and no silence, and nothing is remembered of an event that
has passed. Heartbeats stay, for without them there would be no other way around a dead broker; and
so does the pace at which a broker hands out what many want, for that is not what certainty costs.
What a `Node` costs beyond this is the price of exactly-once delivery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, Sideways
from gapless.core.client_messages import Consumed, Publish, Subscribe, Subscribed
from gapless.core.effects import Effect, Send
from gapless.core.identity import BrokerName, ClientName, PubendName
from gapless.core.messages import Ping, Pong
from gapless.core.ticks import Span, tick_at
from gapless.filters.filter import Filter
from gapless.knowledge.subend import Settled
from gapless.node.deadlines import earliest
from gapless.node.delivery.connections import ClientConnections
from gapless.node.delivery.pace import Pace
from gapless.node.delivery.subscribers import Subscribers
from gapless.node.routing import Routing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.core.events import Attributes, EventBatch
    from gapless.core.identity import Instant, PeerName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.node.network import Network


class BestEffort:
    """One broker that forwards and forgets."""

    is_deadline_known = False  # it is always looked for

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        now: Instant,
        *,
        attributes_of: Callable[[EventBatch], Sequence[Attributes]],
        check_events: Callable[[EventBatch], object] | None = None,
        config: Config,
    ) -> None:
        self.network = network
        self.check_events = check_events or attributes_of
        self.cell = network.cell_of[name]
        self.routing = Routing(name, network, config, now)
        self.subscribers = Subscribers(config, attributes_of, ClientConnections())
        self.pace = Pace(config)
        self._ends: dict[PubendName, int] = {}
        self._held: dict[PubendName, Settled] = {}  # what waits for its time

    @property
    def deadline(self) -> Instant | None:
        return earliest([self.routing.deadline, self.pace.deadline])

    def start(self, now: Instant) -> list[Effect]:
        return self.fire(now)

    def fire(self, now: Instant) -> list[Effect]:
        effects = self.routing.fire(now)
        for pubend in self.pace.ripe(now):
            effects += self._deliver(pubend, now)
        return effects

    def link_up(self, peer: PeerName, now: Instant) -> list[Effect]:
        self.subscribers.clients.connect(ClientName(peer))
        return []

    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]:
        self.subscribers.disconnect(ClientName(peer))
        return []

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        match message:
            case Ping():
                return self.routing.answer(sender, message)
            case Pong():
                self.routing.receive_pong(sender, now)
                return []
            case Sideways(cell=cell, message=Knowledge() as inner):
                return self.routing.send_direct(cell, inner.pubend, inner, now)
            case Knowledge():
                return self._forward(message, now)
            case Publish():
                return self._publish(message, now)
            case Subscribe():
                return self._subscribe(ClientName(sender), message)
            case Consumed(count=count):
                self.subscribers.clients[ClientName(sender)].consume(count)
                return []
            case _:
                raise AssertionError(f"{message} has no place in best effort")

    def _publish(self, message: Publish, now: Instant) -> list[Effect]:
        self.check_events(message.events)  # a broker takes in only what can be read
        pubend = self.network.topic[message.topic].pubends[0]
        first = max(tick_at(now, pubend.number), self._ends.get(pubend.name, 0))
        end = first + len(message.events)
        self._ends[pubend.name] = end
        ticks = tuple(range(first, end))
        return self._forward(Knowledge(pubend.name, Span(first, end), ticks, message.events), now)

    def _forward(self, knowledge: Knowledge, now: Instant) -> list[Effect]:
        pubend = self.network.pubends[knowledge.pubend]
        effects: list[Effect] = []
        for cell in self.network.downstream(pubend, self.cell.name):
            effects += self.routing.send(cell, pubend.name, knowledge, now)
        if self.cell.subscribers:
            held = self._held.setdefault(pubend.name, Settled([], [], []))
            held.ticks.extend(knowledge.ticks)
            held.events.extend(knowledge.events)
            effects += self._deliver(pubend.name, now)
        return effects

    def _deliver(self, pubend: PubendName, now: Instant) -> list[Effect]:
        held = self._held.get(pubend)  # it may have left already, as enough for a message
        if held is None or self.pace.holds(
            pubend, len(held.ticks), sum(map(len, held.events)), now
        ):
            return []
        del self._held[pubend]
        topic, through = self.network.pubends[pubend].topic, held.ticks[-1] + 1
        effects = self.subscribers.deliver(topic, pubend, held, through).effects
        self.pace.spend(len(effects), now)
        return effects

    def _subscribe(self, client: ClientName, message: Subscribe) -> list[Effect]:
        condition = Filter.parse(message.condition)
        number, topic = message.subscription, message.topic
        self.subscribers.add(client, number, topic, message.order, condition)
        start = {str(each.name): 0 for each in self.network.topic[message.topic].pubends}
        return [Send(client, Subscribed(message.request, message.subscription, start))]

    def check(self) -> None:
        self.subscribers.check()

    def statistics(self) -> Mapping[str, object]:
        return {}
