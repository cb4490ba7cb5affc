"""Who lives in the miniature world: brokers, events, subscriptions; and the rules it may break."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.propagation.branch import Branch
from gapless.propagation.digest import Announcer
from gapless.propagation.sufficiency import Sufficiency
from gapless.propagation.vector import is_at_least
from tests.propagation.stand import Facts

if TYPE_CHECKING:
    from gapless.core.broker_messages import SubscriptionChange, Vector
    from gapless.core.events import Value
    from gapless.core.identity import BrokerName, CellName
    from gapless.filters.filter import Filter
    from gapless.propagation.delivery import DeliveryStart
    from gapless.propagation.leaf import Leaf
    from gapless.propagation.stamp import Stamp


@dataclass(frozen=True)
class Planted:
    """Rules to break."""

    is_constraint_at_least: bool = False
    is_filter_trusted: bool = False  # although the test fails
    is_clock_forgotten: bool = False
    is_start_early: bool = False
    is_stamp_forgotten: bool = False


@dataclass(frozen=True)
class Event:
    """A publication with its vector."""

    number: int
    attributes: dict[str, Value]
    digest: int
    vector: Vector


@dataclass
class Subscription:
    """What the world knows of a subscription, for the checker."""

    leaf: str
    condition: Filter
    is_durable: bool
    start: int
    first: int | None = None  # the first event that it is owed


NOTHING = Planted()


class LooseBranch(Branch):
    """Plants: the constraint of a change is a lower bound."""

    def applies(self, change: SubscriptionChange) -> bool:
        return is_at_least(self.vector, change.constraint)


@dataclass
class Broker:
    """One process; what is in here is lost by a crash, but for `facts`."""

    name: BrokerName
    cell: CellName
    facts: Facts = field(default_factory=Facts)
    is_up: bool = True
    life: int = 0
    branch: Branch | None = None
    leaf: Leaf | None = None
    stamp: Stamp | None = None
    starts: DeliveryStart | None = None
    sufficiency: Sufficiency = field(default_factory=lambda: Sufficiency({}))
    announcer: Announcer = field(default_factory=Announcer)
