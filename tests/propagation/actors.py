"""Who lives in the miniature world: brokers, events, subscriptions; and the rules it may break."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.propagation.branch import Branch
from gapless.propagation.digest import Announcer
from gapless.propagation.sufficiency import Sufficiency
from gapless.propagation.vector import is_at_least, restrict
from gapless.testing.memory_volume import MemoryVolume
from tests.propagation.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.broker_messages import SubscriptionChange, Vector
    from gapless.core.events import Value
    from gapless.core.identity import BrokerName, CellName
    from gapless.filters.filter import Filter
    from gapless.propagation.delivery import DeliveryStart
    from gapless.propagation.leaf import Leaf
    from gapless.propagation.stamp import Stamp
    from tests.propagation.requirement import Requirement


@dataclass(frozen=True)
class Planted:
    """Rules to break."""

    is_constraint_at_least: bool = False
    is_filter_trusted: bool = False  # although the test fails
    is_clock_forgotten: bool = False
    is_start_early: bool = False
    is_stamp_forgotten: bool = False
    # of the variants
    is_silence_believed: bool = False  # although it is below what is required
    is_minimum_ignored: bool = False
    is_history_a_range: bool = False  # "at least what was told" instead of membership
    is_history_endless: bool = False
    is_test_at_least: bool = False  # as without a history


@dataclass(frozen=True)
class Event:
    """A publication with its vector."""

    number: int
    attributes: dict[str, Value]
    digest: int
    vector: Vector
    requested: bool = False


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


class LooseHistory(History):
    """Plants: every vector since what was told has the same roots."""

    def raised(self, vector: Mapping[str, int]) -> Vector | None:
        last = self.last
        mine = restrict(vector, self.leaves)
        is_between = is_at_least(mine, self.told) and is_at_least(last, mine)
        return last if is_between else None


class EndlessHistory(History):
    """Plants: nothing is told, however long that goes."""

    must_tell = False

    def check(self) -> None:
        pass


@dataclass
class Broker:
    """One process; what is in here is lost by a crash, but for `volume` and holes."""

    name: BrokerName
    cell: CellName
    volume: MemoryVolume = field(default_factory=MemoryVolume)
    is_up: bool = True
    life: int = 0
    branch: Branch | None = None
    leaf: Leaf | None = None
    stamp: Stamp | None = None
    starts: DeliveryStart | None = None
    sufficiency: Sufficiency = field(default_factory=lambda: Sufficiency({}))
    announcer: Announcer = field(default_factory=Announcer)
    # of the variants
    requirement: Requirement | None = None
    cache: dict[int, tuple[Event, bool]] = field(default_factory=dict)  # and whether it is silence
    curious: dict[int, dict[BrokerName, Vector]] = field(default_factory=dict)  # who asked for it
    doubts: dict[int, Vector] = field(default_factory=dict)  # the holes; they outlast a crash
    seen_below: int = 0  # as far as anything has come; it outlasts a crash
    newest: tuple[int, int] = (0, 0)  # the highest digest, and our element there
