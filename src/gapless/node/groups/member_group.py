"""MemberGroup: one group's events, its members, and which member has what in hand.

Theory of operation
    The feed brings events in order. Each goes into the lane of its key, and from there into the
    hand of one member: the home of the key. A key without a home gets the member with the fewest
    keys. A member that joins gets the surplus of the others. A lane whose home has changed goes on
    there as soon as nothing of it is in hand.
    An event that is finished counts into the progress of its pubend. An event that comes back
    (rejected, given back, lost with its member) stands in its lane again, in order, and the lane
    hands out nothing until everything of it is out of hand. An event that was attempted too often
    is dying: it becomes a dead letter, and its lane waits for that.
    Nothing here is an effect. A caller changes the group, then asks what it hands out now
    (`hand_out`), how much room the feed has got (`take_passed`), and whether there is something to
    write (`is_changed`).

Invariants (checked by `check`): those of the progress, and
    I1  an open event is pending in its lane, in the hand of one member, or dying; never two of them
    I2  all events of a lane that are in hand are in the hand of its member
    I3  pending events of a lane stand in the order of arrival, and behind what is in hand unless
        the lane must drain
    I4  no member has more in hand than it may
    I5  a lane that could hand out an event is at its member, or among the lanes without one

Cost: a few dictionary operations an event; a key without a home looks at all members.
Source: docs/protocols/groups.md, 3.2 to 3.6.
"""

from __future__ import annotations

import json
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.identity import PubendName
from gapless.node.groups.lane import GroupMember, Lane, OpenEvent
from gapless.node.groups.progress import NEVER, Attempts, PubendProgress

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from gapless.core.identity import Instant
    from gapless.node.groups.lane import MemberKey, Place

REASON_MAX = 200
"""Characters of a reason that are kept."""

LOST_MEMBER = "the connection of its member was lost"


class GroupLimits(NamedTuple):
    """The bounds of one group; `attempts_max` of 0: any number of attempts."""

    events_max: int  # in the hand of one member
    bytes_max: int
    keys_max: int
    attempts_max: int = 0


class Letter(NamedTuple):
    """The dead letter that is under way: of which event, and its number."""

    pubend: PubendName
    tick: int
    number: int


