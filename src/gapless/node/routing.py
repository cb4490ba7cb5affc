"""Routing: which brokers are alive, and which member of a cell gets a message.

Theory of operation
    Neighbours ping each other every `heartbeat`. One counts as alive while its answers come: an
    answer proves both directions of the link, so a link that is dead one way is dead for both.
    A driver that has links says when one is up: its neighbour is pinged at once, and when it
    answers, what waits for an answer is put again, for it may have been sent before.
    Members of a cell back each other up without agreement: for each pubend, a sender picks a live
    member by rendezvous hashing, so that pubends spread over the members and move only when the
    live set changes. With no live link to a cell, a sibling is asked to pass the message on, once.
    When the one that was chosen has died, open questions are put again, to another.
    A nack is different: it goes to the sibling itself, which answers the one that asked.
    A wrong choice costs a gap, never an event: gaps are repaired from below.

Source: DSN 2002, fig. 1 (cells, link bundles); docs/protocols/exactly-once.md, 4.6.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from gapless.core.broker_messages import HandOver, Nack, Propagated, Sideways, TakeOver
from gapless.core.effects import Effect, Send
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, Instant
from gapless.core.messages import Ping, Pong
from gapless.core.name_messages import NameAnswer, NameQuestion, NamesQuestion, NamesTold
from gapless.core.topic_messages import TopicQuestion

if TYPE_CHECKING:
    from gapless.core.broker_messages import Addressed, Routed
    from gapless.core.identity import CellName, PeerName
    from gapless.node.config import Config
    from gapless.node.network import Network


RANKS_MAX = 10_000
"""Orders of a cell's members that are remembered; beyond it all are worked out anew."""


def score(key: str, member: BrokerName) -> bytes:
    return blake2b(f"{key}|{member}".encode(), digest_size=8).digest()


def key_of(message: Routed | Addressed) -> str:
    """What picks the member of a cell that gets a message."""
    match message:
        case HandOver():
            return message.subscription
        case TopicQuestion():
            return message.topic
        case NameQuestion() | NameAnswer():
            return message.name
        case NamesQuestion() | NamesTold():
            return message.sender
        case TakeOver():
            return message.receiver
        case _:
            return message.pubend


