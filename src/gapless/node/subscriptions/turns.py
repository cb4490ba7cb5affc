"""Turns: which of the sessions that catch up at one broker may ask for more events.

Theory of operation
    Events that were asked for and not sent yet take memory and time, here and on the way. All
    sessions that catch up share `catch_up_total_max` of them, in equal parts for each pubend, so
    that a pubend that is out of reach holds nobody up elsewhere. Where a part is used up, sessions
    stand in line. When there is room again, the first one asks for one window and goes to the end
    of the line. So a thousand clients that return at once take turns, and none waits for ever.

Invariants (checked by `check`)
    I1  open events are counted, by pubend
    I2  at each pubend no more events are open than the total, and one window
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.identity import PubendName, SubscriptionName

    Key = tuple[SubscriptionName, PubendName]


class Turns:
    """The lines of one broker. See the module docstring."""

    def __init__(self, total_max: int) -> None:
        self.total_max = total_max
        self.open: dict[PubendName, dict[SubscriptionName, int]] = {}  # asked for and not sent
        self._count: dict[PubendName, int] = {}  # their sum
        self._line: dict[PubendName, dict[SubscriptionName, None]] = {}

    def _room(self, pubend: PubendName) -> int:
        share = max(1, self.total_max // len({pubend} | self.open.keys() | self._line.keys()))
        return max(0, share - self._count.get(pubend, 0))

    def room_of(self, key: Key) -> int:
        """How many events this session may ask for; none while others stand in line before it."""
        name, pubend = key
        return self._room(pubend) if next(iter(self._line.get(pubend, ())), name) == name else 0

    @property
    def has_line(self) -> bool:
        return bool(self._line)

    def next(self) -> Key | None:
        """The session whose turn it is, if there is one."""
        for pubend, line in self._line.items():
            if self._room(pubend):
                return next(iter(line)), pubend
        return None

    def is_busy(self, key: Key) -> bool:
        """Does the session wait for an answer, or for its turn?"""
        name, pubend = key
        return name in self._line.get(pubend, ()) or name in self.open.get(pubend, ())

    def in_the_way(self) -> Iterator[Key]:
        """The sessions that have events open where others stand in line."""
        for pubend in self._line:
            for name in list(self.open.get(pubend, ())):
                yield name, pubend

    def update(self, key: Key, open_count: int, *, waits: bool) -> None:
        """Note how many events a session has open, and whether it `waits` for its turn to ask."""
        name, pubend = key
        some, line = self.open.setdefault(pubend, {}), self._line.setdefault(pubend, {})
        self._count[pubend] = self._count.get(pubend, 0) + open_count - some.pop(name, 0)
        if open_count:
            some[name] = open_count
        if waits:
            line.setdefault(name)
        else:
            line.pop(name, None)
        if not some:
            del self.open[pubend], self._count[pubend]
        if not line:
            del self._line[pubend]

    def leave(self, key: Key) -> None:
        self.update(key, 0, waits=False)

    def check(self, window: int) -> None:
        for pubend, some in self.open.items():
            assert self._count[pubend] == sum(some.values()), "I1"
            assert self._count[pubend] < self.total_max + window, "I2"
        assert self._count.keys() == self.open.keys(), "I1"
