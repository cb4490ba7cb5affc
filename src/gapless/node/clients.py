"""Clients: what the clients of a broker ask of it, checked and carried out.

A publication goes to the one pubend that its publisher is bound to: among those of the topic that
are hosted here, picked by the publisher's name (or the connection's), so that order is kept.
A subscription waits until the broker knows where all pubends of the topic stand; then it is told
where it starts, and from there it misses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from gapless.core.client_messages import Ended, Publish, Refused, Subscribe, Subscribed
from gapless.core.effects import Effect, Send
from gapless.core.errors import FilterError, WireError
from gapless.filters.filter import Filter

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.events import EventBatch
    from gapless.core.identity import ClientName, Instant
    from gapless.node.config import Config
    from gapless.node.network import Network
    from gapless.node.streams import Streams
    from gapless.node.subscribers import Subscribers


class Clients:
    """The requests of clients at one broker."""

    def __init__(
        self,
        network: Network,
        config: Config,
        streams: Streams,
        subscribers: Subscribers,
        check_events: Callable[[EventBatch], object],
    ) -> None:
        self.network = network
        self.config = config
        self.streams = streams
        self.subscribers = subscribers
        self.check_events = check_events
        self.waiting: dict[tuple[ClientName, int], tuple[Subscribe, Filter]] = {}

    def publish(self, client: ClientName, message: Publish, now: Instant) -> list[Effect]:
        topic = self.network.topic.get(message.topic)
        if topic is None:
            return refuse(client, message, f"there is no topic {message.topic!r}", "Create it.")
        here = [each for each in topic.pubends if each.name in self.streams.pubends]
        if not here:
            hosts = ", ".join(sorted(set(topic.hosts)))
            problem = f"topic {message.topic!r} is not published at this broker"
            return refuse(client, message, problem, f"Connect to one of: {hosts}.")
        try:
            self.check_events(message.events)
        except WireError as error:
            # Once stored, an event that nobody can read would stop everybody below.
            return refuse(client, message, error.problem, "Encode the events as documented.")
        bound = here[crc32((message.publisher or client).encode()) % len(here)]
        return self.streams.pubends[bound.name].publish(client, message, now)

    def subscribe(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        if message.topic not in self.network.topic:
            return refuse(client, message, f"there is no topic {message.topic!r}", "Create it.")
        if not self.streams.cell.subscribers:
            problem, remedy = "this broker takes no subscribers", "Connect to one that does."
            return refuse(client, message, problem, remedy)
        key = (client, message.subscription)
        taken = message.subscription in self.subscribers.clients[client].subscriptions
        if taken or key in self.waiting:
            problem = f"subscription {message.subscription} exists on this connection"
            return refuse(client, message, problem, "Use another number.")
        count = self.subscribers.subscription_count + len(self.waiting)
        if count >= self.config.subscriptions_max:
            problem = f"this broker has {count} subscriptions, which is its limit"
            return refuse(client, message, problem, "Use another broker.")
        try:
            condition = Filter.parse(message.condition)
        except FilterError as error:
            return refuse(client, message, error.problem, f"{error.remedy}\n{error.caret()}")
        self.waiting[key] = (message, condition)
        return []

    def settle(self, now: Instant) -> list[Effect]:
        """Start the subscriptions whose topic has become known; drop merges no one wants."""
        effects: list[Effect] = []
        for (client, number), (message, condition) in list(self.waiting.items()):
            if self.streams.is_started(message.topic):
                del self.waiting[client, number]
                effects += self._begin(client, message, condition, now)
        for topic in list(self.streams.merges):
            if not self.subscribers.wants(topic, "total"):
                self.streams.stop_merge(topic)
        return effects

    def _begin(
        self, client: ClientName, message: Subscribe, condition: Filter, now: Instant
    ) -> list[Effect]:
        streams, topic = self.streams, message.topic
        names = [each.name for each in self.network.topic[topic].pubends]
        more: list[Effect] = []
        self.subscribers.add(client, message.subscription, topic, message.order, condition)
        if message.order == "publisher":
            start = {str(name): streams.subends[name].taken for name in names}
        else:
            if topic in streams.merges:
                position = streams.merges[topic].position
            else:
                position, more = streams.start_merge(topic, now)
            start = dict.fromkeys(map(str, names), position)
        return [Send(client, Subscribed(message.request, message.subscription, start)), *more]

    def unsubscribe(self, client: ClientName, number: int) -> list[Effect]:
        """End a subscription; ending one that is not there is fine, and says so too."""
        self.waiting.pop((client, number), None)
        self.subscribers.remove(client, number)
        return [Send(client, Ended(number))]

    def disconnect(self, client: ClientName) -> list[Effect]:
        for key in [key for key in self.waiting if key[0] == client]:
            del self.waiting[key]
        self.subscribers.disconnect(client)
        for topic in list(self.streams.merges):
            if not self.subscribers.wants(topic, "total"):
                self.streams.stop_merge(topic)
        return []


def refuse(
    client: ClientName, message: Publish | Subscribe, problem: str, remedy: str
) -> list[Effect]:
    return [Send(client, Refused(message.request, problem, remedy))]
