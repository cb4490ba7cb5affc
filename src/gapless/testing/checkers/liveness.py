"""Liveness: once all is healed, everything durable that matches reaches everyone who is there.

This checker is asked, not told: `waiting` lists what has not come yet. The run goes on until that
is empty, for a bounded time; whatever is still on the list then is a violation.
"""

from __future__ import annotations

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick


class EverythingArrives(Checker):
    """What live subscriptions still have to get."""

    promise = "everything arrives"

    def waiting(self) -> list[str]:
        found = [
            f"{each} waits for its start"
            for each in self.record.subscriptions.values()
            if not each.live and not each.over
        ]
        for subscription in self.record.live():
            for pubend, position in subscription.position.items():
                wanted = self.record.wanted(subscription, pubend, position, 1 << 63)
                if wanted:
                    found.append(
                        f"{subscription} waits for {pubend} {' '.join(map(show_tick, wanted))}"
                    )
        return found
