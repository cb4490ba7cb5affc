"""Reporter: what one relay has acknowledged upstream, and when it does so next.

Theory of operation
    When the position that all cells below have delivered, or released, has changed, the relay
    reports it upstream, after gathering changes for `ack_delay`. Reports are numbered, so the
    newest counts whatever way each took; the reports of one life of the broker, its epoch, count
    after those of the life before. While the epoch is not durable, nothing is reported under it.

Source: DSN 2002, sec. 2.4; DSN 2003, sec. 3; docs/protocols/exactly-once.md, 4.3;
docs/protocols/durable-subscriptions.md, 3.4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Ack, ReleaseHold
from gapless.core.identity import Instant

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, CellName, PubendName


class Reporter:
    """The reports of one relay. See the module docstring."""

    def __init__(
        self, pubend: PubendName, name: BrokerName, cell: CellName, epoch: int, delay: int
    ) -> None:
        self.pubend = pubend
        self.name = name
        self.cell = cell
        self.epoch = epoch
        self.delay = delay
        self.is_mute = False
        self._sequence = 0
        self._told = (-1, 0)  # delivered and released, as last reported
        self._due: Instant | None = None

    @property
    def deadline(self) -> Instant | None:
        return None if self.is_mute else self._due

    def notice(self, delivered: int, released: int, now: Instant) -> None:
        """Schedule a report if the positions of the cells below have changed; -1: not heard yet."""
        if delivered >= 0 and self._due is None and (delivered, released) != self._told:
            self._due = Instant(now + self.delay)

    def is_due(self, now: Instant) -> bool:
        return self._due is not None and now >= self._due

    def report(self, delivered: int, released: int) -> Ack | None:
        if self.is_mute:
            return None
        self._due = None
        self._sequence += 1
        self._told = delivered, released
        named = self.name, self.epoch, self._sequence
        return Ack(self.pubend, self.cell, delivered, released, *named)

    def hold(self, hold: ReleaseHold, released: int) -> ReleaseHold:
        """The hold to pass up; it counts as a report of this relay."""
        self._sequence += 1
        named = self.name, self.epoch, self._sequence
        return ReleaseHold(self.pubend, hold.cell, released, hold.number, *named)
