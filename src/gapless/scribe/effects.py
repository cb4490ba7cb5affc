"""What a machine of the multicast service wants done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId, TopicId
    from gapless.scribe.messages import ScribeMessage


@dataclass(frozen=True, slots=True)
class ToNode:
    """Send to a node, wherever it is. It may be lost, late, doubled, out of order."""

    node: NodeId
    message: ScribeMessage


@dataclass(frozen=True, slots=True)
class Deliver:
    """An event for the subscribers of this node. Numbers of an ordered topic have no gaps."""

    topic: TopicId
    number: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Begun:
    """From this number on nothing of an ordered topic will be missed without a `MissedRange`.
    Of one without order: there is a way down from the root, and the number is 0."""

    topic: TopicId
    position: int


@dataclass(frozen=True, slots=True)
class MissedRange:
    """Events of an ordered topic are lost to the subscribers of this node, and which."""

    topic: TopicId
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """What became of a publication (`number`) or of a topic to be created (none)."""

    topic: TopicId
    number: int | None
    problem: str = ""
    position: int = 0
    """Its number in an ordered topic, where that is still known."""


Effect = ToNode | Deliver | Begun | MissedRange | RequestOutcome
