"""Subscribers: the clients connected here, their subscriptions, and what each is owed.

Theory of operation
    A batch that has become settled is matched once against all subscriptions of its topic and
    order; each connection then gets one message with every event that any of its subscriptions
    wants, each event once. A subscription counts from a tick of each stream on. Where that lies
    ahead of what is settled, it is *young*: what comes before does not count for it yet.
    A client tells how much it has consumed. One that lets more than `client_queue_max` events
    pile up loses the subscriptions that would add to it, with an error, and slows nobody else.

Invariants (checked by `check`)
    I1  a subscription is in the matcher of its topic and order, and nowhere else
    I2  no client has more than `client_queue_max` events outstanding, or one batch if that is more
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.client_messages import Deliveries, Ended, Lost
from gapless.core.effects import Effect, Send
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName
from gapless.filters.matcher import Matcher
from gapless.knowledge.batch import cut
from gapless.node.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.core.client_messages import Order
    from gapless.core.events import Attributes
    from gapless.core.identity import PubendName, TopicName
    from gapless.filters.filter import Filter
    from gapless.knowledge.subend import Settled
    from gapless.node.config import Config
    from gapless.node.session import Session

Key = tuple["ClientName", int]

DURABLE = ClientName("@durable")
"""In place of a client: the number is that of a durable subscription."""


class Delivered(NamedTuple):
    """What came of a settled batch."""

    effects: list[Effect]
    takers: list[list[int]]  # for each event, the durable subscriptions that want it
    slow: list[int]  # durable subscriptions whose clients cannot take it


class Subscribers:
    """All subscriptions at one broker."""

    def __init__(
        self, config: Config, attributes_of: Callable[[EventBatch], list[Attributes]]
    ) -> None:
        self.config = config
        self.attributes_of = attributes_of
        self.clients: dict[ClientName, Client] = {}
        self.matchers: dict[tuple[TopicName, Order], Matcher[Key]] = {}
        self.sessions: dict[int, Session] = {}  # by number: durable ones with a client
        self.durable: dict[Key, TopicName] = {}
        self.young: dict[tuple[TopicName, PubendName | None], dict[Key, int]] = {}
        self.dropped: list[tuple[TopicName, Key]] = []  # removed, and whoever cares to be told
        self.delivered = 0
        self.ended_slow = 0
        self._batch_longest = 0

    @property
    def subscription_count(self) -> int:
        return sum(map(len, self.matchers.values()))

    def connect(self, name: ClientName, owner: str = "") -> None:
        self.clients.setdefault(name, Client(owner))

    def disconnect(self, name: ClientName) -> None:
        client = self.clients.pop(name, None)
        for number, place in client.subscriptions.items() if client else ():
            self._remove(place, (name, number))

    def add(
        self,
        name: ClientName,
        number: int,
        topic: TopicName,
        order: Order,
        condition: Filter,
        young: Mapping[PubendName | None, int] = MappingProxyType({}),
    ) -> None:
        """`young`: streams of which something before the start is not settled yet, and the start;
        None stands for all of them merged."""
        place = (topic, order)
        self.clients[name].subscriptions[number] = place
        self.matchers.setdefault(place, Matcher()).add((name, number), condition)
        for pubend, start in young.items():
            self.young.setdefault((topic, pubend), {})[name, number] = start

    def add_durable(
        self,
        key: Key,
        topic: TopicName,
        condition: Filter,
        young: Mapping[PubendName | None, int],
    ) -> None:
        """A durable subscription, whether a client is attached to it or not."""
        self.durable[key] = topic
        self.matchers.setdefault((topic, "publisher"), Matcher()).add(key, condition)
        for pubend, start in young.items():
            self.young.setdefault((topic, pubend), {})[key] = start

    def remove_durable(self, key: Key, topic: TopicName) -> None:
        if self.durable.pop(key, None) is not None:
            self._remove((topic, "publisher"), key)

    def remove(self, name: ClientName, number: int) -> bool:
        place = self.clients[name].subscriptions.pop(number, None)
        if place is not None:
            self._remove(place, (name, number))
        return place is not None

    def _remove(self, place: tuple[TopicName, Order], key: Key) -> None:
        self.dropped.append((place[0], key))
        for (topic, _), starts in self.young.items():
            if topic == place[0]:
                starts.pop(key, None)
        self.matchers[place].remove(key)
        if not len(self.matchers[place]):
            del self.matchers[place]

    def wants(self, topic: TopicName, order: Order) -> bool:
        return (topic, order) in self.matchers

    def consumed(self, name: ClientName, count: int) -> None:
        self.clients[name].consume(count)

    def deliver(
        self, topic: TopicName, pubend: PubendName | None, settled: Settled, through: int
    ) -> Delivered:
        """One message for each connection that wants something of a settled batch."""
        matcher = self.matchers.get((topic, order_of(pubend)))
        recorded: list[list[int]] = [[] for _ in settled.ticks]
        if matcher is None:
            return Delivered([], recorded, [])
        effects = self._tell_lost(topic, pubend, settled)
        young = self._grow_up(topic, pubend, through)
        if not settled.ticks:
            return Delivered(effects, recorded, [])
        batch = EventBatch.join(settled.events)
        self._batch_longest = max(self._batch_longest, len(batch))
        takers: dict[ClientName, dict[int, list[int]]] = {}
        for index, (name, number) in matcher.match_batch(self.attributes_of(batch)):
            if young and settled.ticks[index] < young.get((name, number), 0):
                continue
            if name == DURABLE:
                recorded[index].append(number)
                session = self.sessions.get(number)
                if (
                    session is None
                    or pubend is None
                    or not session.takes(pubend, settled.ticks[index])
                ):
                    continue
                name, number = session.name, session.number
            takers.setdefault(name, {}).setdefault(index, []).append(number)
        slow: list[int] = []
        for name, wanted in sorted(takers.items()):
            events = batch.pick(sorted(wanted))
            if self._is_too_slow(self.clients[name], events):
                numbers = sorted(set().union(*wanted.values()))
                slow += [
                    n for n, s in self.sessions.items() if s.name == name and s.number in numbers
                ]
                effects += self._end_slow(name, numbers)
                continue
            effects += self._send(name, topic, pubend, settled, wanted, through)
        return Delivered(effects, recorded, slow)

    def _send(
        self,
        name: ClientName,
        topic: TopicName,
        pubend: PubendName | None,
        settled: Settled,
        wanted: dict[int, list[int]],
        through: int,
    ) -> list[Effect]:
        """To one connection, the events that its subscriptions want, in batches."""
        indices = sorted(wanted)
        events = [settled.events[i] for i in indices]
        self.delivered += len(indices)
        self.clients[name].send(EventBatch.join(events))
        self.clients[name].through[topic, pubend] = through
        ticks = tuple(settled.ticks[i] for i in indices)
        numbers = tuple(tuple(sorted(wanted[i])) for i in indices)
        return [
            Send(
                name,
                Deliveries(
                    topic,
                    through if high == len(ticks) else ticks[high],
                    pubend,
                    ticks[low:high],
                    EventBatch.join(events[low:high]),
                    numbers[low:high],
                ),
            )
            for low, high in cut(events, self.config.batch_events_max, self.config.batch_bytes_max)
        ]

    def _grow_up(self, topic: TopicName, pubend: PubendName | None, through: int) -> dict[Key, int]:
        """Those that were young up to now; who starts below `through` is not from here on."""
        young = self.young.get((topic, pubend))
        if not young:
            return {}
        self.young[topic, pubend] = {key: tick for key, tick in young.items() if tick > through}
        return young

    def _is_too_slow(self, client: Client, events: EventBatch) -> bool:
        """Would these be more than may pile up? One that has consumed everything never is."""
        count = client.outstanding + len(events)
        size = client.outstanding_bytes + sum(map(len, events))
        limits = self.config.client_queue_max, self.config.client_queue_bytes_max
        return client.outstanding > 0 and (count > limits[0] or size > limits[1])

    def tell_position(
        self, topic: TopicName, pubend: PubendName | None, through: int
    ) -> list[Effect]:
        """Tell those to whom nothing was delivered for a while that nothing matched."""
        effects: list[Effect] = []
        for name, _ in sorted(self._takers(topic, order_of(pubend)).items()):
            client = self.clients[name]
            if client.through.get((topic, pubend), 0) < through:
                client.through[topic, pubend] = through
                effects.append(Send(name, Deliveries(topic, through, pubend)))
        return effects

    def _takers(self, topic: TopicName, order: Order) -> dict[ClientName, tuple[int, ...]]:
        """The subscriptions of a topic and order, by client."""
        found: dict[ClientName, tuple[int, ...]] = {}
        for name, client in self.clients.items():
            numbers = [n for n, place in client.subscriptions.items() if place == (topic, order)]
            if numbers:
                found[name] = tuple(sorted(numbers))
        if order == "publisher":
            for session in self.sessions.values():
                if session.subscription.definition.topic == topic:
                    found.setdefault(session.name, ())
        return found

    def _tell_lost(
        self, topic: TopicName, pubend: PubendName | None, settled: Settled
    ) -> list[Effect]:
        if not settled.lost:
            return []
        takers = sorted(self._takers(topic, order_of(pubend)).items())
        return [
            Send(name, Lost(numbers, source, span))
            for name, numbers in takers
            if numbers
            for source, span in settled.lost
        ]

    def _end_slow(self, name: ClientName, numbers: list[int]) -> list[Effect]:
        effects: list[Effect] = []
        for number in numbers:
            if not self.remove(name, number):
                continue  # a durable one: it falls behind
            self.ended_slow += 1
            problem = "too many events were sent and not consumed in time"
            remedy = "Consume faster, or narrow the condition; then subscribe again."
            effects.append(Send(name, Ended(number, problem, remedy)))
        return effects

    def check(self) -> None:
        placed = {
            (place, (name, number))
            for name, client in self.clients.items()
            for number, place in client.subscriptions.items()
        }
        assert all(key in self.matchers[place] for place, key in placed), "I1"
        assert len(placed) + len(self.durable) == self.subscription_count, "I1"
        limit = max(self.config.client_queue_max, self._batch_longest)
        assert all(client.outstanding <= limit for client in self.clients.values()), "I2"


def order_of(pubend: PubendName | None) -> Order:
    return "total" if pubend is None else "publisher"
