"""What a knowledge machine wants sent: to a neighbouring cell, or to the one broker that asked.

A machine knows cells, not brokers: which member of a cell gets a message is routing, and that is
the node's business. Only the answer to a nack goes to the very broker that asked, because no other
member of its cell is waiting for it. Three names stand for neighbours inside the same broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, CellName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.broker_messages import Routed

SOURCE = CellName("@pubend")
"""Upstream at the broker that hosts the pubend."""

PUBLISHER_ORDER = CellName("@publisher-order")
"""Downstream: this broker's own subscribers in publisher order."""

TOTAL_ORDER = CellName("@total-order")
"""Downstream: this broker's own subscribers in total order."""

LOCAL = (PUBLISHER_ORDER, TOTAL_ORDER)


@dataclass(frozen=True, slots=True)
class ToCell:
    """For whichever live member of the cell routing picks."""

    cell: CellName
    message: Routed


@dataclass(frozen=True, slots=True)
class ToBroker:
    """For this broker and no other."""

    broker: BrokerName
    message: Routed


Outgoing = ToCell | ToBroker


class Edge:
    """A filter edge: which events may pass to a downstream cell. This one lets all pass."""

    def select(self, cell: CellName, events: Sequence[bytes]) -> list[int]:
        """The indices of the events that pass, ascending."""
        return list(range(len(events)))
