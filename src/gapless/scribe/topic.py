"""One topic at one node of its tree: its parent, its children, what was seen.

Invariants (checked by `check`)
    I1  a root has no parent, and no node is in the path above itself
    I2  the parent, if there is one, is the first of the path
    I3  the parent is not a child
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.scribe.messages import TopicBeat

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId, TopicId
    from gapless.scribe.messages import Ballot, Credential
    from gapless.scribe.stream import Stream

NEVER = Instant(0)

SEEN_WIDTH = 256
"""How far back an event that comes again is recognised, in numbers, where there is no order."""
SEEN_MASK = (1 << SEEN_WIDTH) - 1


ERAS_MAX = 3
"""Of how many roots events are recognised: after a split, two go on side by side for a while."""


@dataclass(slots=True)
class EraWindow:
    """Which events of one root came lately."""

    era: Ballot
    last: int
    bits: int = 1
    """Which of the numbers up to `last` came, the last one at bit 0."""

    def is_new(self, number: int) -> bool:
        """Note it; False if it came before, or is too old to tell."""
        ahead = number - self.last
        if ahead > 0:
            self.bits = (self.bits << ahead | 1) & SEEN_MASK if ahead < SEEN_WIDTH else 1
            self.last = number
            return True
        if ahead <= -SEEN_WIDTH or self.bits >> -ahead & 1:
            return False
        self.bits |= 1 << -ahead
        return True


@dataclass(slots=True)
class TreeTopic:
    """See the module docstring. `stream` is there for ordered topics only."""

    identifier: TopicId
    stream: Stream | None = None
    subscribed: bool = False
    is_root: bool = False
    is_rooted: bool = False
    """Whether there is a way from the root down to us, as far as our parent knows."""
    has_begun: bool = False
    """Whether the subscribers of a topic without order were told that there is."""
    parent: NodeId | None = None
    path: tuple[NodeId, ...] = ()
    """All above us, the parent first."""
    children: dict[NodeId, Instant] = field(default_factory=dict)
    """When each is to be forgotten unless it confirms."""
    credential: Credential | None = None
    parent_heard: Instant = NEVER
    told: Instant = NEVER
    """When the children last got anything."""
    ask_due: Instant = NEVER
    """When to ask for a parent, while there is none."""
    refresh_due: Instant = NEVER
    leads: bool = False
    """Whether we are the root of an ordered topic, with a majority of its group behind us."""
    era: Ballot | None = None
    """As root of an unordered topic: since when, and which node."""
    last: int = 0
    """As such: the number given last."""
    seen: tuple[EraWindow, ...] = ()
    """What came of each root lately, the latest root last."""

    @property
    def is_needed(self) -> bool:
        return self.subscribed or bool(self.children)

    @property
    def position(self) -> int | None:
        return self.stream.position if self.stream is not None else None

    @property
    def beat(self) -> TopicBeat:
        """What children are shown."""
        return TopicBeat(self.identifier, self.path, self.position, self.is_rooted)

    def become_root(self) -> None:
        if not self.is_root:
            self.era = None  # it begins with the first event
        self.is_root = self.is_rooted = True
        self.parent = None
        self.path = ()

    def become_orphan(self, due: Instant) -> None:
        """There is no parent any more: ask for one when it is due."""
        self.is_root = self.is_rooted = False
        self.parent = None
        self.path = ()
        self.ask_due = due

    def become_child(
        self, parent: NodeId, path: tuple[NodeId, ...], now: Instant, *, is_rooted: bool = False
    ) -> None:
        self.is_root = False
        self.is_rooted = is_rooted
        self.parent = parent
        self.path = (parent, *path)
        self.parent_heard = now
        self.children.pop(parent, None)

    def is_new(self, era: Ballot | None, number: int) -> bool:
        """Note an event of an unordered topic; False if it came before."""
        if era is None:
            return False
        for window in self.seen:
            if window.era == era:
                return window.is_new(number)
        self.seen = (*self.seen, EraWindow(era, number))[-ERAS_MAX:]
        return True

    def check(self, own: NodeId) -> None:
        assert not (self.is_root and self.parent is not None), "I1"
        assert own not in self.path, "I1"
        assert (self.path[0] if self.path else None) == self.parent, "I2"
        assert self.parent not in self.children, "I3"
        assert own not in self.children
        if self.stream is not None:
            self.stream.check()
