"""Faults in the catalogue of topics, which the simulator must find."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Done
from gapless.core.effects import Send
from gapless.node.directory.catalogue import Catalogue
from gapless.node.parts import Parts

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import ClientName
    from gapless.core.topic_messages import TopicEntry


class AnswersBeforeDurable(Catalogue):
    """Tells a client that a topic is there while it is still being written down."""

    def decide(
        self, entry: TopicEntry, client: ClientName, request: int, creator: str = ""
    ) -> list[Effect]:
        return [Send(client, Done(request)), *super().decide(entry, client, request, creator)]


class BelievesOldEntries(Catalogue):
    """Takes whatever comes last for the truth."""

    def is_newer(self, entry: TopicEntry) -> bool:
        return self.entries.get(entry.name) != entry


PLANTED_CATALOGUES: dict[str, Parts] = {
    "answers-before-durable": Parts(catalogue=AnswersBeforeDurable),
    "believes-old-entries": Parts(catalogue=BelievesOldEntries),
}
