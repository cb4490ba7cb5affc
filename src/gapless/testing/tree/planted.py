"""Planted faults of the tree: brokers with one thing wrong, to see that the checkers find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.tree.broker import TreeParts
from gapless.tree.forwarding import Forwarding
from gapless.tree.frontier import Frontier
from gapless.tree.messages import Publication, SubscriptionConfirmed
from gapless.tree.publications import Publications, session_of
from gapless.tree.settings import TreeSettings
from gapless.tree.spreading import HeldConfirmation, Spreading
from gapless.tree.subscriptions import SubscriptionTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gapless.core.identity import BrokerName
    from gapless.tree.losses import LossTable
    from gapless.tree.messages import Clearing, Loss, PartitionId, PublicationId
    from gapless.tree.publications import QueueEntry, SendWindow
    from gapless.tree.subscriptions import RoutedSubscription


class ShortWindow(TreeSettings):
    """Compares fewer numbers than it takes to find every repeat."""

    @property
    def window(self) -> int:
        return max(1, self.failures_tolerated)


class NoLegitimacy(Publications):
    """Sends over however many brokers have been bypassed."""

    def _may_go(self, copy: Publication) -> bool:
        return True


class NoHolding(Publications):
    """Lets younger publications pass one that is held."""

    def due(
        self, session: BrokerName, active: frozenset[BrokerName]
    ) -> Iterator[tuple[QueueEntry, Publication]]:
        for entry in list(self):
            if session in entry.sent:
                continue
            if all(session_of(route, active) != session for route in entry.routes):
                continue
            copy = self._copy(entry, session)
            if self._may_go(copy):
                entry.sent.add(session)
                self._flights[session].count += 1
                yield entry, copy


class ConfirmedWindow(Publications):
    """Counts what is not confirmed, however far away, where it should count what is not taken."""

    def taken(self, session: BrokerName, count: int) -> None:
        pass

    def settle(self, name: PublicationId, sender: BrokerName) -> QueueEntry | None:
        entry = self.get(name)
        if entry is not None and sender in entry.sent:
            self._flights[sender].count -= 1
        return super().settle(name, sender)


class NoWindow(Publications):
    """Sends whatever a neighbour has not taken yet."""

    def _has_room(self, flight: SendWindow) -> bool:
        return True


class KeepsAll(Publications):
    """Keeps everything for those who are out of reach, however long."""

    def waive(self) -> list[Loss]:
        return []

    def held(self, away: frozenset[BrokerName], losses: LossTable) -> list[Loss]:
        return []


class Untold(Forwarding):
    """Has lost something, and says nothing."""

    def _miss(self, loss: Loss) -> None:
        pass


class SilentEnd(Forwarding):
    """Says nothing when a source has crashed and begun another life."""

    def _end_of(self, source: BrokerName, epoch: int) -> None:
        pass


class NotIntroduced(Forwarding):
    """Does not tell those whom it reaches anew what is lost."""

    def introduce(self, begun: Iterable[BrokerName]) -> None:
        super().introduce(())


class NoFlush(Spreading):
    """Confirms a subscription before what was queued earlier has gone."""

    def _is_flushed(self, held: HeldConfirmation) -> bool:
        return True


class NoLooking(Forwarding):
    """Begins a flow with a publication that somebody queued before he knew the subscription."""

    def _is_safe(self, routed: RoutedSubscription, publication: Publication) -> bool:
        p = publication
        return super()._is_safe(routed, Publication(p.id, p.hops, p.attributes, p.body))


class OpenEarly(SubscriptionTable):
    """Leaves open whatever lies behind a failed one, and does not wait for it to confirm."""

    def is_confirmed(self, routed: RoutedSubscription, frontier: Frontier) -> bool:
        near = [b for b in frontier.active if len(self._neighbourhood.path(b)) == 1]
        return super().is_confirmed(routed, Frontier(active=tuple(near)))

    def _own_tags(self, routed: RoutedSubscription) -> set[PartitionId]:
        return {tag._replace(open=tuple(self._behind(tag))) for tag in super()._own_tags(routed)}


class AlwaysClean(SubscriptionTable):
    """Takes any confirmation for a clean one."""

    def confirm(
        self, routed: RoutedSubscription, sender: BrokerName, message: SubscriptionConfirmed
    ) -> Clearing | None:
        return super().confirm(routed, sender, SubscriptionConfirmed(message.id, message.tags))


class NoTags(Forwarding):
    """Delivers whatever matches."""

    def _is_safe(self, routed: RoutedSubscription, publication: Publication) -> bool:
        return routed.is_complete


PLANTED_PARTS: dict[str, TreeParts] = {
    "no-legitimacy": TreeParts(publications=NoLegitimacy),
    "no-holding": TreeParts(publications=NoHolding),
    "confirmed-window": TreeParts(publications=ConfirmedWindow),
    "no-window": TreeParts(publications=NoWindow),
    "keeps-all": TreeParts(publications=KeepsAll),
    "untold": TreeParts(forwarding=Untold),
    "silent-end": TreeParts(forwarding=SilentEnd),
    "not-introduced": TreeParts(forwarding=NotIntroduced),
    "no-flush": TreeParts(spreading=NoFlush),
    "no-tags": TreeParts(forwarding=NoTags),
    "no-looking": TreeParts(forwarding=NoLooking),
    "open-early": TreeParts(subscriptions=OpenEarly),
    "always-clean": TreeParts(subscriptions=AlwaysClean),
}
"""By name; `ShortWindow` is a setting, not a part."""
