"""Quotas: how many connections and subscriptions each principal has at one broker.

Theory of operation
    Subscriptions of a principal are counted upward as they are asked for; only where that reaches
    its limit are those that really exist counted, at most once in `RECOUNT_S`. Where nobody proves
    who they are, a client is its machine, or on this machine its connection (`who_is`): then only
    what lives with connections is counted here, and durable subscriptions have the broker's limit.

Invariants
    I1  no principal has more links here than its limit
"""

from __future__ import annotations

import asyncio
from collections import Counter
from ipaddress import ip_address
from typing import TYPE_CHECKING, Protocol

from gapless.core.client_messages import Refused
from gapless.core.errors import ProtocolError
from gapless.core.identity import ClientName
from gapless.core.ledger import show_who

if TYPE_CHECKING:
    from collections.abc import Collection

    from gapless.core.client_messages import Subscribe
    from gapless.core.identity import PeerName
    from gapless.node.node import Node

RECOUNT_S = 1.0


class QuotaHolder(Protocol):
    """A link, as far as it takes a share."""

    who: str
    peer: PeerName | None


class Tally:
    """What one principal has here: its links, and about how many subscriptions."""

    def __init__(self, subscriptions: int) -> None:
        self.links: set[QuotaHolder] = set()
        self.subscriptions = subscriptions  # at least as many as there are
        self.recount_s = 0.0  # not before this time of the loop


class Quotas:
    """What each principal has at one broker. `durable`: by owner, when the broker started."""

    def __init__(self, connections_max: int, subscriptions_max: int) -> None:
        self.connections_max = connections_max
        self.subscriptions_max = subscriptions_max
        self.durable: dict[str, int] = {}
        self._tallies: dict[str, Tally] = {}

    def join(self, link: QuotaHolder) -> None:
        """One more link of a principal; `ProtocolError`: it has too many."""
        who = link.who
        tally = self._tallies.setdefault(who, Tally(self.durable.get(who, 0)))
        if len(tally.links) >= self.connections_max:
            raise ProtocolError(
                f"{show_who(who)} has {len(tally.links)} connections, which is its limit",
                "Close some, or use one for more.",
            )
        tally.links.add(link)

    def leave(self, link: QuotaHolder) -> None:
        tally = self._tallies.get(link.who)
        if tally is not None:
            tally.links.discard(link)
            if not tally.links and link.who.startswith("@"):
                del self._tallies[link.who]  # it has nothing that stays

    def subscribe(self, link: QuotaHolder, message: Subscribe, node: Node) -> Refused | None:
        """Why there may not be one more subscription; None if there may."""
        tally, limit = self._tallies[link.who], self.subscriptions_max
        now_s = asyncio.get_running_loop().time()
        if tally.subscriptions >= limit and now_s >= tally.recount_s:
            peers = {each.peer for each in tally.links}
            tally.subscriptions = count_of(node, link.who, peers)
            tally.recount_s = now_s + RECOUNT_S
        if tally.subscriptions < limit:
            tally.subscriptions += 1
            return None
        problem = f"{show_who(link.who)} has {tally.subscriptions} subscriptions here"
        remedy = "End some, and try again after a second."
        return Refused(message.request, f"{problem}, which is its limit", remedy)


def who_is(address: str) -> str:
    """Whose share a client takes that has not proved who it is: that of its machine. On this one
    all would be the same, so each connection is somebody else here."""
    host = address.rpartition(":")[0]
    try:
        is_here = ip_address(host).is_loopback
    except ValueError:
        is_here = True  # no address of IP
    return f"@{address}" if is_here else f"@{host}"


def owned(node: Node) -> dict[str, int]:
    """How many durable subscriptions each owner has."""
    return Counter(each.definition.owner for each in node.durable.subscriptions.all())


def count_of(node: Node, owner: str, peers: Collection[PeerName | None]) -> int:
    """How many subscriptions someone has: those of these connections, and durable ones."""
    clients = [node.connections.get(ClientName(peer)) for peer in peers if peer]
    anonymous = sum(len(client.subscriptions) for client in clients if client is not None)
    waiting = node.durable.pending_count(peers)
    durable = sum(each.definition.owner == owner for each in node.durable.subscriptions.all())
    return anonymous + waiting + durable
