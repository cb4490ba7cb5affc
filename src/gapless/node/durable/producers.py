"""Producers: what clients ask about transactions, taken to the pubend that each is bound to.

A producer is bound by its name to one pubend among all of its topic, wherever that is hosted: so
its transactions are known at one place, whichever broker it asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Refused
from gapless.core.effects import Effect, Send
from gapless.core.errors import WireError, quoted
from gapless.core.transaction_messages import Abort, Commit, ProducerQuery, Stage
from gapless.node.redirect import bound_pubend, refuse_elsewhere, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.events import EventBatch
    from gapless.core.identity import ClientName, Instant
    from gapless.core.transaction_messages import TransactionRequest
    from gapless.node.durable.streams import Streams
    from gapless.node.network import Network


class Producers:
    """The transactions of clients at one broker."""

    def __init__(
        self, network: Network, streams: Streams, check_events: Callable[[EventBatch], object]
    ) -> None:
        self.network = network
        self.streams = streams
        self.check_events = check_events

    def receive(
        self, client: ClientName, message: TransactionRequest, now: Instant
    ) -> list[Effect]:
        topic = self.network.topic.get(message.topic)
        if topic is None:
            return refuse_unknown(client, message, message.topic, self.network)
        bound = bound_pubend(topic, message.producer)
        pubend = self.streams.pubends.get(bound.name)
        if pubend is None:
            problem = (
                f"producer {quoted(message.producer)} is bound to {bound.name!r}, not hosted here"
            )
            return refuse_elsewhere(client, message, problem, [bound.host])
        owner = self.streams.subscribers.clients[client].who
        match message:
            case Stage():
                try:
                    self.check_events(message.events)
                except WireError as error:
                    remedy = "Encode the events as documented."
                    return refuse(client, message, error.problem, remedy)
                return pubend.transactions.stage(client, message, now, owner)
            case Commit():
                return pubend.commit(client, message, now, owner)
            case Abort():
                return pubend.transactions.abort(client, message, now)
            case ProducerQuery():
                return pubend.transactions.position(client, message)


def refuse(
    client: ClientName, message: TransactionRequest, problem: str, remedy: str
) -> list[Effect]:
    return [Send(client, Refused(message.request, problem, remedy))]
