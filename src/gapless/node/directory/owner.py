"""Owners: which broker decides about a topic's name, and which host its pubends.

Every name ranks the brokers that may host pubends, each differently (rendezvous hashing). The first
is the owner of the name; the pubends go round the ranking, so that most topics live where they are
decided about. All brokers of a network work out the same, and need not agree on anything.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

from gapless.node.routing import score

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, TopicName
    from gapless.node.network import Network


def ranking(network: Network, topic: TopicName) -> list[BrokerName]:
    """Those that may own and host, the owner first; empty if nobody may.

    A broker that hosts is alone in its cell. Those that have no subscribers come into question
    alone where there are any: they have the time.
    """
    alone = [cell for cell in network.cells if len(cell.brokers) == 1]
    chosen = [cell for cell in alone if not cell.subscribers] or alone
    names = [cell.brokers[0].name for cell in chosen]
    return sorted(names, key=lambda name: (score(topic, name), name))


def choose_hosts(network: Network, topic: TopicName, pubends: int) -> tuple[BrokerName, ...]:
    return tuple(islice(cycle(ranking(network, topic)), pubends))
