"""Bounded memory: no figure of a broker passes the limit that the configuration sets for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Deliveries
from gapless.core.identity import ClientName, Instant
from gapless.testing.checkers.checker import Checker

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.record import Record

LIMITS: dict[str, str] = {
    "cached_events": "cache_events_max",
    "waiting_events": "waiting_events_max",
    "pending_events": "publish_pending_max",
    "publishers": "publishers_max",
    "open_transactions": "transactions_max",
    "staged_bytes": "staged_bytes_max",
    "producers": "producers_max",
    "subscriptions": "subscriptions_max",
}
"""By name of a statistic, wherever it stands: the limit it keeps."""


class BoundedMemory(Checker):
    """Looks at the statistics of every broker now and then, and at every client's queue."""

    promise = "bounded memory"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self._before: dict[PeerName, tuple[Instant, int]] = {}

    def sampled(self, broker: Broker) -> None:
        for name, value in figures(broker.statistics()):
            limit = LIMITS.get(name)
            if limit is not None and value > self._allowed(limit):
                raise self.violated(
                    f"{broker.name} has {name} {value}, more than {limit} allows: "
                    f"{self._allowed(limit)}"
                )

    def _allowed(self, limit: str) -> int:
        allowed: int = getattr(self.config, limit)
        if limit == "publish_pending_max":  # one request alone may be larger
            return max(allowed, self.record.largest_request)
        return allowed

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        if isinstance(message, Deliveries):
            # A batch that finds the queue empty may be larger; it may come in several messages.
            queued = self.record.queued.get(ClientName(to), 0)
            instant, before = self._before.get(to, (Instant(0), 0))
            before = before if instant == broker.now else queued
            self._before[to] = (broker.now, before)
            limit = self.config.client_queue_max
            if before and message.ticks and queued + len(message.ticks) > limit:
                raise self.violated(
                    f"{broker.name} sends {to} {len(message.ticks)} events on top of {queued}, "
                    f"more than client_queue_max {limit}"
                )


def figures(statistics: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Every number in the statistics, by its own name, however deep it stands."""
    for name, value in statistics.items():
        if isinstance(value, dict):
            yield from figures(value)
        elif isinstance(value, int):
            yield name, value
