"""The machines that a broker needs for the pubends of its network: relays, and pubends it hosts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.knowledge.outgoing import PUBLISHER_ORDER, SOURCE
from gapless.knowledge.retention import Policy

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, Instant, PubendName
    from gapless.core.store import Store
    from gapless.knowledge.outgoing import Edge
    from gapless.knowledge.pubend import Pubend
    from gapless.knowledge.relay import Relay
    from gapless.node.config import Config
    from gapless.node.network import Network
    from gapless.node.parts import Parts


def make_relays(
    name: BrokerName,
    network: Network,
    config: Config,
    edge: Edge,
    parts: Parts,
    epoch: int,
    shadow: bool,
) -> dict[PubendName, Relay]:
    """For each pubend, its stream through this broker."""
    relays: dict[PubendName, Relay] = {}
    cell = network.cell_of[name]
    for pubend in network.pubends.values():
        upstream = network.upstream(pubend, cell.name) or SOURCE
        below = network.downstream(pubend, cell.name)
        if cell.subscribers:
            below = (*below, PUBLISHER_ORDER)
        # A tick that was filtered once may pass another time, so that only what comes from the
        # pubend itself can be held to the strict lattice.
        strict = shadow and (upstream == SOURCE or not config.propagates)
        relays[pubend.name] = parts.relay(
            pubend.name,
            name,
            cell.name,
            upstream,
            below,
            config,
            edge,
            epoch=epoch,
            shadow=strict,
        )
    return relays


def make_pubends(
    name: BrokerName, network: Network, config: Config, store: Store, parts: Parts, now: Instant
) -> dict[PubendName, Pubend]:
    """The pubends that this broker hosts, as its disk has them."""
    pubends: dict[PubendName, Pubend] = {}
    for pubend in network.pubends.values():
        if pubend.host == name:
            topic = network.topic[pubend.topic]
            policy = Policy(
                retention_time=topic.retention_us, retention_bytes=topic.retention_bytes
            )
            pubends[pubend.name] = parts.pubend(
                pubend.name, pubend.number, store, config, now, policy
            )
    return pubends
