"""Digests: numbers in place of vectors on a link.

Theory of operation
    The first message of a new digest on a link carries the vector: what differs from that of the
    digest announced before, or all of it on a fresh link. Later messages carry the number alone.
    Because vectors of a source only grow with their digests, a difference may be joined to any
    vector known since its base. A receiver that knows less than the base cannot use it, says so
    (`DigestNack`), and gets the whole vector with the next message.

Invariants
    I1  the highest digest of a source never goes back, nor does its vector

Cost: a message costs the same however many leaves there are; an announcement costs the elements
that changed.

Source: Middleware 2004, sec. 3.7, 5.1. Deviation: differences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.propagation.vector import difference, join

if TYPE_CHECKING:
    from gapless.core.broker_messages import Vector
    from gapless.core.identity import BrokerName


class Announcement(NamedTuple):
    """What a message carries besides its digest: `Knowledge.vector` and `Knowledge.base`."""

    vector: Vector | None
    base: int = 0


NO_NEWS = Announcement(None)


class KnownVector(NamedTuple):
    """The highest digest of a source, and its vector."""

    digest: int
    vector: Vector


class Announcer:
    """The sending half: what each neighbour has been told of each source."""

    def __init__(self) -> None:
        self._told: dict[BrokerName, dict[str, KnownVector]] = {}

    def announce(self, peer: BrokerName, source: str, known: KnownVector) -> Announcement:
        """What a message of this digest to this neighbour must carry."""
        told = self._told.setdefault(peer, {})
        before = told.get(source)
        if before is not None and before.digest >= known.digest:
            return NO_NEWS
        told[source] = known
        if before is None:
            return Announcement(known.vector)
        return Announcement(difference(known.vector, before.vector), before.digest)

    def forget_peer(self, peer: BrokerName) -> None:
        """Forget what was announced: the link broke or is new, and it may not have arrived."""
        self._told.pop(peer, None)

    def receive_nack(self, peer: BrokerName, source: str) -> None:
        """Announce the whole vector with the next message: the neighbour does not know it."""
        self._told.get(peer, {}).pop(source, None)


class Dictionary:
    """The receiving half: the highest digest of each source, with its vector."""

    def __init__(self) -> None:
        self.known: dict[str, KnownVector] = {}

    def learn(self, source: str, digest: int, vector: Vector | None, base: int = 0) -> bool:
        """Learn from a message. Is the vector behind its digest, or a later one, known now?"""
        known = self.known.get(source)
        if known is not None and digest <= known.digest:
            return True
        if vector is None or (base and (known is None or known.digest < base)):
            return False
        grown = vector if known is None else join(known.vector, vector)
        self.known[source] = KnownVector(digest, grown)
        return True
