"""Order: deliveries ascend, from the start point on, and none comes below a settled position."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.identity import PubendName
    from gapless.testing.record import Subscription


class InOrder(Checker):
    """Per pubend, or over all pubends of the topic where a total order was asked for."""

    promise = "in order"

    def delivered(
        self, subscription: Subscription, pubend: PubendName, tick: int, encoded: bytes
    ) -> None:
        if tick < subscription.start[pubend]:
            raise self.violated(f"{subscription} got {pubend} {show_tick(tick)} before its start")
        if tick < subscription.position[pubend]:
            raise self.violated(
                f"{subscription} got {pubend} {show_tick(tick)}, though all below "
                f"{show_tick(subscription.position[pubend])} was settled"
            )
        for other, before in reversed(subscription.delivered):
            if subscription.order == "total" or other == pubend:
                if before >= tick:
                    raise self.violated(
                        f"{subscription} got {pubend} {show_tick(tick)} after "
                        f"{other} {show_tick(before)}"
                    )
                break
