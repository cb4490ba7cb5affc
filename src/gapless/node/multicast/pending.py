"""Subscriptions of clients to multicast topics that have not begun here yet.

Invariants (checked by `check`)
    I1  a subscription waits for one topic; a topic that is waited for has someone who waits
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.core.client_messages import Subscribe
    from gapless.core.identity import ClientName, TopicId
    from gapless.node.delivery.audience import Key


class PendingSubscriptions:
    """By topic, and by subscription."""

    def __init__(self) -> None:
        self._of_topic: dict[TopicId, dict[Key, Subscribe]] = {}
        self._place: dict[Key, TopicId] = {}

    def __len__(self) -> int:
        return len(self._place)

    def __contains__(self, topic: TopicId) -> bool:
        return topic in self._of_topic

    def add(self, topic: TopicId, key: Key, message: Subscribe) -> None:
        self._of_topic.setdefault(topic, {})[key] = message
        self._place[key] = topic

    def place(self, key: Key) -> TopicId | None:
        return self._place.get(key)

    def of_client(self, client: ClientName) -> list[int]:
        return [number for name, number in self._place if name == client]

    def take(self, topic: TopicId) -> dict[Key, Subscribe]:
        """All of a topic: they wait no longer."""
        found = self._of_topic.pop(topic, {})
        for key in found:
            del self._place[key]
        return found

    def drop(self, key: Key) -> None:
        topic = self._place.pop(key, None)
        if topic is not None:
            del self._of_topic[topic][key]
            if not self._of_topic[topic]:
                del self._of_topic[topic]

    def check(self) -> None:
        assert all(self._of_topic.values()), "I1"
        found = {key: topic for topic, each in self._of_topic.items() for key in each}
        assert found == self._place, "I1"
