"""No unjust gap: nobody who is connected loses anything, and only who is slow is sent away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.sim.checkers.checker import Checker
from gapless.sim.trace import show_span

if TYPE_CHECKING:
    from gapless.core.client_messages import Ended, Lost, Refused
    from gapless.sim.record import Subscription


class NoUnjustGap(Checker):
    """A loss, an end or a refusal needs a reason."""

    promise = "no unjust gap"

    def lost(self, subscriptions: list[Subscription], told: Lost) -> None:
        names = ", ".join(map(str, subscriptions))
        raise self.violated(f"{names} lost {told.pubend} {show_span(told.span)} while connected")

    def ended(self, subscription: Subscription, told: Ended) -> None:
        if not told.problem:
            return
        queued = self.record.queued.get(subscription.client, 0)
        coming = sum(
            len(self.record.logs[pubend].between(position, 1 << 63))
            for each in self.record.live()
            if each.client == subscription.client
            for pubend, position in each.position.items()
        )
        if queued + coming <= self.config.client_queue_max:
            raise self.violated(
                f"{subscription} was ended ({told.problem}) with {queued} events in its queue and "
                f"{coming} to come, of {self.config.client_queue_max} allowed"
            )

    def refused(self, told: Refused) -> None:
        if not told.retry:
            raise self.violated(f"request {told.request} was refused for good: {told.problem}")
