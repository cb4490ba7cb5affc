"""Services beside the durable one: what a node asks of each, and which of them gets a request.

Theory of operation
    A topic has one service, fixed when it is created. What clients ask about a topic goes to its
    service, what brokers say to each other goes to the service whose kind of message it is. The
    durable service is the node's own; every other is one object that does what `Service` says and
    whose class is listed in `SERVICES`. They store no events, so that whatever needs a store
    (names, tokens, transactions, ranges) is refused here, for all, with what to do instead.

Invariants (checked by `check`): those of the services, and
    I1  no number of a subscription is used twice on a connection, whatever the services
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gapless.core.client_messages import (
    Done,
    Publish,
    PublisherQuery,
    Refused,
    RetireBroker,
    Subscribe,
    Unsubscribe,
)
from gapless.core.effects import Send
from gapless.core.errors import FilterError, UsageError, WireError, quoted
from gapless.core.range_messages import RangeRequest
from gapless.core.transaction_messages import TransactionRequest
from gapless.filters.filter import Filter
from gapless.node.multicast.service import Multicast
from gapless.node.reliable.service import Reliable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, ClientName, Instant
    from gapless.core.messages import Message
    from gapless.node.durable.clients import Clients
    from gapless.node.network import Topic
    from gapless.node.redirect import ClientRequest


class Service(Protocol):
    """What a service does for the node. Times are the node's own, which never go back."""

    name: str
    """As topics have it."""

    kinds: tuple[type[Message], ...]
    """What its brokers say to each other."""

    joins: bool
    """We are in no network file: wait for `join`, and begin nothing alone."""

    confirms: bool
    """Can a receipt wait until all subscribers within reach have the events?"""

    @property
    def deadline(self) -> Instant | None: ...

    def start(self, now: Instant) -> list[Effect]:
        """The number of this life (`Epoch`) is durable now, so that it may be told."""
        ...

    def join(self, at: BrokerName, now: Instant) -> list[Effect]:
        """We are in no network file, and linked to a broker of a running network: become part of
        it there. Called anew for each such link."""
        ...

    def add(self, topic: Topic, now: Instant) -> list[Effect]:
        """A topic of it was created, and is in the network; those of the start are there too."""
        ...

    def remove(self, topic: Topic, problem: str, remedy: str, now: Instant) -> list[Effect]:
        """It was deleted: end its subscriptions."""
        ...

    def publish(self, client: ClientName, message: Publish, now: Instant) -> list[Effect]:
        """Events that are well formed. Take all of them or none."""
        ...

    def subscribe(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        """Anonymous, in publisher order, with a condition that parses and a number that is free."""
        ...

    def has(self, client: ClientName, number: int) -> bool:
        """Whether a subscription has this number on the connection, begun or about to."""
        ...

    def unsubscribe(self, client: ClientName, number: int, now: Instant) -> list[Effect]: ...

    def disconnect(self, client: ClientName, now: Instant) -> list[Effect]: ...

    def subscription_count(self) -> int: ...

    def receive(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        """One of its `kinds`, from any broker."""
        ...

    def link_up(self, broker: BrokerName, now: Instant) -> list[Effect]:
        """There is a new link to a broker of the network file; an old one is gone, if there was."""
        ...

    def link_down(self, broker: BrokerName, now: Instant) -> list[Effect]:
        """A link to a broker broke."""
        ...

    def leave(self, now: Instant) -> list[Effect]:
        """The broker is about to stop, for how long nobody knows."""
        ...

    def retire(self, broker: BrokerName, now: Instant) -> list[Effect]:
        """A broker never returns. `UsageError`: it is up, or there is none of this name."""
        ...

    def fire(self, now: Instant) -> list[Effect]: ...

    def statistics(self) -> dict[str, object]: ...

    def check(self) -> None: ...


SERVICES = (Reliable, Multicast)
"""Made with: name, network, config, store, epoch, subscribers, attributes_of."""

KINDS: tuple[type[Message], ...] = tuple(kind for each in SERVICES for kind in each.kinds)
"""What their brokers say to each other: a driver's codec must know it."""


class Services:
    """All services of one broker but the durable one."""

    def __init__(self, clients: Clients, services: Iterable[Service]) -> None:
        self.clients = clients
        self.by_name = {each.name: each for each in services}
        self.of_kind = {kind: each for each in self.by_name.values() for kind in each.kinds}

    # --- clients ---------------------------------------------------------------------------------

    def request(self, client: ClientName, message: Message, now: Instant) -> list[Effect] | None:
        """None: it is for the durable service."""
        if isinstance(message, Unsubscribe):
            number = message.subscription
            having = self._having(client, number)
            return None if having is None else having.unsubscribe(client, number, now)
        if isinstance(message, Subscribe) and self._having(client, message.subscription):
            problem = f"subscription {message.subscription} exists on this connection"
            return refuse(client, message, problem, "Use another number.")
        if isinstance(message, RetireBroker):
            return self._retire(client, message, now)
        if not isinstance(message, Asking):
            return None
        topic = self.clients.network.topic.get(message.topic)
        service = None if topic is None else self.by_name.get(topic.service)
        if service is None:
            return None
        problem, remedy = needs_a_store(service.name, message)
        if problem:
            return refuse(client, message, problem, remedy)
        if isinstance(message, Publish):
            if message.confirmed and not service.confirms:
                problem = f"topic {message.topic!r} is of the {service.name} service"
                remedy = "Leave confirmed out, or use a topic of the reliable or durable service."
                return refuse(client, message, f"{problem}: nobody knows who has an event", remedy)
            return self._publish(service, client, message, now)
        assert isinstance(message, Subscribe)
        return self._subscribe(service, client, message, now)

    def _retire(self, client: ClientName, message: RetireBroker, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for each in self.by_name.values():
            try:
                effects += each.retire(message.broker, now)
            except UsageError as error:
                return [Send(client, Refused(message.request, error.problem, error.remedy))]
        return [*effects, Send(client, Done(message.request))]

    def _publish(
        self, service: Service, client: ClientName, message: Publish, now: Instant
    ) -> list[Effect]:
        try:
            self.clients.check_events(message.events)
        except WireError as error:
            return refuse(client, message, error.problem, "Encode the events as documented.")
        return service.publish(client, message, now)

    def _subscribe(
        self, service: Service, client: ClientName, message: Subscribe, now: Instant
    ) -> list[Effect]:
        refused = self.clients.refuse_number(client, message, self.subscription_count)
        if refused:
            return refused
        try:
            Filter.parse(message.condition)
        except FilterError as error:
            return refuse(client, message, error.problem, f"{error.remedy}\n{error.caret()}")
        return service.subscribe(client, message, now)

    def _having(self, client: ClientName, number: int) -> Service | None:
        return next((s for s in self.by_name.values() if s.has(client, number)), None)

    @property
    def subscription_count(self) -> int:
        return sum(each.subscription_count() for each in self.by_name.values())

    # --- all of them -----------------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        some = [each.deadline for each in self.by_name.values()]
        return min((each for each in some if each is not None), default=None)

    def start(self, now: Instant) -> list[Effect]:
        return [effect for each in self.by_name.values() for effect in each.start(now)]

    def wait_to_join(self) -> None:
        for each in self.by_name.values():
            each.joins = True

    def join(self, at: BrokerName, now: Instant) -> list[Effect]:
        return [effect for each in self.by_name.values() for effect in each.join(at, now)]

    def fire(self, now: Instant) -> list[Effect]:
        return [effect for each in self.by_name.values() for effect in each.fire(now)]

    def leave(self, now: Instant) -> list[Effect]:
        return [effect for each in self.by_name.values() for effect in each.leave(now)]

    def disconnect(self, client: ClientName, now: Instant) -> list[Effect]:
        some = self.by_name.values()
        return [effect for each in some for effect in each.disconnect(client, now)]

    def link_up(self, broker: BrokerName, now: Instant) -> list[Effect]:
        some = self.by_name.values()
        return [effect for each in some for effect in each.link_up(broker, now)]

    def link_down(self, broker: BrokerName, now: Instant) -> list[Effect]:
        some = self.by_name.values()
        return [effect for each in some for effect in each.link_down(broker, now)]

    def receive(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        return self.of_kind[type(message)].receive(sender, message, now)

    def statistics(self) -> dict[str, object]:
        return {name: each.statistics() for name, each in self.by_name.items()}

    def check(self) -> None:
        for each in self.by_name.values():
            each.check()


Asking = Publish | PublisherQuery | Subscribe | TransactionRequest | RangeRequest
"""What clients ask about a topic."""


def needs_a_store(
    service: str, message: Publish | PublisherQuery | Subscribe | TransactionRequest | RangeRequest
) -> tuple[str, str]:
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
