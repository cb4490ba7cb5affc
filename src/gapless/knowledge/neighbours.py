"""The neighbours of a knowledge machine: what it sends them, and the filter edge to a cell below.

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
"""Not downstream, but it asks: this broker's durable subscriptions that catch up."""

LOCAL = (PUBLISHER_ORDER, TOTAL_ORDER, CATCH_UP)


Outgoing = ToCell[Routed] | ToBroker[Routed]


class Edge:
    """A filter edge: selects the events that may pass to a downstream cell. This one passes all."""

    def select(
        self, pubend: PubendName, cell: CellName, digest: int, events: Sequence[bytes]
    ) -> list[int]:
        """The indices of the events that pass, ascending. `digest` is that of their message."""
        return list(range(len(events)))