class Routing:
    """The neighbours of one broker, as it sees them."""

    def __init__(self, name: BrokerName, network: Network, config: Config, now: Instant) -> None:
        self.name = name
        self.network = network
        self.config = config
        self.cell = network.cell_of[name].name
        self.siblings = tuple(each for each in network.members(self.cell) if each != name)
        beyond = [m for cell in network.neighbours(self.cell) for m in network.members(cell)]
        self.peers = tuple(sorted({*self.siblings, *beyond}))
        self.failovers = 0
        self.sideways = 0
        self.catalogue_digest = 0  # goes out with each ping
        self.changes = 0  # how often the set of live neighbours changed
        self._answered = dict.fromkeys(self.peers, now)  # when each last proved alive
        self._live = frozenset(self.peers)
        self._looked = now
        self._ping_due = now
        self._new: dict[BrokerName, None] = {}  # linked to us, and not heard since
        self._ranks: dict[tuple[tuple[BrokerName, ...], str], list[BrokerName]] = {}
        self._ping_number = 0

    @property
    def deadline(self) -> Instant | None:
        """The next ping, or the moment when someone who does not answer counts as dead."""
        due = [self._ping_due] if self.peers else []
        for peer, answered in self._answered.items():
            if peer in self._live:
                due.append(Instant(answered + self.config.dead_after))
            elif answered > self._looked:  # heard again
                due.append(answered)
        return min(due, default=None)

    def is_live(self, peer: BrokerName, now: Instant) -> bool:
        return now < self._answered[peer] + self.config.dead_after

    def announce_catalogue(self, digest: int) -> None:
        """Send this digest of our catalogue with each ping from now on."""
        self.catalogue_digest = digest

    def fire(self, now: Instant) -> list[Effect]:
        if now < self._ping_due:
            return []
        self._ping_due = Instant(now + self.config.heartbeat)
        self._ping_number += 1
        ping = Ping(self._ping_number, self.catalogue_digest)
        return [Send(peer, ping) for peer in self.peers]

    def look(self, now: Instant) -> tuple[frozenset[BrokerName], frozenset[BrokerName]]:
        """Who was alive when we last looked, and who is now."""
        before = self._live
        self._live = frozenset(peer for peer in self.peers if self.is_live(peer, now))
        self._looked = now
        self.changes += before != self._live
        return before, self._live

    def has_lost(
        self, cell: CellName, key: str, before: frozenset[BrokerName], after: frozenset[BrokerName]
    ) -> bool:
        """Is the one that got what was sent to the cell gone, so that it may be lost?"""
        ranked = self._ranked(self.network.members(cell), key)
        old = next((member for member in ranked if member in before), None)
        if old is not None:
            return old not in after
        siblings = before & set(self.siblings)  # it went sideways, if at all
        return any(member in after for member in ranked) or not siblings <= after

    def receive_pong(self, peer: PeerName, now: Instant) -> bool:
        """Whether this is the first that is heard of a neighbour over a new link."""
        if peer in self._answered:
            self._answered[BrokerName(peer)] = now
        return self._new.pop(BrokerName(peer), self) is None

    def greet(self, peer: PeerName) -> list[Effect]:
        """A hint that there is a link to a neighbour: do not wait for the heartbeat either."""
        if peer not in self._answered:
            return []
        self._new[BrokerName(peer)] = None
        return [Send(peer, Ping(self._ping_number, self.catalogue_digest))]

    def lose(self, peer: PeerName, now: Instant) -> None:
        """A hint that the link to a neighbour broke: do not wait for the heartbeat."""
        if peer in self._answered:
            self._answered[BrokerName(peer)] = Instant(now - self.config.dead_after)

    def send(
        self, cell: CellName, key: str, message: Routed | Addressed, now: Instant
    ) -> list[Effect]:
        """Send to the member of a neighbouring cell that `key` picks, or by way of a sibling."""
        member = self._pick(self.network.members(cell), key, now)
        if member is not None:
            return [Send(member, message)]
        live = [sibling for sibling in self.siblings if self.is_live(sibling, now)]
        if not live:
            return []  # lost, as on a broken link; whoever needs it asks again
        self.sideways += 1
        sibling = live[self.sideways % len(live)]
        return [Send(sibling, message if isinstance(message, Nack) else Sideways(cell, message))]

    def send_on(self, message: Addressed, now: Instant) -> list[Effect]:
        """To the one broker that it is for, or one hop nearer to him."""
        target = self.network.cell_of[message.receiver].name
        if target == self.cell:  # a sibling's, which came to us because one of a cell is picked
            return [Send(message.receiver, message)]
        return self.send(self.network.next_hop(self.cell, target), key_of(message), message, now)

    def send_first(
        self, cell: CellName, message: Propagated, now: Instant, *, direct: bool = False
    ) -> list[Effect]:
        """Send to the first live member in the network's order, so that one of them serialises
        the changes of a cell; or, unless `direct`, by way of a sibling."""
        for member in self.network.members(cell):
            if self.is_live(member, now):
                return [Send(member, message)]
        live = [sibling for sibling in self.siblings if self.is_live(sibling, now)]
        return [Send(live[0], Sideways(cell, message))] if live and not direct else []

    def send_direct(
        self, cell: CellName, key: str, message: Routed | Addressed, now: Instant
    ) -> list[Effect]:
        """The same for a message that has come sideways: never sideways again."""
        member = self._pick(self.network.members(cell), key, now)
        return [] if member is None else [Send(member, message)]

    def pass_on(
        self,
        sender: BrokerName,
        cell: CellName,
        message: Routed | Propagated | Addressed,
        now: Instant,
    ) -> list[Effect]:
        """What a sibling has no live link for."""
        if sender not in self.siblings or cell not in self.network.neighbours(self.cell):
            raise ProtocolError(f"{sender!r} may not send {cell!r} anything by way of us")
        if isinstance(message, Propagated):
            return self.send_first(cell, message, now, direct=True)
        return self.send_direct(cell, key_of(message), message, now)

    def _pick(self, members: tuple[BrokerName, ...], key: str, now: Instant) -> BrokerName | None:
        for rank, member in enumerate(self._ranked(members, key)):
            if self.is_live(member, now):
                self.failovers += rank > 0
                return member
        return None

    def _ranked(self, members: tuple[BrokerName, ...], key: str) -> list[BrokerName]:
        """Rendezvous hashing. A cyclic checksum would not do: it is linear, so that the order of
        two members would depend on few bits of the key."""
        ranked = self._ranks.get((members, key))
        if ranked is None:
            if len(self._ranks) >= RANKS_MAX:
                self._ranks.clear()
            ranked = sorted(members, key=lambda member: (score(key, member), member))
            self._ranks[members, key] = ranked
        return ranked

    def share(self, message: Routed | Propagated) -> list[Effect]:
        """Tell the siblings a fact that any of them may need."""
        return [Send(sibling, message) for sibling in self.siblings]

    def answer(self, peer: PeerName, ping: Ping) -> list[Effect]:
        return [Send(peer, Pong(ping.number))]
