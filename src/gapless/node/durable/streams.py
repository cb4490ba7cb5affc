"""Streams: every pubend's stream through this broker, from its source to its subscribers.

Theory of operation
    For each pubend there is a relay. At its host the relay's upstream is the pubend itself. Where
    subscribers are hosted, their subend (and the merge of their topic, if any subscription wants a
    total order) stands below the relay like any other cell. Machines return what to send. A message
    for a machine of this broker is handed over at once, the rest goes to routing.
    When this broker comes up, it asks where each pubend stands (`start_points`), and its
    subscribers start there. If durable subscriptions were here before, it goes on where they were.

Invariants (checked by `check`): those of the machines, and
    I1  a merge exists exactly while some subscription wants the topic in total order
    I2  catch-ups know the logs that are here, and no others
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import structs

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    Knowledge,
    Nack,
    PromiseKept,
    PromiseTold,
    ReleaseEcho,
    ReleaseHold,
    StartQuery,
    StartReply,
)
from gapless.core.effects import Effect, Send
from gapless.core.errors import ProtocolError
from gapless.core.identity import Instant
from gapless.core.outgoing import ToBroker, ToCell
from gapless.core.portion import WHOLE, Portion
from gapless.core.ticks import PUBEND_BITS, TICK_MAX, Span
from gapless.core.transaction_messages import Committed
from gapless.knowledge.neighbours import (
    CATCH_UP,
    LOCAL,
    PUBLISHER_ORDER,
    SOURCE,
    TOTAL_ORDER,
    Outgoing,
)
from gapless.knowledge.past import DiskHistory
from gapless.knowledge.relay import RelayPlace
from gapless.knowledge.retention import Policy
from gapless.node.deadlines import Machines, earliest
from gapless.node.delivery.pace import Pace
from gapless.node.delivery.subscribers import order_of
from gapless.node.durable.start_points import PubendStarts

if TYPE_CHECKING:
    from gapless.core.broker_messages import Routed
    from gapless.core.identity import BrokerName, CellName, PubendName, TopicName
    from gapless.knowledge.merge import Merge
    from gapless.knowledge.pubend import Persisted, Pubend
    from gapless.knowledge.relay import Relay
    from gapless.knowledge.stages import Staged
    from gapless.knowledge.subend import Subend
    from gapless.node.context import Context
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.durable.interest_table import InterestTable
    from gapless.node.epoch import Epoch
    from gapless.node.network import PubendEntry as PubendEntry
    from gapless.node.network import Topic
    from gapless.node.subscriptions.attachments import Attachments
    from gapless.node.subscriptions.moves import Moves

CARRIED_MAX = 100_000
"""Messages that machines hand each other in one step; more would be an endless loop of theirs."""


class Streams:
    """The knowledge machines of one broker, put together."""

    def __init__(
        self,
        context: Context,
        subscribers: Subscribers,
        interests: InterestTable,
        attachments: Attachments,
        moves: Moves,
    ) -> None:
        self.name = context.name
        self.network = context.network
        self.config = context.config
        self.routing = context.routing
        self.subscribers = subscribers
        self.interests = interests
        self.named = attachments.named
        self.attachments = attachments
        self.moves = moves
        self.parts = context.parts
        self._check_received = context.encoding.check_received
        self.cell = context.network.cell_of[context.name]
        self.relays: Machines[PubendName, Relay] = Machines()
        self.pubends: Machines[PubendName, Pubend] = Machines()
        self.subends: Machines[PubendName, Subend] = Machines()
        self.merges: Machines[TopicName, Merge] = Machines()
        self.pace = Pace(context.config)
        self._part = (
            self.config.batch_events_max,
            self.config.answer_bytes_max,
        )  # delivered in one step
        self.published_at: dict[PubendName, int] = {}  # events that became durable here
        self.beginnings = PubendStarts(context, self.cell)
        self.promises = context.parts.promises(
            context.name, context.network, context.config, context.store, context.epoch
        )
        self.losses: list[tuple[PubendName, Span]] = []  # found in this life
        self.seal = context.seal
        self._early_queries: dict[PubendName, list[StartQuery]] = {}  # its birth is not durable yet
        self.tell_due = Instant(context.started + self.config.silence_flush)
        self.epoch = context.epoch.number
        self._reports = 0
        self._store = context.store
        self.is_mute = not context.epoch.is_durable
        attachments.catch_ups.released_of = self.released_of
        attachments.silent_below = self.silent_below
        for topic in self.network.topic.values():
            self.add(topic, context.started)

    # --- topics -----------------------------------------------------------------------------------

    def add(self, topic: Topic, now: Instant) -> None:
        """Make the machines of a new topic, as the disk has them."""
        for pubend in topic.pubends:
            relay = self.relays[pubend.name] = self._make_relay(pubend)
            relay.reporter.is_mute = self.is_mute and relay.upstream != SOURCE
            if pubend.host == self.name:
                hosted = self.pubends[pubend.name] = self._make_pubend(pubend, topic, now)
                self.promises.add(hosted, now)
                self._note_loss(hosted)
                self.attachments.catch_ups.add_log(pubend.name, hosted.stream)
            self.beginnings.add(pubend.name, now)
            stream = self.named.streams.get(pubend.name)
            if stream is not None and pubend.name not in self.named.copied_streams:
                self._start(pubend.name, stream.latest, now)  # it goes on where it was

    def _make_relay(self, pubend: PubendEntry) -> Relay:
        """A pubend's stream through this broker."""
        network = self.network
        upstream = network.upstream(pubend, self.cell.name) or SOURCE
        below = network.downstream(pubend, self.cell.name)
        if self.cell.subscribers:
            below = (*below, PUBLISHER_ORDER)
        place = RelayPlace(self.name, self.cell.name, upstream, below)
        return self.parts.relay(pubend.name, place, self.config, self.interests, epoch=self.epoch)

    def _make_pubend(self, pubend: PubendEntry, topic: Topic, now: Instant) -> Pubend:
        """A pubend that this broker hosts, as its disk has it."""
        disk = DiskHistory(self.seal.is_copy, is_hearing=bool(self.promises.keepers))
        hosted = self.parts.pubend(
            pubend.name, pubend.number, self._store, self.config, now, policy_of(topic), disk
        )
        hosted.is_unheard = partial(self._is_unheard, pubend.name)
        return hosted

    def alter(self, topic: Topic, now: Instant) -> None:
        """The settings of a topic were changed."""
        for pubend in topic.pubends:
            if (hosted := self.pubends.get(pubend.name)) is not None:
                hosted.release.change(policy_of(topic), now)
        self.pubends.touch()

    def remove(self, topic: Topic) -> None:
        self.merges.pop(topic.name, None)
        for pubend in topic.pubends:
            self.beginnings.remove(pubend.name)
            self.promises.remove(pubend.name)
            self._early_queries.pop(pubend.name, None)
            self.attachments.catch_ups.remove_log(pubend.name)
            for machines in (self.relays, self.pubends, self.subends):
                machines.pop(pubend.name, None)

    # --- carrying out what machines want sent -----------------------------------------------------

    def carry(self, outgoing: list[Outgoing], now: Instant) -> list[Effect]:
        """Hand over what is for this broker's own machines, and route the rest."""
        if not outgoing:
            return []
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
            elif item.cell in LOCAL:
                more, onward = self._to_subscribers(item, now)
                effects += more
                rest += onward
            else:
                key = item.message.pubend
                effects += self.routing.send(item.cell, key, item.message, now)
        return self.interests.dressed(effects) if self.routing.peers else effects

    def _to_source(self, message: object, now: Instant) -> tuple[list[Effect], list[Outgoing]]:
        match message:
            case Nack(pubend=name):
                effects, knowledge = self.pubends[name].receive_nack(message, now)
                return effects, self.spread(knowledge, now)
            case Ack(pubend=name):
                self.pubends[name].acknowledge(message.delivered, now, message.released)
                return [], []
            case _:
                raise AssertionError(f"{message} is not for a pubend")

    def spread(self, knowledge: list[Knowledge], now: Instant) -> list[Outgoing]:
        return [
            out
            for each in knowledge
            for out in self.relays[each.pubend].receive_knowledge(self.interests.stamped(each), now)
        ]

    def receive_knowledge(
        self, sender: BrokerName, knowledge: Knowledge, now: Instant
    ) -> list[Effect]:
        """From above, or from a sibling that we asked."""
        if knowledge.events:
            self._check_received(knowledge.events)
        knowledge, effects = self.interests.learn(sender, knowledge, now)
        out = self.relays[knowledge.pubend].receive_knowledge(knowledge, now)
        return effects + self.carry(out, now)

    def _to_subscribers(
        self, item: ToCell[Routed], now: Instant
    ) -> tuple[list[Effect], list[Outgoing]]:
        """For the subend of a pubend, or for the merge of its topic."""
        message = item.message
        if item.cell == CATCH_UP:
            assert isinstance(message, Knowledge)
            self.attachments.catch_ups.receive_knowledge(message, now)
            return [], []
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
                self.acknowledge(name, item.cell, self._subend(item).taken, now)
            case _:
                raise AssertionError(f"{message} is not for subscribers")
        out = self.ask(item.cell, nacks, now) if nacks else []
        return self.deliver(topic, message.pubend, merging=merging, now=now), out

    def _subend(self, item: ToCell[Routed]) -> Subend:
        pubend = item.message.pubend
        if item.cell == PUBLISHER_ORDER:
            return self.subends[pubend]
        return self.merges[self.network.pubends[pubend].topic].inputs[pubend]

    def ask(self, cell: CellName, nacks: list[Nack], now: Instant) -> list[Outgoing]:
        """Put the questions of this broker's own subend or merge to the relays."""
        out: list[Outgoing] = []
        for nack in nacks:
            out += self.relays[nack.pubend].receive_nack(cell, cell, nack, now)
        return out

    def deliver(
        self, topic: TopicName, pubend: PubendName, *, merging: bool = False, now: Instant
    ) -> list[Effect]:
        """Take what has become settled, deliver it, and acknowledge it to the relay; if it is too
        much for one step, a part of it."""
        if merging:
            merge = self.merges[topic]
            if merge.horizon <= merge.position:
                return []
            through = self._cut((topic, None), merge, merge.position, merge.whole_through, now)
            if through <= merge.position:
                return []
            settled = merge.take(now, through)
            for name in merge.inputs:
                self.acknowledge(name, TOTAL_ORDER, merge.position, now)
            return self.subscribers.deliver(topic, None, settled, merge.position).effects
        subend = self.subends[pubend]
        if subend.horizon <= subend.taken or self.named.is_full(pubend):
            return []
        if self.pace.holds(pubend, subend.stream.event_count, subend.stream.size, now):
            return []
        through = self._cut((topic, pubend), subend, subend.taken, subend.whole_through, now)
        if through <= subend.taken:
            return []
        before, settled = subend.taken, subend.take(through, now)
        done = self.subscribers.deliver(topic, pubend, settled, subend.taken)
        self.pace.spend(len(done.effects), now, behind=bool(self.attachments.catch_ups))
        takers, slow = done.takers, done.slow
        if settled.lost:  # named subscriptions all take it, and catch up to be told that it is lost
            settled, takers = self.named.taken_as_lost(topic, pubend, settled.lost[0][1])
            slow = self.subscribers.attached_to(topic)
        effects = done.effects + self.named.advance(pubend, settled, takers, subend.taken, now)
        self.attachments.total_orders.stir(pubend)
        self.acknowledge(pubend, PUBLISHER_ORDER, subend.taken, now)
        if slow:
            effects += self.attachments.catch_ups.fall_behind(slow, pubend, before)
        return effects

    def _cut(
        self,
        batch: tuple[TopicName, PubendName | None],
        machine: Subend | Merge,
        taken: int,
        end: int,
        now: Instant,
    ) -> int:
        """How far to deliver now: to the end, or less if there is much or matching takes long. The
        rest is due at once, after other work had its turn."""
        topic, pubend = batch
        meter = self.subscribers.meter
        place = topic, order_of(pubend)
        room, (count_max, size_max) = meter.room(place), self._part
        size_max = min(size_max, meter.room_bytes(place))
        through = min(end, machine.fitting(min(room, count_max), size_max)) if room else taken
        if through < machine.horizon:
            meter.leave(batch, now, had_some=room > 0)
        return through

    def released_of(self, pubend: PubendName) -> int:
        """Below this tick the pubend has released everything, as far as is known here."""
        relay, here = self.relays.get(pubend), self.pubends.get(pubend)
        return max(relay.lost_below if relay else 0, here.released if here else 0)

    # --- messages of neighbours -------------------------------------------------------------------

    def receive_routed(self, sender: BrokerName, message: Routed, now: Instant) -> list[Effect]:
        """A message about a pubend that is known here; `ProtocolError` if it came the wrong way."""
        relay, routing, here = self.relays[message.pubend], self.routing, self.cell.name
        cell = self.network.cell_of[sender].name
        from_above = cell in (relay.upstream, here)
        from_below = cell in relay.outlets or cell == here
        if isinstance(message, Knowledge) and message.span.end > TICK_MAX:
            raise ProtocolError(f"{sender!r} knows {message.pubend!r} up to the end of time")
        match message:
            case Knowledge() if from_above and relay.upstream != SOURCE:
                return self.receive_knowledge(sender, message, now)
            case AckExpected(tick=tick) if from_above and relay.upstream != SOURCE:
                return self.carry(relay.receive_ack_expected(tick, now), now)
            case StartReply(cell=target) if (
                from_above
                and relay.upstream != SOURCE
                and (target == here or self._is_below(relay, target))
            ):
                return self.receive_start_reply(message, now)
            case Nack() if from_below:
                asking = None if cell == here else cell
                return self.carry(relay.receive_nack(sender, asking, message, now), now)
            case StartQuery(cell=target) if from_below and self._is_below(relay, target):
                return self.receive_start_query(message, now)
            case ReleaseHold(cell=target) if cell in relay.outlets and self._is_below(
                relay, target
            ):
                effects = self.receive_hold(cell, message, now)
                return effects + routing.share(message)
            case ReleaseHold(cell=target) if sender in routing.siblings and self._is_below(
                relay, target
            ):
                relay.receive_hold(self.network.next_hop(here, target), message, now)
                return []
            case ReleaseEcho(cell=target) if from_above and (
                target == here or self._is_below(relay, target)
            ):
                return self.moves.receive_echo(message, now)
            case PromiseTold(cell=target) if from_above and (
                target == here or self._is_below(relay, target)
            ):
                return self.receive_promise(message, now)
            case PromiseKept(cell=target) if from_below and self._is_below(relay, target):
                return self.receive_kept(message, now)
            case Ack(cell=of) if of in relay.outlets and cell in (of, here):
                return self._acknowledged(sender, message, now)
            case _:
                raise ProtocolError(
                    f"{type(message).__name__} of {message.pubend!r} came the wrong way, "
                    f"from {sender!r}"
                )

    def _is_below(self, relay: Relay, cell: CellName) -> bool:
        """Does the way to this cell lead down the tree of the relay's pubend?"""
        here, network = self.cell.name, self.network
        if cell == here or cell not in network.cell:
            return False
        return network.next_hop(here, cell) in relay.outlets

    def _acknowledged(self, sender: BrokerName, ack: Ack, now: Instant) -> list[Effect]:
        pubend = self.pubends.get(ack.pubend)
        if pubend is not None and ack.delivered > pubend.end:
            if ack.delivered >> PUBEND_BITS > now + self.config.clock_skew_max:
                raise ProtocolError(f"tick {ack.delivered} was acknowledged before it was sent")
            effects = pubend.recall(ack.delivered, now)  # it was sent from a disk that is lost
            self._note_loss(pubend)
            return effects
        effects = self.carry(self.relays[ack.pubend].receive_ack(ack, now), now)
        if sender not in self.routing.siblings:
            effects += self.routing.share(ack)
        return effects

    # --- total order ------------------------------------------------------------------------------

    def merge_position(self, topic: TopicName) -> int:
        """Where the merge of all pubends of the topic stands, or would start."""
        if topic in self.merges:
            return self.merges[topic].position
        pubends = self.network.topic[topic].pubends
        return max(self.subends[each.name].horizon for each in pubends)

    def start_merge(self, topic: TopicName, now: Instant) -> list[Effect]:
        """Merge all pubends of the topic. It may deliver at once."""
        start = self.merge_position(topic)
        names = [each.name for each in self.network.topic[topic].pubends]
        make, config = self.parts.subend, self.config
        inputs = {name: make(name, start, config) for name in names}
        timing = replace(config, gap_patience=config.merge_patience)
        self.merges[topic] = merge = self.parts.merge(inputs, timing)
        effects: list[Effect] = []
        for name in names:
            relay = self.relays[name]
            relay.add_cell(TOTAL_ORDER, start)
            if relay.stream.end > start:
                nacks = merge.expect(name, relay.stream.end, now)
                effects += self.carry(self.ask(TOTAL_ORDER, nacks, now), now)
        return effects

    def stop_merge(self, topic: TopicName) -> None:
        for name in self.merges.pop(topic).inputs:
            self.relays[name].remove_cell(TOTAL_ORDER)

    # --- the end of a step ------------------------------------------------------------------------

    def settle(self, now: Instant) -> list[Effect]:
        effects, behind = list[Effect](), self.attachments.catch_ups
        if self.is_quiet:
            return effects
        effects += self._report(now)
        while True:
            effects += behind.settle(now) + self.moves.settle(now) + self._hold(now)
            if behind.has_asked:
                return effects
            while (nack := behind.next_ask()) is not None:
                if (relay := self.relays.get(nack.pubend)) is not None:
                    effects += self.carry(relay.receive_nack(CATCH_UP, None, nack, now), now)

    def _report(self, now: Instant) -> list[Effect]:
        """Report what durable subscriptions no longer need."""
        effects, named = list[Effect](), self.named
        for pubend in named.take_reports():
            if pubend not in self.subends:
                continue
            self.attachments.catch_ups.stir(pubend)
            self.acknowledge(pubend, PUBLISHER_ORDER, self.subends[pubend].taken, now)
            released = named.position(pubend, 0)[1]
            effects += named.chop(pubend, released, self.released_of(pubend))
            effects += self.deliver(self.network.pubends[pubend].topic, pubend, now=now)
        return effects

    def _hold(self, now: Instant) -> list[Effect]:
        if self.is_mute:  # holds count among reports, which go up under a durable epoch
            return []
        effects: list[Effect] = []
        for hold in self.moves.take_holds():
            if hold.pubend not in self.relays:
                continue  # its topic was deleted while the hold waited
            tick = self.named.position(hold.pubend, hold.tick)[1]  # it counts here already
            tick, named = min(hold.tick, tick), self.next_report()
            ours = ReleaseHold(hold.pubend, hold.cell, tick, hold.number, *named)
            effects += self.receive_hold(PUBLISHER_ORDER, ours, now)
        return effects

    # --- where to start ---------------------------------------------------------------------------

    def receive_start_reply(self, reply: StartReply, now: Instant) -> list[Effect]:
        """For another cell: pass it on. For ours: this is where its subscribers start."""
        if reply.cell != self.cell.name:
            return self.beginnings.pass_on(reply, now)
        if not self.beginnings.receive_reply(reply):
            return []
        tick, effects = reply.tick, list[Effect]()
        if reply.pubend in self.named.copied_streams:
            tick = max(tick, self.named.streams[reply.pubend].latest)
            effects = self.named.begin_anew(reply.pubend, tick, now)
        self._start(reply.pubend, tick, now)
        return effects

    def receive_start_query(self, query: StartQuery, now: Instant) -> list[Effect]:
        """At the host: say where the pubend stands. Elsewhere: pass the question on."""
        pubend = self.pubends.get(query.pubend)
        if pubend is None:
            return self.carry([ToCell(self.relays[query.pubend].upstream, query)], now)
        if not pubend.past.is_durable:
            early = self._early_queries.setdefault(query.pubend, [])
            if query not in early:
                early.append(query)
            return []
        reply = StartReply(query.pubend, query.cell, query.number, pubend.end)
        return self.receive_start_reply(reply, now)

    def receive_promise(self, told: PromiseTold, now: Instant) -> list[Effect]:
        """For another cell: pass it on. For ours: keep it."""
        if told.cell != self.cell.name:
            hop = self.network.next_hop(self.cell.name, told.cell)
            return self.routing.send(hop, told.pubend, told, now)
        return self.promises.keep(told)

    def _note_loss(self, pubend: Pubend) -> None:
        """Note what a pubend has just found to be lost, for the log of the broker."""
        past = pubend.past
        if past.has_found_loss and pubend.name not in dict(self.losses):
            lost = Span(1, past.born) if past.is_birth else past.doubtful_span
            self.losses.append((pubend.name, lost))

    def receive_kept(self, kept: PromiseKept, now: Instant) -> list[Effect]:
        """At the host: learn what was promised before. Elsewhere: pass it on."""
        if kept.pubend in self.pubends:
            effects = self.promises.receive_kept(kept, now)
            self._note_loss(self.pubends[kept.pubend])
            return effects
        relay = self.relays.get(kept.pubend)
        if relay is None:
            return []
        effects = self.carry([ToCell(relay.upstream, kept)], now)
        host = self.network.pubends[kept.pubend].host
        if host in self.routing.peers and not self.routing.is_live(host, now):
            # A host that has just started counts as dead until it has answered a ping. It holds
            # back what readers wait for until it has this, so it is worth a message on chance.
            effects.append(Send(host, kept))
        return effects

    def silent_below(self, pubend: PubendName) -> int:
        """Before this tick nothing was ever published to the pubend, as far as is known."""
        hosted = self.pubends.get(pubend)
        return hosted.past.silent_below if hosted else self.promises.silent_below(pubend)

    def _start(self, pubend: PubendName, tick: int, now: Instant) -> None:
        """This broker's own subscribers have everything before `tick`."""
        self.beginnings.begun(pubend)
        self.subends[pubend] = self.parts.subend(pubend, tick, self.config)
        self.acknowledge(pubend, PUBLISHER_ORDER, tick, now)

    def acknowledge(self, pubend: PubendName, cell: CellName, tick: int, now: Instant) -> None:
        """This broker's own subscribers need nothing before `tick`; but durable ones do."""
        delivered, released = tick, tick
        if cell == PUBLISHER_ORDER:
            delivered, released = self.named.position(pubend, tick)
        ack = Ack(pubend, cell, delivered, released, *self.next_report())
        self.relays[pubend].receive_ack(ack, now)

    def next_report(self) -> tuple[BrokerName, int, int]:
        """The broker, the epoch and the number of our next report."""
        self._reports += 1
        return self.name, self.epoch, self._reports

    def receive_hold(self, cell: CellName, hold: ReleaseHold, now: Instant) -> list[Effect]:
        """Pass a hold on release up to the pubend, whatever was reported; there, echo it."""
        relay = self.relays[hold.pubend]
        ours = relay.receive_hold(cell, hold, now)
        if relay.upstream != SOURCE:
            return self.carry([ToCell(relay.upstream, ours)], now)
        pubend = self.pubends[hold.pubend]
        pubend.acknowledge(pubend.release.delivered, now, ours.tick)
        return self.moves.receive_echo(ReleaseEcho(hold.pubend, hold.cell, hold.number), now)

    # --- durable subscriptions --------------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Has this step left nothing to `settle`?"""
        some = self.moves.is_quiet and self.attachments.catch_ups.is_idle
        return some and not self.named.reports

    def is_started(self, topic: TopicName) -> bool:
        return all(each.name in self.subends for each in self.network.topic[topic].pubends)

    # --- the pubends hosted here ------------------------------------------------------------------

    def persisted(self, message: Persisted, now: Instant) -> list[Effect]:
        pubend = self.pubends.get(message.pubend)
        if pubend is None:
            return []  # it was deleted while this was being written
        pubend.digest = self.interests.digest(message.pubend)
        effects, knowledge = pubend.persisted(message, now)
        if count := sum(len(each.ticks) for each in knowledge):
            self.published_at[message.pubend] = self.published_at.get(message.pubend, 0) + count
            self.promises.published(message.pubend, now)
        if self._early_queries and pubend.past.is_durable:
            for query in self._early_queries.pop(message.pubend, ()):
                effects += self.receive_start_query(query, now)
        effects = self._marked(message.pubend, effects)
        return effects + self.carry(self.spread(knowledge, now), now)

    def _is_unheard(self, pubend: PubendName) -> bool:
        """Does nobody in the network subscribe to the topic, and does it keep nothing?"""
        topic = self.network.topic[self.network.pubends[pubend].topic]
        if topic.keep_us is not None or topic.keep_bytes is not None:
            return False
        wants = self.subscribers.wants
        if wants(topic.name, "publisher") or wants(topic.name, "total"):
            return False
        interest = self.interests.by_topic.get(topic.name)
        return not self.routing.peers or (interest is not None and interest.is_unwanted)

    def _marked(self, pubend: PubendName, effects: list[Effect]) -> list[Effect]:
        is_unheard = bool(effects) and self._is_unheard(pubend)
        return [mark_unheard(each) for each in effects] if is_unheard else effects

    def staged(self, message: Staged, now: Instant) -> list[Effect]:
        pubend = self.pubends.get(message.pubend)
        if pubend is None:
            return []
        return self._marked(message.pubend, pubend.transactions.staged(message, now))

    def report(self, epoch: Epoch) -> None:
        """Send reports up under the epoch once it is durable, not before. Reports to a pubend that
        is hosted here may always go: both begin anew together. So a host whose disk is too full
        even for the epoch can still release events, which makes room."""
        self.is_mute = not epoch.is_durable
        for relay in self.relays.values():
            relay.reporter.is_mute = self.is_mute and relay.upstream != SOURCE
        self.relays.touch()

    # --- time -------------------------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        waiters = self.pace, self.subscribers.meter, self.attachments.total_orders
        timers = self.beginnings, self.promises, *waiters
        machines = (self.relays, self.pubends, self.subends, self.merges, *timers)
        tell_due = self.tell_due if self.subscribers.audiences else None
        return earliest([*[each.deadline for each in machines], tell_due])

    def wake(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        meter = self.subscribers.meter
        meter.begin_turn()
        before, after = self.routing.look(now)
        if before != after:
            effects += self._ask_elsewhere(before, after, now)
        effects += self._ask_around(now)
        for pubend in self.pubends.ripe(now):
            more, knowledge, expected = pubend.fire(now)
            effects += more + self.carry(self.spread(knowledge, now), now)
            if expected:
                out = self.relays[pubend.name].receive_ack_expected(expected, now)
                effects += self.carry(out, now)
        for subend in self.subends.ripe(now):
            effects += self.carry(self.ask(PUBLISHER_ORDER, subend.fire(now), now), now)
        for name in self.pace.ripe(now):
            if name in self.subends:
                effects += self.deliver(self.network.pubends[name].topic, name, now=now)
        for topic, source in meter.ripe(now):
            if source is None and topic in self.merges:
                first = next(iter(self.merges[topic].inputs))
                effects += self.deliver(topic, first, merging=True, now=now)
            elif source is not None and source in self.subends:
                effects += self.deliver(topic, source, now=now)
        for lagging, tick in self.attachments.total_orders.fire(now).items():
            subend = self.subends[lagging]
            nacks = subend.expect(tick, now) if subend.seen < tick else []
            effects += self.carry(self.ask(PUBLISHER_ORDER, nacks, now), now)
        for merge in self.merges.ripe(now):
            effects += self.carry(self.ask(TOTAL_ORDER, merge.fire(now), now), now)
        for relay in self.relays.ripe(now):
            effects += self.carry(relay.fire(now), now)
        if self.tell_due <= now:
            self.tell_due = Instant(now + self.config.silence_flush)
            effects += self._tell_positions(now)
        return effects

    def _ask_around(self, now: Instant) -> list[Effect]:
        """Ask where pubends stand, and tell how far those that are hosted here may have spoken."""
        effects: list[Effect] = []
        for query in self.beginnings.fire(now):
            effects += self.receive_start_query(query, now)
        for told in self.promises.fire(now):
            effects += self.receive_promise(told, now)
        return effects

    def put_again(self, peer: BrokerName, now: Instant) -> list[Effect]:
        """A neighbour answers over a new link. Earlier messages may be lost: repeat the questions
        that have no answer yet."""
        effects = self.interests.tell_again(peer, now)
        cell = self.network.cell_of[peer].name
        for relay in self.relays.values():
            if relay.upstream == cell:
                effects += self.carry(relay.ask_again(now), now)
        self.relays.touch()
        self.beginnings.hurry(now)
        self.promises.hurry(now)
        return effects + self.wake(now)

    def speak(self, topic: TopicName, now: Instant) -> list[Effect]:
        """Messages of this topic have a new vector: send it now, though nothing is due."""
        effects: list[Effect] = []
        for each in self.network.topic[topic].pubends:
            if each.name in self.pubends:
                more, knowledge = self.pubends[each.name].speak(now)
                effects += more + self.carry(self.spread(knowledge, now), now)
        return effects

    def _ask_elsewhere(
        self,
        before: frozenset[BrokerName],
        after: frozenset[BrokerName],
        now: Instant,
    ) -> list[Effect]:
        """Neighbours died or returned: send open questions where they would go now, and let the
        live members speak for their cells."""
        effects: list[Effect] = []
        for name, relay in self.relays.items():
            if relay.upstream != SOURCE and self.routing.has_lost(
                relay.upstream, name, before, after
            ):
                effects += self.carry(relay.ask_again(now), now)
            for peer in sorted(before - after):
                relay.forget_reporter(self.network.cell_of[peer].name, peer, now)
        self.relays.touch()
        return effects

    def _tell_positions(self, now: Instant) -> list[Effect]:
        """Tell subscribers how far their streams are, where nothing was delivered lately."""
        effects: list[Effect] = []
        subscribers, topics = self.subscribers, self.network.topic
        wanted = dict.fromkeys(
            topic for topic, order in subscribers.audiences if order == "publisher"
        )
        for topic in wanted:
            for pubend in topics[topic].pubends if topic in topics else ():
                if pubend.name in self.subends:
                    taken = self.subends[pubend.name].taken
                    effects += subscribers.tell_position(topic, pubend.name, taken)
        for topic, merge in self.merges.items():
            effects += subscribers.tell_position(topic, None, merge.position)
        return effects + self.attachments.total_orders.tell(now)

    @property
    def published(self) -> int:
        """Events that became durable here since the start."""
        return sum(self.published_at.values())

    def statistics(self) -> dict[str, dict[str, int]]:
        """Figures of each pubend's stream through this broker, by name."""
        pubends: dict[str, dict[str, int]] = {}
        for name, relay in self.relays.items():
            figures = {
                "cached_events": relay.stream.event_count,
                "known_end": relay.stream.end,
                "acked": relay.acked,
                "nacks_sent": relay.nacks_sent,
                "asking": relay.questions.tick_count,
            }
            if subend := self.subends.get(name):
                figures["horizon"] = subend.horizon
                figures["in_doubt"] = subend.seen - subend.horizon
                figures["waiting_events"] = subend.stream.event_count
            if pubend := self.pubends.get(name):
                figures["published"] = self.published_at.get(name, 0)
                figures["end"] = pubend.end
                figures["lost_spans"] = pubend.past.lost_count
                figures["released"] = pubend.released
                figures["pending_events"] = pubend.pending_count
                figures["publishers"] = len(pubend.publishers.records)
                figures["open_transactions"] = pubend.transactions.open_count
                figures["staged_bytes"] = pubend.transactions.stages.staged_bytes
                figures["producers"] = len(pubend.transactions.last)
            pubends[name] = figures
        return pubends

    def check(self, portion: Portion = WHOLE) -> None:
        kinds: tuple[Machines[Any, Any], ...] = (
            self.relays, self.pubends, self.subends, self.merges,
        )  # fmt: skip
        for machines in kinds:
            for machine in portion.of(machines.values()):
                machine.check()
            machines.check(portion)
        self.promises.check()
        wanted = {topic for topic, order in self.subscribers.audiences if order == "total"}
        assert set(self.merges) == wanted, "I1"
        assert self.attachments.catch_ups.logs.keys() == self.pubends.keys(), "I2"


def mark_unheard(effect: Effect) -> Effect:
    """Tell a publisher that nobody gets its events, nor ever will."""
    if isinstance(effect, Send) and isinstance(effect.message, Committed):
        return Send(effect.to, structs.replace(effect.message, unheard=True))
    return effect


def policy_of(topic: Topic) -> Policy:
    """How much of its logs a topic keeps."""
    return Policy(
        retention_time=topic.retention_us,
        retention_bytes=topic.retention_bytes,
        keep_time=topic.keep_us,
        keep_bytes=topic.keep_bytes,
    )
