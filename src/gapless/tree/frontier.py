"""Frontier: of what can be reached, the nearest in every direction; and what is stepped over.

Theory of operation
    Walk the neighbourhood outward. A broker that is UP ends the walk there: its session is
    *active*, and it serves whatever lies behind it. A broker that has FAILED is stepped over, and
    those behind it are looked at. A broker that is still CONNECTING is awaited; none is bypassed
    before it failed.
    So the failed ones form paths that begin beside us: each of them is one partition. A broker that
    is retired is stepped over like one that has failed; no broker beats to it.

Invariants
    I1  on the path to an active one all others have failed: at most one is active on any path

Source: SRDS 2011, sec. II and III, figures 3 and 4. Deviation: a broker that is still connecting
blocks what is behind it, so that a start does not bypass half the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.tree.connections import Reach

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.identity import BrokerName
    from gapless.tree.neighbourhood import Neighbourhood


@dataclass(frozen=True, slots=True)
class Frontier:
    """Disjoint sets of brokers, each in the order of the walk."""

    active: tuple[BrokerName, ...] = ()
    awaited: tuple[BrokerName, ...] = ()
    failed: tuple[BrokerName, ...] = ()
    retired: tuple[BrokerName, ...] = ()

    @property
    def unreachable(self) -> frozenset[BrokerName]:
        return frozenset(self.failed + self.retired)

    @property
    def wanted(self) -> tuple[BrokerName, ...]:
        return self.active + self.awaited + self.failed


def explore(neighbourhood: Neighbourhood, reach: Callable[[BrokerName], Reach]) -> Frontier:
    """The frontier that follows from what is believed of each neighbour."""
    active: list[BrokerName] = []
    awaited: list[BrokerName] = []
    failed: list[BrokerName] = []
    retired: list[BrokerName] = []
    layer = neighbourhood.further(neighbourhood.broker)
    while layer:
        beyond: list[BrokerName] = []
        for broker in layer:
            if neighbourhood.is_retired(broker):
                retired.append(broker)
                beyond += neighbourhood.further(broker)
                continue
            state = reach(broker)
            if state is Reach.UP:
                active.append(broker)
            elif state is Reach.FAILED:
                failed.append(broker)
                beyond += neighbourhood.further(broker)
            else:
                awaited.append(broker)
        layer = beyond
    return Frontier(tuple(active), tuple(awaited), tuple(failed), tuple(retired))
