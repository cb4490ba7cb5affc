"""Planted faults of the tree: brokers with one thing wrong, to see that the checkers find it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.tree.broker import TreeParts
from gapless.tree.forwarding import Forwarding
from gapless.tree.frontier import Frontier
from gapless.tree.messages import SubscriptionConfirmed
from gapless.tree.publications import Publications, routed_over
from gapless.tree.settings import TreeSettings
from gapless.tree.spreading import HeldConfirmation, Spreading
from gapless.tree.subscriptions import SubscriptionTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.core.identity import BrokerName
    from gapless.tree.losses import LossTable
    from gapless.tree.members import Members
    from gapless.tree.messages import Clearing, Life, Loss, PartitionId, PublicationRun
    from gapless.tree.publications import QueueEntry, SendWindow
    from gapless.tree.subscriptions import RoutedSubscription


class ShortWindow(TreeSettings):
    """Compares fewer numbers than it takes to find every repeat."""

    @property
    def window(self) -> int:
        return max(1, self.failures_tolerated)


class NoLegitimacy(Publications):
    """Sends over however many brokers have been bypassed."""

    def _may_go(self, copy: PublicationRun) -> bool:
        return True


class NoHolding(Publications):
    """Lets younger publications pass one that is held."""

    def due(self, session: BrokerName, active: frozenset[BrokerName]) -> list[PublicationRun]:
        copies: list[PublicationRun] = []
        for entry in list(self):
            members = routed_over(entry, session, active) & ~entry.sent.get(session, 0)
            copy = self._copy(entry, session).part(members) if members else None
            if copy is not None and self._may_go(copy):
                entry.sent[session] = entry.sent.get(session, 0) | members
                self._windows[session].count += members.bit_count()
                copies.append(copy)
        return copies


class ConfirmedWindow(Publications):
    """Counts what is not confirmed, however far away, where it should count what is not taken."""

    def taken(self, session: BrokerName, count: int) -> None:
        pass

    def settle(
        self, life: Life, numbers: Sequence[int], sender: BrokerName
    ) -> list[tuple[QueueEntry, Members]]:
        for entry, members in self.find(life, numbers):
            sent = members & entry.pending & entry.sent.get(sender, 0)
            self._windows[sender].count -= sent.bit_count()
        return super().settle(life, numbers, sender)


class NeighboursOnly(Publications):
    """Sends to neighbours alone: what is for those behind a dead one waits until it returns."""

    def due(self, session: BrokerName, active: frozenset[BrokerName]) -> list[PublicationRun]:
        is_near = len(self._neighbourhood.path(session)) == 1
        return super().due(session, active) if is_near else []


class NoWindow(Publications):
    """Sends whatever a neighbour has not taken yet."""

    def _room(self, window: SendWindow) -> int:
        return 1_000_000


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

    def _is_safe(self, routed: RoutedSubscription, run: PublicationRun) -> bool:
        return super()._is_safe(routed, replace(run, not_for=()))


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

    def _is_safe(self, routed: RoutedSubscription, run: PublicationRun) -> bool:
        return routed.is_complete


PLANTED_PARTS: dict[str, TreeParts] = {
    "no-legitimacy": TreeParts(publications=NoLegitimacy),
    "no-holding": TreeParts(publications=NoHolding),
    "confirmed-window": TreeParts(publications=ConfirmedWindow),
    "neighbours-only": TreeParts(publications=NeighboursOnly),
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
