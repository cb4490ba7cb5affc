"""Dispatch: which service gets a request of a client, a message of a broker, the end of a write.

Theory of operation
    A request about a topic goes to the service of the topic, after the checks that are the same for
    all services; a request about no topic, or about an unknown one, goes to the durable service.
    The reliable and the multicast service store no events. So requests that need a store (names,
    tokens, transactions, ranges) are refused here, for both, with what to do instead.

Invariants (checked by `check`): those of the services, and
    I1  no two services have the same kind of message
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    Publish,
    PublisherQuery,
    Refused,
    RetireBroker,
    Subscribe,
    Unsubscribe,
)
from gapless.core.effects import Send
from gapless.core.errors import FilterError, WireError, quoted
from gapless.core.portion import WHOLE, Portion
from gapless.core.range_messages import RangeRequest
from gapless.core.transaction_messages import TransactionRequest
from gapless.filters.filter import Filter
from gapless.node.multicast.service import Multicast
from gapless.node.reliable.service import Reliable

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, ClientName, Instant
    from gapless.core.messages import Message
    from gapless.node.context import Context
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.redirect import ClientRequest
    from gapless.node.service import Service

STORELESS = (Reliable, Multicast)
"""The services beside the durable one; made with the context and the subscribers."""

KINDS: tuple[type[Message], ...] = tuple(kind for each in STORELESS for kind in each.kinds)
"""The messages between their brokers, which a driver's codec must know."""

TopicRequest = Publish | PublisherQuery | Subscribe | TransactionRequest | RangeRequest
"""Requests that go to the service of their topic."""


class Services:
    """All services of one broker."""

    def __init__(self, durable: Service, context: Context, subscribers: Subscribers) -> None:
        self.durable = durable
        self.storeless: list[Service] = [each(context, subscribers) for each in STORELESS]
        self.all = [durable, *self.storeless]
        self.by_name = {each.name: each for each in self.all}
        self.of_kind = {kind: each for each in self.all for kind in each.kinds}
        self.of_write = {write: each for each in self.all for write in each.writes}
        self._topics = context.network.topic
        self._check_events = context.encoding.check_events
        self._subscriptions_max = context.config.subscriptions_max
        self._subscribers = subscribers

    # --- requests of clients ----------------------------------------------------------------------

    def service_of(self, client: ClientName, message: Message) -> Service:
        """The service that a request is for."""
        if isinstance(message, TopicRequest):
            topic = self._topics.get(message.topic)
            return self.durable if topic is None else self.by_name[topic.service]
        if isinstance(message, Unsubscribe):
            return self._holder(client, message.subscription) or self.durable
        return self.by_name[Reliable.name] if isinstance(message, RetireBroker) else self.durable

    def request(
        self, service: Service, client: ClientName, message: Message, now: Instant
    ) -> list[Effect]:
        """Refuse a request, or let the service serve it."""
        if isinstance(message, Unsubscribe):
            return service.unsubscribe(client, message.subscription, now)
        if isinstance(message, TopicRequest) and not service.stores:
            refused = self._refuse_storeless(service, client, message)
            if refused:
                return refused
        if isinstance(message, Subscribe) and (refused := self._refuse_number(client, message)):
            return refused
        return service.request(client, message, now)

    def _refuse_storeless(
        self, service: Service, client: ClientName, message: TopicRequest
    ) -> list[Effect]:
        """Refuse what a service without a store cannot serve, and what is not well formed."""
        problem, remedy = needs_a_store(service.name, message)
        if problem:
            return refuse(client, message, problem, remedy)
        try:
            if isinstance(message, Publish):
                if message.confirmed and not service.confirms:
                    kind = f"topic {message.topic!r} is of the {service.name} service"
                    problem = f"{kind}: nobody knows who has an event"
                    remedy = (
                        "Leave confirmed out, or use a topic of the reliable or durable service."
                    )
                    return refuse(client, message, problem, remedy)
                self._check_events(message.events)
            elif isinstance(message, Subscribe):
                Filter.parse(message.condition)
        except WireError as error:
            return refuse(client, message, error.problem, "Encode the events as documented.")
        except FilterError as error:
            return refuse(client, message, error.problem, f"{error.remedy}\n{error.caret()}")
        return []

    def _refuse_number(self, client: ClientName, message: Subscribe) -> list[Effect]:
        """Refuse a number that is in use on its connection, and a subscription too many."""
        if self._holder(client, message.subscription) is not None:
            problem = f"subscription {message.subscription} exists on this connection"
            return refuse(client, message, problem, "Use another number.")
        count = self._subscribers.subscription_count
        count += sum(each.unmatched_count for each in self.all)
        if count >= self._subscriptions_max:
            problem = f"this broker has {count} subscriptions, which is its limit"
            return refuse(client, message, problem, "Use another broker.")
        return []

    def _holder(self, client: ClientName, number: int) -> Service | None:
        """The service that has a subscription of this number on the connection."""
        return next((each for each in self.all if each.has(client, number)), None)

    # --- all of them -----------------------------------------------------------------------------

    def restore(self, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.restore(now)]

    def start(self, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.start(now)]

    def wait_to_join(self) -> None:
        for each in self.all:
            each.joins = True

    def join(self, at: BrokerName, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.join(at, now)]

    def fire(self, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.fire(now)]

    def settle(self, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.settle(now)]

    def leave(self, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.leave(now)]

    def disconnect(self, client: ClientName, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.disconnect(client, now)]

    def link_up(self, broker: BrokerName, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.link_up(broker, now)]

    def ask_again(self, broker: BrokerName, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.ask_again(broker, now)]

    def link_down(self, broker: BrokerName, now: Instant) -> list[Effect]:
        return [effect for each in self.all for effect in each.link_down(broker, now)]

    def check(self, portion: Portion = WHOLE) -> None:
        assert len(self.of_kind) == sum(len(each.kinds) for each in self.all), "I1"
        assert len(self.of_write) == sum(len(each.writes) for each in self.all), "I1"
        for each in self.all:
            each.check(portion)


def needs_a_store(service: str, message: TopicRequest) -> tuple[str, str]:
    """Why a service that stores nothing cannot serve this, and what to use instead; or empty."""
    kind = f"topic {quoted(message.topic)} is of the {service} service, which stores nothing"
    durable = "a topic of the durable service"
    if isinstance(message, Subscribe):
        if message.name is not None:
            remedy = f"Leave name, start and tokens out, or use {durable}."
            return f"{kind}: it has no named subscriptions", remedy
        if message.order != "publisher":
            return f"{kind}: it has no total order", f"Leave the order out, or use {durable}."
    elif isinstance(message, TransactionRequest):
        return f"{kind}: it has no transactions", f"Use client.publish, or {durable}."
    elif isinstance(message, RangeRequest):
        return f"{kind}: nothing can be read from it", f"Subscribe to it, or use {durable}."
    elif message.publisher is not None:
        problem = f"{kind}: it knows no names of publishers, nor repeats"
        return problem, f"Use client.publish or publish_many, or {durable}."
    return "", ""


def refuse(client: ClientName, message: ClientRequest, problem: str, remedy: str) -> list[Effect]:
    return [Send(client, Refused(message.request, problem, remedy))]
