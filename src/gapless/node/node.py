"""Node: one broker as one pure machine. The same object runs in the broker and the simulator.

Theory of operation
    Every message has one place it goes to: `receive` is the only `match` over message kinds.
    Deadlines merge into one. Time: the clock a driver passes in may jump. The node runs on a time
    of its own that never goes back: where the clock does, it goes on from where it was.
    A message that contradicts what we know is a `ProtocolError`, and nothing has changed.

What a driver must do: carry out effects in order; hand a `Tell` back with `receive`; on a
`Persist`, make the writes durable and then carry out `then`; call `fire` at `deadline`; drop the
link of a peer whose message raised. It supplies what depends on the encoding of events: how to
read the attributes of a batch, and how to check a batch that a client wants to publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    DigestNack,
    HandOver,
    Knowledge,
    Nack,
    Propagated,
    ReleaseEcho,
    ReleaseHold,
    Routed,
    Sideways,
    StartQuery,
    StartReply,
    SubscriptionChange,
    SubscriptionNack,
    SubscriptionState,
)
from gapless.core.client_messages import (
    Acknowledge,
    Consumed,
    Forget,
    Publish,
    PublisherQuery,
    Subscribe,
    Unsubscribe,
)
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, ClientName, Instant, TopicName
from gapless.core.messages import Ping, Pong
from gapless.core.range_messages import RangeRequest
from gapless.core.transaction_messages import TransactionRequest
from gapless.durable.consolidated import Recorded
from gapless.durable.subscriptions import Kept
from gapless.knowledge.outgoing import SOURCE
from gapless.knowledge.pubend import Persisted
from gapless.knowledge.stages import Staged
from gapless.node.attachments import Attachments, Created
from gapless.node.clients import Clients
from gapless.node.config import Config
from gapless.node.durables import Durables
from gapless.node.epoch import Epoch, EpochPersisted
from gapless.node.hand_overs import HandOvers
from gapless.node.interests import Interests
from gapless.node.parts import Parts
from gapless.node.producers import Producers
from gapless.node.ranges import Ranges
from gapless.node.routing import Routing
from gapless.node.statistics import statistics
from gapless.node.streams import Streams
from gapless.propagation.leaf import ClockPersisted
from gapless.propagation.stamp import StampPersisted

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.effects import Effect
    from gapless.core.events import Attributes, EventBatch
    from gapless.core.identity import CellName, PeerName, PubendName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.knowledge.relay import Relay
    from gapless.node.network import Network


class Node:
    """One broker. See the module docstring for what its driver must do."""

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        store: Store,
        now: Instant,
        *,
        attributes_of: Callable[[EventBatch], list[Attributes]],
        check_events: Callable[[EventBatch], object] | None = None,
        config: Config | None = None,
        parts: Parts | None = None,
        shadow: bool = False,
    ) -> None:
        self.name = name
        self.network = network
        self.config = config or Config()
        parts = parts or Parts()
        self._last = now  # the driver's clock, last time
        self._ahead = 0  # how far our time is ahead of it: the sum of its jumps back
        self._due: Instant | None = None  # the earliest deadline of all, on our time
        self._is_due_known = False
        self.routing = Routing(name, network, self.config, now)
        self.interests = Interests(
            name, network, store, self.config, self.routing, parts, now, attributes_of
        )
        self.subscribers = parts.subscribers(self.config, attributes_of)
        self.durables = Durables(self.config, store, self.subscribers, parts)
        self.attachments = Attachments(
            name, self.config, self.subscribers, self.durables, parts, attributes_of
        )
        self.hand_overs = HandOvers(name, network, self.config, self.routing, self.attachments, now)
        self.epoch = Epoch(store, self.config, now)
        self.streams = Streams(
            name,
            network,
            self.config,
            store,
            self.routing,
            self.subscribers,
            self.interests,
            self.durables,
            self.attachments,
            self.hand_overs,
            self.epoch,
            parts,
            now,
            shadow=shadow,
        )
        check_events = check_events or attributes_of
        self.clients = Clients(
            network,
            self.config,
            self.streams,
            self.subscribers,
            self.interests,
            self.attachments,
            check_events,
        )
        self.producers = Producers(network, self.streams, check_events)
        self.ranges = Ranges(network, self.streams, self.config, attributes_of)

    # --- what the driver calls ------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        """Call once, first."""
        instant = self._time(now)
        topics = self.interests.by_topic.items()
        begun = [each.begin(instant, self.durables.survivors(topic)) for topic, each in topics]
        return [effect for some in begun for effect in some] + self.fire(now)

    @property
    def deadline(self) -> Instant | None:
        """When to call `fire`, on the driver's clock."""
        if not self._is_due_known:
            some = [
                self.routing.deadline,
                self.epoch.deadline,
                self.streams.deadline,
                self.interests.deadline,
                self.durables.deadline,
                self.attachments.deadline,
                self.hand_overs.deadline,
            ]
            self._due = min((each for each in some if each is not None), default=None)
            self._is_due_known = True
        return None if self._due is None else Instant(self._due - self._ahead)

    def fire(self, now: Instant) -> list[Effect]:
        instant = self._time(now)
        effects = self.routing.fire(instant) + self.epoch.fire(instant)
        effects += self.interests.fire(instant)
        effects += self.streams.fire(instant) + self.durables.fire(instant)
        self.attachments.fire(instant)
        effects += self.hand_overs.fire(instant)
        return effects + self.clients.settle(instant)

    def link_up(self, peer: PeerName, now: Instant) -> list[Effect]:
        """A client has connected. For a broker this says nothing: its answers to pings do."""
        self._time(now)
        if peer not in self.network.cell_of:
            self.subscribers.connect(ClientName(peer))
        return []

    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]:
        """A client is gone, with its subscriptions; or a link to a broker broke."""
        instant = self._time(now)
        if peer in self.network.cell_of:
            self.routing.lose(peer, instant)
            self.interests.forget_peer(BrokerName(peer))
            return []
        self.clients.disconnect(ClientName(peer), instant)
        return self.clients.settle(instant)

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        """Take a message in. `ProtocolError`: drop the sender's link; nothing has changed."""
        if isinstance(message, Consumed) and sender in self.subscribers.clients:
            # The most frequent message moves no stream, so that no deadline changes.
            self.subscribers.consumed(ClientName(sender), message.count)
            if not self.attachments.has_behind(ClientName(sender)):
                return []
            self.attachments.consumed(ClientName(sender))
            return self.clients.settle(self._time(now))
        instant = self._time(now)
        if sender == self.name:
            return self._persisted(message, instant) + self.clients.settle(instant)
        if sender in self.network.cell_of:
            effects = self._from_broker(BrokerName(sender), message, instant)
        else:
            effects = self._from_client(ClientName(sender), message, instant)
        return effects + self.clients.settle(instant)

    # --- each message has one place -------------------------------------------------------------

    def _persisted(self, message: Message, now: Instant) -> list[Effect]:
        """A write of ours has ended."""
        match message:
            case Persisted():
                return self.streams.persisted(message, now)
            case Staged(pubend=pubend):
                return self.streams.pubends[pubend].transactions.staged(message, now)
            case EpochPersisted():
                self.epoch.persisted(message, now)
                self.streams.report(self.epoch)
                return []
            case Recorded():
                return self.durables.recorded(message, now)
            case Kept():
                return self.durables.kept(message, now)
            case Created():
                return self.attachments.created(message)
            case ClockPersisted(key=topic):
                return self.interests.by_topic[TopicName(topic)].persisted(message, now)
            case StampPersisted(source=source):
                topic = TopicName(source.rpartition("@")[0])
                effects = self.interests.by_topic[topic].persisted(message, now)
                return effects + (self.streams.speak(topic, now) if message.ok else [])
            case _:
                raise AssertionError(f"{message} is nothing that we told ourselves")

    def _from_broker(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        if sender not in self.routing.peers:
            raise ProtocolError(f"{sender!r} is no neighbour of {self.name!r}")
        match message:
            case Ping():
                return self.routing.answer(sender, message)
            case Pong():
                self.routing.receive_pong(sender, now)
                return []
            case Sideways(cell=cell, message=inner):
                return self._pass_on(sender, cell, inner, now)
            case SubscriptionChange() | SubscriptionState() | SubscriptionNack():
                return self._propagated(sender, message, now)
            case DigestNack():
                self.interests.receive_digest_nack(sender, message)
                return []
            case HandOver():
                return self.hand_overs.receive(message, now)
            case _ if isinstance(message, Routed):
                return self._routed(sender, message, now)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not for brokers")

    def _propagated(self, sender: BrokerName, message: Propagated, now: Instant) -> list[Effect]:
        interest = self.interests.by_topic.get(message.topic)
        if interest is None:
            raise ProtocolError(f"subscriptions of topic {message.topic!r} are not propagated")
        return interest.receive(sender, message, now)

    def _routed(self, sender: BrokerName, message: Routed, now: Instant) -> list[Effect]:
        relay = self.streams.relays.get(message.pubend)
        if relay is None:
            raise ProtocolError(f"no pubend is called {message.pubend!r}")
        cell = self.network.cell_of[sender].name
        from_above = cell in (relay.upstream, self.streams.cell.name)
        from_below = cell in relay.outlets or cell == self.streams.cell.name
        match message:
            case Knowledge() if from_above and relay.upstream != SOURCE:
                return self.streams.receive_knowledge(sender, message, now)
            case AckExpected(tick=tick) if from_above and relay.upstream != SOURCE:
                return self.streams.carry(relay.receive_ack_expected(tick, now), now)
            case StartReply(cell=target) if (
                from_above
                and relay.upstream != SOURCE
                and (target == self.streams.cell.name or self._is_below(relay, target))
            ):
                return self.streams.receive_start_reply(message, now)
            case Nack() if from_below:
                asking = None if cell == self.streams.cell.name else cell
                return self.streams.carry(relay.receive_nack(sender, asking, message, now), now)
            case StartQuery(cell=target) if from_below and self._is_below(relay, target):
                return self.streams.receive_start_query(message, now)
            case ReleaseHold(cell=target) if cell in relay.outlets and self._is_below(
                relay, target
            ):
                effects = self.streams.receive_hold(cell, message, now)
                return effects + self.routing.share(message)
            case ReleaseHold(cell=target) if sender in self.routing.siblings and self._is_below(
                relay, target
            ):
                hop = self.network.next_hop(self.streams.cell.name, target)
                relay.receive_hold(hop, message, now)
                return []
            case ReleaseEcho(cell=target) if from_above and (
                target == self.streams.cell.name or self._is_below(relay, target)
            ):
                return self.hand_overs.receive_echo(message, now)
            case Ack(cell=of) if of in relay.outlets and cell in (of, self.streams.cell.name):
                return self._acknowledged(sender, message, now)
            case _:
                raise ProtocolError(
                    f"{type(message).__name__} of {message.pubend!r} came the wrong way, "
                    f"from {sender!r}"
                )

    def _is_below(self, relay: Relay, cell: CellName) -> bool:
        """Does the way to this cell lead down the tree of the relay's pubend?"""
        here = self.streams.cell.name
        if cell == here or cell not in self.network.cell:
            return False
        return self.network.next_hop(here, cell) in relay.outlets

    def _acknowledged(self, sender: BrokerName, ack: Ack, now: Instant) -> list[Effect]:
        pubend = self.streams.pubends.get(ack.pubend)
        if pubend is not None and ack.delivered > pubend.end:
            raise ProtocolError(f"tick {ack.delivered} was acknowledged before it was sent")
        effects = self.streams.carry(self.streams.relays[ack.pubend].receive_ack(ack, now), now)
        if sender not in self.routing.siblings:
            effects += self.routing.share(ack)
        return effects

    def _pass_on(
        self,
        sender: BrokerName,
        cell: CellName,
        message: Routed | Propagated | HandOver,
        now: Instant,
    ) -> list[Effect]:
        if sender not in self.routing.siblings or cell not in self.network.neighbours(
            self.streams.cell.name
        ):
            raise ProtocolError(f"{sender!r} may not send {cell!r} anything by way of us")
        if isinstance(message, Propagated):
            return self.routing.send_first(cell, message, now, direct=True)
        key = message.subscription if isinstance(message, HandOver) else message.pubend
        return self.routing.send_direct(cell, key, message, now)

    def _from_client(self, sender: ClientName, message: Message, now: Instant) -> list[Effect]:
        if sender not in self.subscribers.clients:
            raise ProtocolError(f"{sender!r} is not connected")
        match message:
            case Publish():
                return self.clients.publish(sender, message, now)
            case PublisherQuery():
                return self.clients.position(sender, message)
            case Subscribe():
                return self.clients.subscribe(sender, message, now)
            case Acknowledge():
                return self.attachments.acknowledge(sender, message, now)
            case Forget():
                return self.attachments.forget(sender, message)
            case Unsubscribe(subscription=number):
                return self.clients.unsubscribe(sender, number, now)
            case _ if isinstance(message, TransactionRequest):
                return self.producers.receive(sender, message, now)
            case _ if isinstance(message, RangeRequest):
                return self.ranges.receive(sender, message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not for clients")

    # --- time, invariants, figures --------------------------------------------------------------

    def _time(self, now: Instant) -> Instant:
        """Our own time, which never goes back, for the driver's clock, which may."""
        self._ahead += max(0, self._last - now)
        self._last = now
        self._is_due_known = False
        return Instant(now + self._ahead)

    def check(self) -> None:
        self.streams.check()
        self.interests.check()
        self.subscribers.check()
        self.durables.check()
        self.attachments.check()
        self.hand_overs.check()

    def statistics(self) -> dict[str, object]:
        return statistics(self.routing, self.clients)

    def horizon(self, pubend: PubendName) -> int | None:
        """Up to where everything of the pubend is settled here, if subscribers are hosted."""
        subend = self.streams.subends.get(pubend)
        return subend.horizon if subend else None
