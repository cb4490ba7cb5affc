"""Client: one connection, its subscriptions, and what it has not consumed yet."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.core.client_messages import Order
    from gapless.core.events import EventBatch
    from gapless.core.identity import PubendName, TopicName


@dataclass(slots=True)
class Client:
    """One connection: its subscriptions by number, and what it has not consumed yet."""

    owner: str = ""  # who it has proved to be; empty: nobody asks
    subscriptions: dict[int, tuple[TopicName, Order]] = field(default_factory=dict)
    sizes: deque[int] = field(default_factory=deque)  # of each event sent and not consumed
    outstanding_bytes: int = 0
    through: dict[tuple[TopicName, PubendName | None], int] = field(default_factory=dict)

    @property
    def outstanding(self) -> int:
        return len(self.sizes)

    def send(self, events: EventBatch) -> None:
        sizes = list(map(len, events))
        self.sizes += sizes
        self.outstanding_bytes += sum(sizes)

    def consume(self, count: int) -> None:
        for _ in range(min(count, len(self.sizes))):
            self.outstanding_bytes -= self.sizes.popleft()
