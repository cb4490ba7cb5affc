"""Group commit: many writers, one sync for all that waited.

Theory of operation
    `submit` puts a commit at the end of a queue and returns a future. One thread takes everything
    that waits, up to `commit_bytes_max`, commits it at once and resolves the futures in order.
    While it waits for the disk the next group gathers, so groups grow with the load by
    themselves; a lone write goes at once, and nothing ever waits on a timer.
    Each commit keeps its own fate: one that is refused gets its error and the others go on. If
    the disk fails, all of the group get that error and none of it is visible. If the volume is
    full, nothing was written, so each is tried alone: a chop in the group still goes through.

Bounds
    At most `waiting_max` commits and `waiting_bytes_max` bytes wait (a single larger commit is
    let in when nothing waits). Beyond, `submit` blocks until there is room, which is the
    back-pressure for threads. With `wait=False`, for an event loop, it refuses instead with
    `StorageRefusedError`: the caller holds the work back until a future resolves.

Invariants
    I1  commits become durable in the order of `submit`
    I2  after `close` every future is resolved
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING

from gapless.core.effects import Append, Put
from gapless.core.errors import StorageError, StorageFullError, StorageRefusedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.effects import Write
    from gapless.storage.volume import Volume

WRITE_OVERHEAD_BYTES = 64
"""Counted per write besides its records, so that empty ones have a bound too."""


def size_of(writes: Sequence[Write]) -> int:
    size = WRITE_OVERHEAD_BYTES * len(writes)
    for write in writes:
        match write:
            case Append(_, _, records):
                size += sum(map(len, records)) + 16 * len(records)
            case Put(_, _, value):
                size += len(value)
            case _:
                pass
    return size


class GroupCommit:
    """The one that commits to a volume on behalf of many. See the module docstring."""

    def __init__(
        self, volume: Volume, *, waiting_max: int = 10_000, waiting_bytes_max: int = 64 << 20
    ) -> None:
        self._volume = volume
        self._waiting_max = waiting_max
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting: deque[tuple[Sequence[Write], int, Future[None]]] = deque()
        self._waiting_bytes = 0
        self._is_closing = False
        lock = threading.Lock()
        self._work = threading.Condition(lock)
        self._room = threading.Condition(lock)
        self._thread = threading.Thread(target=self._run, name="gapless-commit", daemon=True)
        self._thread.start()

    def submit(self, writes: Sequence[Write], *, wait: bool = True) -> Future[None]:
        """A future that is done when `writes` are durable, or failed with their error."""
        with self._work:
            future = self._put(writes, wait=wait)
            self._work.notify()
        return future

    def submit_each(self, commits: Sequence[Sequence[Write]]) -> list[Future[None]]:
        """The same for several at once, so that they can share a sync."""
        with self._work:
            futures = [self._put(writes) for writes in commits]
            self._work.notify()
        return futures

    def _put(self, writes: Sequence[Write], *, wait: bool = True) -> Future[None]:
        """Into the queue, once there is room; the lock is held."""
        size = size_of(writes)
        while not self._is_closing and not self._has_room(size):
            if not wait:
                raise StorageRefusedError(
                    f"{len(self._waiting)} commits of {self._waiting_bytes} bytes wait already",
                    "Hold the work back until an earlier commit is done, then submit again.",
                )
            self._work.notify()  # what was put in just now may make room
            self._room.wait()
        if self._is_closing:
            raise StorageError("the volume is being closed", "Open it again to write.")
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # what is queued cannot be called back
        self._waiting.append((writes, size, future))
        self._waiting_bytes += size
        return future

    def close(self) -> None:
        """Commit all that waits, then stop. Does not close the volume. Fine to repeat."""
        with self._work:
            self._is_closing = True
            self._work.notify_all()
            self._room.notify_all()
        self._thread.join()

    def _has_room(self, size: int) -> bool:
        if not self._waiting:
            return True
        return (
            len(self._waiting) < self._waiting_max
            and self._waiting_bytes + size <= self._waiting_bytes_max
        )

    def _run(self) -> None:
        while group := self._take():
            verdicts = self._commit([writes for writes, _ in group])
            for (_, future), error in zip(group, verdicts, strict=True):
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)

    def _take(self) -> list[tuple[Sequence[Write], Future[None]]]:
        """All that waits, as far as it fits one commit; empty when closed and drained."""
        with self._work:
            while not self._waiting and not self._is_closing:
                self._work.wait()
            group: list[tuple[Sequence[Write], Future[None]]] = []
            left = self._volume.limits.commit_bytes_max
            while self._waiting and (not group or self._waiting[0][1] <= left):
                writes, size, future = self._waiting.popleft()
                group.append((writes, future))
                left -= size
                self._waiting_bytes -= size
            self._room.notify_all()
            return group

    def _commit(self, commits: list[Sequence[Write]]) -> Sequence[BaseException | None]:
        try:
            return self._volume.commit_each(commits)
        except StorageFullError as error:
            if len(commits) == 1:
                return [error]
            return [verdict for commit in commits for verdict in self._commit([commit])]
        except BaseException as error:  # whatever it is, those who wait must learn of it
            return [error] * len(commits)
