"""Redirects: a request that only some brokers can serve is refused with their names.

A driver turns the names into addresses, and the client repeats the request there; see
`gapless.client.requests`. What is refused here had no effect, so that nothing happens twice.

A named publisher is bound to one pubend of its topic by its name alone, wherever it connects:
only the log of that pubend knows which of its events were published before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from zlib import crc32

from gapless.core.client_messages import Refused
from gapless.core.effects import Send
from gapless.core.errors import listed, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, ClientName, SubscriptionName, TopicName
    from gapless.node.network import Network, PubendEntry, Topic


PLACES_MAX = 64
"""Brokers that are named to a client, any of which can serve it."""


class ClientRequest(Protocol):
    """A message that gets an answer with its number."""

    @property
    def request(self) -> int: ...


def refuse_elsewhere(
    client: ClientName, message: ClientRequest, problem: str, brokers: Iterable[BrokerName]
) -> list[Effect]:
    """Not here, but any of these brokers can: the first is to be tried first."""
    places = tuple(dict.fromkeys(brokers))[:PLACES_MAX]
    remedy = f"Connect to one of: {listed(places)}."
    return [Send(client, Refused(message.request, problem, remedy, elsewhere=places))]


def refuse_unknown(
    client: ClientName, message: ClientRequest, topic: TopicName, network: Network
) -> list[Effect]:
    """There is no such topic, as far as can be known here."""
    shown = topic if quoted(topic) == f"'{topic}'" else "NAME"
    problem, remedy = (
        f"there is no topic {quoted(topic)}",
        f"Create it: gapless topic create {shown}",
    )
    if network.joins:
        problem = (
            f"topic {quoted(topic)} is not known here: this broker joined a network, which tells "
            "it of topics that store nothing, and of no durable ones"
        )
        remedy = "Ask a broker that is in the network file, also to create it; or try again soon."
    return [Send(client, Refused(message.request, problem, remedy))]


def refuse_until_told(
    client: ClientName, message: ClientRequest, name: SubscriptionName, previous: BrokerName
) -> list[Effect]:
    """Here, but not yet: who relies on what is acknowledged waits for all that is."""
    problem = (
        f"{quoted(name)} has moved here, and {previous!r} has not told yet how far it was finished"
    )
    remedy = f"Show its token, or see that {previous!r} runs and try again."
    return [Send(client, Refused(message.request, problem, remedy, retry=True))]


def bound_pubend(topic: Topic, publisher: str) -> PubendEntry:
    """The pubend of all that a publisher of this name publishes."""
    return topic.pubends[crc32(publisher.encode()) % len(topic.pubends)]
