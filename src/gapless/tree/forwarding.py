"""Forwarding: what a broker does with a publication, from a neighbour or a publisher of its own.

Theory of operation
    A copy that has come before is confirmed, or its sender joins those who will be when it is
    settled. Any other is delivered to the subscribers of this broker whose subscriptions match and
    have no tag that closes the way it came; and waits in the queue for the routes of all others
    that match.
    A recovery notifier takes the same way and order; at each broker it passes it replaces tags.
    Whoever sends is told how many were *taken*, once a step, so that it sends the next.
    What is not kept any more (`losses`) is told to all before anything else is sent to them; at the
    broker that has lost something its driver is told which numbers.

Invariants
    I1  what subscribers get of one source ascends

Source: SRDS 2011, sec. VI and VIII, figure 8. Deviation: a publication carries its way instead of
tags, and what is safe is decided in one place, the subscriber's broker, whose tags change in order
with the publications. Where the trail tells repeats, the source's own numbers are checked once more
there (docs/protocols/reliable-tree.md, 3.3): a crash may wipe out the one broker that two copies
share.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gapless.core.effects import Tell
from gapless.tree.losses import LossTable
from gapless.tree.messages import (
    Confirmed,
    Credit,
    Held,
    Losses,
    Missed,
    Position,
    Publication,
    PublicationConfirmed,
    PublicationHeld,
    SourceEnded,
    TreeDelivery,
)
from gapless.tree.partitions import is_closed
from gapless.tree.trail import NearbyNumbers, Sources

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from gapless.core.events import Attributes
    from gapless.core.identity import BrokerName, Instant
    from gapless.tree.messages import Clearing, Life, Loss, PublicationId, SubscriptionId
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.publications import Publications, QueueEntry, Routes
    from gapless.tree.recovery import Sessions
    from gapless.tree.settings import TreeSettings
    from gapless.tree.subscriptions import RoutedSubscription, SubscriptionTable


class Forwarding:
    """How publications get around."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        sessions: Sessions,
        subscriptions: SubscriptionTable,
        publications: Publications,
        life: Life,
        settings: TreeSettings,
    ) -> None:
        self._neighbourhood = neighbourhood
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._publications = publications
        self._settings = settings
        self._life = life
        self._seen = NearbyNumbers(settings)
        self._sources = Sources(settings)
        self._losses = LossTable(life)
        self._taken: Counter[BrokerName] = Counter()  # in this step, by sender
        self._away: frozenset[BrokerName] = frozenset()
        self._must_look = False  # we may keep for those away what we need not
        self.late_repeats = 0
        """Repeats that only the source's own number told."""

    # --- messages --------------------------------------------------------------------------------

    def publish(self, attributes: Attributes, body: bytes, *, is_awaited: bool) -> PublicationId:
        """A publication of our own begins its way."""
        name = self._publications.name_next()
        self._accept(Publication(name, (), attributes, body, is_awaited=is_awaited), None)
        return name

    def announce(self, clearing: Clearing) -> None:
        """A partition is over for a subscription: tell its source, in order with all before."""
        routed = self._subscriptions.get(clearing.subscription)
        if routed is not None and routed.towards is not None:
            name = self._publications.name_next()
            notifier = Publication(name, (), clearings=(clearing,))
            self._publications.append(notifier, {routed.route: {life_of(routed)}}, None)

    def turn(self, life: Literal["begins", "ends"]) -> None:
        """Our life begins, or ends in order: all who have subscribers are told, behind all that we
        published before. Who hears of another life of ours without a word that the former one had
        ended knows that something of it may be lost."""
        if any(routed.towards is not None for routed in self._subscriptions):
            self._accept(Publication(self._publications.name_next(), (), life=life), None)

    def on_publication(self, sender: BrokerName, publication: Publication) -> None:
        self._taken[sender] += 1
        entry = self._publications.get(publication.id)
        if entry is not None:
            entry.senders.add(sender)
            entry.told = ()
        elif self._is_repeat(publication):
            self._sessions.send(sender, PublicationConfirmed(publication.id))
        else:
            self._accept(publication, sender)

    def on_answer(
        self, sender: BrokerName, message: PublicationConfirmed | PublicationHeld | Credit | Losses
    ) -> None:
        """What became of publications that a neighbour was sent, or will not be."""
        match message:
            case PublicationConfirmed():
                entry = self._publications.settle(message.id, sender)
                if entry is not None:
                    self._finish(entry)
            case PublicationHeld():
                self._publications.hold(message.id, sender, message.away)
            case Credit():
                self._publications.taken(sender, message.count)
            case Losses():
                self.on_losses(sender, message.losses)

    def on_losses(self, sender: BrokerName | None, losses: Iterable[Loss]) -> None:
        """Pass on what is new, and wait no longer for who has lost it."""
        fresh = self._losses.learn(losses)
        if not fresh:
            return
        for broker in self._sessions.connected:
            if broker != sender:
                self._sessions.send(broker, Losses(fresh))
        self._must_look = self._must_look or any(loss.target is None for loss in fresh)
        if any(loss.target is not None for loss in fresh):
            for entry in self._publications.give_up(self._losses):
                self._finish(entry)
        for loss in fresh:
            if loss.target == self._life:
                self._miss(loss)

    def introduce(self, begun: Iterable[BrokerName]) -> None:
        """Sessions began: what is lost goes before what follows on it."""
        known = self._losses.all()
        for broker in begun if known else ():
            self._sessions.send(broker, Losses(known))

    def forget_before(self, life: Life) -> None:
        """A broker has begun another life: what it lost before concerns nobody."""
        self._losses.forget_before(life)

    def pump(self, now: Instant) -> None:
        """Send what may go on every live session; give up what must not wait any longer."""
        for sender, count in self._taken.items():
            self._sessions.send(sender, Credit(count))
        self._taken.clear()
        self.on_losses(None, self._publications.waive())
        away = self._sessions.away(now)
        if away != self._away or self._must_look or self._publications.is_held_unknown():
            self._away, self._must_look = away, False
            self.on_losses(None, self._publications.held(away, self._losses))
        self._tell_reached()
        for broker in self._sessions.live:
            for _, copy in self._publications.due(broker, self._sessions.active):
                self._sessions.send(broker, copy)

    def _tell_reached(self) -> None:
        for entry, away in self._publications.reached(self._sessions.frontier):
            for sender in sorted(entry.senders):
                self._sessions.send(sender, PublicationHeld(entry.publication.id, away))
            if not entry.senders:
                self._sessions.effects.append(Tell(Held(entry.publication.id, away)))

    # --- steps -----------------------------------------------------------------------------------

    def _is_repeat(self, publication: Publication) -> bool:
        if self._settings.repeats == "source":
            former = self._sources.former_life(publication.id)
            if former is not None:
                self._end_of(publication.id.source, former)
            is_repeat = self._sources.is_repeat(publication.id)
            if publication.life == "ends":
                self._sources.end(publication.id.source, publication.id.epoch)
            return is_repeat
        return self._seen.is_repeat(publication.hops)

    def _accept(self, publication: Publication, sender: BrokerName | None) -> None:
        back = None if sender is None else self._neighbourhood.path(sender)[0]
        if publication.clearings:
            concerned = self._clear(publication)
        elif publication.life:
            concerned = list(self._subscriptions)
        else:
            concerned = self._subscriptions.matching(publication.attributes)
        ours: list[RoutedSubscription] = []
        routes: Routes = {}
        for each in concerned:
            if each.towards is None:
                ours.append(each)
            elif each.towards != back:
                routes.setdefault(each.route, set()).add(life_of(each))
        if not publication.clearings:
            if self._losses.has_losses:
                routes = self._publications.without_lost(publication, routes, self._losses)
            self._must_look = self._must_look or self._losses.is_waived(publication)
            is_ours = ours and not publication.life
            if is_ours and not self._losses.is_lost(publication, self._life):
                self._deliver(publication, ours)
        entry = self._publications.append(publication, routes, sender)
        if not entry.routes:
            self._finish(entry)

    def _clear(self, notifier: Publication) -> list[RoutedSubscription]:
        found: list[RoutedSubscription] = []
        for clearing in notifier.clearings:
            routed = self._subscriptions.get(clearing.subscription)
            if routed is not None:
                self._subscriptions.clear(routed, clearing)
                found.append(routed)
        return found

    def _deliver(self, publication: Publication, ours: list[RoutedSubscription]) -> None:
        if self._is_late(publication.id):
            return
        takers = sorted(each.id for each in ours if self._is_safe(each, publication))
        if takers:
            p = publication
            delivered = TreeDelivery(p.id, tuple(takers), p.attributes, p.body)
            self._sessions.effects.append(Tell(delivered))

    def _is_safe(self, routed: RoutedSubscription, publication: Publication) -> bool:
        if not routed.is_complete or routed.id in publication.not_for:
            return False
        if not routed.tags:
            return True
        source, epoch = publication.id.source, publication.id.epoch
        if not any(is_closed(tag, publication) for tag in routed.tags):
            routed.begun[source] = epoch
        return routed.begun.get(source) == epoch  # what has begun goes on

    def _miss(self, loss: Loss) -> None:
        """Something was given up that was for us; all that came before is not lost."""
        source, epoch, topic, through, _ = loss
        last = self._sources.last(source)
        if last >= Position(epoch, through):
            return  # it has come, or it is of a life that is over for us
        takers = self._begun(source, epoch)
        if takers:
            after = last.number if last.epoch == epoch else 0
            missed = Missed(source, epoch, topic, after, through, takers)
            self._sessions.effects.append(Tell(missed))

    def _end_of(self, source: BrokerName, epoch: int) -> None:
        takers = self._begun(source, epoch)
        if takers:
            self._sessions.effects.append(Tell(SourceEnded(source, epoch, takers)))

    def _begun(self, source: BrokerName, epoch: int) -> tuple[SubscriptionId, ...]:
        """Our subscriptions that are in force for this life of a source."""
        own = [each for each in self._subscriptions.own() if each.is_complete]
        begun = [each for each in own if not each.tags or each.begun.get(source) == epoch]
        return tuple(sorted(each.id for each in begun))

    def _is_late(self, name: PublicationId) -> bool:
        """A repeat that the trail has missed."""
        is_late = self._settings.repeats == "trail" and self._sources.is_repeat(name)
        self.late_repeats += is_late
        return is_late

    def _finish(self, entry: QueueEntry) -> None:
        name = entry.publication.id
        for sender in sorted(entry.senders):
            self._sessions.send(sender, PublicationConfirmed(name))
        if not entry.senders and not entry.publication.clearings and not entry.publication.life:
            lost_to = tuple(sorted({broker for broker, _ in entry.lost_to}))
            self._sessions.effects.append(Tell(Confirmed(name, lost_to)))


def life_of(routed: RoutedSubscription) -> Life:
    return (routed.id.source, routed.id.epoch)
