"""Service: what the node asks of each of its services, and all that it knows of them.

A topic has one service, fixed when it is created: durable, reliable or multicast. The node routes
requests of clients by topic, messages of brokers by kind (`kinds`), and the ends of a service's own
writes by kind (`writes`); it merges deadlines, and ends each step with `settle`. A service does
nothing where it does not override a method that has a body here.

All times are the node's own, which never go back.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from gapless.core.portion import WHOLE, Portion

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, ClientName, Instant
    from gapless.core.messages import Message
    from gapless.node.network import Topic


class Service(ABC):
    """One service at one broker."""

    name: str
    """As topics have it."""

    kinds: tuple[type[Message], ...]
    """The messages between its brokers."""

    writes: tuple[type[Message], ...] = ()
    """The messages that the service sends to itself when a write of its own has ended."""

    stores: bool = False
    """Does it store events? If not, requests that need a store never reach it."""

    confirms: bool = False
    """Can a receipt wait until all subscribers within reach have the events?"""

    joins: bool = False
    """The broker is in no network file: wait for `join`, and begin nothing alone."""

    # --- life ------------------------------------------------------------------------------------

    def restore(self, now: Instant) -> list[Effect]:
        """Begin with what the disk has. Called once, before anything else."""
        return []

    def start(self, now: Instant) -> list[Effect]:
        """The number of this life (`Epoch`) is durable now, so that other brokers may see it."""
        return []

    def join(self, at: BrokerName, now: Instant) -> list[Effect]:
        """The broker is in no network file, and has a link to this broker of a running network:
        become part of that network there. Called for each such link."""
        return []

    def leave(self, now: Instant) -> list[Effect]:
        """The broker is about to stop, nobody knows for how long."""
        return []

    # --- topics ----------------------------------------------------------------------------------

    @abstractmethod
    def add(self, topic: Topic, now: Instant) -> list[Effect]:
        """A topic of this service was created, and is in the network. Topics of the start are there
        already when the service is made."""

    @abstractmethod
    def remove(self, topic: Topic, problem: str, remedy: str, now: Instant) -> list[Effect]:
        """A topic was deleted: end its subscriptions with this problem and remedy. The topic is
        still in the network."""

    def alter(self, topic: Topic, now: Instant) -> None:
        """The settings of a topic were changed; its name and its streams are the same."""
        raise AssertionError(f"a topic of the {self.name} service has no settings: {topic}")

    # --- clients ---------------------------------------------------------------------------------

    @abstractmethod
    def request(self, client: ClientName, message: Message, now: Instant) -> list[Effect]:
        """Serve a request of a connected client. The number of a `Subscribe` is free. For a service
        that stores nothing it is a `Publish` of well-formed events, or an anonymous `Subscribe` in
        publisher order with a condition that parses. `ProtocolError`: clients do not send this."""

    @abstractmethod
    def has(self, client: ClientName, number: int) -> bool:
        """Has a subscription of this service the number on the connection, begun or about to?"""

    @property
    @abstractmethod
    def unmatched_count(self) -> int:
        """How many of its subscriptions are not among the `Subscribers`: they have not begun, or
        this service matches them otherwise."""

    @abstractmethod
    def unsubscribe(self, client: ClientName, number: int, now: Instant) -> list[Effect]:
        """End a subscription that the service has."""

    @abstractmethod
    def disconnect(self, client: ClientName, now: Instant) -> list[Effect]:
        """A client is gone. Its connection is still there; what is left among the `Subscribers`
        is removed with it."""

    # --- brokers ---------------------------------------------------------------------------------

    @abstractmethod
    def receive(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        """Take in one of `kinds`, from any peer that is not a client. `ProtocolError`: drop the
        link of the sender; nothing has changed."""

    def link_up(self, broker: BrokerName, now: Instant) -> list[Effect]:
        """There is a new link to a broker of the network file; the old one, if any, is gone."""
        return []

    def ask_again(self, broker: BrokerName, now: Instant) -> list[Effect]:
        """A neighbour answers over a new link: repeat what was sent before, it may be lost."""
        return []

    def link_down(self, broker: BrokerName, now: Instant) -> list[Effect]:
        """A link to a broker broke."""
        return []

    # --- writes, time ----------------------------------------------------------------------------

    def persisted(self, message: Message, now: Instant) -> list[Effect]:
        """Take in one of `writes`."""
        raise AssertionError(f"the {self.name} service has no write that ends with {message}")

    def settle(self, now: Instant) -> list[Effect]:
        """End a step: do what parts have left to be done together."""
        return []

    @property
    @abstractmethod
    def deadline(self) -> Instant | None:
        """When to call `fire`."""

    @abstractmethod
    def fire(self, now: Instant) -> list[Effect]:
        """Do what is due."""

    # --- figures, invariants ---------------------------------------------------------------------

    @abstractmethod
    def statistics(self) -> dict[str, object]: ...

    @abstractmethod
    def check(self, portion: Portion = WHOLE) -> None: ...
