"""Vectors: those that messages of one topic carry, as this broker learns them and passes them on.

Theory of operation
    All pubends of a topic at one broker share one source of vectors, that broker's stamp. What is
    known of a source's highest digest decides whether this broker may filter, for each cell below,
    and at a leaf where subscriptions may start. A neighbour gets a vector with the first message
    of its digest; one that has missed it says so, and gets all of it with the next.

Source: Middleware 2004, sec. 3.5, 3.6, 5.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gapless.core.broker_messages import DigestNack
from gapless.core.effects import Send
from gapless.core.errors import ProtocolError
from gapless.core.identity import Instant
from gapless.propagation.digest import Announcer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.broker_messages import Knowledge, Vector
    from gapless.core.identity import BrokerName, CellName, PubendName
    from gapless.node.config import Config
    from gapless.node.network import Topic
    from gapless.node.parts import Parts
    from gapless.propagation.digest import KnownVector
    from gapless.propagation.stamp import Stamp
    from gapless.propagation.sufficiency import Sufficiency


class Learnt(NamedTuple):
    """What a message said of its vector."""

    vector: Vector | None = None  # the highest of its source; None if its own is not known
    is_news: bool = False
    question: tuple[Send, ...] = ()


class Vectors:
    """The vectors of one topic's messages at one broker."""

    def __init__(
        self,
        topic: Topic,
        name: BrokerName,
        upstream: Mapping[PubendName, CellName | None],
        leaves: Mapping[CellName, tuple[BrokerName, ...]],
        config: Config,
        parts: Parts,
    ) -> None:
        self.upstream = upstream
        self.config = config
        self.source = {each.name: f"{topic.label}@{each.host}" for each in topic.pubends}
        self.sufficiency: dict[CellName | None, Sufficiency] = {
            direction: parts.sufficiency(
                {cell: some for cell, some in leaves.items() if cell != direction}
            )
            for direction in dict.fromkeys(upstream.values())
        }
        self.starts = parts.starts(name)
        self.announcer = Announcer()
        self._asked: dict[str, Instant] = {}  # by source: when to ask again for a vector

    def _highest(self, pubend: PubendName) -> KnownVector | None:
        highest = self.sufficiency[self.upstream[pubend]].dictionary.known
        return highest.get(self.source[pubend])

    # --- in ---------------------------------------------------------------------------------------

    def learn(self, sender: BrokerName, knowledge: Knowledge, now: Instant) -> Learnt:
        pubend, digest = knowledge.pubend, knowledge.digest
        if min(digest, knowledge.base) < 0:
            raise ProtocolError(f"digests are above zero, not {digest} on top of {knowledge.base}")
        if not digest:
            return Learnt()
        before = self._highest(pubend)
        sufficiency, source = self.sufficiency[self.upstream[pubend]], self.source[pubend]
        if not sufficiency.learn(source, digest, knowledge.vector, knowledge.base):
            return Learnt(question=self._ask(sender, knowledge, now))
        highest = self._highest(pubend)
        assert highest is not None
        is_news = highest is not before
        if is_news:
            self.starts.learn(source, highest.digest, highest.vector)
        return Learnt(highest.vector, is_news)

    def _ask(self, sender: BrokerName, knowledge: Knowledge, now: Instant) -> tuple[Send, ...]:
        source = self.source[knowledge.pubend]
        if now < self._asked.get(source, now):
            return ()
        self._asked[source] = Instant(now + self.config.lag_patience)
        return (Send(sender, DigestNack(knowledge.pubend, knowledge.digest)),)

    def learn_own(self, stamp: Stamp) -> None:
        """This is what messages of this broker's own pubends carry from now on."""
        if stamp.is_in_use:
            self.sufficiency[None].learn(stamp.source, stamp.digest, stamp.vector)

    def see(self, knowledge: Knowledge) -> bool:
        """A message that is new: may something start with it that could not before?"""
        pubend, start = knowledge.pubend, knowledge.span.start
        return self.starts.see(self.source[pubend], pubend, start, knowledge.digest)

    def time_of(self, knowledge: Knowledge) -> int | None:
        """How much of this broker's own subscriptions the message was matched against."""
        return self.starts.time_of(self.source[knowledge.pubend], knowledge.digest)

    def test(self, pubend: PubendName, digest: int, cell: CellName) -> bool:
        """Do we know all that a message of this digest must be matched against, for this cell?"""
        sufficiency = self.sufficiency[self.upstream[pubend]]
        return sufficiency.test(self.source[pubend], digest, cell) is True

    # --- out --------------------------------------------------------------------------------------

    def receive_digest_nack(self, sender: BrokerName, nack: DigestNack) -> None:
        self.announcer.receive_nack(sender, self.source[nack.pubend])

    def announce(self, peer: BrokerName, knowledge: Knowledge) -> Knowledge:
        """The message as this neighbour must get it: with its vector, if that is news to him."""
        highest = self._highest(knowledge.pubend)
        if highest is None or highest.digest != knowledge.digest or knowledge.vector is not None:
            return knowledge
        said = self.announcer.announce(peer, self.source[knowledge.pubend], highest)
        if said.vector is None:
            return knowledge
        return replace(knowledge, vector=said.vector, base=said.base)

    def in_full(self, knowledge: Knowledge) -> Knowledge:
        """The message with all of its vector: for whoever is to pass it on."""
        highest = self._highest(knowledge.pubend)
        if highest is None or highest.digest != knowledge.digest:
            return knowledge
        return replace(knowledge, vector=highest.vector, base=0)

    def check(self) -> None:
        for sufficiency in self.sufficiency.values():
            sufficiency.check()
        self.starts.check()
