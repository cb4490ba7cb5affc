"""The disk: makes a node's writes durable off the event loop, and says so back on it, in order.

Theory of operation
    Each `Persist` of a turn of the loop goes to the volume's group commit at its end, whose thread
    takes all that waits into one sync. When it is done the thread leaves a note and wakes the loop
    once for all notes there are; the loop then carries out what each write carried with it, in the
    order of the writes. What takes longer than `TURN_S` is left for the next turn of the loop.
    That there is no room is logged once, and once when there is room again: when a write succeeds
    that is no smaller than one that was refused, and of the same kinds. What is smaller, or gives
    space back, finds room in a full volume too, and says nothing.

Invariants
    I1  `then` is carried out only after all writes of its `Persist` are durable
    I2  outcomes come in the order of `write`
    I3  after a failure that is not a full disk, nothing more is carried out

Bounds: the node has one write under way per pubend, one promise, and what is being staged, each of
bounded size; so what waits here is bounded by the network file.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from gapless.broker.logs import logger
from gapless.client.telemetry import trace_commit
from gapless.core.effects import Append, Put
from gapless.core.errors import StorageFullError
from gapless.storage.group import GroupCommit, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.effects import Effect, Persist, Write
    from gapless.storage.group import CommitPipeline
    from gapless.storage.volume import Volume

UNBOUNDED = 1 << 40  # see "Bounds"

TURN_S = 0.01
"""How long outcomes may take in one turn; the last one begins before that."""


class Shortage:
    """Whether there is no room for writes, as the log tells it."""

    def __init__(self) -> None:
        self._kinds: set[type[Write]] = set()  # of the smallest write that was refused; its size
        self._size = 0

    def refused(self, writes: Sequence[Write], error: StorageFullError) -> None:
        size = size_of(writes)
        if not self._size:
            logger.warning("no room: publications are refused", extra={"reason": str(error)})
        if not self._size or size < self._size:
            self._kinds, self._size = kinds_of(writes), size

    def written(self, writes: Sequence[Write]) -> None:
        if self._size and size_of(writes) >= self._size and kinds_of(writes) >= self._kinds:
            self._size = 0
            logger.info("there is room again: publications are taken")


def kinds_of(writes: Sequence[Write]) -> set[type[Write]]:
    """Of those that take up space."""
    return {type(each) for each in writes if isinstance(each, Append | Put)}


class Disk:
    """Writes of one node on their way to the volume. Call it from the loop's thread only."""

    def __init__(
        self,
        volume: Volume,
        carry_out: Callable[[Sequence[Effect]], None],
        fail: Callable[[BaseException], None],
        pipeline: CommitPipeline | None = None,
    ) -> None:
        """`pipeline`: the way of commits into a store, if they go there too."""
        self.volume = volume
        self.pending = 0
        self.full = 0  # how often there was no room
        self._fresh: list[Persist] = []
        self._carry_out = carry_out
        self._fail = fail
        self._group = GroupCommit(
            volume, waiting_max=UNBOUNDED, waiting_bytes_max=None, pipeline=pipeline
        )
        self._loop = asyncio.get_running_loop()
        self._done: deque[tuple[Persist, BaseException | None]] = deque()
        self._is_waking = False
        self._idle: list[asyncio.Future[None]] = []
        self._has_failed = False
        self._shortage = Shortage()

    def write(self, effect: Persist) -> None:
        """It is begun with the next `flush`."""
        self.pending += 1
        self._fresh.append(effect)

    def flush(self) -> None:
        """All writes of this turn are begun together, so that they share a sync."""
        if self._fresh:
            fresh, self._fresh = self._fresh, []
            self._group.submit_each([(each.writes, partial(self._note, each)) for each in fresh])

    def _note(self, effect: Persist, error: BaseException | None) -> None:
        """On the committing thread, in order: leave a note, wake the loop if it is not awake."""
        self._done.append((effect, error))
        if not self._is_waking:
            self._is_waking = True
            with suppress(RuntimeError):  # the loop is gone, and with it who would care
                self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        self._is_waking = False  # before looking: a note left from now on wakes us again
        end_s = monotonic() + TURN_S
        while self._done:
            effect, error = self._done.popleft()
            self.pending -= 1
            if self._has_failed:
                continue
            if error is None:
                self._shortage.written(effect.writes)
                trace_commit(effect.writes)
                self._carry_out(effect.then)
            elif isinstance(error, StorageFullError):
                self.full += 1
                self._shortage.refused(effect.writes, error)
                self._carry_out(effect.otherwise)
            else:
                self._has_failed = True
                self._fail(error)
            if self._done and monotonic() >= end_s:
                self._is_waking = True
                self._loop.call_soon(self._take)
                return
        if not self.pending:
            for waiter in self._idle:
                if not waiter.done():
                    waiter.set_result(None)
            self._idle.clear()

    async def wait_idle(self) -> None:
        """Until no write is under way, including those that outcomes of writes led to."""
        while self.pending and not self._has_failed:
            waiter = self._loop.create_future()
            self._idle.append(waiter)
            await waiter

    async def close(self) -> None:
        """Finish what is queued, then close the volume. Outcomes are not carried out any more."""
        self.flush()
        self._has_failed = True
        await asyncio.to_thread(self._group.close)
        await asyncio.to_thread(self.volume.close)
