"""The machines that a broker needs for a pubend of its network: a relay, and those it hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.knowledge.outgoing import PUBLISHER_ORDER, SOURCE
from gapless.knowledge.relay import RelayPlace
from gapless.knowledge.retention import Policy

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, Instant
    from gapless.core.store import Store
    from gapless.knowledge.outgoing import Edge
    from gapless.knowledge.pubend import Pubend as Host
    from gapless.knowledge.relay import Relay
    from gapless.node.config import Config
    from gapless.node.network import Network, Pubend, Topic
    from gapless.node.parts import Parts


def make_relay(
    name: BrokerName,
    pubend: Pubend,
    network: Network,
    config: Config,
    edge: Edge,
    parts: Parts,
    epoch: int,
) -> Relay:
    """A pubend's stream through this broker."""
    cell = network.cell_of[name]
    upstream = network.upstream(pubend, cell.name) or SOURCE
    below = network.downstream(pubend, cell.name)
    if cell.subscribers:
        below = (*below, PUBLISHER_ORDER)
    place = RelayPlace(name, cell.name, upstream, below)
    return parts.relay(pubend.name, place, config, edge, epoch=epoch)


def make_pubend(
    pubend: Pubend, topic: Topic, config: Config, store: Store, parts: Parts, now: Instant
) -> Host:
    """A pubend that this broker hosts, as its disk has it."""
    policy = Policy(retention_time=topic.retention_us, retention_bytes=topic.retention_bytes)
    return parts.pubend(pubend.name, pubend.number, store, config, now, policy)
