"""Connections: which brokers can be reached; numbered batches that arrive in order or not at all.

Theory of operation
    Each end of a connection names its session; a session's number is never used again. Beats carry
    the own session and the last one heard from the other end. A connection is UP at one end once a
    beat shows that the other end heard of this very session: both directions work.
    Whatever goes wrong ends the session and begins another: no such beat within `patience`, a
    message missing among the numbered ones, or a new session at the other end. The end that begins
    anew says so at once, without waiting for its next beat. So both ends fall together, one after
    the other, and each of them knows that what was under way may be lost.
    A broker beats to the brokers it wants to reach, and answers every beat of others. A broker that
    is wanted and does not answer within `patience` has FAILED, and is beaten to all the same.

Invariants
    I1  what is handed on of a session is a prefix of what was sent on it, each batch once
    I2  a deadline is set exactly for brokers that are CONNECTING or UP

Cost: one beat for each wanted broker and `beat_every`.

Source: SRDS 2011, sec. II: eventually strong, eventually accurate detection, FIFO sessions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from gapless.core.effects import Send
from gapless.core.identity import Instant
from gapless.tree.messages import Beat, Carried, Position

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.identity import BrokerName
    from gapless.tree.messages import CarriedMessage
    from gapless.tree.settings import TreeSettings


class Reach(Enum):
    """What a broker believes of another."""

    IDLE = "idle"  # it is not needed
    CONNECTING = "connecting"
    UP = "up"
    FAILED = "failed"


@dataclass(slots=True)
class ConnectionEnd:
    """One end of a connection. See the module docstring."""

    session: Position
    reach: Reach = Reach.IDLE
    theirs: Position | None = None
    sent: int = 0
    received: int | None = 0  # None: nothing more is taken of this session of theirs
    deadline: Instant | None = None


class Connections:
    """All connections of one broker."""

    def __init__(self, epoch: int, settings: TreeSettings) -> None:
        self._epoch = epoch
        self._settings = settings
        self._sessions = 0
        self._ends: dict[BrokerName, ConnectionEnd] = {}
        self._wanted: tuple[BrokerName, ...] = ()
        self.beat_at = Instant(0)
        self.changes = 0
        """Grows whenever a broker's reach or our session with it changes."""

    def reach(self, broker: BrokerName) -> Reach:
        return self._end(broker).reach

    def is_up(self, broker: BrokerName) -> bool:
        return self._end(broker).reach is Reach.UP

    def up(self) -> list[BrokerName]:
        return [broker for broker, end in self._ends.items() if end.reach is Reach.UP]

    def session(self, broker: BrokerName) -> Position:
        """Changes whenever the connection has been lost."""
        return self._end(broker).session

    def want(self, brokers: Iterable[BrokerName], now: Instant) -> list[Send]:
        """From now on reach out for these, and no others."""
        wanted = tuple(brokers)
        new = [broker for broker in wanted if self._end(broker).reach is Reach.IDLE]
        for broker in new:
            end = self._end(broker)
            end.reach, end.deadline = Reach.CONNECTING, Instant(now + self._settings.patience)
        for broker in self._wanted:
            end = self._end(broker)
            if broker not in wanted and end.reach in (Reach.FAILED, Reach.CONNECTING):
                end.reach, end.deadline = Reach.IDLE, None
        self._wanted = wanted
        return [self._beat(broker) for broker in new]

    def send(self, to: BrokerName, messages: tuple[CarriedMessage, ...]) -> list[Send]:
        """Carry them, if there is a connection. A caller that needs them to arrive sends them again
        on the next one."""
        end = self._end(to)
        if end.reach is not Reach.UP:
            return []
        end.sent += 1
        return [Send(to, Carried(end.session, end.sent - 1, messages))]

    def receive_beat(self, sender: BrokerName, beat: Beat, now: Instant) -> list[Send]:
        end = self._end(sender)
        if end.theirs is not None and beat.session < end.theirs:
            return []  # of a former life
        before = (end.session, end.theirs, end.reach)
        if beat.session != end.theirs:
            self._lose(end)
            end.theirs, end.received = beat.session, 0
        elif end.received is not None and beat.sent > end.received:
            self._lose(end)  # something went missing
        if (
            beat.heard == end.session == before[0]
        ):  # of one that began just now the other has not heard
            if end.received is None:
                end.received = 0  # they know our new session and kept theirs: it was never used
            end.reach, end.deadline = Reach.UP, Instant(now + self._settings.patience)
        is_changed = before != (end.session, end.theirs, end.reach)
        self.changes += is_changed
        is_asked = sender not in self._wanted and not beat.is_answer
        return [self._beat(sender, is_answer=not is_changed)] if is_changed or is_asked else []

    def receive(
        self, sender: BrokerName, carried: Carried
    ) -> tuple[tuple[CarriedMessage, ...], list[Send]]:
        """What came, if it is next in order; and a beat at once, if something is missing."""
        end = self._end(sender)
        if carried.session != end.theirs or end.received is None or end.reach is not Reach.UP:
            return (), []  # not UP: it could not be answered; that it is missing will be noticed
        if carried.number > end.received:
            self._lose(end)
            return (), [self._beat(sender)]
        if carried.number < end.received:
            return (), []
        end.received += 1
        return carried.messages, []

    def fire(self, now: Instant) -> list[Send]:
        """Give up brokers that are silent for too long; beat, if it is time to."""
        for broker, end in self._ends.items():
            if end.deadline is not None and now >= end.deadline:
                self.give_up(broker)
        if now < self.beat_at:
            return []
        self.beat_at = Instant(now + self._settings.beat_every)
        return [self._beat(broker) for broker in self._wanted]

    def greet(self, broker: BrokerName) -> list[Send]:
        """There is a new link to it, and what was sent on an old one may be lost: let it see what,
        before the next beat is due."""
        return [self._beat(broker)] if broker in self._wanted else []

    def give_up(self, broker: BrokerName) -> None:
        """It is silent for too long, or its link broke: there is no connection."""
        end = self._end(broker)
        if end.reach in (Reach.CONNECTING, Reach.UP):
            self._lose(end)
            end.deadline = None
            end.reach = Reach.FAILED if broker in self._wanted else Reach.IDLE
            self.changes += 1

    @property
    def deadline(self) -> Instant:
        return min([self.beat_at, *(e.deadline for e in self._ends.values() if e.deadline)])

    def check(self) -> None:
        for end in self._ends.values():
            waits = end.reach in (Reach.CONNECTING, Reach.UP)
            assert waits == (end.deadline is not None), "I2"

    def _end(self, broker: BrokerName) -> ConnectionEnd:
        if broker not in self._ends:
            self._ends[broker] = ConnectionEnd(self._next_session())
        return self._ends[broker]

    def _next_session(self) -> Position:
        self._sessions += 1
        return Position(self._epoch, self._sessions)

    def _lose(self, end: ConnectionEnd) -> None:
        if end.reach is Reach.UP:
            self.changes += 1
            end.session = self._next_session()
            end.sent, end.received = 0, None
            end.reach, end.deadline = Reach.FAILED, None

    def _beat(self, broker: BrokerName, *, is_answer: bool = False) -> Send:
        end = self._end(broker)
        return Send(broker, Beat(end.session, end.theirs, end.sent, is_answer))
