"""A relay, seen as what it is to those who report to it: the two minima over the cells below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import ReleaseHold
from gapless.core.identity import BrokerName, CellName, Instant, PubendName
from gapless.knowledge.neighbours import Edge
from gapless.knowledge.relay import Relay, RelayPlace
from gapless.node.config import Config

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.broker_messages import Ack

NOW = Instant(0)


class Reports:
    """The reports that one relay has heard."""

    def __init__(self, cells: Iterable[CellName]) -> None:
        place = RelayPlace(BrokerName("relay"), CellName("here"), CellName("above"), tuple(cells))
        self.relay = Relay(PubendName("news/0"), place, Config(), Edge())

    @property
    def delivered(self) -> int:
        return max(0, self.relay.acked)

    @property
    def released(self) -> int:
        return self.relay.released

    def receive_ack(self, ack: Ack) -> None:
        self.relay.receive_ack(ack, NOW)

    def hold(
        self, cell: CellName, reporter: BrokerName, epoch: int, sequence: int, tick: int
    ) -> None:
        hold = ReleaseHold(self.relay.pubend, cell, tick, 1, reporter, epoch, sequence)
        self.relay.receive_hold(cell, hold, NOW)

    def forget(self, cell: CellName, reporter: BrokerName) -> None:
        self.relay.forget_reporter(cell, reporter, NOW)

    def check(self) -> None:
        self.relay.check()
        assert self.released <= self.delivered
