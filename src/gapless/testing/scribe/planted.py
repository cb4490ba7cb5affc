"""Planted faults of the multicast service: members with one thing wrong, to try the checkers.

Each is a small change to one machine, of the kind that a slip of the pen makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.scribe.effects import Deliver, Effect
from gapless.scribe.group import TopicGroup
from gapless.scribe.membership import Membership
from gapless.scribe.ordered import Ordered
from gapless.scribe.parts import RingParts
from gapless.scribe.pastry import Pastry
from gapless.scribe.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.identity import Instant
    from gapless.scribe.identifiers import NodeId, Space, TopicId
    from gapless.scribe.messages import Routed, Seat, TreeEvent
    from gapless.scribe.pastry import Application
    from gapless.scribe.settings import RingSettings
    from gapless.scribe.topic import TreeTopic


class TakesHearsay(Membership):
    """Takes whoever is named into the leaf set, without asking whether it lives."""

    def consider(self, nodes: Iterable[NodeId], now: Instant) -> list[Effect]:
        for node in nodes:
            if node != self._seat.node:
                self.meet(node, 0, now)
        return []


class HearsayPastry(Pastry):
    """Has such a membership."""

    def __init__(
        self,
        seat: Seat,
        application: Application,
        settings: RingSettings,
        space: Space,
        proximity: Callable[[NodeId], int],
    ) -> None:
        super().__init__(seat, application, settings, space, proximity)
        self.members = TakesHearsay(seat, settings, space, proximity)
        self.contacts = self.members.contacts


class GivesUpOnTheWay(Pastry):
    """Keeps a message whose next hop does not answer."""

    def _hop_again(self, routed: Routed, now: Instant, attempt: int) -> list[Effect]:
        return self._arrive(routed.payload, routed.key, now)


class TrustsSilentParents(Tree):
    """Takes no notice of a parent that is silent."""

    def _keep_parent(
        self,
        topic: TreeTopic,
        wanted: dict[NodeId, list[tuple[TopicId, bool, int | None]]],
        now: Instant,
    ) -> list[Effect]:
        topic.parent_heard = now
        return super()._keep_parent(topic, wanted, now)


class StaysRoot(Tree):
    """Once root, always root."""

    def leaves_changed(self, now: Instant) -> list[Effect]:
        roots = [topic for topic in self.topics.values() if topic.is_root]
        effects = super().leaves_changed(now)
        for topic in roots:
            topic.become_root()
        return effects


class HandsOutAtOnce(Ordered):
    """Does not wait for what is missing."""

    def forward(self, topic: TreeTopic, event: TreeEvent) -> tuple[TreeEvent | None, list[Effect]]:
        onward, _ = super().forward(topic, event)
        if onward is None or not topic.subscribed:
            return onward, []
        return onward, [Deliver(topic.identifier, event.number, event.body)]


class NeverAsks(Ordered):
    """Hopes that what is missing will come by itself."""

    def ask(self, topic: TreeTopic, own: NodeId) -> list[Effect]:
        return []


class CommitsAlone(TopicGroup):
    """Takes what it holds itself for committed; the others hear of it when they are behind."""

    def publish(self, source: Seat, number: int, oldest: int, body: bytes) -> list[Effect]:
        super().publish(source, number, oldest, body)
        return []

    def _commit(self) -> None:
        if self.lineup.active:
            self.committed = self.end


class NeedsNobody(TopicGroup):
    """Leads without the promises of those who were there before."""

    def lead(self, seats: tuple[Seat, ...], now: Instant) -> list[Effect]:
        self.known = type(self.known)()
        effects = super().lead(seats, now)
        if self._campaign is not None and self._campaign.state is None:
            self._campaign.groups = {}
            effects += self._propose(self._campaign, now)
        return effects


class PublishesRepeats(TopicGroup):
    """Does not tell a repeated publication from a new one."""

    def has_published(self, source: Seat, number: int) -> bool:
        self._sources.pop(source, None)
        return False


PLANTED_SCRIBE: dict[str, RingParts] = {
    "takes-hearsay": RingParts(pastry=HearsayPastry),
    "gives-up-on-the-way": RingParts(pastry=GivesUpOnTheWay),
    "trusts-silent-parents": RingParts(tree=TrustsSilentParents),
    "stays-root": RingParts(tree=StaysRoot),
    "hands-out-at-once": RingParts(ordered=HandsOutAtOnce),
    "never-asks": RingParts(ordered=NeverAsks),
    "commits-alone": RingParts(group=CommitsAlone),
    "needs-nobody": RingParts(group=NeedsNobody),
    "publishes-repeats": RingParts(group=PublishesRepeats),
}
