"""Planted faults of groups: a group with one thing wrong, to see that the checkers find it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gapless.node.groups.member_group import MemberGroup
from gapless.node.parts import Parts

if TYPE_CHECKING:
    from gapless.node.groups.lane import Lane, MemberKey
    from gapless.node.groups.progress import PubendProgress


class GivesKeyToTwo(MemberGroup):
    """Moves a key to its new home at once, though the old member has events of it in hand."""

    def _queue(self, lane: Lane) -> None:
        before, lane.hand_count = lane.hand_count, 0
        if before and not lane.pending:
            lane.hand_count = before
            return
        super()._queue(lane)
        lane.hand_count = before

    def check(self) -> None:
        """The invariants would find it at once; the checkers have to."""


class ForgetsFinished(MemberGroup):
    """Writes down the low-water mark, but no finished ticks above it."""

    def encode(self) -> bytes:
        fields = json.loads(super().encode())
        for each in fields["pubends"].values():
            each.pop("finished", None)
        return json.dumps(fields).encode()


class CountsHandedAsFinished(MemberGroup):
    """Moves the low-water mark past what members have in hand."""

    def _advance(self, progress: PubendProgress) -> None:
        super()._advance(progress)
        pending = [tick for tick, event in progress.open.items() if event.member is None]
        progress.low = min(pending, default=progress.through)

    def check(self) -> None:
        """The invariants would find it at once; the checkers have to."""


class ForgetsTheLost(MemberGroup):
    """Takes what a lost member had in hand for finished."""

    def leave(self, key: MemberKey, *, is_lost: bool) -> None:
        if is_lost:
            for pubend, tick in list(self.members[key].in_hand):
                self.finish(key, pubend, [tick])
        super().leave(key, is_lost=is_lost)


class HandsOutOfOrder(MemberGroup):
    """Puts what comes back behind what is pending."""

    def _queue(self, lane: Lane) -> None:
        if lane.must_drain and len(lane.pending) > 1:
            lane.pending.rotate(-1)
        super()._queue(lane)

    def check(self) -> None:
        """The invariants would find it at once; the checkers have to."""


PLANTED_GROUPS: dict[str, Parts] = {
    "gives-key-to-two": Parts(member_group=GivesKeyToTwo),
    "forgets-finished": Parts(member_group=ForgetsFinished),
    "counts-handed-as-finished": Parts(member_group=CountsHandedAsFinished),
    "forgets-the-lost": Parts(member_group=ForgetsTheLost),
    "hands-out-of-order": Parts(member_group=HandsOutOfOrder),
}
