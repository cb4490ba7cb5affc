"""Streams: every pubend's stream through this broker, from its source to those who want it.

Theory of operation
    For each pubend there is a relay. At its host the relay's upstream is the pubend itself; where
    subscribers are hosted, their subend (and the merge of their topic, if anyone wants a total
    order) stand below the relay like any other cell. Machines return what is to be sent; what is
    for a machine of this same broker is handed over at once, the rest goes to routing.
    A broker that hosts subscribers begins by asking each pubend where it stands; from there on
    nothing is lost to it, so that is where its first subscriptions start.

Invariants (checked by `check`): those of the machines, and
    I1  a merge exists exactly while someone wants the topic in total order
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    Knowledge,
    Nack,
    StartQuery,
    StartReply,
)
from gapless.core.effects import Effect, Send
from gapless.core.identity import Instant
from gapless.core.outgoing import ToBroker, ToCell
from gapless.knowledge.outgoing import PUBLISHER_ORDER, SOURCE, TOTAL_ORDER, Outgoing

if TYPE_CHECKING:
    from gapless.core.broker_messages import Routed
    from gapless.core.identity import BrokerName, CellName, PubendName, TopicName
    from gapless.core.store import Store
    from gapless.knowledge.merge import Merge
    from gapless.knowledge.pubend import Persisted, Pubend
    from gapless.knowledge.relay import Relay
    from gapless.knowledge.subend import Subend
    from gapless.node.config import Config
    from gapless.node.interests import Interests
    from gapless.node.network import Network
    from gapless.node.parts import Parts
    from gapless.node.routing import Routing
    from gapless.node.subscribers import Subscribers

CARRIED_MAX = 100_000
"""Messages handed over in one step; more would be our own machines asking each other for ever."""


class Streams:
    """The knowledge machines of one broker, put together."""

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        config: Config,
        store: Store,
        routing: Routing,
        subscribers: Subscribers,
        interests: Interests,
        parts: Parts,
        now: Instant,
        *,
        shadow: bool,
    ) -> None:
        self.name = name
        self.network = network
        self.config = config
        self.routing = routing
        self.subscribers = subscribers
        self.interests = interests
        self.parts = parts
        self.shadow = shadow and not config.propagates
        self.cell = network.cell_of[name]
        self.relays: dict[PubendName, Relay] = {}
        self.pubends: dict[PubendName, Pubend] = {}
        self.subends: dict[PubendName, Subend] = {}
        self.merges: dict[TopicName, Merge] = {}
        self._starting: dict[PubendName, int] = {}  # question numbers of starts not yet known
        self._start_due: Instant | None = now if self.cell.subscribers else None
        self._tell_due = Instant(now + config.silence_flush)
        for pubend in network.pubends.values():
            upstream = network.upstream(pubend, self.cell.name) or SOURCE
            below = network.downstream(pubend, self.cell.name)
            if self.cell.subscribers:
                below = (*below, PUBLISHER_ORDER)
                self._starting[pubend.name] = 0
            # A tick that was filtered once may pass another time, so that only what comes from
            # the pubend itself can be held to the strict lattice.
            strict = shadow and (upstream == SOURCE or not config.propagates)
            self.relays[pubend.name] = parts.relay(
                pubend.name, name, self.cell.name, upstream, below, config, interests, shadow=strict
            )
            if upstream == SOURCE:
                self.pubends[pubend.name] = parts.pubend(
                    pubend.name, pubend.number, store, config, now
                )

    # --- carrying out what machines want sent -----------------------------------------------------

    def carry(self, outgoing: list[Outgoing], now: Instant) -> list[Effect]:
        """Hand over what is for this broker's own machines, and route the rest."""
        effects: list[Effect] = []  # to neighbours too; `dressed` at the end
        rest = deque(outgoing)
        carried = 0
        while rest:
            item = rest.popleft()
            carried += 1
            assert carried <= CARRIED_MAX, f"{item} goes round and round within the broker"
            if isinstance(item, ToBroker):
                effects.append(Send(item.broker, item.message))
            elif item.cell == SOURCE:
                more, onward = self._to_source(item.message, now)
                effects += more
                rest += onward
            elif item.cell in (PUBLISHER_ORDER, TOTAL_ORDER):
                more, onward = self._to_subscribers(item, now)
                effects += more
                rest += onward
            else:
                key = item.message.pubend
                effects += self.routing.send(item.cell, key, item.message, now)
        return self.interests.dressed(effects)

    def _to_source(self, message: object, now: Instant) -> tuple[list[Effect], list[Outgoing]]:
        match message:
            case Nack(pubend=name):
                effects, knowledge = self.pubends[name].receive_nack(message, now)
                return effects, self._spread(knowledge, now)
            case Ack(pubend=name):
                self.pubends[name].acknowledge(message.delivered, now)
                return [], []
            case _:
                raise AssertionError(f"{message} is nothing for a pubend")

    def _spread(self, knowledge: list[Knowledge], now: Instant) -> list[Outgoing]:
        return [
            out
            for each in knowledge
            for out in self.relays[each.pubend].receive_knowledge(self.interests.stamped(each), now)
        ]

    def receive_knowledge(
        self, sender: BrokerName, knowledge: Knowledge, now: Instant
    ) -> list[Effect]:
        """From above, or from a sibling that we asked."""
        knowledge, effects = self.interests.learn(sender, knowledge, now)
        out = self.relays[knowledge.pubend].receive_knowledge(knowledge, now)
        return effects + self.carry(out, now)

    def _to_subscribers(
        self, item: ToCell[Routed], now: Instant
    ) -> tuple[list[Effect], list[Outgoing]]:
        """For the subend of a pubend, or for the merge of its topic."""
        message = item.message
        merging = item.cell == TOTAL_ORDER
        topic = self.network.pubends[message.pubend].topic
        machine = self.merges.get(topic) if merging else self.subends.get(message.pubend)
        if machine is None:
            return [], []  # not started yet, or just gone
        match message:
            case Knowledge():
                nacks = machine.receive_knowledge(message, now)
            case AckExpected(pubend=name, tick=tick):
                nacks = self._subend(item).expect(tick, now)
                ack = Ack(name, item.cell, self._subend(item).taken)
                self.relays[name].receive_ack(ack, now)
            case _:
                raise AssertionError(f"{message} is nothing for subscribers")
        out = self._ask(item.cell, nacks, now)
        return self._deliver(topic, message.pubend, merging=merging, now=now), out

    def _subend(self, item: ToCell[Routed]) -> Subend:
        pubend = item.message.pubend
        if item.cell == PUBLISHER_ORDER:
            return self.subends[pubend]
        return self.merges[self.network.pubends[pubend].topic].inputs[pubend]

    def _ask(self, cell: CellName, nacks: list[Nack], now: Instant) -> list[Outgoing]:
        """Put the questions of this broker's own subend or merge to the relays."""
        out: list[Outgoing] = []
        for nack in nacks:
            out += self.relays[nack.pubend].receive_nack(cell, cell, nack, now)
        return out

    def _deliver(
        self, topic: TopicName, pubend: PubendName, *, merging: bool, now: Instant
    ) -> list[Effect]:
        """Take what has become settled, deliver it, and acknowledge it to the relay."""
        if merging:
            merge = self.merges[topic]
            if merge.least_horizon <= merge.position:
                return []
            settled = merge.take(now)
            for name in merge.inputs:
                self.relays[name].receive_ack(Ack(name, TOTAL_ORDER, merge.position), now)
            return self.subscribers.deliver(topic, None, settled, merge.position)
        subend = self.subends[pubend]
        if subend.horizon <= subend.taken:
            return []
        settled = subend.take(subend.horizon, now)
        self.relays[pubend].receive_ack(Ack(pubend, PUBLISHER_ORDER, subend.taken), now)
        return self.subscribers.deliver(topic, pubend, settled, subend.taken)

    # --- where to start ---------------------------------------------------------------------------

    def receive_start_query(self, query: StartQuery, now: Instant) -> list[Effect]:
        """At the host: say where the pubend stands. Elsewhere: pass the question on."""
        pubend = self.pubends.get(query.pubend)
        if pubend is None:
            return self.carry([ToCell(self.relays[query.pubend].upstream, query)], now)
        reply = StartReply(query.pubend, query.cell, query.number, pubend.end)
        return self.receive_start_reply(reply, now)

    def receive_start_reply(self, reply: StartReply, now: Instant) -> list[Effect]:
        if reply.cell != self.cell.name:
            hop = self.network.next_hop(self.cell.name, reply.cell)
            return self.routing.send(hop, reply.pubend, reply, now)
        if self._starting.get(reply.pubend) != reply.number:
            return []  # an old answer, or one too many
        del self._starting[reply.pubend]
        self.subends[reply.pubend] = self.parts.subend(
            reply.pubend, reply.tick, self.config, shadow=self.shadow
        )
        ack = Ack(reply.pubend, PUBLISHER_ORDER, reply.tick)
        self.relays[reply.pubend].receive_ack(ack, now)
        return []

    def _ask_starts(self, now: Instant) -> list[Effect]:
        self._start_due = Instant(now + self.config.start_repeat) if self._starting else None
        effects: list[Effect] = []
        for name in list(self._starting):
            self._starting[name] += 1
            query = StartQuery(name, self.cell.name, self._starting[name])
            effects += self.receive_start_query(query, now)
        return effects

    def is_started(self, topic: TopicName) -> bool:
        return all(each.name in self.subends for each in self.network.topic[topic].pubends)

    def start_merge(self, topic: TopicName, now: Instant) -> tuple[int, list[Effect]]:
        """Merge all pubends of the topic, from where the foremost is: that tick, and effects."""
        names = [each.name for each in self.network.topic[topic].pubends]
        start = max(self.subends[name].horizon for name in names)
        make = self.parts.subend
        inputs = {name: make(name, start, self.config, shadow=self.shadow) for name in names}
        self.merges[topic] = merge = self.parts.merge(inputs, self.config)
        effects: list[Effect] = []
        for name in names:
            relay = self.relays[name]
            relay.add_cell(TOTAL_ORDER, start)
            if relay.stream.end > start:
                nacks = merge.expect(name, relay.stream.end, now)
                effects += self.carry(self._ask(TOTAL_ORDER, nacks, now), now)
        return start, effects

    def stop_merge(self, topic: TopicName) -> None:
        for name in self.merges.pop(topic).inputs:
            self.relays[name].remove_cell(TOTAL_ORDER)

    # --- the pubends hosted here ------------------------------------------------------------------

    def persisted(self, message: Persisted, now: Instant) -> list[Effect]:
        effects, knowledge = self.pubends[message.pubend].persisted(message, now)
        return effects + self.carry(self._spread(knowledge, now), now)

    def speak(self, topic: TopicName, now: Instant) -> list[Effect]:
        """Messages of this topic have a new vector: say so, though nothing is due."""
        effects: list[Effect] = []
        for each in self.network.topic[topic].pubends:
            if each.name in self.pubends:
                more, knowledge = self.pubends[each.name].speak(now)
                effects += more + self.carry(self._spread(knowledge, now), now)
        return effects

    # --- time -------------------------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        machines = (self.relays, self.pubends, self.subends, self.merges)
        due = [each.deadline for some in machines for each in some.values()]
        due.append(self._start_due)
        if self.subscribers.matchers:
            due.append(self._tell_due)
        return min((instant for instant in due if instant is not None), default=None)

    def fire(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        before, after = self.routing.look(now)
        if before != after:
            effects += self._ask_elsewhere(before, after, now)
        if self._start_due is not None and self._start_due <= now:
            effects += self._ask_starts(now)
        for pubend in self.pubends.values():
            more, knowledge, expected = pubend.fire(now)
            effects += more + self.carry(self._spread(knowledge, now), now)
            if expected:
                out = self.relays[pubend.name].receive_ack_expected(expected, now)
                effects += self.carry(out, now)
        for subend in self.subends.values():
            effects += self.carry(self._ask(PUBLISHER_ORDER, subend.fire(now), now), now)
        for merge in self.merges.values():
            effects += self.carry(self._ask(TOTAL_ORDER, merge.fire(now), now), now)
        for relay in self.relays.values():
            effects += self.carry(relay.fire(now), now)
        if self._tell_due <= now:
            self._tell_due = Instant(now + self.config.silence_flush)
            effects += self._tell_positions()
        return effects

    def _ask_elsewhere(
        self, before: frozenset[BrokerName], after: frozenset[BrokerName], now: Instant
    ) -> list[Effect]:
        """Neighbours died or returned: put open questions where they would go now."""
        effects: list[Effect] = []
        for name, relay in self.relays.items():
            if relay.upstream != SOURCE and self.routing.has_lost(
                relay.upstream, name, before, after
            ):
                effects += self.carry(relay.ask_again(now), now)
        return effects

    def _tell_positions(self) -> list[Effect]:
        effects: list[Effect] = []
        for name, subend in self.subends.items():
            topic = self.network.pubends[name].topic
            effects += self.subscribers.tell_position(topic, name, subend.taken)
        for topic, merge in self.merges.items():
            effects += self.subscribers.tell_position(topic, None, merge.position)
        return effects

    def check(self) -> None:
        for machines in (self.relays, self.pubends, self.subends, self.merges):
            for machine in machines.values():
                machine.check()
        wanted = {topic for topic, order in self.subscribers.matchers if order == "total"}
        assert set(self.merges) == wanted, "I1"
