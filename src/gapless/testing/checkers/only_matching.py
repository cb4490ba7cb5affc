"""Only matching: every delivery is a published, durable event that matches, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.identity import PubendName
    from gapless.testing.record import Subscription


class OnlyMatching(Checker):
    """Compares with the log and evaluates the condition by brute force."""

    promise = "only matching"

    def delivered(
        self, subscription: Subscription, pubend: PubendName, tick: int, encoded: bytes
    ) -> None:
        logged = self.record.logs[pubend].events.get(tick)
        where = f"{subscription} got {pubend} {show_tick(tick)}"
        if logged is None:
            raise self.violated(f"{where}, where the log has nothing durable")
        if logged != encoded:
            raise self.violated(f"{where}, and it is not what was published")
        if not self.record.matches(subscription, pubend, tick):
            attributes = self.record.publications[encoded].attributes
            raise self.violated(f"{where}, which does not match: {attributes}")
