"""No gap: what is settled for a subscription is complete, then and ever after."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.identity import PubendName
    from gapless.testing.record import Subscription


class NoGap(Checker):
    """Every matching durable event below a position was delivered, and none appears there later."""

    promise = "no gap"

    def advanced(
        self, subscription: Subscription, pubend: PubendName, before: int, through: int
    ) -> None:
        wanted = self.record.wanted(subscription, pubend, before, through)
        if not wanted:
            return
        # What was delivered ascends per pubend, so the newest ones are those of this span.
        given = {tick for other, tick in subscription.delivered[-self._recent :] if other == pubend}
        if missing := [tick for tick in wanted if tick not in given]:
            given = {tick for other, tick in subscription.delivered if other == pubend}
            missing = [tick for tick in missing if tick not in given]
        if missing:
            raise self.violated(
                f"{subscription} never got {pubend} {' '.join(map(show_tick, missing))}, "
                f"though it is told that all below {show_tick(through)} is settled"
            )

    _recent = 64

    def committed(self, pubend: PubendName, tick: int, encoded: bytes) -> None:
        for subscription in self.record.live():
            position = subscription.position.get(pubend)
            if position is not None and position > tick and position > subscription.start[pubend]:
                raise self.violated(
                    f"an event is logged at {pubend} {show_tick(tick)}, but {subscription} was "
                    f"told that all below {show_tick(position)} is settled"
                )
