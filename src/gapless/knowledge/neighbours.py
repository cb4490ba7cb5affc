"""What a knowledge machine wants sent, the neighbours it has within its own broker, and edges.

Four names stand for neighbours inside the same broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Routed
from gapless.core.identity import CellName
from gapless.core.outgoing import ToBroker, ToCell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import PubendName

SOURCE = CellName("@pubend")
"""Upstream at the broker that hosts the pubend."""

PUBLISHER_ORDER = CellName("@publisher-order")
"""Downstream: this broker's own subscribers in publisher order."""

TOTAL_ORDER = CellName("@total-order")
"""Downstream: this broker's own subscribers in total order."""

CATCH_UP = CellName("@catch-up")
"""Not downstream, but it asks: this broker's durable subscriptions that are behind."""

LOCAL = (PUBLISHER_ORDER, TOTAL_ORDER, CATCH_UP)


Outgoing = ToCell[Routed] | ToBroker[Routed]


class Edge:
    """A filter edge: which events may pass to a downstream cell. This one lets all pass."""

    def select(
        self, pubend: PubendName, cell: CellName, digest: int, events: Sequence[bytes]
    ) -> list[int]:
        """The indices of the events that pass, ascending. `digest` is that of their message."""
        return list(range(len(events)))
