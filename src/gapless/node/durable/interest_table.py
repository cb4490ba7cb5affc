"""InterestTable: all topics' interest at one broker, and the edges that filter by it.

Every message of knowledge passes here twice. On its way in, the broker learns its vector. On its
way out to a neighbour, the message gets what this neighbour must learn of the vector.

Invariants (checked by `check`): those of `Machines`.
Cost: a step costs the topics that it touches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.broker_messages import Knowledge, Sideways, SubscriptionNack
from gapless.core.effects import Effect, Send
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName
from gapless.core.portion import WHOLE, Portion
from gapless.knowledge.neighbours import Edge
from gapless.node.deadlines import Machines
from gapless.node.durable.topic_interest import TopicInterest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.broker_messages import DigestNack
    from gapless.core.events import Attributes
    from gapless.core.identity import CellName, Instant, PubendName, TopicName
    from gapless.filters.filter import Filter
    from gapless.node.context import Context
    from gapless.node.durable.topic_interest import Key
    from gapless.node.network import Topic


class InterestTable(Edge):
    """By topic. Empty where the configuration says that brokers let everything pass."""

    def __init__(self, context: Context) -> None:
        self.by_topic: Machines[TopicName, TopicInterest] = Machines()
        self.by_label: dict[TopicName, TopicInterest] = {}
        self._by_pubend: dict[PubendName, TopicInterest] = {}
        self._touched: dict[TopicName, None] = {}  # where something was asked for in this step
        self._attributes_of = context.encoding.attributes_of
        self._decoded: tuple[Sequence[bytes], Sequence[Attributes]] = ((), [])
        self._context = context
        for topic in context.network.topic.values():
            self.add(topic, context.started)

    def add(self, topic: Topic, now: Instant) -> TopicInterest | None:
        """Another topic; None where nothing is propagated."""
        if not self._context.config.propagates or topic.service != "durable":
            return None
        interest = TopicInterest(topic, self._context, now, self.by_topic.moved)
        self.by_topic[topic.name] = self.by_label[topic.label] = interest
        for pubend in topic.pubends:
            self._by_pubend[pubend.name] = interest
        return interest

    def remove(self, topic: Topic) -> None:
        self._touched.pop(topic.name, None)
        self.by_topic.pop(topic.name, None)
        self.by_label.pop(topic.label, None)
        for pubend in topic.pubends:
            self._by_pubend.pop(pubend.name, None)

    def receive_digest_nack(self, sender: BrokerName, nack: DigestNack) -> None:
        if nack.pubend in self._by_pubend:
            self._by_pubend[nack.pubend].vectors.receive_digest_nack(sender, nack)

    def select(
        self, pubend: PubendName, cell: CellName, digest: int, events: Sequence[bytes]
    ) -> list[int]:
        interest = self._by_pubend.get(pubend)
        if interest is None:
            return super().select(pubend, cell, digest, events)
        if not interest.vectors.test(pubend, digest, cell):
            interest.flooded += len(events)
            return super().select(pubend, cell, digest, events)
        joint = interest.branches[interest.upstream[pubend]].joint
        chosen = joint.passing(cell, self._attributes(events)) if joint.wants(cell) else []
        interest.filtered += len(events) - len(chosen)
        return chosen

    def _attributes(self, events: Sequence[bytes]) -> Sequence[Attributes]:
        """Decoded once for all cells below, which are offered the same events in a row."""
        if self._decoded[0] != events:
            self._decoded = events, self._attributes_of(EventBatch.join(events))
        return self._decoded[1]

    # --- this broker's own subscriptions --------------------------------------------------------

    def subscribe(self, topic: TopicName, key: Key, condition: Filter, now: Instant) -> None:
        if topic in self.by_topic:
            self.by_topic[topic].subscribe(key, condition, now)
            self._touched[topic] = None

    def unsubscribe(self, topic: TopicName, key: Key, now: Instant) -> None:
        if topic in self.by_topic:
            self.by_topic[topic].unsubscribe(key, now)
            self._touched[topic] = None

    @property
    def has_news(self) -> bool:
        """Was anything asked for in this step?"""
        return bool(self._touched)

    def update(self, now: Instant) -> list[Effect]:
        """At the end of a step: tell what was asked for in it."""
        touched, self._touched = self._touched, {}
        return [effect for topic in touched for effect in self.by_topic[topic].update(now)]

    # --- messages of knowledge --------------------------------------------------------------------

    def digest(self, pubend: PubendName) -> int:
        """What a pubend of this broker says is to be said under this."""
        interest = self._by_pubend.get(pubend)
        return 0 if interest is None else interest.digest

    def stamped(self, knowledge: Knowledge) -> Knowledge:
        """What a pubend of this broker says, under the digest that is in use."""
        interest = self._by_pubend.get(knowledge.pubend)
        return knowledge if interest is None else interest.stamped(knowledge)

    def learn(
        self, sender: BrokerName, knowledge: Knowledge, now: Instant
    ) -> tuple[Knowledge, list[Effect]]:
        """Take in the vector of a message. Returns the message without it, for our own machines."""
        interest = self._by_pubend.get(knowledge.pubend)
        if interest is None:
            return knowledge, []
        effects = interest.learn(sender, knowledge, now)
        if knowledge.vector is not None:
            knowledge = replace(knowledge, vector=None, base=0)
        return knowledge, effects

    def dressed(self, effects: list[Effect]) -> list[Effect]:
        """These effects, with what each neighbour must learn of vectors added to messages."""
        return [
            self._dressed(effect)
            if isinstance(effect, Send) and isinstance(effect.message, Knowledge | Sideways)
            else effect
            for effect in effects
        ]

    def _dressed(self, send: Send) -> Send:
        match send.message:
            case Knowledge(digest=digest) as knowledge if digest:
                interest = self._by_pubend.get(knowledge.pubend)
                if interest is not None:
                    said = interest.vectors.announce(BrokerName(send.to), knowledge)
                    return send if said is knowledge else Send(send.to, said)
            case Sideways(cell=cell, message=Knowledge(digest=digest) as knowledge) if digest:
                interest = self._by_pubend.get(knowledge.pubend)
                if interest is not None:
                    return Send(send.to, Sideways(cell, interest.vectors.in_full(knowledge)))
            case _:
                pass
        return send

    # --- time, invariants -----------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        return self.by_topic.deadline

    def fire(self, now: Instant) -> list[Effect]:
        return [effect for each in self.by_topic.ripe(now) for effect in each.fire(now)]

    def tell_again(self, peer: BrokerName, now: Instant) -> list[Effect]:
        """A neighbour answers over a new link. Earlier messages may be lost: send it everything, as
        if it had asked."""
        cell = self._context.network.cell_of[peer].name
        nack = SubscriptionNack(cell)
        effects: list[Effect] = []
        for each in self.by_topic.values():
            if each.leaf is not None and cell in each.leaf.upstream:
                effects += each.receive(peer, nack, now) if each.leaf.expectation.repeat() else []
        return effects

    def forget_peer(self, peer: BrokerName) -> None:
        """The link to a neighbour broke: what we sent last may be lost."""
        for each in self.by_topic.values():
            each.vectors.announcer.forget_peer(peer)

    def check(self, portion: Portion = WHOLE) -> None:
        for each in portion.of(self.by_topic.values()):
            each.check()
        self.by_topic.check(portion)
