"""A stopwatch on matching: the node itself knows no clock."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gapless.node.delivery.subscribers import Subscribers

if TYPE_CHECKING:
    from gapless.core.events import EventBatch
    from gapless.node.delivery.audience import Audience, MatchedBatch


class TimedSubscribers(Subscribers):
    """The subscribers of a broker process."""

    matching_ns = 0

    def _match(self, audience: Audience, batch: EventBatch, *, apart: bool) -> MatchedBatch:
        begin = time.perf_counter_ns()
        found = super()._match(audience, batch, apart=apart)
        self.matching_ns += time.perf_counter_ns() - begin
        return found
