"""Which machines a member is made of. The simulator plants faults by putting in others."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.scribe.group import TopicGroup
from gapless.scribe.ordered import Ordered
from gapless.scribe.pastry import Pastry
from gapless.scribe.tree import Tree
from gapless.scribe.upcalls import BestEffort


@dataclass(frozen=True)
class RingParts:
    """The classes that a member builds its machines from."""

    pastry: type[Pastry] = Pastry
    tree: type[Tree] = Tree
    group: type[TopicGroup] = TopicGroup
    best_effort: type[BestEffort] = BestEffort
    ordered: type[Ordered] = Ordered
