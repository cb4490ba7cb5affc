"""Which machines a node is made of. The simulator plants faults by putting in others."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.knowledge.merge import Merge
from gapless.knowledge.pubend import Pubend
from gapless.knowledge.relay import Relay
from gapless.knowledge.subend import Subend
from gapless.node.subscribers import Subscribers


@dataclass(frozen=True)
class Parts:
    """The classes that a node builds its machines from."""

    pubend: type[Pubend] = Pubend
    relay: type[Relay] = Relay
    subend: type[Subend] = Subend
    merge: type[Merge] = Merge
    subscribers: type[Subscribers] = Subscribers
