"""The three upcalls: where a topic may be given more than best effort.

`forward` before an event goes on to the children, and to the subscribers here; `join` when there is
a new child; `fault` when the parent seems to have failed, with the message that will repair it.

Source: the Scribe paper, section 4.2 (there: forwardHandler, joinHandler, faultHandler).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gapless.scribe.effects import Deliver, Effect

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId
    from gapless.scribe.messages import Graft, TreeEvent
    from gapless.scribe.topic import TreeTopic


class Upcalls(Protocol):
    """What an extension may do at each node of a tree."""

    def forward(self, topic: TreeTopic, event: TreeEvent) -> tuple[TreeEvent | None, list[Effect]]:
        """What goes on to the children (None: nothing), and what is done here."""

    def join(self, topic: TreeTopic, child: NodeId, position: int | None) -> list[Effect]:
        """There is a new child, which has everything below `position`."""

    def fault(self, topic: TreeTopic, subscribe: Graft) -> Graft:
        """What to send instead, to find a new parent."""


class BestEffort:
    """What comes is handed out and goes on, once; what does not come is not missed."""

    def forward(self, topic: TreeTopic, event: TreeEvent) -> tuple[TreeEvent | None, list[Effect]]:
        if not topic.is_new(event.era, event.number):
            return None, []
        return event, self._deliver(topic, event)

    def _deliver(self, topic: TreeTopic, event: TreeEvent) -> list[Effect]:
        return [Deliver(topic.identifier, event.number, event.body)] if topic.subscribed else []

    def join(self, topic: TreeTopic, child: NodeId, position: int | None) -> list[Effect]:
        return []

    def fault(self, topic: TreeTopic, subscribe: Graft) -> Graft:
        return subscribe
