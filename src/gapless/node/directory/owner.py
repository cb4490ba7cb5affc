"""Owners: which broker decides about a topic's name, and which host its pubends.

Every name ranks the brokers that may host pubends, each differently (rendezvous hashing). The first
is the owner of the name. The pubends go round the ranking, so that most topics live at their owner.
All brokers of a network compute the same ranking, and need not agree on anything.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

from gapless.node.routing import score

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, TopicName
    from gapless.node.network import Network


def ranking(network: Network, topic: TopicName) -> list[BrokerName]:
    """The brokers that may own the name and host its pubends, the owner first; may be empty.

    A host is alone in its cell. If there are candidates without subscribers, only they count: they
    have the time.
    """
    alone = [cell for cell in network.cells if len(cell.brokers) == 1]
    chosen = [cell for cell in alone if not cell.subscribers] or alone
    names = [cell.brokers[0].name for cell in chosen]
    return sorted(names, key=lambda name: (score(topic, name), name))


def choose_hosts(network: Network, topic: TopicName, pubends: int) -> tuple[BrokerName, ...]:
    return tuple(islice(cycle(ranking(network, topic)), pubends))
