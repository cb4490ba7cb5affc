"""What founders asked about topics, and what they were told: facts for the checkers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.core.identity import ClientName, TopicName
    from gapless.core.topic_messages import CreateTopic, DeleteTopic, TopicEntry, TopicsQuery


@dataclass(slots=True)
class Founded:
    """All requests about topics of one run."""

    asked: dict[tuple[ClientName, int], CreateTopic | DeleteTopic | TopicsQuery] = field(
        default_factory=dict
    )
    newest: dict[TopicName, TopicEntry] = field(default_factory=dict)
    """By name: the entry of the highest incarnation that a client was told of."""

    def ask(self, client: ClientName, message: CreateTopic | DeleteTopic | TopicsQuery) -> None:
        self.asked[client, message.request] = message

    def told(self, entry: TopicEntry) -> None:
        before = self.newest.get(entry.name)
        if before is None or before.incarnation < entry.incarnation:
            self.newest[entry.name] = entry
