"""Spreading: what a broker does when a message about a subscription comes.

Theory of operation
    `subscriptions` says what is known and which brokers to ask; this module asks and answers. An
    answer is held until the queue has been flushed towards the broker that asked (`recovery`): a
    publication that a broker handled before it knew of the subscription thus comes to the source
    before the source puts the subscription in force, or before it lifts the tag.
    Where tags are scoped, a broker asked over others that failed answers too. The answer is not
    *clean* while he reaches one of those: what comes from behind him takes the way through that
    one, which was not asked. It goes at once, opens nothing, and is sent again once it is clean.
    A subscription is passed towards its source too, when it came from behind: the brokers there may
    have been bypassed, and must have it before they get a publication for it.
    Only the source knows that a subscription has ended. A broker that offers it one it does not
    have is told so, and the word spreads the way subscriptions do.

Invariants
    I1  a held confirmation is of a subscription that is complete

Source: SRDS 2011, sec. V and VIII.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from gapless.core.effects import Tell
from gapless.core.errors import FilterError, ProtocolError
from gapless.tree.messages import (
    Accepted,
    Clearing,
    NoRoom,
    SubscriptionConfirmed,
    SubscriptionId,
    SubscriptionOffer,
    SubscriptionRefused,
    SubscriptionWithdrawn,
    SyncEnd,
    SyncStart,
    SyncSummary,
)
from gapless.tree.publications import session_of
from gapless.tree.trail import is_legitimate

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName
    from gapless.tree.messages import Position, Tags
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.publications import Publications
    from gapless.tree.recovery import Sessions
    from gapless.tree.settings import TreeSettings
    from gapless.tree.subscriptions import RoutedSubscription, SubscriptionTable


@dataclass(frozen=True, slots=True)
class HeldConfirmation:
    """A confirmation that waits for the queue."""

    to: BrokerName
    connection: Position
    subscription: SubscriptionId
    answer: Tags
    before: int  # entries of the queue with lower numbers go first


class Spreading:
    """How subscriptions get around."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        sessions: Sessions,
        subscriptions: SubscriptionTable,
        publications: Publications,
        epoch: int,
        settings: TreeSettings,
    ) -> None:
        self._neighbourhood = neighbourhood
        self._here = neighbourhood.broker
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._publications = publications
        self._epoch = epoch
        self._settings = settings
        self._held: list[HeldConfirmation] = []
        # Sent, and sent again when it may be clean; by connection.
        self._unclean: dict[tuple[BrokerName, Position], list[HeldConfirmation]] = {}
        self._learning: dict[
            BrokerName, Position
        ] = {}  # brokers that wait for all we have, on which session

    # --- messages --------------------------------------------------------------------------------

    def on_subscription(self, sender: BrokerName, message: SubscriptionOffer) -> None:
        routed = self._subscriptions.get(message.id)
        if self._neighbourhood.is_retired(message.id.source):
            self._sessions.send(sender, SubscriptionWithdrawn(message.id))
            return
        if message.id.source == self._here:
            if routed is None:
                self._sessions.send(sender, SubscriptionWithdrawn(message.id, self._epoch))
            return
        if routed is not None and routed.towards != message.hops[0].broker:
            raise ProtocolError(f"{message.id} came with two ways to its source")
        if routed is None:
            if not self._subscriptions.has_room:
                self._sessions.send(sender, SubscriptionRefused(message.id, self._here))
                return
            since = self._publications.next_number
            try:
                routed = self._subscriptions.add(
                    message.id,
                    message.topic,
                    message.condition,
                    message.hops,
                    message.tags,
                    since,
                )
            except FilterError as error:
                raise ProtocolError(f"{message.id} has no condition: {error.problem}") from error
            upward = session_of(routed.route, self._sessions.active)
            if upward not in (None, sender):
                self._offer(routed, upward)
            if self._neighbourhood.path(sender)[0] == routed.towards:
                self._subscriptions.ask(routed)
        if sender == message.hops[0].broker or (
            self._settings.tags == "scoped" and sender in routed.route
        ):
            self._asked(routed, sender, message)

    def _asked(
        self, routed: RoutedSubscription, sender: BrokerName, message: SubscriptionOffer
    ) -> None:
        if routed.refused_by is not None:
            self._sessions.send(sender, SubscriptionRefused(routed.id, routed.refused_by))
            return
        routed.hops = message.hops
        # Tags that a former life of ours gave out; this one must see to them.
        former = {t for t in message.tags if t.detector == self._here and t.epoch < self._epoch}
        self._subscriptions.retag(routed, routed.tags | former)
        routed.askers.add(sender)
        if routed.is_asking:
            return
        if routed.is_complete and not routed.tags:
            self._hold(routed)
        else:
            self._subscriptions.ask(routed)

    def on_confirmed(self, sender: BrokerName, message: SubscriptionConfirmed) -> Clearing | None:
        """What is over by this confirmation, for the source."""
        routed = self._subscriptions.get(message.id)
        if routed is None:
            # We asked on this very connection, so we had it: it has ended since.
            self._sessions.send(sender, SubscriptionWithdrawn(message.id))
            return None
        return self._subscriptions.confirm(routed, sender, message)

    def on_refused(self, message: SubscriptionRefused) -> None:
        """A broker has no room: pass the word to the source, which ends it."""
        routed = self._subscriptions.get(message.id)
        if routed is None:
            return
        if routed.towards is None:
            self._sessions.effects.append(Tell(NoRoom(routed.id, message.by)))
            self.on_withdrawn(None, routed.id, self._epoch)
            return
        routed.refused_by = message.by  # a broker that asks again is told again
        upward = session_of(routed.route, self._sessions.active)
        if upward is not None:
            self._sessions.send(upward, message)

    def on_withdrawn(self, sender: BrokerName | None, name: SubscriptionId, life: int) -> None:
        if name.source == self._here and sender is not None:
            return  # only we know
        if self._subscriptions.remove(name):
            for key, some in self._unclean.items():
                self._unclean[key] = [held for held in some if held.subscription != name]
            # To all that can hear it: a broker that is asked now what it has may still have it.
            for broker in self._sessions.connected:
                if broker != sender:
                    self._sessions.send(broker, SubscriptionWithdrawn(name, life))

    def on_sync_start(self, sender: BrokerName, start: SyncStart) -> None:
        names = tuple(routed.id for routed in self._subscriptions)
        self._sessions.send(sender, SyncSummary(names))
        connection = self._sessions.connection(sender)
        if start.is_new and connection is not None:
            self._learning[sender] = connection

    def _concerns(self, routed: RoutedSubscription, broker: BrokerName) -> bool:
        return self._subscriptions.is_away(routed, broker) or broker in routed.route

    def on_sync_summary(self, sender: BrokerName, summary: SyncSummary) -> None:
        if not self._sessions.go_live(sender):
            return
        known = set(summary.ids)
        self._subscriptions.expect(sender, known)
        for routed in self._subscriptions:
            is_away = self._subscriptions.is_away(routed, sender)
            if is_away and routed.tags and not routed.is_asking:
                self._subscriptions.ask(routed)
            if routed.is_asking and is_away:
                routed.asked.discard(sender)
            elif routed.id not in known and self._concerns(routed, sender):
                self._offer(routed, sender)

    # --- asking and answering --------------------------------------------------------------------

    def advance(self) -> list[Clearing]:
        """Ask the brokers that must be asked; complete what is confirmed; says what is over by
        that."""
        over: list[Clearing] = []
        frontier = self._sessions.frontier
        for routed in self._subscriptions.asking():
            for broker in self._subscriptions.reachable(routed, frontier):
                if broker not in routed.asked and self._sessions.is_live(broker):
                    routed.asked.add(broker)
                    self._offer(routed, broker)
            if self._sessions.is_joining:
                continue  # there is no broker to ask yet, but there will be
            if self._subscriptions.is_confirmed(routed, frontier):
                clearing = self._complete(routed)
                over += [] if clearing is None else [clearing]
        self._teach()
        return over

    def _teach(self) -> None:
        """Send all we have to brokers that are new, whether or not our session with it is
        active."""
        for broker, connection in list(self._learning.items()):
            if self._sessions.connection(broker) != connection:
                del self._learning[broker]
            elif self._sessions.knows_all(but=broker):
                del self._learning[broker]
                for routed in self._subscriptions:
                    self._sessions.send(broker, self._subscriptions.message(routed, broker))
                self._sessions.send(broker, SyncEnd())

    def _complete(self, routed: RoutedSubscription) -> Clearing | None:
        is_new = not routed.is_complete
        clearing = self._subscriptions.complete(routed)
        if routed.towards is not None:
            self._hold(routed)
        elif is_new:
            tags = tuple(sorted(routed.tags))
            self._sessions.effects.append(Tell(Accepted(routed.id, tags)))
        return None if is_new else clearing

    def forget(self, ended: list[BrokerName]) -> None:
        """Sessions began, and these are over: a broker reached there again is asked again, and
        may have another answer by then."""
        self._held += [held for some in self._unclean.values() for held in some]
        self._unclean.clear()
        for routed in self._subscriptions.asking():
            routed.asked.difference_update(ended)
            routed.unclean.difference_update(ended)
            for broker in ended:
                routed.confirmed.pop(broker, None)

    def _offer(self, routed: RoutedSubscription, to: BrokerName | None) -> None:
        if to is None or not self._sessions.is_live(to):
            return  # it will come with the synchronisation
        message = self._subscriptions.message(routed, to)
        is_away = self._subscriptions.is_away(routed, to)
        if not is_away or is_legitimate(message.hops, self._settings):
            self._sessions.send(to, message)

    def _hold(self, routed: RoutedSubscription) -> None:
        for asker in sorted(routed.askers):
            connection = self._sessions.connection(asker)
            if connection is not None:
                before = self._publications.next_number
                self._held.append(
                    HeldConfirmation(asker, connection, routed.id, routed.answer, before)
                )
        routed.askers.clear()

    def release(self) -> None:
        """Send the confirmations for which the queue has been flushed."""
        for to, connection in list(self._unclean):
            if self._sessions.connection(to) != connection:
                del self._unclean[to, connection]
        held, self._held = self._held, []
        for waiting in held:
            each = waiting
            routed = self._subscriptions.get(each.subscription)
            if routed is None or self._sessions.connection(each.to) != each.connection:
                continue  # a broker that still needs it will ask again
            if routed.answer != each.answer:
                # What is true only since now goes after all that came before now.
                before = self._publications.next_number
                each = HeldConfirmation(each.to, each.connection, routed.id, routed.answer, before)
            is_clean = session_of(routed.route, self._sessions.active) == each.to
            if is_clean and not self._is_flushed(each):
                self._held.append(each)
                continue
            message = SubscriptionConfirmed(routed.id, each.answer, is_clean)
            self._sessions.send(each.to, message)
            if not is_clean:
                self._unclean.setdefault((each.to, each.connection), []).append(each)

    def _is_flushed(self, held: HeldConfirmation) -> bool:
        return self._publications.has_flushed(held.to, held.before, self._sessions.frontier)

    @property
    def held_count(self) -> int:
        return len(self._held) + sum(map(len, self._unclean.values()))

    def check(self) -> None:
        for held in chain(self._held, *self._unclean.values()):
            routed = self._subscriptions.get(held.subscription)
            assert routed is None or routed.is_complete, "I1"
