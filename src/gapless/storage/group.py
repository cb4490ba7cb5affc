"""Group commit: many writers share one sync.

Theory of operation
    `submit` puts a commit at the end of a queue and returns a future. One thread takes all queued
    commits, up to `commit_bytes_max`, writes them with one sync and reports the outcomes in order.
    While it waits for the disk the next group gathers, so groups grow with the load. A lone write
    goes at once, and nothing waits on a timer.
    Each commit has its own outcome: a refused one gets its error, and the others go on. If the disk
    fails, every commit of the group gets that error and none is visible. If the volume is full,
    nothing was written, so each is tried alone: a chop in the group still goes through.
    A caller that needs no future is called back on the committing thread (`submit_each`).

Bounds
    The queue holds at most `waiting_max` commits and `waiting_bytes_max` bytes (an empty queue
    takes a single larger commit). Beyond, `submit` blocks until there is room: back-pressure for
    threads. With `wait=False`, for an event loop, it raises `StorageRefusedError` instead: the
    caller holds the work back until a future resolves.

Invariants
    I1  commits become durable in the order of `submit`
    I2  after `close` every outcome has been reported
    I3  the bell is rung after each commit that is put in, so that the thread overlooks none

Cost: a lock for each call and one more for each group, and no step for each record unless
several commits wait or their bytes are bounded.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gapless.core.effects import Append, Put
from gapless.core.errors import StorageError, StorageFullError, StorageRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.effects import Write
    from gapless.storage.volume import Volume

    Commit = tuple[Sequence[Write], Callable[[BaseException | None], None]]
    """A queued commit: its writes, and the callback that gets the outcome."""

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


class CommitPipeline(Protocol):
    """Where several groups may be under way."""

    def begin_each(self, commits: Sequence[Commit]) -> None:
        """Take a group, as soon as it may begin."""
        ...

    def wait_idle(self) -> None:
        """Until the outcome of each was told."""
        ...


class GroupCommit:
    """Commits to a volume on behalf of many writers. See the module docstring."""

    def __init__(
        self,
        volume: Volume,
        *,
        waiting_max: int = 10_000,
        waiting_bytes_max: int | None = 64 << 20,
        pipeline: CommitPipeline | None = None,
    ) -> None:
        """`waiting_bytes_max` None: the callers bound the bytes in the queue. `pipeline`: takes a
        group before the one before it is durable, and tells its outcomes itself."""
        self._volume = volume
        self._pipeline = pipeline
        self._waiting_max = waiting_max
        self._waiting_bytes_max = waiting_bytes_max
        self._waiting: deque[Commit] = deque()
        self._waiting_bytes = 0  # counted where there is a bound
        self._is_closing = False
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._bell = threading.Lock()  # held while there is nothing to do
        self._bell.acquire()
        self._thread = threading.Thread(target=self._run, name="gapless-commit", daemon=True)
        self._thread.start()

    def submit(self, writes: Sequence[Write], *, wait: bool = True) -> Future[None]:
        """A future that is done when `writes` are durable, or failed with their error."""
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # what is queued cannot be called back
        with self._lock:
            self._put(writes, partial(_resolve, future), wait=wait)
            self._ring()
        return future

    def submit_each(self, commits: Sequence[Commit]) -> None:
        """Queue several commits at once, so that they can share a sync. The callback of each gets
        None or the error, on the committing thread; it must not raise."""
        with self._lock:
            for writes, tell in commits:
                self._put(writes, tell)
            self._ring()

    def _ring(self) -> None:
        """There is something to do; the lock is held."""
        if self._bell.locked():
            self._bell.release()

    def _put(
        self,
        writes: Sequence[Write],
        tell: Callable[[BaseException | None], None],
        *,
        wait: bool = True,
    ) -> None:
        """Into the queue, once there is room; the lock is held."""
        size = 0 if self._waiting_bytes_max is None else size_of(writes)
        while not self._is_closing and not self._has_room(size):
            if not wait:
                raise StorageRefusedError(
                    f"{len(self._waiting)} commits of {self._waiting_bytes} bytes wait already",
                    "Holding the work back until an earlier commit is done, then submit again.",
                )
            self._ring()  # what was put in just now may make room
            self._room.wait()
        if self._is_closing:
            raise StorageError("the volume is being closed", "Open it again to write.")
        self._waiting.append((writes, tell))
        self._waiting_bytes += size

    def close(self) -> None:
        """Commit all that is queued, then stop. Does not close the volume. It may be repeated."""
        with self._lock:
            self._is_closing = True
            self._ring()
            self._room.notify_all()
        self._thread.join()

    def _has_room(self, size: int) -> bool:
        if not self._waiting:
            return True
        bytes_max = self._waiting_bytes_max
        return len(self._waiting) < self._waiting_max and (
            bytes_max is None or self._waiting_bytes + size <= bytes_max
        )

    def _run(self) -> None:
        while group := self._take():
            if self._pipeline is not None:
                self._pipeline.begin_each(group)
                continue
            verdicts = self._commit([writes for writes, _ in group])
            for (_, tell), error in zip(group, verdicts, strict=True):
                tell(error)
        if self._pipeline is not None:
            self._pipeline.wait_idle()

    def _take(self) -> list[Commit]:
        """The queued commits that fit one commit of the volume; empty when closed and drained."""
        while True:
            self._bell.acquire()
            with self._lock:
                group = self._fitting()
                if self._waiting_bytes_max is not None:
                    self._waiting_bytes -= sum(size_of(writes) for writes, _ in group)
                    self._room.notify_all()
                if self._waiting or self._is_closing:
                    self._ring()
                if group or self._is_closing:
                    return group

    def _fitting(self) -> list[Commit]:
        """The first queued commit, and as many more as fit with it."""
        waiting = self._waiting
        if len(waiting) < 2:
            group = list(waiting)
            waiting.clear()
            return group
        group, left = [], self._volume.limits.commit_bytes_max
        while waiting:
            left -= size_of(waiting[0][0])
            if group and left < 0:
                break
            group.append(waiting.popleft())
        return group

    def _commit(self, commits: list[Sequence[Write]]) -> Sequence[BaseException | None]:
        try:
            return self._volume.commit_each(commits)
        except StorageFullError as error:
            if len(commits) == 1:
                return [error]
            return [verdict for commit in commits for verdict in self._commit([commit])]
        except BaseException as error:  # of any kind: the callers that wait must get it
            return [error] * len(commits)


def _resolve(future: Future[None], error: BaseException | None) -> None:
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
