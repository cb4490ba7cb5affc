"""Exactly once: no subscription is given the same event twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.identity import ClientName, PubendName
    from gapless.node.config import Config
    from gapless.testing.record import Record, Subscription


class ExactlyOnce(Checker):
    """Remembers every event that each subscription was given."""

    promise = "exactly once"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self._given: dict[tuple[ClientName, int], set[bytes]] = {}

    def delivered(
        self, subscription: Subscription, pubend: PubendName, tick: int, encoded: bytes
    ) -> None:
        given = self._given.setdefault((subscription.client, subscription.number), set())
        if encoded in given:
            raise self.violated(f"{subscription} got {pubend} {show_tick(tick)} twice")
        given.add(encoded)
