"""Node: one broker as one pure machine. The same object runs in the broker and the simulator.

Theory of operation
    Every message has one place it goes to: `receive` is the only `match` over message kinds.
    Deadlines merge into one. Time: the clock a driver passes in may jump. The node runs on a time
    of its own that never goes back: where the clock does, it goes on from where it was.
    A message that contradicts what we know is a `ProtocolError`, and nothing has changed.
    A client's request that fails inside us is one thing, shared state that is broken another. If a
    handler of a client's message raises, what that client has here is dropped whole, as if its link
    had ended. If no write was lost by it, nor anything that a client is told, and every invariant
    holds, that is the end of it (`RequestError`), else of us: what was lost could be a gap that
    nobody is told of. What fails while others are served (`settle`, messages between brokers, our
    own writes) is the end of us.

What a driver must do: carry out effects in order; hand a `Tell` back with `receive`; on a
`Persist`, make the writes durable and then carry out `then`; call `fire` at `deadline`; drop the
link of a peer whose message raised. It supplies what depends on the encoding of events: how to
read the attributes of a batch, and how to check a batch that a client wants to publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import (
    DigestNack,
    HandOver,
    Propagated,
    Routed,
    Sideways,
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
from gapless.core.errors import ProtocolError, RequestError
from gapless.core.identity import BrokerName, ClientName, Instant, TopicName
from gapless.core.messages import Made, Ping, Pong
from gapless.core.name_messages import NameAnswer, NameQuestion
from gapless.core.portion import WHOLE, Portion
from gapless.core.range_messages import RangeRequest
from gapless.core.roster_messages import RosterRequest
from gapless.core.topic_messages import (
    CreateTopic,
    DeleteTopic,
    TopicNews,
    TopicQuestion,
    TopicsQuery,
)
from gapless.core.transaction_messages import TransactionRequest
from gapless.durable.consolidated import Recorded
from gapless.durable.subscriptions import Kept
from gapless.knowledge.pubend import Persisted
from gapless.knowledge.stages import Staged
from gapless.node.config import Config
from gapless.node.deadlines import earliest
from gapless.node.delivery.connection import nowhere
from gapless.node.directory.catalogue import EntryPersisted
from gapless.node.directory.registry import Noted
from gapless.node.durable.clients import Clients
from gapless.node.durable.interest_table import InterestTable
from gapless.node.durable.producers import Producers
from gapless.node.durable.roster import Rosters
from gapless.node.durable.streams import Streams
from gapless.node.epoch import Epoch, EpochPersisted
from gapless.node.parts import Parts
from gapless.node.reads.ranges import Ranges
from gapless.node.routing import Routing
from gapless.node.service import SERVICES, Services
from gapless.node.statistics import statistics
from gapless.node.subscriptions.attachments import Attachments, Created, Left
from gapless.node.subscriptions.catch_ups import Assured
from gapless.node.subscriptions.durables import Durables
from gapless.node.subscriptions.homes import Names
from gapless.node.subscriptions.moves import HandOvers
from gapless.node.topics import TopicGone, Topics
from gapless.propagation.leaf import ClockPersisted
from gapless.propagation.stamp import StampPersisted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.effects import Effect
    from gapless.core.events import Attributes, EventBatch
    from gapless.core.identity import PeerName, PubendName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.node.network import Network
    from gapless.node.reads.search import Survey


FOR_PUBENDS = (Publish, Persisted)
"""The most frequent messages: streams may move, and nothing else that has a deadline."""


class Node:
    """One broker. See the module docstring for what its driver must do."""

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        store: Store,
        now: Instant,
        *,
        attributes_of: Callable[[EventBatch], Sequence[Attributes]],
        check_events: Callable[[EventBatch], object] | None = None,
        survey: Survey | None = None,
        config: Config | None = None,
        parts: Parts | None = None,
        shadow: bool = False,
    ) -> None:
        self.name = name
        self.network = network = network.own()
        self.config = config or Config()
        self.strays = 0  # messages about topics that are not known here
        parts = parts or Parts()
        self._last = now  # the driver's clock, last time
        self._ahead = 0  # how far our time is ahead of it: the sum of its jumps back
        self._due: Instant | None = None  # the earliest deadline of all, on our time
        self.is_deadline_known = False  # is it what it was when it was last asked for?
        self._others_due: Instant | None = None  # that of those that `FOR_PUBENDS` does not move
        self._are_others_known = False
        self._owed: list[Effect] = []  # of clients that were dropped: `link_down` follows
        self.routing = Routing(name, network, self.config, now)
        self.catalogue = parts.catalogue(name, network, self.config, store, self.routing, now)
        self.interests = InterestTable(
            name, network, store, self.config, self.routing, parts, now, attributes_of
        )
        self.subscribers = parts.subscribers(self.config, attributes_of)
        self.durables = Durables(name, self.config, store, self.subscribers, parts)
        self.attachments = Attachments(
            name, network, self.config, self.subscribers, self.durables, parts, attributes_of
        )
        self.hand_overs = HandOvers(name, network, self.config, self.routing, self.attachments, now)
        self.epoch = Epoch(store, self.config, now)
        registry = parts.registry(name, network, self.config, store, self.durables.entry)
        named = self.routing, self.attachments, registry, self.epoch
        self.names = Names(name, network, self.config, *named)
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
        serving = self.streams, self.subscribers, self.interests, self.attachments
        known = check_events, self.catalogue, self.names
        self.clients = Clients(network, self.config, *serving, *known)
        self.producers = Producers(network, self.streams, check_events)
        self.rosters = Rosters(network, self.streams)
        made = name, network, self.config, store, self.epoch, self.subscribers, attributes_of
        self.services = Services(self.clients, [each(*made) for each in SERVICES])
        self.topics = Topics(self.catalogue, self.clients, self.hand_overs, store, self.services)
        self._others = self.routing, self.epoch, self.hand_overs, self.names, self.services
        self.ranges = Ranges(network, self.streams, self.config, attributes_of, survey)

    # --- what the driver calls ------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        """Call once, first."""
        instant = self._time(now)
        effects = self.topics.start()
        for topic, each in self.interests.by_topic.items():
            effects += each.begin(instant, self.durables.survivors(topic))
        return effects + self.fire(now)

    @property
    def deadline(self) -> Instant | None:
        """When to call `fire`, on the driver's clock."""
        if not self.is_deadline_known:
            if not self._are_others_known:
                self._others_due = earliest([each.deadline for each in self._others])
                self._are_others_known = True
            some = (self.streams, self.interests, self.durables, self.attachments.behind)
            self._due = earliest([self._others_due, *[each.deadline for each in some]])
            self.is_deadline_known = True
        return None if self._due is None else Instant(self._due - self._ahead)

    def fire(self, now: Instant) -> list[Effect]:
        instant = self._time(now)
        effects = self.routing.fire(instant) + self.epoch.fire(instant)
        effects += self.interests.fire(instant)
        effects += self.streams.wake(instant) + self.durables.fire(instant)
        self.attachments.behind.fire(instant)
        effects += self.hand_overs.fire(instant) + self.names.fire(instant)
        effects += self.services.fire(instant)
        return effects + self.clients.settle(instant)

    def link_up(
        self,
        peer: PeerName,
        now: Instant,
        owner: str = "",
        administers: Callable[[str], bool] = nowhere,
        who: str = "",
    ) -> list[Effect]:
        """A client has connected; `owner` is who it has proved to be, if that is asked for,
        `administers` says of which topics it ends subscriptions of others, and `who` whose share it
        takes if it has proved nothing. Or there is a link to a broker, which counts when it
        answers."""
        instant = self._time(now)
        if peer not in self.network.cell_of:
            self.subscribers.connect(ClientName(peer), owner, administers)
            self.subscribers.clients[ClientName(peer)].who = owner or who
            return []
        return self.routing.greet(peer) + self.services.link_up(BrokerName(peer), instant)

    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]:
        """A client is gone, with its subscriptions; or a link to a broker broke."""
        instant = self._time(now)
        owed, self._owed = self._owed, []
        if peer not in self.subscribers.clients:
            self.catalogue.newcomers.pop(BrokerName(peer), None)
            self.routing.lose(peer, instant)
            self.interests.forget_peer(BrokerName(peer))
            effects = self.services.link_down(BrokerName(peer), instant)
            return owed + effects + (self.clients.settle(instant) if owed else [])
        return owed + self._drop(ClientName(peer), instant) + self.clients.settle(instant)

    def leave(self, now: Instant) -> list[Effect]:
        """The driver is about to stop us: what others need not keep for us, they are told."""
        return self.services.leave(self._time(now))

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        """Take a message in. `ProtocolError`: drop the sender's link; nothing has changed."""
        if isinstance(message, Consumed) and sender in self.subscribers.clients:
            # The most frequent message moves no stream, so that no deadline changes.
            self.subscribers.consumed(ClientName(sender), message.count)
            sessions = self.subscribers.sessions_of.get(ClientName(sender), {}).values()
            if not any(each.behind for each in sessions):
                return []
            self.attachments.behind.consumed(sessions)
            return self.clients.settle(self._time(now))
        are_others_known = self._are_others_known and type(message) in FOR_PUBENDS
        instant = self._time(now)
        self._are_others_known = are_others_known
        if sender == self.name:
            return self._persisted(message, instant) + self._settle(instant)
        if type(message) in self.services.of_kind and sender not in self.subscribers.clients:
            return self.services.receive(BrokerName(sender), message, instant)  # moves no stream
        if sender in self.network.cell_of:
            effects = self._from_broker(BrokerName(sender), message, instant)
        elif isinstance(message, TopicNews) and self.network.joins:
            effects = self.topics.receive_news(BrokerName(sender), message, instant)
        else:
            effects = self._guarded(ClientName(sender), message, instant)
        return effects + self._settle(instant)

    def _settle(self, now: Instant) -> list[Effect]:
        """End a step; one that concerned nothing but a pubend mostly leaves nothing to be done."""
        if self._are_others_known and self.clients.is_quiet:
            return []
        self._are_others_known = False
        return self.clients.settle(now)

    # --- each message has one place -------------------------------------------------------------

    def _persisted(self, message: Message, now: Instant) -> list[Effect]:
        """A write of ours has ended."""
        match message:
            case Persisted():
                return self.streams.persisted(message, now)
            case Staged():
                return self.streams.staged(message, now)
            case EpochPersisted():
                self.epoch.persisted(message, now)
                self.streams.report(self.epoch)
                return self.services.start(now) if message.ok else []
            case Recorded():
                return self.durables.recorded(message, now)
            case Kept():
                return self.durables.kept(message, now)
            case Created() | Assured():
                return self.attachments.persisted(message)
            case Left():
                return self.names.left(message, now)
            case Noted():
                return self.names.noted(message, now)
            case EntryPersisted():
                return self.topics.persisted(message, now)
            case TopicGone():
                return self.topics.gone(message)
            case ClockPersisted(key=label):
                interest = self.interests.by_label.get(TopicName(label))
                return interest.persisted(message, now) if interest is not None else []
            case StampPersisted(source=source):
                interest = self.interests.by_label.get(TopicName(source.rpartition("@")[0]))
                if interest is None:
                    return []
                effects = interest.persisted(message, now)
                return effects + (self.streams.speak(interest.topic, now) if message.ok else [])
            case _:
                raise AssertionError(f"{message} is nothing that we told ourselves")

    def _from_broker(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        if sender not in self.routing.peers:
            raise ProtocolError(f"{sender!r} is no neighbour of {self.name!r}")
        match message:
            case Ping():
                compared = self.catalogue.compare(sender, message.catalogue, now)
                return self.routing.answer(sender, message) + compared
            case Pong():
                is_new = self.routing.receive_pong(sender, now)
                return self.streams.put_again(sender, now) if is_new else []
            case Sideways(cell=cell, message=inner):
                return self.routing.pass_on(sender, cell, inner, now)
            case SubscriptionChange() | SubscriptionState() | SubscriptionNack():
                return self._propagated(sender, message, now)
            case DigestNack(pubend=pubend):
                if pubend not in self.network.pubends:
                    return self._stray()
                self.interests.receive_digest_nack(sender, message)
                return []
            case HandOver():
                return self.hand_overs.receive(message, now)
            case TopicNews():
                return self.topics.receive_news(sender, message, now)
            case NameQuestion() | NameAnswer():
                return self.names.receive(message, now)
            case TopicQuestion():
                return self.topics.receive_question(message, now)
            case _ if isinstance(message, Routed):
                if message.pubend not in self.streams.relays:
                    return self._stray()
                return self.streams.receive_routed(sender, message, now)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not for brokers")

    def _propagated(self, sender: BrokerName, message: Propagated, now: Instant) -> list[Effect]:
        interest = self.interests.by_label.get(message.topic)
        if interest is None:
            return self._stray()
        return interest.receive(sender, message, now)

    def _stray(self) -> list[Effect]:
        """About a topic that we do not know yet, or no more: as if it had got lost."""
        self.strays += 1
        return []

    def _guarded(self, sender: ClientName, message: Message, now: Instant) -> list[Effect]:
        """Carry out a client's message, so that its failure is nobody else's."""
        made = Made.count
        try:
            return self._from_client(sender, message, now)
        except ProtocolError:
            raise
        except Exception as error:
            if Made.count != made:
                raise
            self._owed += self._drop(sender, now)
            self.check()
            what = f"{type(message).__name__} failed inside the broker: {type(error).__name__}"
            raise RequestError(what) from error

    def _drop(self, client: ClientName, now: Instant) -> list[Effect]:
        """A client is gone, with its subscriptions."""
        effects = self.services.disconnect(client, now)
        self.clients.disconnect(client, now)
        return effects

    def _from_client(self, sender: ClientName, message: Message, now: Instant) -> list[Effect]:
        if sender not in self.subscribers.clients:
            raise ProtocolError(f"{sender!r} is not connected")
        if (served := self.services.request(sender, message, now)) is not None:
            self._are_others_known = False
            return served
        match message:
            case Publish():
                return self.clients.publish(sender, message, now)
            case PublisherQuery():
                return self.clients.position(sender, message, now)
            case Subscribe():
                return self.clients.subscribe(sender, message, now)
            case Acknowledge():
                return self.names.acknowledge(sender, message, now)
            case Forget():
                return self.names.forget(sender, message, now)
            case CreateTopic() | DeleteTopic() | TopicsQuery():
                return self.topics.request(sender, message, now)
            case Unsubscribe(subscription=number):
                return self.clients.unsubscribe(sender, number, now)
            case _ if isinstance(message, TransactionRequest):
                return self.producers.receive(sender, message, now)
            case _ if isinstance(message, RosterRequest):
                return self.rosters.receive(sender, message, now)
            case _ if isinstance(message, RangeRequest):
                return self.ranges.receive(sender, message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not for clients")

    # --- time, invariants, figures --------------------------------------------------------------

    def _time(self, now: Instant) -> Instant:
        """Our own time, which never goes back, for the driver's clock, which may."""
        self._ahead += max(0, self._last - now)
        self._last = now
        self.touch()
        return Instant(now + self._ahead)

    def touch(self) -> None:
        """Deadlines may be others: for who calls a part of ours, not us."""
        self.is_deadline_known = self._are_others_known = False

    def check(self, portion: Portion = WHOLE) -> None:
        self.streams.check(portion)
        self.interests.check(portion)
        self.subscribers.check(portion)
        self.durables.check(portion)
        self.attachments.check(portion)
        self.hand_overs.check()
        self.names.check(portion)
        self.catalogue.check(portion)
        self.services.check()

    @property
    def size(self) -> int:
        """About how many items there are to check."""
        names = self.names.registry.entries
        return self.subscribers.subscription_count + len(names) + 8 * len(self.streams.relays)

    def statistics(self) -> dict[str, object]:
        return statistics(self.routing, self.clients, self.services) | {"strays": self.strays}

    def horizon(self, pubend: PubendName) -> int | None:
        """Up to where everything of the pubend is settled here, if subscribers are hosted."""
        subend = self.streams.subends.get(pubend)
        return subend.horizon if subend else None
