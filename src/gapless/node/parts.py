"""Which machines a node is made of. The simulator plants faults by putting in others."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.durable.catch_up import CatchUp
from gapless.durable.consolidated import Consolidated
from gapless.durable.hand_over import Arrival
from gapless.durable.subscriptions import DurableSubscriptions
from gapless.knowledge.merge import Merge
from gapless.knowledge.pubend import Pubend
from gapless.knowledge.relay import Relay
from gapless.knowledge.subend import Subend
from gapless.node.delivery.subscribers import Subscribers
from gapless.node.delivery.total_order import TotalOrder
from gapless.node.directory.catalogue import Catalogue
from gapless.node.directory.registry import Registry
from gapless.node.groups.member_group import MemberGroup
from gapless.node.promises import Promises
from gapless.propagation.branch import Branch
from gapless.propagation.delivery import DeliveryStart
from gapless.propagation.leaf import Leaf
from gapless.propagation.stamp import Stamp
from gapless.propagation.sufficiency import Sufficiency


@dataclass(frozen=True)
class Parts:
    """The classes that a node builds its machines from."""

    pubend: type[Pubend] = Pubend
    relay: type[Relay] = Relay
    subend: type[Subend] = Subend
    merge: type[Merge] = Merge
    subscribers: type[Subscribers] = Subscribers
    total_order: type[TotalOrder] = TotalOrder
    leaf: type[Leaf] = Leaf
    branch: type[Branch] = Branch
    sufficiency: type[Sufficiency] = Sufficiency
    stamp: type[Stamp] = Stamp
    starts: type[DeliveryStart] = DeliveryStart
    durable_subscriptions: type[DurableSubscriptions] = DurableSubscriptions
    consolidated: type[Consolidated] = Consolidated
    catch_up: type[CatchUp] = CatchUp
    arrival: type[Arrival] = Arrival
    catalogue: type[Catalogue] = Catalogue
    registry: type[Registry] = Registry
    member_group: type[MemberGroup] = MemberGroup
    promises: type[Promises] = Promises
