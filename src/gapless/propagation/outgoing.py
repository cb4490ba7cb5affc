"""What a propagation machine wants done: messages to cells, siblings or the one that asked.

A machine knows cells; which live member gets a message is routing, the node's business. A change
goes to the first live member of the cell above in the network's order, so that one broker
serialises the changes of a cell for as long as it lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.broker_messages import (
    SubscriptionChange,
    SubscriptionNack,
    SubscriptionState,
)
from gapless.core.effects import Persist

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, CellName

Propagated = SubscriptionChange | SubscriptionState | SubscriptionNack


@dataclass(frozen=True, slots=True)
class ToCell:
    """For the first live member of a neighbouring cell."""

    cell: CellName
    message: Propagated


@dataclass(frozen=True, slots=True)
class ToBroker:
    """For this broker and no other: it asked."""

    broker: BrokerName
    message: Propagated


@dataclass(frozen=True, slots=True)
class ToSiblings:
    """For every other member of our own cell."""

    message: Propagated


Outgoing = ToCell | ToBroker | ToSiblings

Action = Outgoing | Persist
