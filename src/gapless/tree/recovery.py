"""Recovery: what happens when a session becomes active, before anything else is sent on it.

Theory of operation
    An active session begins with a synchronisation. We ask what the other has (`SyncStart`); it
    answers with the names of its subscriptions (`SyncSummary`); we send those it lacks, and those
    whose tags it may clear, and `SyncEnd`. Only then is the session *live*, and the queue flows. So
    a broker that gets a publication from us has every subscription by which we sent it there.
    A session is over when its connection is lost, or when a nearer broker can be reached; the next
    time it begins anew.
    A broker that restarted or joined has nothing. It asks for all that the others have, and is
    *ready*, and takes publications of its own, once all its nearest brokers have told it, and there
    is at least one. A broker that is not ready says that this was all only when all others have
    told it; so several that restart together learn from the outside in. A broker that has not been
    let in yet is not ready, and lets no other in: they would take each other for the whole tree.

    States of a session (`TRANSITIONS`): ASKING, then LIVE, then it is gone.

Invariants
    I1  exactly the active brokers of the frontier have a session
    I2  a session is over before its connection is anew: a lost one has failed, if only for a step

Source: SRDS 2011, sec. VIII. Deviation: all that waits in order waits here too: a confirmation of a
subscription goes out only after every publication queued before it was complete has gone the same
way or is settled (the flush rule, docs/protocols/reliable-tree.md, 3.6), for new subscriptions as
for recovered ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gapless.tree.frontier import Frontier, explore
from gapless.tree.messages import Position, PublicationRun, SubscriptionOffer, SyncStart

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, Instant
    from gapless.tree.connections import Connections
    from gapless.tree.messages import CarriedMessage
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.settings import TreeSettings


class SessionPhase(Enum):
    """Where a session stands."""

    ASKING = "asking"
    LIVE = "live"


TRANSITIONS: dict[SessionPhase, frozenset[SessionPhase]] = {
    SessionPhase.ASKING: frozenset({SessionPhase.LIVE}),
    SessionPhase.LIVE: frozenset(),
}


@dataclass(slots=True)
class ActiveSession:
    """One active session, on one connection."""

    connection: Position
    phase: SessionPhase = SessionPhase.ASKING

    def become_live(self) -> None:
        assert SessionPhase.LIVE in TRANSITIONS[self.phase]
        self.phase = SessionPhase.LIVE


class Sessions:
    """The active sessions of one broker, and what is to be sent on them."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        connections: Connections,
        settings: TreeSettings,
    ) -> None:
        self._neighbourhood = neighbourhood
        self._connections = connections
        self._settings = settings
        self.is_ready = False
        self.is_joining = False  # there are others, though we know none yet
        self._sessions: dict[BrokerName, ActiveSession] = {}
        self._told: dict[
            BrokerName, Position
        ] = {}  # brokers that sent us all they have, on which session
        self._looked_at = (-1, 0, 0)
        self.frontier = Frontier()
        self.active: frozenset[BrokerName] = frozenset()
        self._failed_at: dict[BrokerName, Instant] = {}
        self.effects: list[Effect] = []
        self._outgoing: dict[BrokerName, list[CarriedMessage]] = {}

    def send(self, to: BrokerName, message: CarriedMessage) -> None:
        """It goes at the end of the step, with all else for the same broker."""
        self._outgoing.setdefault(to, []).append(message)

    def has_mail(self, to: BrokerName) -> bool:
        """Does something go there at the end of the step?"""
        return to in self._outgoing

    def take_effects(self) -> list[Effect]:
        """All that this step comes to; what goes to one broker goes in batches."""
        effects, self.effects = self.effects, []
        outgoing, self._outgoing = self._outgoing, {}
        for to, messages in outgoing.items():
            for batch in batches(messages, self._settings):
                effects += self._connections.send(to, batch)
        return effects

    def connection(self, to: BrokerName) -> Position | None:
        """The name of the connection; None while there is none."""
        return self._connections.session(to) if self._connections.is_up(to) else None

    def refresh(self, now: Instant) -> tuple[list[BrokerName], list[BrokerName]] | None:
        """Look again at which brokers can be reached: sessions that began, and that ended; None: as
        before."""
        known = self._neighbourhood
        state = (self._connections.changes, len(known), len(known.retired))
        if state == self._looked_at:
            return None
        self._looked_at = state
        frontier = explore(self._neighbourhood, self._connections.reach)
        ended = [broker for broker in self._sessions if broker not in frontier.active]
        if frontier == self.frontier and not ended:
            return None
        for broker in ended:
            del self._sessions[broker]
        self.effects += self._connections.want(frontier.wanted, now)
        begun = [broker for broker in frontier.active if broker not in self._sessions]
        for broker in begun:
            self._sessions[broker] = ActiveSession(self._connections.session(broker))
            self.send(broker, SyncStart(known.edges, not self.is_ready, known.retired))
        self.frontier, self.active = frontier, frozenset(frontier.active)
        before = self._failed_at
        self._failed_at = {broker: before.get(broker, now) for broker in frontier.failed}
        return begun, ended

    def away(self, now: Instant) -> frozenset[BrokerName]:
        """Brokers that are out of reach, and not just for a moment."""
        long_ago = now - self._settings.patience
        failed = {broker for broker, at in self._failed_at.items() if at <= long_ago}
        return frozenset(failed.union(self.frontier.retired))

    def go_live(self, broker: BrokerName) -> bool:
        """The other has answered; False if that was about a session that is over."""
        session = self._sessions.get(broker)
        if session is None or session.phase is SessionPhase.LIVE:
            return False
        session.become_live()
        return True

    @property
    def live(self) -> list[BrokerName]:
        return [b for b, session in self._sessions.items() if session.phase is SessionPhase.LIVE]

    @property
    def connected(self) -> list[BrokerName]:
        return self._connections.up()

    def is_live(self, broker: BrokerName) -> bool:
        session = self._sessions.get(broker)
        return session is not None and session.phase is SessionPhase.LIVE

    def told(self, sender: BrokerName) -> None:
        """It has sent us all it has."""
        self._told[sender] = self._connections.session(sender)

    def become_ready(self) -> bool:
        """If we may: once ready, always ready, what is subscribed later comes like all else. Says
        whether we are from now on."""
        if not self.is_ready and not self.is_joining:
            is_alone = not len(self._neighbourhood)
            self.is_ready = self.knows_all() and (bool(self._sessions) or is_alone)
            return self.is_ready
        return False

    def knows_all(self, but: BrokerName | None = None) -> bool:
        """Have all nearest brokers, but one, sent us all they have?"""
        return self.is_ready or (
            not self.frontier.awaited
            and all(
                self._told.get(broker) == session.connection
                for broker, session in self._sessions.items()
                if broker != but
            )
        )

    def check(self) -> None:
        assert self._sessions.keys() == self.active, "I1"
        for broker, session in self._sessions.items():
            assert session.connection == self.connection(broker), "I2"


def batches(
    messages: list[CarriedMessage], settings: TreeSettings
) -> Iterator[tuple[CarriedMessage, ...]]:
    """The messages in order, as few batches as the limits allow."""
    batch: list[CarriedMessage] = []
    count = size = 0
    for message in messages:
        batch.append(message)
        count += 1
        if isinstance(message, PublicationRun):
            count += len(message.numbers) - 1
            size += sum(map(len, message.events.events))
        elif isinstance(message, SubscriptionOffer):
            size += len(message.condition.encode())
        if count >= settings.batch_max or size >= settings.batch_bytes_max:
            yield tuple(batch)
            batch, count, size = [], 0, 0
    if batch:
        yield tuple(batch)
