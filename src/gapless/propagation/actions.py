"""What a propagation machine wants done: messages to cells, siblings or the broker that asked.

A change goes to the first live member of the cell above in the network's order, so that one broker
serialises the changes of a cell for as long as it lives.
"""

from __future__ import annotations

from gapless.core.broker_messages import Propagated
from gapless.core.effects import Persist
from gapless.core.outgoing import ToBroker, ToCell, ToSiblings

Outgoing = ToCell[Propagated] | ToBroker[Propagated] | ToSiblings[Propagated]

Action = Outgoing | Persist
