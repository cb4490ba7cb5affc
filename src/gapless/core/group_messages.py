"""The messages between the members of a group, which share a named subscription, and its broker.

A client becomes a member with a `Subscribe` that has `share_by`. The broker hands it events, and
the member says what became of each. See docs/protocols/groups.md.
"""

from __future__ import annotations

from gapless.core.events import EventBatch
from gapless.core.identity import PubendName, TopicName
from gapless.core.lengths import AnyCount, Prose
from gapless.core.messages import Made, Message, Told


class Handed(Told, frozen=True):
    """The member has these events in hand from now on. `attempts`: how often members had each in
    hand before and did not finish it; empty: never."""

    subscription: int
    topic: TopicName
    pubend: PubendName
    ticks: tuple[int, ...]
    events: EventBatch
    attempts: tuple[AnyCount, ...] = ()

    def __post_init__(self) -> None:
        if len(self.ticks) != len(self.events) or len(self.attempts) not in (0, len(self.ticks)):
            raise ValueError("each event that is handed out has a tick, and attempts if any has")
        Made.count += 1


class Finish(Message, frozen=True):
    """The member has finished these events, which it has in hand. With a `request`, the answer
    comes when that is on stable storage."""

    subscription: int
    pubend: PubendName
    ticks: tuple[int, ...]
    request: int = 0


class Reject(Message, frozen=True):
    """The member gives these events back, which it has in hand: they are handed out again, after
    `delay` microseconds. With a `request`, the answer comes when that is on stable storage.

    If it counts, the broker says `TakenBack` at once. Until then the member gives back, uncounted,
    what arrives of the same key: the broker had sent that before it knew."""

    subscription: int
    pubend: PubendName
    ticks: tuple[int, ...]
    request: int = 0
    delay: AnyCount = 0
    reason: Prose = ""
    counts: bool = True  # as an attempt


class TakenBack(Message, frozen=True):
    """The broker knows that the member has rejected these events. What it has handed to the member
    before stands before this message."""

    subscription: int
    pubend: PubendName
    ticks: tuple[int, ...]
