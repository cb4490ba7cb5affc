"""One broker of the tree as one machine: the reliable service, sans-IO.

Theory of operation
    Three sources drive it: messages from neighbours, time, and the verbs `publish`, `subscribe` and
    `withdraw`. After each of them the machine settles: which brokers can be reached, then which
    subscriptions must be asked for, then the queue, then the confirmations that wait for the queue.
    What is sent to one neighbour goes out in that order, and connections keep it.
    Nothing is stored. The driver keeps `edges` on disk, and counts the starts of the broker: the
    `epoch` makes all numbers of a new life higher than those of the last.

Invariants: those of the parts, all checked by `check`.

Cost: see the parts; a step that changes no broker's reach costs O(1) plus what it sends.

Source: Kazemzadeh and Jacobsen, SRDS 2011; docs/protocols/reliable-tree.md, 3. A source is a broker
and its epoch: a restart begins a new flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.effects import Send
from gapless.core.errors import UsageError
from gapless.tree.claims import check_message
from gapless.tree.connections import Connections
from gapless.tree.forwarding import Forwarding
from gapless.tree.messages import (
    Beat,
    BrokersRetired,
    Carried,
    CarriedMessage,
    Credit,
    Edge,
    Joined,
    Losses,
    PublicationRun,
    RunConfirmed,
    RunHeld,
    SubscriptionConfirmed,
    SubscriptionId,
    SubscriptionOffer,
    SubscriptionRefused,
    SubscriptionWithdrawn,
    SyncEnd,
    SyncStart,
    SyncSummary,
    TreeJoin,
    TreeMessage,
    TreeWelcome,
)
from gapless.tree.neighbourhood import Neighbourhood
from gapless.tree.partitions import Partitions
from gapless.tree.publications import Publications
from gapless.tree.recovery import Sessions
from gapless.tree.spreading import Spreading
from gapless.tree.subscriptions import SubscriptionTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gapless.core.effects import Effect
    from gapless.core.events import Attributes, EventBatch
    from gapless.core.identity import BrokerName, Instant
    from gapless.tree.messages import PartitionId
    from gapless.tree.settings import TreeSettings


@dataclass(frozen=True, kw_only=True)
class TreeParts:
    """The classes that a broker is made of; a simulation may plant a fault in one."""

    subscriptions: type[SubscriptionTable] = SubscriptionTable
    publications: type[Publications] = Publications
    spreading: type[Spreading] = Spreading
    forwarding: type[Forwarding] = Forwarding


class TreeBroker:
    """A broker of the δ-fault-tolerant tree. See the module docstring."""

    def __init__(
        self,
        name: BrokerName,
        epoch: int,
        settings: TreeSettings,
        edges: Iterable[Edge] = (),
        *,
        attributes_of: Callable[[EventBatch], Sequence[Attributes]],
        retired: Iterable[BrokerName] = (),
        parts: TreeParts | None = None,
    ) -> None:
        parts = parts or TreeParts()
        self.name = name
        self.epoch = epoch
        self._settings = settings
        self._joining: BrokerName | None = None
        self._subscription_number = 0
        self._neighbourhood = Neighbourhood(name, settings.reach, edges)
        self._neighbourhood.retire(retired)
        self._connections = Connections(epoch, settings)
        self._sessions = Sessions(self._neighbourhood, self._connections, settings)
        self._partitions = Partitions(self._neighbourhood, epoch)
        self._subscriptions = parts.subscriptions(
            self._neighbourhood, self._partitions, settings, attributes_of
        )
        self._publications = parts.publications(
            self._neighbourhood, self._subscriptions, epoch, settings
        )
        self._spreading = parts.spreading(
            self._neighbourhood,
            self._sessions,
            self._subscriptions,
            self._publications,
            epoch,
            settings,
        )
        self._forwarding = parts.forwarding(
            self._neighbourhood,
            self._sessions,
            self._subscriptions,
            self._publications,
            (name, epoch),
            settings,
        )

    # --- what drives it --------------------------------------------------------------------------

    def receive(self, sender: BrokerName, message: TreeMessage, now: Instant) -> list[Effect]:
        check_message(message, self._neighbourhood, (self.name, self.epoch))
        match message:
            case _ if self._neighbourhood.is_retired(sender):
                return []  # no broker hears it any more
            case TreeJoin() if not self._sessions.is_joining:
                return self._welcome(sender, now)
            case TreeWelcome():
                self._joining = None
                self._sessions.is_joining = False
                self._neighbourhood.retire(message.retired)
                self._neighbourhood.learn(message.edges)
            case Beat() if sender in self._neighbourhood:
                before = self._connections.changes
                beats = self._connections.receive_beat(sender, message, now)
                if self._connections.changes == before:
                    return [*beats]  # what follows with time alone follows at our next beat
                self._sessions.effects += beats
            case Carried() if sender in self._neighbourhood:
                carried, beats = self._connections.receive(sender, message)
                self._sessions.effects += beats
                for each in carried:
                    self._handle(sender, each)
            case _:
                # A newcomer of which we have not heard yet, or that comes before we have been let
                # in ourselves: it beats, or asks, again.
                return []
        return self._settle(now)

    def fire(self, now: Instant) -> list[Effect]:
        """Beat, and see which brokers have fallen silent."""
        if self._joining is not None and now >= self._connections.beat_at:
            self._sessions.effects.append(Send(self._joining, TreeJoin()))
        self._sessions.effects += self._connections.fire(now)
        return self._settle(now)

    def link_up(self, broker: BrokerName, now: Instant) -> list[Effect]:
        """There is a new link to it: do not wait for the next beat. A driver that cannot tell need
        not."""
        if broker in self._neighbourhood:
            self._sessions.effects += self._connections.greet(broker)
        return self._settle(now)

    def link_down(self, broker: BrokerName, now: Instant) -> list[Effect]:
        """The link to it broke, so that something may have got lost: do not wait for its silence.
        A driver that cannot tell need not."""
        if broker in self._neighbourhood:
            self._connections.give_up(broker)
        return self._settle(now)

    @property
    def deadline(self) -> Instant:
        return self._connections.deadline

    def join(self, at: BrokerName) -> None:
        """Become a leaf beside `at`; asked for at every beat until it says welcome."""
        self._joining = at
        self._sessions.is_joining = True

    def publish(
        self, topic: str, events: EventBatch, now: Instant, *, is_awaited: bool = False
    ) -> tuple[range, list[Effect]]:
        """Take publications for a topic, in this order: all of them, or none with an error. Their
        numbers, by which `Confirmed` says that they have reached all they should. If they are
        awaited, `Held` says when all within reach have one, should there be others."""
        if self._neighbourhood.is_retired(self.name):
            raise UsageError(
                f"{self.name} is retired, and no other broker hears it",
                "Connect to another broker; start this one anew under another name.",
            )
        if not self._sessions.is_ready:
            raise UsageError(
                f"{self.name} still learns what is subscribed",
                "Try again soon; if it lasts, look for neighbours that are down.",
            )
        waiting, limit = self._publications.own_count(topic), self._settings.queue_max
        if waiting + len(events) > limit:
            raise UsageError(
                f"{waiting} publications at {self.name} wait to be confirmed, and {limit} may",
                "Publish again when some are; if none are, look for brokers that are slow.",
            )
        numbers = self._forwarding.publish(topic, events, is_awaited=is_awaited)
        return numbers, self._settle(now)

    def subscribe(
        self, topic: str, condition: str, now: Instant
    ) -> tuple[SubscriptionId, list[Effect]]:
        """Begin a subscription to a topic; `Accepted` will say that it is in force."""
        if self._subscriptions.own_count >= self._settings.subscriptions_max:
            raise UsageError(
                f"{self.name} has {self._subscriptions.own_count} subscriptions, and takes no more",
                "Withdraw some, subscribe at another broker, or raise subscriptions_max.",
            )
        name = SubscriptionId(self.name, self.epoch, self._subscription_number + 1)
        since = self._publications.next_number
        self._subscriptions.ask(self._subscriptions.add(name, topic, condition, (), (), since))
        self._subscription_number += 1
        return name, self._settle(now)

    def withdraw(self, name: SubscriptionId, now: Instant) -> list[Effect]:
        """End a subscription of ours."""
        if self._subscriptions.get(name) is not None:
            self._spreading.on_withdrawn(None, name, self.epoch)
        return self._settle(now)

    def retire(self, name: BrokerName, now: Instant) -> list[Effect]:
        """A broker never returns: end its subscriptions everywhere, and hand its place on."""
        if name == self.name or self._connections.is_up(name):
            raise UsageError(f"{name} is up", "Stop it first, for good.")
        self._retire(None, (name,))
        return self._settle(now)

    def leave(self, now: Instant) -> list[Effect]:
        """We are about to stop in order: no broker is to think that we crashed."""
        if self._sessions.is_ready:
            self._forwarding.turn("ends")
        return self._settle(now)

    # --- what follows ----------------------------------------------------------------------------

    def _handle(self, sender: BrokerName, message: CarriedMessage) -> None:
        match message:  # what comes most, first
            case PublicationRun():
                self._forwarding.on_run(sender, message)
            case RunConfirmed() | RunHeld() | Credit() | Losses():
                self._forwarding.on_answer(sender, message)
            case SubscriptionOffer():
                self._spreading.on_subscription(sender, message)
            case SubscriptionConfirmed():
                clearing = self._spreading.on_confirmed(sender, message)
                if clearing is not None:
                    self._forwarding.announce(clearing)
            case SubscriptionRefused():
                self._spreading.on_refused(message)
            case SubscriptionWithdrawn():
                self._spreading.on_withdrawn(sender, message.id, message.life)
                self._forwarding.forget_before((message.id.source, message.life))
            case SyncStart():
                self._retire(sender, message.retired)
                self._learn(sender, message.edges)
                self._spreading.on_sync_start(sender, message)
            case SyncSummary():
                self._spreading.on_sync_summary(sender, message)
            case SyncEnd():
                self._sessions.told(sender)
            case Joined():
                self._learn(sender, message.edges)
            case BrokersRetired():
                self._retire(sender, message.names)

    def _settle(self, now: Instant) -> list[Effect]:
        change = self._sessions.refresh(now)
        if change is not None:
            begun, ended = change
            for broker in ended:
                self._publications.close(broker)
            for broker in begun:
                self._publications.open(broker, self._connections.session(broker))
            self._forwarding.introduce(begun)
            self._spreading.forget(ended)
            self._publications.look_again()
        if self._sessions.become_ready():
            self._forwarding.turn("begins")
        self._partitions.update(self._sessions.frontier, self._subscriptions.tags_in_use)
        for clearing in self._spreading.advance():
            self._forwarding.announce(clearing)
        self._forwarding.pump(now)
        self._spreading.release()
        return self._sessions.take_effects()

    def _welcome(self, newcomer: BrokerName, now: Instant) -> list[Effect]:
        self._learn(newcomer, ((self.name, newcomer),))
        edges = (*self._neighbourhood.edges, (self.name, newcomer))
        welcome = TreeWelcome(edges, self._neighbourhood.retired)
        return [Send(newcomer, welcome), *self._settle(now)]

    def _retire(self, sender: BrokerName | None, names: tuple[BrokerName, ...]) -> None:
        new = self._neighbourhood.retire(names)
        if not new:
            return
        for broker in self._sessions.connected:  # one of them too, if it lives: it must know
            if broker != sender:
                self._sessions.send(broker, BrokersRetired(new))
        for name in [each.id for each in self._subscriptions if each.id.source in new]:
            self._spreading.on_withdrawn(sender, name, 0)
        self._forwarding.forget_brokers(new)

    def _learn(self, sender: BrokerName, edges: tuple[Edge, ...]) -> None:
        new = self._neighbourhood.learn(edges)
        if new:
            for broker in self._sessions.live:
                if broker != sender:
                    self._sessions.send(broker, Joined(new))

    # --- what it shows ---------------------------------------------------------------------------

    @property
    def edges(self) -> tuple[Edge, ...]:
        """The tree as far as it is known here: what a driver keeps on disk."""
        return self._neighbourhood.edges

    @property
    def retired(self) -> tuple[BrokerName, ...]:
        """Brokers that never return: what a driver keeps on disk too."""
        return self._neighbourhood.retired

    @property
    def active(self) -> tuple[BrokerName, ...]:
        return self._sessions.frontier.active

    @property
    def partitions(self) -> tuple[PartitionId, ...]:
        return self._partitions.all

    @property
    def is_ready(self) -> bool:
        return self._sessions.is_ready

    def tags(self) -> dict[SubscriptionId, tuple[PartitionId, ...]]:
        """Every subscription known here, and what closes it."""
        return {each.id: tuple(sorted(each.tags)) for each in self._subscriptions}

    def unreached(self, name: SubscriptionId) -> tuple[BrokerName, ...]:
        """Brokers from which, or from behind which, a subscription of ours may miss something."""
        routed = self._subscriptions.get(name)
        tags = () if routed is None else routed.tags
        named = {broker for tag in tags for broker in tag.nodes}
        return tuple(sorted(named.difference(self._neighbourhood.retired)))

    def statistics(self) -> dict[str, int]:
        return {
            "neighbours": len(self._neighbourhood),
            "active_sessions": len(self._sessions.active),
            "live_sessions": len(self._sessions.live),
            "partitions": len(self._partitions.all),
            "subscriptions": len(self._subscriptions),
            "tagged_subscriptions": sum(bool(each.tags) for each in self._subscriptions),
            "asking_subscriptions": len(self._subscriptions.asking()),
            "queued_publications": len(self._publications),
            "held_confirmations": self._spreading.held_count,
            "late_repeats": self._forwarding.late_repeats,
        }

    def check(self) -> None:
        self._connections.check()
        self._sessions.check()
        self._partitions.check()
        self._subscriptions.check()
        self._publications.check()
        self._spreading.check()
