"""Total order: what one session holds back, so that its client gets all pubends in one order.

Theory of operation
    The order is that of ticks, and where pubends of several topics share a tick, that of their
    names: so it is the same for every subscriber, and does not depend on who merges. The session
    is level or behind at each pubend as in publisher order. What it would send goes in here
    instead, and leaves when no pubend can still have anything before it: below the least position
    that the session has reached. The client is sent runs of events of one pubend each, one after
    another, and its token stays what it is in publisher order: one position for each pubend. So a
    client that returns anywhere with its token goes on in the same order.
    A client that merges several such subscriptions, of several topics, waits for this one: it says
    up to which tick, and is told as soon as everything below that has come (`expect`).
    What is held is bounded for each pubend apart. A pubend that is ahead stops there and falls
    behind, while one that lags always finds room: they cannot block each other.

Invariants (checked by `check`)
    I1  what is held ascends at each pubend, and was not sent
    I2  a pubend holds no more than its part of what a client may have outstanding, or one batch
    I3  no position moves back

Source: DSN 2002, sec. 2.3 (merge); decision 0054.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.ticks import Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gapless.core.identity import PubendName
    from gapless.node.config import Config

Held = tuple[int, bytes | Span]
"""The tick of an event, and the event; or where a loss starts, and the loss."""


class Run(NamedTuple):
    """What goes to the client in one piece: events of one pubend, or a loss; then a position."""

    pubend: PubendName
    ticks: list[int]
    events: list[bytes]
    lost: Span | None
    through: int


class TotalOrder:
    """Of one session. See the module docstring."""

    def __init__(self, starts: Mapping[PubendName, int], config: Config) -> None:
        self.sent = dict(starts)  # by pubend: the client was told of everything before it
        self._held: dict[PubendName, deque[Held]] = {pubend: deque() for pubend in sorted(starts)}
        self._sizes = dict.fromkeys(self._held, 0)
        self._counts = dict.fromkeys(self._held, 0)  # of events: losses take no room
        self._count_max = max(1, config.client_queue_max // len(starts))
        self._bytes_max = config.client_queue_bytes_max // len(starts)
        self._batch_longest = 0
        self._silent: dict[PubendName, int] = {}  # positions that the client was not told of
        self._expected = 0  # the client waits to be told that all below it has come

    def room(self, pubend: PubendName) -> int:
        """How many more events of this pubend may be held."""
        if self._sizes[pubend] >= self._bytes_max:
            return 0
        return max(0, self._count_max - self._counts[pubend])

    def add(self, pubend: PubendName, ticks: Sequence[int], events: Sequence[bytes]) -> bool:
        """Hold these events; False: there is no room for them."""
        if self._counts[pubend] and self.room(pubend) < len(ticks):
            return False
        if not self._counts[pubend]:
            self._batch_longest = max(self._batch_longest, len(ticks))
        self.hold(pubend, ticks, events)
        return True

    def hold(self, pubend: PubendName, ticks: Sequence[int], events: Sequence[bytes]) -> None:
        """Hold these events: the caller has asked for no more than there was room for."""
        self._held[pubend].extend(zip(ticks, events, strict=True))
        self._counts[pubend] += len(ticks)
        self._sizes[pubend] += sum(map(len, events))

    def lose(self, pubend: PubendName, span: Span) -> None:
        """Hold the news of a loss."""
        self._held[pubend].append((span.start, span))

    def expect(self, tick: int) -> None:
        """The client waits until everything below this tick has come."""
        self._expected = max(self._expected, tick)

    @property
    def is_expected(self) -> bool:
        """Does the client wait to be told of a position?"""
        return self._expected > 0 and any(sent < self._expected for sent in self.sent.values())

    @property
    def latest(self) -> int:
        """The last tick that is held, or that the client waits for; 0: nothing is."""
        held = max((held[-1][0] for held in self._held.values() if held), default=0)
        return max(held, self._expected - 1) if self.is_expected else held

    def take(self, reached: Mapping[PubendName, int], credit: int) -> list[Run]:
        """What may leave, at most `credit` events. `reached`: everything before it is held here
        or was sent, by pubend."""
        end = min(reached.values())
        heads = [(held[0][0], p) for p, held in self._held.items() if held and held[0][0] < end]
        heapify(heads)
        runs: list[Run] = []
        while heads:
            tick, pubend = heads[0]
            held = self._held[pubend]
            item = held[0][1]
            if isinstance(item, Span):
                runs.append(Run(pubend, [], [], item, item.end))
            elif credit <= 0:
                break
            else:
                credit -= 1
                self._sizes[pubend] -= len(item)
                self._counts[pubend] -= 1
                if not runs or runs[-1].pubend != pubend or runs[-1].lost:
                    runs.append(Run(pubend, [], [], None, 0))
                runs[-1].ticks.append(tick)
                runs[-1].events.append(item)
            held.popleft()
            if held and held[0][0] < end:
                heapreplace(heads, (held[0][0], pubend))
            else:
                heappop(heads)
        return self._positioned(runs, heads[0] if heads else (end, ""))

    def _positioned(self, runs: list[Run], rest: tuple[int, str]) -> list[Run]:
        """The same, each with the position after it. `rest`: the first that may not leave."""
        tick, at = rest
        positions = {pubend: tick + (pubend < at) for pubend in self._held}
        positioned: list[Run] = []
        for run in reversed(runs):
            # The last run of a pubend says how far all is known; one before it, where it ends.
            end = run.ticks[-1] + 1 if run.ticks else run.through
            positioned.append(run._replace(through=max(end, positions.pop(run.pubend, 0))))
        positioned.reverse()
        for run in positioned:
            self.sent[run.pubend] = max(self.sent[run.pubend], run.through)
        self._silent = {p: through for p, through in positions.items() if through > self.sent[p]}
        return positioned

    def take_silence(self) -> list[Run]:
        """Positions that moved without an event up to the last `take`."""
        silent, self._silent = self._silent, {}
        self.sent.update(silent)
        return [Run(pubend, [], [], None, through) for pubend, through in silent.items()]

    def check(self) -> None:
        for pubend, held in self._held.items():
            ticks = [tick for tick, _ in held]
            assert ticks == sorted(ticks), "I1"
            assert not ticks or ticks[0] >= self.sent[pubend], "I1"
            events = [item for _, item in held if not isinstance(item, Span)]
            assert self._sizes[pubend] == sum(map(len, events)), "I2"
            assert self._counts[pubend] == len(events), "I2"
            assert len(events) <= max(self._count_max, self._batch_longest), "I2"
