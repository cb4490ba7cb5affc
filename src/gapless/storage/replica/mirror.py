"""A mirror: sends each commit of a volume to the store, and shows it when both have it.

Theory of operation
    Several commits are under way at once. `begin_each` checks a group of writes against the volume
    as all commits under way will leave it, reserves room on the disk, gives the group the next
    position and sends it. Then it writes the group to the volume and syncs that, while the store
    does the same: the frame is *staged*, and no reader sees it. It does not wait for the store's
    answer, unless `depth` commits are under way: then groups grow. A thread waits for answers,
    shows what store and volume both have, and tells the outcomes in order.
    A volume may so have commits that never come to the store. They were told to nobody. Before it
    is used again it is cut back (`copy`).

    `CommitQueue` is the machine without threads: which commits are under way, and what follows when
    a connection breaks. An answer that was lost is made good by asking: commits up to the store's
    position are there, if the term is still ours; the others are sent again, unchanged and in
    order. A commit whose predecessor never came is refused by its position, so no hole can arise.

    While the store cannot be reached it is tried again and again: commits wait, and so do
    publishers.

Invariants
    I1  readers see a commit when the store has it, in the order of positions
    I2  after a `StorageFencedError` every further commit gets it too
    I3  the commits under way fit the volume, whatever becomes of those before them

Threads: `begin_each` for one thread at a time (others wait); `stop` for any.
Bounds: `depth` commits, each as large as the volume takes.
Source: docs/protocols/replicated-commits.md, 4.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.errors import StorageError, StorageFullError
from gapless.storage.replica.changes import Changes
from gapless.storage.replica.store import StorageFencedError, StoreUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.effects import Write
    from gapless.storage.disk import DiskVolume
    from gapless.storage.draft import Draft
    from gapless.storage.group import Commit
    from gapless.storage.journal import StagedFrame
    from gapless.storage.replica.copy import CommitStamp
    from gapless.storage.replica.store import CommitStore, StoreState
    from gapless.storage.volume import Bounds

DEPTH = 2
"""So many commits may be under way: one is synced while the next one travels. More make commits
smaller, which costs more than it gains (docs/decisions/0060-commits-in-a-pipeline.md)."""
RETRY_S = 0.1
YIELD_S = 0.0002
"""So long the committing thread rests after it has sent a commit: a database on this machine gets
the processor first, and is soon asleep in its own sync."""
ENDED = "this process has given up its lease"


class SentCommit(NamedTuple):
    """A commit under way."""

    position: int
    changes: Changes


class CommitQueue:
    """The commits of one holder that the store may or may not have."""

    def __init__(self, name: str, stamp: CommitStamp, bounds_of: Callable[[str], Bounds]) -> None:
        """`stamp`: of the last commit that both have, with the term that we hold."""
        self.stamp = stamp
        self.under_way: deque[SentCommit] = deque()
        self._name = name
        self._bounds_of = bounds_of
        self.bounds: dict[str, Bounds] = {}
        """Of streams, as the commits under way leave them."""

    def push(self, writes: Sequence[Write]) -> SentCommit:
        """The next commit, to be sent."""
        if not self.under_way:
            self.bounds.clear()
        changes = Changes.of(writes, self._bounds_before)
        self.bounds.update(changes.bounds)
        commit = SentCommit(self.stamp.position + len(self.under_way) + 1, changes)
        self.under_way.append(commit)
        return commit

    def _bounds_before(self, stream: str) -> Bounds:
        return self.bounds.get(stream) or self._bounds_of(stream)

    def stamp_for(self, commit: SentCommit) -> CommitStamp:
        """What the volume writes beside a commit that is under way."""
        return self.stamp._replace(position=commit.position, told=self.stamp.position)

    def settled(self, count: int) -> None:
        """Store and volume have so many more."""
        for _ in range(count):
            self.under_way.popleft()
        position = self.stamp.position + count
        self.stamp = self.stamp._replace(position=position, told=position)

    def count_there(self, state: StoreState | None) -> int:
        """How many of those under way the store has, by what it says after answers were lost. The
        others are to be sent again."""
        if state is None or state.term != self.stamp.term:
            raise StorageFencedError(f"another process holds {self._name!r} under a newer term")
        count = state.position - self.stamp.position
        if not 0 <= count <= len(self.under_way):
            raise StorageFencedError(f"the store has lost or changed commits of {self._name!r}")
        return count


@dataclass(slots=True)
class GroupUnderWay:
    """Commits of callers that share one commit of the store, or were all refused."""

    commits: Sequence[Commit]
    verdicts: Sequence[BaseException | None]
    writes: Sequence[Write] = ()
    staged: StagedFrame | None = None
    error: BaseException | None = None
    """Why the volume could not stage it."""
    fact_bytes: int = 0

    def tell(self, error: BaseException | None = None) -> None:
        for (_, tell), verdict in zip(self.commits, self.verdicts, strict=True):
            tell(verdict or error)


class StoreMirror:
    """The way of one holder's commits into the store, and from there into its volume."""

    def __init__(
        self,
        store: CommitStore,
        name: str,
        stamp: CommitStamp,
        volume: DiskVolume,
        *,
        retry_s: float = RETRY_S,
        depth: int = DEPTH,
    ) -> None:
        """`stamp`: of the last commit that both have, with the term that we hold."""
        self.problem = ""
        """Why the store cannot be reached right now; empty while it can."""
        self.waits = 0
        """How often commits had to wait for the store to come back."""
        self._store = store
        self._name = name
        self._volume = volume
        self._retry_s = retry_s
        self._depth = depth
        self._queue = CommitQueue(name, stamp, volume.bounds)
        self._groups: deque[GroupUnderWay] = deque()
        self._fact_bytes = 0  # of all groups
        self._is_connected = True  # else all under way is to be sent again
        self._error: BaseException | None = None  # why nothing is taken any more
        self._end = threading.Event()
        self._beginning = threading.Lock()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="gapless-mirror", daemon=True)
        self._thread.start()

    @property
    def position(self) -> int:
        """Of the last commit that store and volume have."""
        return self._queue.stamp.position

    # --- commits begin ---------------------------------------------------------------------------

    def begin_each(self, commits: Sequence[Commit]) -> None:
        """Take commits that are to share a sync; each is told its outcome later, in order."""
        with self._beginning:
            self._wait_until(lambda: len(self._groups) < self._depth)
            self._begin(commits)

    def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        """The same, and wait: for each its error or None. Raises what ends all commits."""
        verdicts: list[BaseException | None] = []
        is_done = threading.Event()

        def tell(error: BaseException | None) -> None:
            verdicts.append(error)
            if len(verdicts) == len(commits):
                is_done.set()

        if commits:
            self.begin_each([(each, tell) for each in commits])
            is_done.wait()
        for each in verdicts:
            if isinstance(each, StorageFencedError) or not isinstance(each, StorageError | None):
                raise each
        return verdicts  # type: ignore[return-value]

    def wait_idle(self) -> None:
        """Until every outcome was told."""
        with self._changed:
            self._changed.wait_for(lambda: not self._groups)

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._end.is_set() or is_so())

    def _begin(self, commits: Sequence[Commit]) -> None:
        try:
            group, draft = self._prepare(commits)
        except StorageFullError as error:
            if len(commits) > 1:  # what gives room back goes through alone
                for each in commits:
                    self._begin([each])
                return
            group, draft = GroupUnderWay(commits, [error]), None
        except StorageError as error:
            group, draft = GroupUnderWay(commits, [error] * len(commits)), None
        stamp = None
        with self._changed:
            is_over = self._end.is_set()
            if not is_over:
                self._groups.append(group)
            if draft is not None and draft.writes and not is_over:
                self._fact_bytes += group.fact_bytes
                commit = self._queue.push(draft.writes)
                stamp = self._queue.stamp_for(commit)
                self._send(commit)
            self._changed.notify_all()
        if is_over:
            group.tell(self._error or StorageFencedError(ENDED))
        elif stamp is not None:
            self._stage(group, stamp)

    def _stage(self, group: GroupUnderWay, stamp: CommitStamp) -> None:
        """The volume writes what the store was sent, at the same time."""
        time.sleep(YIELD_S)
        staged = error = None
        try:
            staged = self._volume.stage([*group.writes, stamp.fact])
        except BaseException as found:  # of any kind: the callers that wait must get it
            error = found
        with self._changed:
            group.staged, group.error = staged, error
            self._changed.notify_all()

    def _prepare(self, commits: Sequence[Commit]) -> tuple[GroupUnderWay, Draft]:
        """Check the commits and have room for them, or raise."""
        with self._changed:
            ahead = self._queue.bounds if self._queue.under_way else {}
            fact_bytes = self._fact_bytes
        draft, verdicts = self._volume.draft([writes for writes, _ in commits], ahead, fact_bytes)
        size = draft.frame_bytes
        if draft.writes and not self._volume.has_room(size, grows=draft.grows):
            self._wait_until(lambda: not self._groups)
            if self._end.is_set():
                raise StorageFencedError(ENDED)
            self._volume.make_room(size, grows=draft.grows)
        return GroupUnderWay(commits, verdicts, draft.writes, fact_bytes=draft.fact_bytes), draft

    def _send(self, commit: SentCommit) -> None:
        if not self._is_connected:
            return
        try:
            self._store.send(self._name, self._queue.stamp.term, *commit)
        except StoreUnreachableError:
            self._is_connected = False

    # --- answers come ----------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._groups or self._end.is_set())
                if not self._groups:
                    return
            try:
                self._tell(self._settle())
            except BaseException as error:  # of any kind: the callers that wait must get it
                self._fail(error)

    def _settle(self) -> int:
        """Wait until the store has more of the commits under way: how many; 0 if none is."""
        while self._queue.under_way:
            if self._end.is_set():
                raise self._error or StorageFencedError(ENDED)
            try:
                count = self._store.settle() if self._is_connected else self._resume()
            except StoreUnreachableError as error:
                self.waits += not self.problem
                self.problem = error.problem
                self._is_connected = False
                self._end.wait(self._retry_s)
                continue
            except StorageFencedError:
                if not self._is_connected:
                    raise
                self._is_connected = False  # is it the term, or a predecessor that never came?
                continue
            self.problem = ""
            if count:
                return count
        return 0

    def _resume(self) -> int:
        """After answers were lost: how many commits are there; the others are sent again."""
        self._store.close()
        count = self._queue.count_there(self._store.state(self._name))
        with self._changed:
            self._is_connected = True
            for number, commit in enumerate(self._queue.under_way):
                if number >= count:
                    self._send(commit)
        return count

    def _tell(self, count: int) -> None:
        """The store has so many more commits: when the volume has them too, readers see them and
        callers are told."""
        done: list[GroupUnderWay] = []
        with self._changed:
            for group in self._groups:
                if group.writes and not count:
                    break
                count -= bool(group.writes)
                done.append(group)
        for group in done:
            if group.writes:
                self._show(group)
            with self._changed:
                self._groups.popleft()
                self._queue.settled(bool(group.writes))
                self._fact_bytes -= group.fact_bytes
                self._changed.notify_all()
            group.tell()

    def _show(self, group: GroupUnderWay) -> None:
        with self._changed:
            self._changed.wait_for(lambda: group.staged or group.error)
        if group.error is not None:
            raise group.error
        assert group.staged is not None
        self._volume.show(group.staged)

    def _fail(self, error: BaseException) -> None:
        """Nothing is taken any more; whoever waits is told why."""
        if isinstance(error, StorageFullError):  # the store has it, so it is no refusal
            error = StorageError(f"a commit of the store has no room here: {error.problem}")
        with self._changed:
            self._error = error
            self._end.set()
            groups = list(self._groups)
        for group in groups:
            group.tell(error)
        with self._changed:
            for _ in groups:
                self._groups.popleft()
            self._changed.notify_all()

    # --- the end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take nothing more; a commit that waits gets a `StorageFencedError`. From any thread."""
        with self._changed:
            self._end.set()
            self._changed.notify_all()
        self._store.interrupt()

    def close(self) -> None:
        """Stop, and let go of the store. Fine to repeat."""
        self.stop()
        self._thread.join()
        self._store.close()
        if not self._queue.under_way:  # the volume learns that the store had its last commit too
            with suppress(StorageError):
                self._volume.show(self._volume.stage([self._queue.stamp.fact]))
