"""The durable service at one broker: events are logged, and named subscriptions survive everything.

Theory of operation
    Clients publish to pubends (`producers`); each pubend's stream runs through this broker
    (`streams`), filtered for each neighbour by what is wanted behind it (`interests`). Settled
    batches are matched against all subscriptions here (`delivery.subscribers`). A subscription
    waits until everything that it wants gets here (`subscription_requests`). If it has a name it is
    durable (`subscriptions.named_subscriptions`): a client attaches to it (`attachments`), it may
    move to another broker (`moves`), and a registrar knows its home (`homes`). Clients also read
    ranges of a log (`reads`), and administrators strike names off that pubends remember (`roster`).
    This class gives each message its one place, and ends each step of its parts with `settle`. A
    message about a topic that is not known here, or not any more, counts as lost (`strays`).

Invariants (checked by `check`): those of the parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from gapless.core.broker_messages import (
    DigestNack,
    HandOver,
    Routed,
    SubscriptionChange,
    SubscriptionNack,
    SubscriptionState,
    TakeOver,
)
from gapless.core.client_messages import (
    Acknowledge,
    AlterationNoted,
    AlterSubscription,
    Consumed,
    Ended,
    Forget,
    Publish,
    PublisherQuery,
    Refused,
    Subscribe,
)
from gapless.core.effects import Persist, Send, Tell
from gapless.core.errors import ProtocolError, quoted
from gapless.core.group_messages import Finish, Reject
from gapless.core.identity import TopicName
from gapless.core.name_messages import NameAnswer, NameQuestion, NamesQuestion, NamesTold
from gapless.core.portion import WHOLE, Portion
from gapless.core.range_messages import RangeRequest
from gapless.core.roster_messages import RosterRequest
from gapless.core.topic_messages import TopicEntry
from gapless.core.transaction_messages import TransactionRequest
from gapless.durable.consolidated import RecordsPersisted
from gapless.durable.subscriptions import SubscriptionPersisted
from gapless.knowledge.pubend import Persisted
from gapless.knowledge.stages import Staged
from gapless.node.deadlines import earliest
from gapless.node.directory.catalogue import entry_of, topic_of
from gapless.node.directory.registry import Noted
from gapless.node.durable.interest_table import InterestTable
from gapless.node.durable.leftovers import TopicGone, leftovers
from gapless.node.durable.producers import Producers
from gapless.node.durable.roster import Rosters
from gapless.node.durable.streams import Streams
from gapless.node.durable.subscription_requests import SubscriptionRequests
from gapless.node.promises import PromisePersisted
from gapless.node.reads.ranges import Ranges
from gapless.node.service import Service
from gapless.node.subscriptions.alterations import AlterationPersisted, Alterations
from gapless.node.subscriptions.attachments import Attachments, Created, Left
from gapless.node.subscriptions.catch_ups import Assured
from gapless.node.subscriptions.drain import Drain
from gapless.node.subscriptions.homes import Homes
from gapless.node.subscriptions.lag import Lags
from gapless.node.subscriptions.moves import Moves
from gapless.node.subscriptions.named_groups import FeedTold, GroupsPersisted, NamedGroups
from gapless.node.subscriptions.named_subscriptions import NamedSubscriptions
from gapless.node.subscriptions.table import Work
from gapless.propagation.leaf import ClockPersisted
from gapless.propagation.stamp import StampPersisted

if TYPE_CHECKING:
    from collections.abc import Collection

    from gapless.core.broker_messages import Propagated
    from gapless.core.effects import Effect, Write
    from gapless.core.identity import (
        BrokerName,
        ClientName,
        Instant,
        PeerName,
        PubendName,
        SubscriptionName,
    )
    from gapless.core.messages import Message
    from gapless.node.context import Context
    from gapless.node.delivery.session import Session
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.network import Topic

PUBEND_KINDS = (Publish, Persisted)
"""The most frequent messages. They concern the durable service alone if their topic is durable, and
mostly leave nothing to settle."""


class DurableService(Service):
    """See the module docstring; `node.service.Service` says what each method is for."""

    name = "durable"
    stores = True
    confirms = True
    kinds = (
        SubscriptionChange,
        SubscriptionState,
        SubscriptionNack,
        DigestNack,
        HandOver,
        NameQuestion,
        NameAnswer,
        NamesQuestion,
        NamesTold,
        TakeOver,
        *get_args(Routed),
    )
    writes = (
        Persisted,
        Staged,
        RecordsPersisted,
        SubscriptionPersisted,
        Created,
        Assured,
        Left,
        AlterationPersisted,
        Noted,
        TopicGone,
        PromisePersisted,
        ClockPersisted,
        StampPersisted,
        FeedTold,
        GroupsPersisted,
    )

    def __init__(self, context: Context, subscribers: Subscribers) -> None:
        self.here = context.name
        self.network = context.network
        self.routing = context.routing
        self.subscribers = subscribers
        self.strays = 0  # messages about topics that are not known here
        self._catalogue = context.catalogue
        self._epoch = context.epoch
        self._store = context.store
        self.interests = InterestTable(context)
        self.named = NamedSubscriptions(context, subscribers)
        self.subscriptions = self.named.subscriptions
        self.attachments = Attachments(context, subscribers, self.named)
        self.alterations = Alterations(context, self.attachments, self.interests)
        self.moves = Moves(context, self.attachments, self.alterations)
        registry = context.parts.registry(
            context.name, context.network, context.config, context.store, self.named.entry
        )
        self.homes = Homes(context, self.attachments, self.alterations, registry)
        self.streams = Streams(
            context,
            subscribers,
            self.interests,
            self.attachments,
            self.moves,
        )
        self.requests = SubscriptionRequests(
            context, self.streams, subscribers, self.interests, self.attachments, self.homes
        )
        self.groups = NamedGroups(context, self.attachments, self.streams.pubends)
        self.attachments.groups = self.groups
        self.drain = Drain(context, self.attachments, self.groups, self.requests)
        self.producers = Producers(context, self.streams.pubends, subscribers.clients)
        self.rosters = Rosters(context, self.streams.pubends)
        self.ranges = Ranges(context, self.streams.pubends)
        self.lags = Lags(self.named, self.attachments.catch_ups, context.store)

    # --- life ------------------------------------------------------------------------------------

    def restore(self, now: Instant) -> list[Effect]:
        effects = self.groups.restore() + self._finish_deletions() + self._seal()
        for topic, interest in self.interests.by_topic.items():
            effects += interest.begin(now, self.named.survivors(topic))
        return effects

    def _seal(self) -> list[Effect]:
        """Seal a disk that is not sealed, and note what is lost if it is a copy, in one commit."""
        seal = self.streams.seal
        writes: list[Write] = []
        if seal.is_copy:
            writes += [*self.named.note_copies(), *self.homes.recall.forget()]
            for pubend in self.streams.pubends.values():
                writes += [*pubend.past.write(), *pubend.publishers.writes({})]
        writes += seal.write()
        return [Persist(tuple(writes))] if writes else []

    def start(self, now: Instant) -> list[Effect]:
        self.streams.report(self._epoch)
        return []

    # --- topics ----------------------------------------------------------------------------------

    def add(self, topic: Topic, now: Instant) -> list[Effect]:
        interest = self.interests.add(topic, now)
        self.streams.add(topic, now)
        survivors = self.named.survivors(topic.name)
        return interest.begin(now, survivors) if interest is not None else []

    def alter(self, topic: Topic, now: Instant) -> None:
        self.streams.alter(topic, now)

    def remove(self, topic: Topic, problem: str, remedy: str, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for pubend in topic.pubends:
            if (hosted := self.streams.pubends.get(pubend.name)) is not None:
                for each in (*hosted.pending_requests, *hosted.batch.requests):
                    refused = Refused(each.message.request, problem, remedy)
                    effects.append(Send(each.client, refused))
                effects += hosted.transactions.refuse_all(problem, remedy)
        effects += self._end_subscriptions(topic, problem, remedy)
        self.streams.remove(topic)
        self.named.remove([pubend.name for pubend in topic.pubends])
        self.interests.remove(topic)
        # What is being written may still become durable: look again when all of it is.
        return [*effects, Persist((), (Tell(TopicGone(entry_of(topic))),))]

    def _end_subscriptions(self, topic: Topic, problem: str, remedy: str) -> list[Effect]:
        effects = self.requests.refuse_topic(topic.name, problem, remedy)
        for name, number in self.subscribers.of_topic(topic.name):
            self.subscribers.remove(name, number)
            effects.append(Send(name, Ended(number, problem, remedy)))
        for subscription in self.subscriptions.all():
            if subscription.definition.topic == topic.name:
                ended = subscription.definition.name
                self.moves.forget(ended)
                effects += self.attachments.finish(ended, problem, remedy)
        return effects

    def _gone(self, entry: TopicEntry) -> list[Effect]:
        """Delete what is left of a deleted topic: all that was written for it is durable."""
        writes = leftovers(topic_of(entry), self._store, self.here)
        return [Persist(tuple(writes))] if writes else []

    def _finish_deletions(self) -> list[Effect]:
        """Do what a crash left undone of deletions: end subscriptions, free space."""
        effects: list[Effect] = []
        for subscription in self.subscriptions.all():
            name, topic = subscription.definition.name, subscription.definition.topic
            current = self._catalogue.entries.get(topic)
            if current is None or topic in self._catalogue.static:
                continue
            if subscription.since.keys() != {each.name for each in topic_of(current).pubends}:
                problem = f"topic {quoted(topic)} was deleted"
                effects += self.attachments.finish(name, problem)
        for entry in self._catalogue.entries.values():  # after the subscriptions that need it
            if entry.is_deleted:
                before = entry.incarnation - 1
                effects += self._gone(TopicEntry(entry.name, before, entry.hosts, entry.service))
        return effects

    # --- clients ---------------------------------------------------------------------------------

    def request(self, client: ClientName, message: Message, now: Instant) -> list[Effect]:
        match message:
            case Publish():
                return self.producers.publish(client, message, now)
            case PublisherQuery():
                return self.producers.position(client, message, now)
            case Subscribe():
                return self.requests.subscribe(client, message, now)
            case Consumed():
                sessions = self.subscribers.sessions_of[client].values()
                self.attachments.catch_ups.consumed(sessions)
                for session in sessions:
                    self.attachments.total_orders.stir_session(session)
                return []
            case Acknowledge():
                return self.homes.acknowledge(client, message, now)
            case Forget():
                return self.homes.forget(client, message, now)
            case AlterSubscription():
                return self.homes.alter(client, message, now)
            case AlterationNoted():
                self.alterations.note(client, message)
                return []
            case Finish() | Reject():
                return self.groups.request(client, message, now)
            case _ if isinstance(message, TransactionRequest):
                return self.producers.receive(client, message, now)
            case _ if isinstance(message, RosterRequest):
                return self.rosters.receive(client, message, now)
            case _ if isinstance(message, RangeRequest):
                return self.ranges.receive(client, message)
            case _:
                raise ProtocolError(f"{type(message).__name__} is not for clients")

    def has(self, client: ClientName, number: int) -> bool:
        place = self.subscribers.clients[client].subscriptions.get(number)
        if place is not None:
            return self.network.topic[place[0]].service == self.name
        if self.groups.has(client, number):
            return True
        return self.requests.has(client, number) or self.attachments.has(client, number)

    @property
    def unmatched_count(self) -> int:
        return self.requests.count

    def unsubscribe(self, client: ClientName, number: int, now: Instant) -> list[Effect]:
        """End a subscription; ending one that is not there is fine, and says so too."""
        self.requests.give_up(client, number, now)
        self._note_contact(client, now)
        if not (self.groups.leave(client, number) or self.attachments.detach(client, number)):
            self.subscribers.remove(client, number)
        return [Send(client, Ended(number))]

    def disconnect(self, client: ClientName, now: Instant) -> list[Effect]:
        self.requests.disconnect(client, now)
        self._note_contact(client, now)
        self.attachments.disconnect(client)
        self.alterations.disconnect(client)
        self.groups.disconnect(client)
        return []

    def _note_contact(self, client: ClientName, now: Instant) -> None:
        for session in self.subscribers.sessions_of.get(client, {}).values():
            session.subscription.contact.at = now

    # --- brokers ---------------------------------------------------------------------------------

    def receive(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        if sender not in self.routing.peers:
            raise ProtocolError(f"{sender!r} is no neighbour of {self.here!r}")
        match message:
            case SubscriptionChange() | SubscriptionState() | SubscriptionNack():
                return self._receive_propagated(sender, message, now)
            case DigestNack(pubend=pubend):
                if pubend not in self.network.pubends:
                    return self._stray()
                self.interests.receive_digest_nack(sender, message)
                return []
            case HandOver():
                self.drain.hear(now)
                return self.moves.receive(message, now)
            case TakeOver():
                return self.drain.receive(message, now)
            case NameQuestion() | NameAnswer() | NamesQuestion() | NamesTold():
                return self.homes.receive(message, now)
            case _:
                assert isinstance(message, Routed)
                if message.pubend not in self.streams.relays:
                    return self._stray()
                return self.streams.receive_routed(sender, message, now)

    def _receive_propagated(
        self, sender: BrokerName, message: Propagated, now: Instant
    ) -> list[Effect]:
        interest = self.interests.by_label.get(message.topic)
        if interest is None:
            return self._stray()
        return interest.receive(sender, message, now)

    def _stray(self) -> list[Effect]:
        """The topic is not known here yet, or not any more: the message counts as lost."""
        self.strays += 1
        return []

    def ask_again(self, broker: BrokerName, now: Instant) -> list[Effect]:
        return self.streams.put_again(broker, now)

    def link_down(self, broker: BrokerName, now: Instant) -> list[Effect]:
        self.interests.forget_peer(broker)
        return []

    # --- writes ----------------------------------------------------------------------------------

    def persisted(self, message: Message, now: Instant) -> list[Effect]:
        match message:
            case Persisted():
                return self.streams.persisted(message, now)
            case Staged():
                return self.streams.staged(message, now)
            case RecordsPersisted():
                return self.named.recorded(message, now)
            case SubscriptionPersisted():
                return self.named.kept(message, now)
            case Created() | Assured():
                return self.attachments.persisted(message)
            case Left():
                return self.homes.left(message, now)
            case AlterationPersisted():
                return self.alterations.persisted(message, now)
            case Noted():
                return self.homes.noted(message, now)
            case GroupsPersisted() | FeedTold():
                return self.groups.persisted(message, now)
            case TopicGone():
                return self._gone(message.entry)
            case PromisePersisted():
                return self.streams.receive_kept(message.kept, now)
            case ClockPersisted(key=label):
                return self._interest_persisted(message, label, now)
            case StampPersisted(source=source):
                return self._interest_persisted(message, source.rpartition("@")[0], now)
            case _:
                return super().persisted(message, now)

    def _interest_persisted(
        self, message: ClockPersisted | StampPersisted, label: str, now: Instant
    ) -> list[Effect]:
        interest = self.interests.by_label.get(TopicName(label))
        if interest is None:
            return []
        effects = interest.persisted(message, now)
        if isinstance(message, StampPersisted) and message.ok:
            effects += self.streams.speak(interest.topic, now)
        return effects

    # --- the end of a step, time -----------------------------------------------------------------

    @property
    def is_quiet(self) -> bool:
        """Has this step left nothing to `settle`?"""
        if not self.requests.is_quiet or self.subscribers.dropped or self.interests.has_news:
            return False
        has_work = self.named.table.has_work(Work.TELL_HOME, Work.SEEK_HOME, Work.CONFIRM)
        is_busy = has_work or self.homes.recall.late or not self.groups.is_quiet
        if is_busy or not self.attachments.total_orders.is_idle:
            return False
        return self.streams.is_quiet and self.alterations.is_quiet

    def settle(self, now: Instant) -> list[Effect]:
        """Pass on what was asked for, start what can start, and drop what no one wants any more."""
        if self.is_quiet:
            return []
        dropped = self.subscribers.take_dropped()
        for topic, key in dropped:
            self.interests.unsubscribe(topic, key, now)
        effects = self.requests.resume(now) + self.groups.settle(now)
        effects += self.interests.update(now)
        effects += self.alterations.settle(now)
        effects += self.streams.settle(now)
        effects += self.homes.settle(now)
        effects += self.alterations.settle(now)
        if self.named.reports:
            effects += self.streams.settle(now)
        effects += self.requests.begin(now) + self.attachments.total_orders.settle(now)
        for topic, _ in (*dropped, *self.subscribers.dropped):
            if topic in self.streams.merges and not self.subscribers.wants(topic, "total"):
                self.streams.stop_merge(topic)
        return effects

    @property
    def deadline(self) -> Instant | None:
        early = self.streams, self.interests, self.named, self.attachments.catch_ups
        late = self.moves, self.homes, self.alterations, self.groups, self.drain
        return earliest([each.deadline for each in (*early, *late)])

    def fire(self, now: Instant) -> list[Effect]:
        effects = self.interests.fire(now)
        effects += self.streams.wake(now) + self.named.fire(now)
        self.attachments.catch_ups.fire(now)
        self.groups.fire(now)
        effects += self.drain.fire(now)
        return effects + self.moves.fire(now) + self.homes.fire(now) + self.alterations.fire(now)

    # --- figures, invariants ---------------------------------------------------------------------

    def session(self, name: SubscriptionName) -> Session | None:
        """The client that is attached to a named subscription, if any."""
        return self.named.table.session(name)

    def delivered(self, pubend: PubendName) -> int:
        """Below this tick, it is durable which named subscriptions take what of the pubend."""
        return self.named.streams[pubend].delivered

    def horizon(self, pubend: PubendName) -> int | None:
        """Up to where everything of the pubend is settled here, if subscribers are hosted."""
        subend = self.streams.subends.get(pubend)
        return subend.horizon if subend else None

    def pending_count(self, peers: Collection[PeerName | None]) -> int:
        """How many subscriptions of these connections wait for their start."""
        return sum(peer in peers for peer, _ in self.requests.pending)

    def statistics(self) -> dict[str, object]:
        sessions = self.subscribers.sessions.values()
        return {
            "waiting_subscriptions": len(self.requests.pending),
            "durable_subscriptions": self.subscribers.durable_count,
            "catch_up_streams": sum(len(each.behind) for each in sessions),
            "published": self.streams.published,
            "merges": len(self.streams.merges),
            "pubends": self.streams.statistics(),
            "topics": {name: each.statistics() for name, each in self.interests.by_topic.items()},
            "strays": self.strays,
        }

    def check(self, portion: Portion = WHOLE) -> None:
        self.streams.check(portion)
        self.interests.check(portion)
        self.named.check(portion)
        self.attachments.check(portion)
        self.moves.check()
        self.alterations.check()
        self.homes.check(portion)
        self.groups.check(portion)

    @property
    def size(self) -> int:
        """About how many items there are to check."""
        return len(self.homes.registry.entries) + 8 * len(self.streams.relays)
