"""Creation: the owner of a topic's name sees to it that the topic exists at its root.

It asks until the root has answered, and anew after every restart: what is there already stays. A
group that holds an ordered topic begins only where most brokers are in sight, so that halves of a
split network do not both begin one. Its numbers start with the time, so that a topic whose holders
all failed goes on with greater ones, and a subscriber that comes back sees a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.node.multicast.ring import is_most
from gapless.scribe.messages import TopicRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.identity import BrokerName, TopicId
    from gapless.node.network import Network, Topic
    from gapless.scribe.effects import Effect
    from gapless.scribe.member import RingMember


class Creation:
    """Of the topics whose names one broker owns."""

    def __init__(self, here: BrokerName, network: Network, every: int) -> None:
        self._here = here
        self._network = network
        self._every = every
        self._due: dict[TopicId, Instant] = {}

    def add(self, topic: TopicId) -> None:
        self._due[topic] = Instant(1)

    def drop(self, topic: TopicId) -> None:
        """It exists, or is not wanted any more."""
        self._due.pop(topic, None)

    @property
    def deadline(self) -> Instant | None:
        return min(self._due.values(), default=None)

    def fire(
        self, member: RingMember, topics: Mapping[TopicId, Topic], now: Instant
    ) -> list[Effect]:
        effects: list[Effect] = []
        for topic in [each for each, due in self._due.items() if due <= now]:
            self._due[topic] = Instant(now + self._every)
            ordered = topics[topic].ordered
            if ordered and not is_most(member, self._network):
                continue
            record = TopicRecord(topic, self._here, ordered=ordered, first=max(now, 1))
            effects += member.create(record, now)
        return effects
