"""Producers: events and transactions of clients, taken to the pubend that each is bound to.

A publication goes to the one pubend that its publisher is bound to, so that order is kept. The name
of a publisher or a producer picks that pubend among all of the topic, wherever it is hosted: its
events are known at one place, whichever broker it asks. A publisher without a name is bound by its
connection to one of the pubends that are hosted here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from gapless.core.client_messages import Refused
from gapless.core.effects import Effect, Send
from gapless.core.errors import WireError, quoted
from gapless.core.transaction_messages import Abort, Commit, ProducerQuery, Stage
from gapless.knowledge.pubend import Pubend
from gapless.node.redirect import bound_pubend, refuse_elsewhere, refuse_unknown

if TYPE_CHECKING:
    from gapless.core.client_messages import Publish, PublisherQuery
    from gapless.core.identity import ClientName, Instant, PubendName
    from gapless.core.transaction_messages import TransactionRequest
    from gapless.node.context import Context
    from gapless.node.deadlines import Machines
    from gapless.node.delivery.connections import ClientConnections
    from gapless.node.redirect import ClientRequest

ENCODE = "Encode the events as documented."


class Producers:
    """What clients publish at one broker."""

    def __init__(
        self,
        context: Context,
        pubends: Machines[PubendName, Pubend],
        connections: ClientConnections,
    ) -> None:
        self.network = context.network
        self.catalogue = context.catalogue
        self.check_events = context.encoding.check_events
        self.pubends = pubends
        self.connections = connections

    # --- events -----------------------------------------------------------------------------------

    def publish(self, client: ClientName, message: Publish, now: Instant) -> list[Effect]:
        pubend = self._bound(client, message, now)
        if not isinstance(pubend, Pubend):
            return pubend
        try:
            self.check_events(message.events)
        except WireError as error:
            # Once stored, an event that nobody can read would stop everybody below.
            return refuse(client, message, error.problem, ENCODE)
        return pubend.publish(client, message, now, self.connections[client].who)

    def position(self, client: ClientName, query: PublisherQuery, now: Instant) -> list[Effect]:
        """The next number of a publisher."""
        pubend = self._bound(client, query, now)
        if not isinstance(pubend, Pubend):
            return pubend
        return pubend.position(client, query, now, self.connections[client].who)

    def _bound(
        self, client: ClientName, message: Publish | PublisherQuery, now: Instant
    ) -> Pubend | list[Effect]:
        """The pubend that a publisher is bound to, or why there is none here."""
        topic = self.network.topic.get(message.topic)
        if topic is None:
            return self.catalogue.missing(client, message, message.topic, now)
        if message.publisher is not None:
            candidates = [bound_pubend(topic, message.publisher)]
        else:
            candidates = list(topic.pubends)
        here = [each.name for each in candidates if each.name in self.pubends]
        if not here:
            by = "" if message.publisher is None else f" by {quoted(message.publisher)}"
            problem = f"topic {quoted(message.topic)} is not published at this broker{by}"
            return refuse_elsewhere(client, message, problem, [each.host for each in candidates])
        return self.pubends[here[crc32(client.encode()) % len(here)]]

    # --- transactions -----------------------------------------------------------------------------

    def receive(
        self, client: ClientName, message: TransactionRequest, now: Instant
    ) -> list[Effect]:
        topic = self.network.topic.get(message.topic)
        if topic is None:
            return refuse_unknown(client, message, message.topic, self.network)
        bound = bound_pubend(topic, message.producer)
        pubend = self.pubends.get(bound.name)
        if pubend is None:
            problem = (
                f"producer {quoted(message.producer)} is bound to {bound.name!r}, not hosted here"
            )
            return refuse_elsewhere(client, message, problem, [bound.host])
        owner = self.connections[client].who
        match message:
            case Stage():
                try:
                    self.check_events(message.events)
                except WireError as error:
                    return refuse(client, message, error.problem, ENCODE)
                return pubend.transactions.stage(client, message, now, owner)
            case Commit():
                return pubend.commit(client, message, now, owner)
            case Abort():
                return pubend.transactions.abort(client, message, now)
            case ProducerQuery():
                return pubend.transactions.position(client, message)


def refuse(client: ClientName, message: ClientRequest, problem: str, remedy: str) -> list[Effect]:
    return [Send(client, Refused(message.request, problem, remedy))]
