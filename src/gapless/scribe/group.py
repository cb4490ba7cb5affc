"""The group of an ordered topic: its root and a few nodes next to it, which hold its log together.

Theory of operation
    One leads, under a ballot. To lead, a node asks all seats of the group that it knows of for a
    promise to follow no lesser ballot; each promise tells what its giver holds, and perhaps of
    other groups: of each a majority must promise. The greatest ballot among the answers, and of
    that the longest log, has everything that was ever committed. The leader then has that state
    held, with new seats, by a majority of the old ones and of the new ones; then it is active.
    An event is appended to the log and is committed when a majority of the seats holds it. So to
    change the seats is simply to lead again. A seat is one life of a node: one that comes back has
    forgotten its promises, and must not vote as if it had not.
    An active leader says so; a group that is known to be active makes all that came before it
    irrelevant. A node told that a topic is to be asks first whether it has a group: it may have
    been its root in an earlier life. Where a majority of the seats is lost before the group could
    change them, the topic stands still, rather than lose what was acknowledged.

Invariants (checked by `check`)
    I1  the ballot we hold is not greater than the one we promised
    I2  what is committed never shrinks, and lies below the end of the log
    I3  only an active leader commits

Source: the Scribe paper, section 4.2, names Paxos. Deviation: a majority of backups with ballots
and seats that move along with the leaf set.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from gapless.core.identity import Instant
from gapless.scribe.campaign import NOBODY, Campaign, Inquiry, is_majority
from gapless.scribe.effects import Effect, ToNode
from gapless.scribe.messages import (
    Accept,
    Appended,
    Ballot,
    GroupState,
    Hint,
    Lineup,
    LogAppend,
    LogEntry,
    Outvoted,
    Prepare,
    Promise,
    Retired,
)

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId
    from gapless.scribe.messages import GroupMessage, Seat, TopicRecord
    from gapless.scribe.settings import RingSettings

CATCH_UP_MAX = 64
"""Entries sent to a seat that lags, at a time."""


class TopicGroup:
    """One seat of it. See the module docstring."""

    __slots__ = (
        "_campaign",
        "_entries",
        "_held",
        "_inquiry",
        "_log_bytes",
        "_open_bytes",
        "_own",
        "_repeat_due",
        "_settings",
        "_sources",
        "base",
        "committed",
        "known",
        "lineup",
        "promised",
        "record",
        "topic",
    )

    def __init__(self, record: TopicRecord, own: Seat, settings: RingSettings) -> None:
        self.record = record
        self.topic = record.topic
        self._own = own
        self._settings = settings
        self.promised = NOBODY
        self.lineup = Lineup()  # of the state we hold
        self.known = Lineup()  # the newest that we were told of
        self.committed = record.first  # as leader: all below this is
        self.base = record.first  # the first number in the log
        self._log_bytes = 0  # of all bodies
        self._open_bytes = 0  # as leader: of those that are not committed
        self._entries: deque[LogEntry] = deque()
        self._sources: dict[Seat, int] = {}
        self._held: dict[Seat, int] = {}  # as leader: how far each seat is
        self._campaign: Campaign | None = None
        self._inquiry: Inquiry | None = None
        self._repeat_due = Instant(0)

    # --- what it is now --------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Do we lead a group that is active?"""
        lineup = self.lineup
        return (
            lineup.active
            and lineup.ballot.node == self._own.node
            and lineup.ballot == self.promised
            and self._campaign is None
        )

    @property
    def is_campaigning(self) -> bool:
        return self._campaign is not None

    @property
    def needed(self) -> list[tuple[Seat, ...]]:
        """The groups whose majorities we wait for."""
        return [] if self._campaign is None else list(self._campaign.groups.values())

    @property
    def newest(self) -> Lineup:
        """Of what we hold and what we were told of."""
        return max(self.lineup, self.known, key=lambda lineup: lineup.ballot)

    @property
    def end(self) -> int:
        return self.base + len(self._entries)

    def between(self, start: int, end: int) -> list[tuple[int, LogEntry]]:
        start = max(start, self.base)
        return [(n, self._entries[n - self.base]) for n in range(start, min(end, self.end))]

    # --- leading ---------------------------------------------------------------------------------

    def begin(self, seats: tuple[Seat, ...], now: Instant) -> list[Effect]:
        """The topic is to be, as far as we know: lead its first group unless there is one."""
        self._inquiry = Inquiry(seats, self._own)
        self._repeat_due = Instant(now + self._settings.lead_repeat)
        return self._inquire(self._inquiry, now)

    def _inquire(self, inquiry: Inquiry, now: Instant) -> list[Effect]:
        if self.promised > NOBODY or self.newest.seats:
            self._inquiry = None  # there is: its members tell their names
            return []
        if inquiry.is_over:
            return self.lead(inquiry.seats, now)
        return self._to(inquiry.unheard(), Prepare(self.record, NOBODY))

    def lead(self, seats: tuple[Seat, ...], now: Instant) -> list[Effect]:
        """Become the leader of a group with these seats; of the first one if we know of none."""
        self._inquiry = None
        newest = max(self.promised, self.newest.ballot)
        ballot = Ballot(newest.number + 1, self._own.node)
        campaign = self._campaign = Campaign(ballot, seats)
        campaign.need(self.lineup)
        campaign.need(self.known)
        self.promised = ballot
        self._repeat_due = Instant(now + self._settings.lead_repeat)
        prepare = Prepare(self.record, ballot)
        effects = self._to(campaign.nodes(), prepare)
        own = Promise(self.topic, ballot, self._own, self._state(), self.known)
        return effects + self._receive_promise(own, now)

    def _to(self, nodes: set[NodeId], message: GroupMessage) -> list[Effect]:
        return [ToNode(node, message) for node in sorted(nodes) if node != self._own.node]

    def _receive_promise(self, promise: Promise, now: Instant) -> list[Effect]:
        campaign = self._campaign
        if promise.ballot == NOBODY and (inquiry := self._inquiry) is not None:
            self._learn(promise.known)
            self._learn(promise.state.lineup)
            inquiry.unaware.add(promise.seat)
            return self._inquire(inquiry, now) if inquiry.is_over or self.newest.seats else []
        if campaign is None or campaign.ballot != promise.ballot or campaign.state is not None:
            return []
        campaign.promises[promise.seat] = promise.state
        effects: list[Effect] = []
        for lineup in (promise.state.lineup, promise.known):
            if campaign.need(lineup):
                nodes = {seat.node for seat in lineup.seats}
                effects += self._to(nodes, Prepare(self.record, campaign.ballot))
        if campaign.has(campaign.promises):
            effects += self._propose(campaign, now)
        return effects

    def _propose(self, campaign: Campaign, now: Instant) -> list[Effect]:
        lineup = Lineup(campaign.ballot, campaign.seats)
        state = msgspec.structs.replace(campaign.best(), record=self.record, lineup=lineup)
        campaign.state = state
        self._hold(state)
        effects = self._to(campaign.nodes(campaign.seats), Accept(state))
        own = Appended(self.topic, campaign.ballot, self._own, self.end)
        return effects + self._receive_appended(own)

    def publish(self, source: Seat, number: int, oldest: int, body: bytes) -> list[Effect]:
        """Append to the log, as leader, unless it is there or must wait: its source repeats it."""
        assert self.is_leader, "I3"
        settings, waiting = self._settings, self.end - self.committed
        room = settings.buffer_bytes_max // 2 - self._open_bytes
        if waiting >= settings.buffer_events_max // 2 or (waiting and len(body) > room):
            return []  # what is not committed must not be pushed out of the log
        last = self._sources.get(source)
        is_next = number == oldest if last is None else number in (last + 1, oldest)
        if not is_next or (last is not None and number <= last):
            return []
        append = LogAppend(
            self.topic, self.lineup.ballot, self.end, (LogEntry(source, number, body),), True
        )
        self._append(append.entries[0])
        self._open_bytes += len(body)
        self._held[self._own] = self.end
        self._commit()
        return self._to({seat.node for seat in self.lineup.seats}, append)

    def has_published(self, source: Seat, number: int) -> bool:
        """Is it committed?"""
        if number > self._sources.get(source, 0):
            return False
        waiting = (entry for _, entry in self.between(self.committed, self.end))
        return all(entry.source != source or entry.number != number for entry in waiting)

    def position_of(self, source: Seat, number: int) -> int:
        """Under which number it is committed; 0 if that is no longer kept."""
        for position, entry in reversed(self.between(self.base, self.committed)):
            if entry.number == number and entry.source == source:
                return position
        return 0

    def _receive_appended(self, appended: Appended) -> list[Effect]:
        ballot = self.lineup.ballot
        if appended.ballot != ballot or ballot.node != self._own.node:
            return []
        self._held[appended.seat] = max(self._held.get(appended.seat, 0), appended.end)
        campaign = self._campaign
        if campaign is None:
            self._commit()
            return []
        if campaign.state is None:
            return []
        campaign.accepted.add(appended.seat)
        accepted = campaign.accepted
        if not (campaign.has(accepted) and is_majority(campaign.seats, accepted)):
            return []
        return self._become_leader(campaign)

    def _become_leader(self, campaign: Campaign) -> list[Effect]:
        self._campaign = None
        self.lineup = Lineup(campaign.ballot, campaign.seats, active=True)
        self.committed = self.end
        self._open_bytes = 0
        stay = {seat.node for seat in campaign.seats}
        active = LogAppend(self.topic, campaign.ballot, self.end, (), True)
        retired = Retired(self.topic, self.lineup)
        return self._to(stay, active) + self._to(campaign.nodes() - stay, retired)

    def _commit(self) -> None:
        """What a majority holds is committed."""
        if self.lineup.active:
            seats = self.lineup.seats
            ends = sorted((self._held.get(seat, 0) for seat in seats), reverse=True)
            for _, entry in self.between(self.committed, ends[len(seats) // 2]):
                self._open_bytes -= len(entry.body)
            self.committed = max(self.committed, ends[len(seats) // 2])

    # --- following -------------------------------------------------------------------------------

    def receive(self, sender: NodeId, message: GroupMessage, now: Instant) -> list[Effect]:
        match message:
            case Prepare(_, ballot):
                if ballot < self.promised:
                    return [ToNode(sender, Outvoted(self.topic, self.promised))]
                self._follow(ballot)
                promise = Promise(self.topic, ballot, self._own, self._state(), self.known)
                return [ToNode(sender, promise)]
            case Promise():
                return self._receive_promise(message, now)
            case Accept(state):
                return self._receive_accept(sender, state)
            case LogAppend():
                return self._receive_append(sender, message)
            case Appended():
                return self._receive_appended(message)
            case Outvoted(_, ballot):
                self._follow(ballot)
            case Hint(_, known):
                self._learn(known)
            case Retired(_, known):
                self._retire(known)
        return []

    def _receive_accept(self, sender: NodeId, state: GroupState) -> list[Effect]:
        ballot = state.lineup.ballot
        if ballot < self.promised:
            return [ToNode(sender, Outvoted(self.topic, self.promised))]
        self._follow(ballot)
        if ballot != self.lineup.ballot or state.end > self.end:
            self._hold(state)
        return [ToNode(sender, Appended(self.topic, ballot, self._own, self.end))]

    def _receive_append(self, sender: NodeId, append: LogAppend) -> list[Effect]:
        if append.ballot < self.promised:
            return [ToNode(sender, Outvoted(self.topic, self.promised))]
        if append.ballot != self.lineup.ballot:
            return []  # the state under this ballot has not come: it will come again
        if append.active and not self.lineup.active:
            self.lineup = msgspec.structs.replace(self.lineup, active=True)
        for number, entry in enumerate(append.entries, append.start):
            if number == self.end:
                self._append(entry)
        return [ToNode(sender, Appended(self.topic, append.ballot, self._own, self.end))]

    def _follow(self, ballot: Ballot) -> None:
        """Follow no lesser ballot than this."""
        if ballot > self.promised:
            self.promised = ballot
            self._campaign = None

    def _learn(self, known: Lineup) -> None:
        """There is a group that we may know nothing of."""
        if known.ballot > self.known.ballot or (known.ballot == self.known.ballot and known.active):
            self.known = known

    def _retire(self, known: Lineup) -> None:
        """It goes on without us. Promises are not forgotten; the log is of no use any more."""
        self._learn(known)
        if known.ballot >= self.lineup.ballot and self._own not in known.seats:
            self.lineup = Lineup()
            self.base, self._entries, self._sources = self.record.first, deque(), {}
            self._log_bytes = 0

    # --- time ------------------------------------------------------------------------------------

    def repeat(self, now: Instant) -> list[Effect]:
        """Ask those again that have not answered."""
        if now < self._repeat_due:
            return []
        self._repeat_due = Instant(now + self._settings.lead_repeat)
        campaign = self._campaign
        if self._inquiry is not None:
            return self._inquire(self._inquiry, now)
        if campaign is None:
            return self._catch_up() if self.is_leader else []
        if campaign.state is None:
            return self.lead(campaign.seats, now)
        groups = (*campaign.groups.values(), campaign.seats)
        silent = {s.node for group in groups for s in group if s not in campaign.accepted}
        return self._to(silent, Accept(campaign.state))

    def _catch_up(self) -> list[Effect]:
        """Send each seat what it lacks."""
        effects: list[Effect] = []
        for seat in self.lineup.seats:
            held = self._held.get(seat, 0)
            if seat == self._own or held >= self.end:
                continue
            if held < self.base:
                effects.append(ToNode(seat.node, Accept(self._state())))
                continue
            entries = tuple(entry for _, entry in self.between(held, held + CATCH_UP_MAX))
            append = LogAppend(self.topic, self.lineup.ballot, held, entries, True)
            effects.append(ToNode(seat.node, append))
        return effects

    # --- the log ---------------------------------------------------------------------------------

    def _state(self) -> GroupState:
        entries, sources = tuple(self._entries), tuple(self._sources.items())
        return GroupState(self.record, self.lineup, self.base, entries, sources)

    def _hold(self, state: GroupState) -> None:
        self.record, self.lineup = state.record, state.lineup
        self.base, self._entries = state.base, deque(state.entries)
        self._sources = dict(state.sources)
        self._held = {}
        self._log_bytes = sum(len(entry.body) for entry in state.entries)

    def _append(self, entry: LogEntry) -> None:
        self._entries.append(entry)
        self._log_bytes += len(entry.body)
        self._sources.pop(entry.source, None)
        self._sources[entry.source] = entry.number
        if len(self._sources) > self._settings.sources_max:
            del self._sources[next(iter(self._sources))]
        settings = self._settings
        while len(self._entries) > settings.buffer_events_max or (
            self._log_bytes > settings.buffer_bytes_max and len(self._entries) > 1
        ):
            self._log_bytes -= len(self._entries.popleft().body)
            self.base += 1

    def check(self) -> None:
        assert self.lineup.ballot <= self.promised, "I1"
        if self.is_leader:
            assert self.committed <= self.end, "I2"
        assert len(self._entries) <= self._settings.buffer_events_max
        assert self._log_bytes == sum(len(entry.body) for entry in self._entries)