class MemberGroup:
    """See the module docstring."""

    def __init__(self, limits: GroupLimits, fact: bytes | None = None) -> None:
        self.limits = limits
        self.members: dict[MemberKey, GroupMember] = {}
        self.progress: dict[PubendName, PubendProgress] = {}
        self.letter: Letter | None = None
        self.dying: dict[OpenEvent, None] = {}
        self.is_changed = False
        """Has something changed since `encode` that must be durable?"""

        self._lanes: dict[Hashable, Lane] = {}
        self._homes: dict[Hashable, GroupMember] = {}  # the least recently used key first
        self._homeless: dict[Lane, None] = {}  # lanes without a member that could go on
        self._delayed: list[tuple[Instant, int, Lane]] = []
        self._served: dict[GroupMember, None] = {}  # members that may get something
        self._arrivals = 0
        self._passed = 0
        if fact is not None:
            self._decode(fact)

    # --- progress ---------------------------------------------------------------------------------

    def low(self) -> dict[PubendName, int]:
        """By pubend: everything below is finished."""
        return {pubend: each.low for pubend, each in self.progress.items()}

    def begin(self, starts: Mapping[PubendName, int]) -> None:
        """The feed begins, at these positions or before them; nothing is open."""
        for pubend, start in starts.items():
            self.progress.setdefault(pubend, PubendProgress()).skip_to(start)

    def suspend(self) -> None:
        """The feed ended: forget what is open. It comes again."""
        assert not self.members, "no member has anything in hand"
        for each in self.progress.values():
            each.rewind()
        self._lanes.clear()
        self._homes.clear()
        self._homeless.clear()
        self._delayed.clear()
        self._served.clear()
        self.dying.clear()
        self._passed = 0

    def take_passed(self) -> int:
        """How many events the low-water marks have passed since this was last asked for."""
        passed, self._passed = self._passed, 0
        return passed

    @property
    def open_count(self) -> int:
        return sum(len(each.open) for each in self.progress.values())

    @property
    def has_islands(self) -> bool:
        """Is something finished above a low-water mark, or a dead letter under way?"""
        return self.letter is not None or any(len(each) for each in self.progress.values())

    # --- the feed ---------------------------------------------------------------------------------

    def receive(
        self,
        pubend: PubendName,
        ticks: Sequence[int],
        events: Sequence[bytes],
        keys: Sequence[Hashable],
        through: int,
    ) -> None:
        """Take in events of the feed, and the position after them. What was received before, or is
        finished, is passed over."""
        progress = self.progress[pubend]
        for tick, event, key in zip(ticks, events, keys, strict=True):
            if tick >= progress.through:
                if not progress.is_finished(tick):
                    self._receive(progress, OpenEvent(pubend, tick, event, self._lane(key), 0))
                progress.through = tick + 1
        progress.through = max(progress.through, through)
        self._advance(progress)

    def _receive(self, progress: PubendProgress, event: OpenEvent) -> None:
        self._arrivals += 1
        event.arrival = self._arrivals
        progress.open[event.tick] = event
        attempts_max = self.limits.attempts_max
        count = progress.attempts.get(event.tick, NEVER).number
        is_dying = bool(attempts_max) and count >= attempts_max
        if is_dying or (self.letter is not None and self.letter[:2] == event.place):
            self._die(event)
        else:
            event.lane.pending.append(event)
            self._queue(event.lane)

    def _advance(self, progress: PubendProgress) -> None:
        self._passed += progress.advance()

    # --- members ----------------------------------------------------------------------------------

    def join(self, key: MemberKey, events_max: int = 0) -> None:
        """A member joins: it becomes the home of the surplus of the others. It has at most
        `events_max` events in hand; 0: as many as the group allows."""
        most = min(events_max or self.limits.events_max, self.limits.events_max)
        member = self.members[key] = GroupMember(key, most)
        share = -(-len(self._homes) // len(self.members))
        for other in self.members.values():
            for surplus in list(other.keys)[share:]:
                self._settle_key(surplus, member)
                if (lane := self._lanes.get(surplus)) is not None:
                    self._unqueue(lane)
                    self._queue(lane)
        for lane in [each for each in self._homeless if each.key is not None]:
            self._queue(lane)
        self._served[member] = None

    def leave(self, key: MemberKey, *, is_lost: bool) -> None:
        """A member goes, in order or because its connection was lost."""
        member = self.members.pop(key)
        self._served.pop(member, None)
        for each in member.keys:
            del self._homes[each]
        lanes = dict.fromkeys((*member.ready, *(event.lane for event in member.in_hand.values())))
        for event in list(member.in_hand.values()):
            self._give_back(event, counts=is_lost, reason=LOST_MEMBER if is_lost else "")
        for lane in lanes:
            self._unqueue(lane)
            lane.member = None
            self._queue(lane)

    def _settle_key(self, key: Hashable, member: GroupMember) -> None:
        """The member is the home of the key from now on."""
        before = self._homes.pop(key, None)
        if before is not None:
            del before.keys[key]
        self._homes[key] = member
        member.keys[key] = None
        if len(self._homes) > self.limits.keys_max:
            idle = next((each for each in self._homes if each not in self._lanes), None)
            if idle is not None:
                del self._homes.pop(idle).keys[idle]

    def _home(self, key: Hashable) -> GroupMember | None:
        """The member that gets the next event of a key."""
        home = self._homes.get(key)
        if home is None and self.members:
            home = min(self.members.values(), key=lambda each: (len(each.keys), len(each.in_hand)))
        if home is not None:
            self._settle_key(key, home)  # it was used last
        return home

    # --- what members say -------------------------------------------------------------------------

    def missing(self, key: MemberKey, pubend: PubendName, ticks: Sequence[int]) -> list[int]:
        """Which of these events the member does not have in hand."""
        in_hand = self.members[key].in_hand
        return [tick for tick in ticks if (pubend, tick) not in in_hand]

    def finish(self, key: MemberKey, pubend: PubendName, ticks: Sequence[int]) -> None:
        """A member has finished events that it has in hand."""
        member = self.members[key]
        for tick in dict.fromkeys(ticks):
            event = member.in_hand[pubend, tick]
            self._let_go(event)
            self._finish(event)
        self._advance(self.progress[pubend])

    def _finish(self, event: OpenEvent) -> None:
        self.progress[event.pubend].finish(event.tick)
        self.is_changed = True
        self._queue(event.lane)

    def reject(
        self,
        key: MemberKey,
        pubend: PubendName,
        ticks: Sequence[int],
        *,
        reason: str = "",
        counts: bool = True,
        until: Instant | None = None,
    ) -> None:
        """A member gives events back that it has in hand; they wait until the given instant."""
        member = self.members[key]
        for tick in dict.fromkeys(ticks):
            event = member.in_hand[pubend, tick]
            self._give_back(event, counts=counts, reason=reason)
            lane = event.lane
            if until is not None and not event.is_dying and until > (lane.until or 0):
                lane.until = until
                self._arrivals += 1
                heappush(self._delayed, (until, self._arrivals, lane))
            self._queue(lane)

    def _let_go(self, event: OpenEvent) -> None:
        """The event is in nobody's hand any more."""
        member, lane = event.member, event.lane
        assert member is not None
        member.drop(event)
        self._served[member] = None
        lane.hand_count -= 1
        if not lane.hand_count:
            lane.must_drain = False

    def _give_back(self, event: OpenEvent, *, counts: bool, reason: str) -> None:
        self._let_go(event)
        event.lane.must_drain = event.lane.hand_count > 0
        attempts_max = self.limits.attempts_max
        if counts:
            table = self.progress[event.pubend].attempts
            count = table.get(event.tick, NEVER).number + 1
            table[event.tick] = Attempts(count, reason[:REASON_MAX])
            self.is_changed = True
            if attempts_max and count >= attempts_max:
                self._die(event)
                return
        event.lane.take_back(event)

    # --- dead letters -----------------------------------------------------------------------------

    def _die(self, event: OpenEvent) -> None:
        event.is_dying = True
        event.lane.dying_count += 1
        self.dying[event] = None

    def attempts(self, event: OpenEvent) -> Attempts:
        return self.progress[event.pubend].attempts.get(event.tick, NEVER)

    def address(self, letter: Letter) -> None:
        """The dead letter of an event gets its number; this must be durable before it is sent."""
        self.letter = letter
        self.is_changed = True

    def bury(self, event: OpenEvent) -> None:
        """The dead letter of the event is published: the event is finished."""
        self.letter = None
        del self.dying[event]
        event.lane.dying_count -= 1
        self._finish(event)
        self._advance(self.progress[event.pubend])

    # --- handing out ------------------------------------------------------------------------------

    def hand_out(self, now: Instant) -> list[tuple[GroupMember, list[OpenEvent]]]:
        """Give members what they may get now: each member, and its new events in order."""
        while self._delayed and self._delayed[0][0] <= now:
            lane = heappop(self._delayed)[2]
            if lane.until is not None and lane.until <= now:
                lane.until = None
                self._queue(lane)
        self._place_homeless()
        handed = []
        served, self._served = self._served, {}
        for member in served:
            events: list[OpenEvent] = []
            while member.ready and self._has_room(member):
                events.append(self._hand(member, next(iter(member.ready))))
            if events:
                handed.append((member, events))
        return handed

    def _has_room(self, member: GroupMember) -> bool:
        count, limits = len(member.in_hand), self.limits
        return not count or (count < member.events_max and member.hand_bytes < limits.bytes_max)

    def _place_homeless(self) -> None:
        """Give lanes without a key to members that have room."""
        while self._homeless and self.members:
            some = [each for each in self.members.values() if self._has_room(each)]
            room = {each: each.events_max - len(each.in_hand) for each in some}
            room = {each: count - len(each.ready) for each, count in room.items()}
            best = max(room, key=lambda each: room[each], default=None)
            if best is None or room[best] <= 0:
                return
            lane = next(iter(self._homeless))
            del self._homeless[lane]
            lane.member = best
            best.ready[lane] = None
            self._served[best] = None

    def _hand(self, member: GroupMember, lane: Lane) -> OpenEvent:
        del member.ready[lane]
        event = lane.pending.popleft()
        member.take(event)
        lane.hand_count += 1
        if lane.pending:
            member.ready[lane] = None  # others first
        return event

    @property
    def deadline(self) -> Instant | None:
        """When a lane that waits for a delay may go on."""
        return self._delayed[0][0] if self._delayed else None

    # --- lanes ------------------------------------------------------------------------------------

    def _lane(self, key: Hashable) -> Lane:
        if key is None:
            return Lane(None)
        if key not in self._lanes:
            self._lanes[key] = Lane(key)
        return self._lanes[key]

    def _queue(self, lane: Lane) -> None:
        """Something about the lane has changed: let it go on if it can, and forget it if it is
        empty. A lane whose key has another home waits until nothing of it is in hand."""
        if lane.is_empty:
            self._unqueue(lane)
            if self._lanes.get(lane.key) is lane:
                del self._lanes[lane.key]
            return
        if not lane.pending or lane.is_held:
            self._unqueue(lane)
            return
        if lane.key is None:
            if lane.member is None or lane not in lane.member.ready:
                self._unqueue(lane)
                lane.member = None
                self._homeless[lane] = None
            return
        home = self._home(lane.key)
        if home is not lane.member:
            self._unqueue(lane)
            if lane.hand_count:
                return
            lane.member = home
        if home is None:
            self._homeless[lane] = None
            return
        self._homeless.pop(lane, None)
        home.ready[lane] = None
        self._served[home] = None

    def _unqueue(self, lane: Lane) -> None:
        self._homeless.pop(lane, None)
        if lane.member is not None:
            lane.member.ready.pop(lane, None)

    # --- the durable form -------------------------------------------------------------------------

    def encode(self) -> bytes:
        """The fact of the group; nothing is changed from here on."""
        self.is_changed = False
        fields: dict[str, object] = {
            "pubends": {pubend: each.encode() for pubend, each in self.progress.items()}
        }
        if self.letter is not None:
            fields["letter"] = self.letter
        return json.dumps(fields, sort_keys=True).encode()

    def _decode(self, fact: bytes) -> None:
        fields = json.loads(fact)
        for pubend, each in fields["pubends"].items():
            self.progress[PubendName(pubend)] = PubendProgress.decode(**each)
        if "letter" in fields:
            pubend, tick, number = fields["letter"]
            self.letter = Letter(PubendName(pubend), tick, number)

    # --- invariants -------------------------------------------------------------------------------

    def check(self) -> None:
        in_hand: dict[Place, GroupMember] = {}
        for member in self.members.values():
            count = len(member.in_hand)
            assert count <= member.events_max, "I4"
            for place, event in member.in_hand.items():
                assert place not in in_hand, f"I1 {place}"
                assert event.member is member, f"I1 {place}"
                assert event.lane.member is member, f"I2 {place}"
                in_hand[place] = member
        for pubend, progress in self.progress.items():
            progress.check()
            for tick, event in progress.open.items():
                is_pending = event in event.lane.pending
                places = is_pending + ((pubend, tick) in in_hand) + event.is_dying
                assert places == 1, f"I1 {event.place}"
                assert event.is_dying == (event in self.dying), f"I1 {event.place}"
        assert len(in_hand) <= self.open_count, "I1"
        lanes = {event.lane for each in self.progress.values() for event in each.open.values()}
        for lane in lanes:
            self._check_lane(lane)

    def _check_lane(self, lane: Lane) -> None:
        arrivals = [event.arrival for event in lane.pending]
        assert arrivals == sorted(arrivals), "I3"
        members = [] if lane.member is None else lane.member.in_hand.values()
        hand = [event.arrival for event in members if event.lane is lane]
        assert len(hand) == lane.hand_count, "I2"
        if hand and arrivals and not lane.must_drain:
            assert max(hand) < arrivals[0], "I3"
        if lane.pending and not lane.is_held:
            home = self._homes.get(lane.key) if lane.key is not None else lane.member
            is_moving = bool(lane.hand_count) and home is not lane.member
            is_queued = lane in self._homeless or (
                lane.member is not None and lane in lane.member.ready
            )
            assert is_queued or is_moving, "I5"
