"""The stream of an ordered topic at one node: what it has, what it may deliver, what it lacks.

Theory of operation
    The root numbers events one by one. A node starts where its parent stands, hands events out in
    the order of their numbers and holds what comes too early. What was handed out is kept for a
    while, for children that missed it. Heartbeats say how far the parent is: so a loss at the very
    end is seen too. What is lacking is asked for; what no node keeps any more is told as missed.

Invariants (checked by `check`)
    I1  nothing is held below the first kept number, and what is kept has no holes below `position`
    I2  `position` never moves back

Source: the Scribe paper, section 4.2: buffers, numbers, retransmission on repair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.scribe.messages import TreeEvent


class Stream:
    """See the module docstring."""

    __slots__ = ("_bytes", "_bytes_max", "_kept_max", "_start", "events", "known", "position")

    def __init__(self, kept_max: int, bytes_max: int = 4 << 20) -> None:
        self.position: int | None = None  # the next number to hand out; none: not started
        self.known = 0  # some node has all numbers below this
        self.events: dict[int, TreeEvent] = {}
        self._start = 0  # the first number that is kept
        self._kept_max = kept_max
        self._bytes_max = bytes_max  # of what was handed out, and again of what came early
        self._bytes = 0

    def begin(self, position: int) -> list[TreeEvent]:
        """Everything from here on is ours; what of it came early may be handed out now."""
        assert self.position is None
        self.position = self._start = position
        self.known = max(self.known, position)
        self._keep_from(position)
        return self._advance()

    def _keep_from(self, start: int) -> None:
        self.events = {n: event for n, event in self.events.items() if n >= start}
        self._bytes = sum(len(event.body) for event in self.events.values())

    def take(self, event: TreeEvent) -> tuple[bool, list[TreeEvent]]:
        """Is the event new to us, and which may be handed out now?"""
        number = event.number
        if number in self.events or number < self._start:
            return False, []
        if self.position is not None and number >= self.position + self._kept_max:
            return False, []  # too early to hold: it will be asked for
        self.known = max(self.known, number + 1)
        size = len(event.body)
        if number != self.position and self._bytes + size > 2 * self._bytes_max:
            return False, []  # the same
        if self.position is None and len(self.events) >= self._kept_max:
            self._forget(min(self.events))
        self.events[number] = event
        self._bytes += size
        return True, self._advance()

    def _advance(self) -> list[TreeEvent]:
        ready: list[TreeEvent] = []
        if self.position is None:
            return ready
        while self.position in self.events:
            ready.append(self.events[self.position])
            self.position += 1
        while self.position - self._start > self._kept_max or (
            self._bytes > self._bytes_max and self._start < self.position
        ):
            self._forget(self._start)
            self._start += 1
        return ready

    def _forget(self, number: int) -> None:
        self._bytes -= len(self.events.pop(number).body)

    def keep_older(self, events: list[TreeEvent]) -> None:
        """As root, from the log: what came before we began, consecutive and just below."""
        for event in reversed(events):
            room = self._bytes_max - self._bytes - len(event.body)
            if event.number == self._start - 1 and len(self.events) < self._kept_max and room > 0:
                self.events[event.number] = event
                self._bytes += len(event.body)
                self._start = event.number

    def learn(self, position: int) -> None:
        """Some node has everything below."""
        self.known = max(self.known, position)

    @property
    def lacking(self) -> tuple[int, int] | None:
        """The first span that others have and we do not."""
        if self.position is None or self.position >= self.known:
            return None
        beyond = [number for number in self.events if number >= self.position]
        return self.position, min(beyond, default=self.known)

    def within(self, start: int, end: int) -> list[TreeEvent] | None:
        """What we keep of a span that others lack; None unless we have all up to where we are."""
        if self.position is None or start < self._start or start > self.position:
            return None
        return [self.events[n] for n in range(start, min(end, self.position))]

    def skip(self, start: int) -> tuple[tuple[int, int] | None, list[TreeEvent]]:
        """No node keeps what is below `start`: what we miss of it, and what may be handed out."""
        if self.position is None or start <= self.position:
            return None, []
        missed = self.position, start
        self._keep_from(start)
        self.position = self._start = start
        self.known = max(self.known, start)
        return missed, self._advance()

    @property
    def kept_from(self) -> int:
        return self._start

    def check(self) -> None:
        assert all(number >= self._start for number in self.events), "I1"
        if self.position is not None:
            assert all(n in self.events for n in range(self._start, self.position)), "I1"
            assert self.position not in self.events, "I1"
        assert len(self.events) <= 2 * self._kept_max + 1
        assert self._bytes == sum(len(event.body) for event in self.events.values())
