"""No unjust gap: nobody who is connected loses anything, and only who is slow is sent away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_span

if TYPE_CHECKING:
    from gapless.core.client_messages import Ended, Lost, Refused
    from gapless.core.identity import PubendName
    from gapless.testing.record import Subscription


class NoUnjustGap(Checker):
    """A loss, an end or a refusal needs a reason."""

    promise = "no unjust gap"

    def lost(self, subscriptions: list[Subscription], told: Lost) -> None:
        names = ", ".join(str(each) for each in subscriptions if each.named is None)
        if names and self.record.hosts[told.pubend] not in self.record.lost_disks:
            raise self.violated(
                f"{names} lost {told.pubend} {show_span(told.span)} while connected"
            )

    def ended(self, subscription: Subscription, told: Ended) -> None:
        if not told.problem:
            return
        if named := subscription.named:
            # One that goes to and fro between brokers may be sent away by a copy that it left
            # behind, which does not know yet: it has to come again, and loses nothing.
            has_moved = len({each.broker for each in self.record.sessions(named)}) > 1
            # And so may a copy of a disk, on which it still is where it once was.
            has_moved |= bool(self.record.lost_disks)
            has_moved |= subscription.broker in self.record.drained and told.elsewhere
            if not (named.ends or has_moved or self.record.has_other(subscription)):
                raise self.violated(f"{subscription} was ended ({told.problem}) by nobody's wish")
            return
        queued = self.record.queued.get(subscription.client, 0)
        own = [each for each in self.record.live() if each.client == subscription.client]
        coming = sum(
            len(self.record.logs[pubend].between(position, 1 << 63))
            for each in (*own, subscription)
            for pubend, position in self._positions(each).items()
        )
        if queued + coming <= self.config.client_queue_max:
            raise self.violated(
                f"{subscription} was ended ({told.problem}) with {queued} events in its queue and "
                f"{coming} to come, of {self.config.client_queue_max} allowed"
            )

    def _positions(self, subscription: Subscription) -> dict[PubendName, int]:
        """Where it stands; from the beginning on if it has not yet heard where it starts."""
        pubends = self.record.network.topic[subscription.topic].pubends
        return subscription.position or {each.name: 0 for each in pubends}

    def refused(self, told: Refused) -> None:
        if not told.retry and not told.elsewhere:
            raise self.violated(f"request {told.request} was refused for good: {told.problem}")
