"""Schedule: whose input is worked off next, so that no client makes the others wait.

Theory of operation
    A read may bring thousands of messages, and each may take long. A link works them off while its
    share of the loop's turn lasts; what is left waits in the link, which reads nothing more until
    it is done. In each turn of the loop all clients together get `TURN_S`, those who wait in the
    order of the time that they took of late, the least first, `SHARE_S` at a time. So a client that
    asks for little is served in the next turn, however many others ask for much. A message is
    never cut: one that takes longer than a share is the only one of that share.
    Links between brokers do not wait: they carry what clients of other brokers wait for.

Invariants
    I1  a link that has messages which were read and not worked off waits here, and reads nothing
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

TURN_S = 0.02
"""For all clients in one turn of the loop; beyond it those who wait, wait for the next."""

SHARE_S = 0.01
"""For one client at a time."""

FORGOTTEN_S = 1.0
"""After this time, what a client has taken counts half."""


class Worker(Protocol):
    """A link, as far as it takes time."""

    def work(self, is_over: Callable[[], bool]) -> bool:
        """Work off messages until there are none or `is_over`; whether there are more."""
        ...

    def wait_turn(self) -> None:
        """Read nothing more, until `go_on`."""
        ...

    def go_on(self) -> None: ...


class Schedule:
    """The time of one broker's loop, as far as clients take it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[Worker, None] = {}
        self._used: dict[Worker, tuple[float, float]] = {}  # seconds that it took, and as of when
        self._until_s: float | None = None  # the end of this turn's time; None: no turn has begun

    def serve(self, link: Worker) -> None:
        """Messages have come for this link."""
        if link in self._waiting:
            return
        now_s = self._clock()
        until_s = self._begin_turn(now_s) if self._until_s is None else self._until_s
        if now_s >= until_s or self._work(link, now_s) or self._clock() - now_s >= SHARE_S:
            self._waiting[link] = None
            link.wait_turn()

    def leave(self, link: Worker) -> None:
        """It is gone."""
        self._waiting.pop(link, None)
        self._used.pop(link, None)

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def _begin_turn(self, now_s: float) -> float:
        """When its time is over."""
        self._until_s = now_s + TURN_S
        asyncio.get_running_loop().call_soon(self._next_turn)
        return self._until_s

    def _next_turn(self) -> None:
        self._until_s = None
        now_s = self._clock()
        if not self._waiting:
            self._used = {link: used for link, used in self._used.items() if self._counts(used)}
            return
        until_s = self._begin_turn(now_s)
        for link in sorted(self._waiting, key=lambda each: self._used_s(each, now_s)):
            if now_s >= until_s:
                break
            if link in self._waiting and not self._work(link, now_s):
                self._waiting.pop(link, None)  # it may have left, by another's work or its own
                link.go_on()
            now_s = self._clock()

    def _work(self, link: Worker, now_s: float) -> bool:
        """Whether there is more."""
        clock, end_s = self._clock, now_s + SHARE_S
        has_more = link.work(lambda: clock() >= end_s)
        taken_s = clock() - now_s
        if has_more or taken_s > SHARE_S or link in self._used:
            self._used[link] = (self._used_s(link, now_s) + taken_s, now_s)
        return has_more

    def _used_s(self, link: Worker, now_s: float) -> float:
        used_s, at_s = self._used.get(link, (0.0, now_s))
        return used_s * float(0.5 ** ((now_s - at_s) / FORGOTTEN_S))

    def _counts(self, used: tuple[float, float]) -> bool:
        return used[0] * float(0.5 ** ((self._clock() - used[1]) / FORGOTTEN_S)) > SHARE_S / 10
