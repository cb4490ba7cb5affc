"""Forwarding: what a broker does with a publication, from a neighbour or a publisher of its own.

Theory of operation
    A copy that has come before is confirmed, or its sender joins those who will be when it is
    settled. Any other gets the tags of the partitions that close its source, as far as they are
    known here; is delivered to the subscribers of this broker whose subscriptions match and share
    no tag with it; and waits in the queue for the routes of all others that match.
    A recovery notifier takes the same way and order; at each broker it passes it replaces tags.

Invariants
    I1  what subscribers get of one source ascends

Source: SRDS 2011, sec. VI and VIII, figure 8. The source's own numbers are checked once more where
the subscriber is (PROTOCOLS D5): a crash may wipe out the one broker that two copies share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Tell
from gapless.tree.messages import (
    Confirmed,
    Delivered,
    Position,
    Publication,
    PublicationConfirmed,
)
from gapless.tree.partitions import closing
from gapless.tree.trail import Seen

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.core.identity import BrokerName
    from gapless.tree.messages import Clearing, PartitionId, PublicationId
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.partitions import Partitions
    from gapless.tree.publications import Entry, Publications
    from gapless.tree.recovery import Sessions
    from gapless.tree.settings import TreeSettings
    from gapless.tree.subscriptions import Route, Routed, Subscriptions


class Forwarding:
    """How publications get around."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        sessions: Sessions,
        subscriptions: Subscriptions,
        publications: Publications,
        partitions: Partitions,
        settings: TreeSettings,
    ) -> None:
        self._neighbourhood = neighbourhood
        self._sessions = sessions
        self._subscriptions = subscriptions
        self._publications = publications
        self._partitions = partitions
        self._settings = settings
        self._seen = Seen(settings)
        self._delivered: dict[BrokerName, Position] = {}  # by source, longest silent first
        self.late_repeats = 0
        """Repeats that only the source's own number told."""

    # --- messages --------------------------------------------------------------------------------

    def publish(self, attributes: Attributes, body: bytes) -> PublicationId:
        """A publication of our own begins its way."""
        name = self._publications.name_next()
        self._accept(Publication(name, (), (), attributes, body), None)
        return name

    def announce(self, clearing: Clearing) -> None:
        """A partition is over for a subscription: tell its source, in order with all before."""
        routed = self._subscriptions.get(clearing.subscription)
        if routed is not None and routed.towards is not None:
            name = self._publications.name_next()
            notifier = Publication(name, (), clearings=(clearing,))
            self._publications.append(notifier, [routed.route], None)

    def on_publication(self, sender: BrokerName, publication: Publication) -> None:
        entry = self._publications.get(publication.id)
        if entry is not None:
            entry.senders.add(sender)
        elif self._seen.is_repeat(publication.hops):
            self._sessions.send(sender, PublicationConfirmed(publication.id))
        else:
            self._accept(self._tagged(publication), sender)

    def on_confirmed(self, sender: BrokerName, message: PublicationConfirmed) -> None:
        entry = self._publications.settle(message.id, sender)
        if entry is not None:
            self._finish(entry)

    def pump(self) -> None:
        """Send what may go on every live session."""
        for broker in self._sessions.live:
            for _, copy in self._publications.due(broker, self._sessions.active):
                self._sessions.send(broker, copy)

    # --- steps -----------------------------------------------------------------------------------

    def _tagged(self, publication: Publication) -> Publication:
        tags = closing(self._known_partitions(), publication) - set(publication.tags)
        if not tags:
            return publication
        p = publication
        tagged = tuple(sorted({*p.tags, *tags}))
        return Publication(p.id, p.hops, tagged, p.attributes, p.body, p.clearings)

    def _known_partitions(self) -> set[PartitionId]:
        return {*self._subscriptions.tags_in_use, *self._partitions.all}

    def _accept(self, publication: Publication, sender: BrokerName | None) -> None:
        back = None if sender is None else self._neighbourhood.path(sender)[0]
        if publication.clearings:
            concerned = self._clear(publication)
        else:
            concerned = self._subscriptions.matching(publication.attributes)
            self._deliver(publication, [each for each in concerned if each.towards is None])
        routes: set[Route] = {
            each.route for each in concerned if each.towards is not None and each.towards != back
        }
        entry = self._publications.append(publication, routes, sender)
        if not entry.routes:
            self._finish(entry)

    def _clear(self, notifier: Publication) -> list[Routed]:
        found: list[Routed] = []
        for clearing in notifier.clearings:
            routed = self._subscriptions.get(clearing.subscription)
            if routed is not None:
                self._subscriptions.clear(routed, clearing)
                found.append(routed)
        return found

    def _deliver(self, publication: Publication, ours: list[Routed]) -> None:
        is_next = self._is_next(publication.id)
        takers = [each.id for each in ours if self._is_safe(each, publication)]
        if takers and is_next:
            p = publication
            delivered = Delivered(p.id, tuple(takers), p.attributes, p.body)
            self._sessions.effects.append(Tell(delivered))

    def _is_safe(self, routed: Routed, publication: Publication) -> bool:
        return routed.is_complete and routed.tags.isdisjoint(publication.tags)

    def _is_next(self, name: PublicationId) -> bool:
        position = Position(name.epoch, name.number)
        last = self._delivered.pop(name.source, None)
        if last is not None and position <= last:
            self._delivered[name.source] = last
            self.late_repeats += 1
            return False
        self._delivered[name.source] = position
        if len(self._delivered) > self._settings.sources_max:
            del self._delivered[next(iter(self._delivered))]
        return True

    def _finish(self, entry: Entry) -> None:
        name = entry.publication.id
        for sender in sorted(entry.senders):
            self._sessions.send(sender, PublicationConfirmed(name))
        if not entry.senders and not entry.publication.clearings:
            self._sessions.effects.append(Tell(Confirmed(name)))
