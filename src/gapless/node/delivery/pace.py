"""Pace: how often what has become settled is handed out, when that means many messages.

Theory of operation
    What a delivery costs is paid by message, here and at each client, more than by event. Where a
    hundred connections want a little of every commit, a commit of five events is a hundred messages
    of one. So messages are paid for: each takes `delivery_pace` of time (`delivery_pace_behind`
    while anyone catches up, who needs the time too), and who has not used his time of late has up
    to `delivery_saved` of it. While it is used up, what becomes settled gathers in its subend, no
    longer than `delivery_pause_max` and no more than fills a message, and leaves as fewer and
    longer messages.
    A broker that sends few messages never waits, however many events they carry. Receipts,
    and other brokers, never wait at all: only this broker's own subscribers.

Invariants
    I1  what is held has a deadline, and not later than `delivery_pause_max` after it was held

Cost: one comparison for each batch that has become settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant

if TYPE_CHECKING:
    from gapless.core.identity import PubendName
    from gapless.node.config import Config


class Pace:
    """One broker's. See the module docstring."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._paid = Instant(0)  # when all that was sent is paid for
        self._held: dict[PubendName, None] = {}  # have something to hand out
        self.deadline: Instant | None = None  # of those: it stays, whatever is sent meanwhile
        self._ripe: set[PubendName] = set()  # have waited, and may hand it out

    def holds(self, pubend: PubendName, count: int, size: int, now: Instant) -> bool:
        """Are so many events that have become settled to wait? Then they are `ripe` soon."""
        is_full = count >= self.config.batch_events_max or size >= self.config.batch_bytes_max
        if self._paid <= now or is_full or not count or pubend in self._ripe:
            self._ripe.discard(pubend)
            return False
        self._held[pubend] = None
        self.deadline = self.deadline or self._paid
        return True

    def spend(self, messages: int, now: Instant, *, behind: bool = False) -> None:
        """So many were sent; `behind`: while there is someone who catches up."""
        config = self.config
        each = config.delivery_pace_behind if behind else config.delivery_pace
        paid = max(self._paid, now - config.delivery_saved) + messages * each
        self._paid = Instant(min(paid, now + config.delivery_pause_max))

    def ripe(self, now: Instant) -> list[PubendName]:
        """Those that have waited long enough: all of them, for they were held together."""
        if self.deadline is None or now < self.deadline:
            return []
        held, self._held, self.deadline = list(self._held), {}, None
        self._ripe = set(held)
        return held
