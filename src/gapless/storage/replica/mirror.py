"""A mirror: sends each commit of a volume to the store before the volume writes it.

Theory of operation
    `append` is called by the committing thread, when the commit is sure to fit the volume. It
    returns when the store has the commit. While the store cannot be reached it tries again and
    again: the commits behind it wait, and so do publishers. An answer that was lost is made good by
    asking: if the store's position is the one we wanted, under our own term, the commit is there;
    if it is the one before, it is sent again.

Invariants
    I1  when `append` has returned, the store has the commit
    I2  after a `StorageFencedError` every further call raises it too

Source: docs/protocols/replicated-commits.md, 4.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from gapless.storage.replica.changes import Changes
from gapless.storage.replica.store import StorageFencedError, StoreUnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.effects import Put, Write
    from gapless.storage.replica.copy import CommitStamp
    from gapless.storage.replica.store import CommitStore
    from gapless.storage.volume import Bounds

RETRY_S = 0.1
ENDED = "this process has given up its lease"


class StoreMirror:
    """The way of one holder's commits into the store."""

    def __init__(
        self,
        store: CommitStore,
        name: str,
        stamp: CommitStamp,
        bounds_of: Callable[[str], Bounds],
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        """`stamp`: of the last commit that both have, with the term that we hold."""
        self._store = store
        self._name = name
        self._stamp = stamp
        self._bounds_of = bounds_of
        self._retry_s = retry_s
        self._end = threading.Event()
        self._is_sent = False  # the next commit, perhaps without an answer
        self.problem = ""
        """Why the store cannot be reached right now; empty while it can."""
        self.waits = 0
        """How often a commit had to wait for the store to come back."""

    @property
    def position(self) -> int:
        """Of the last commit that the store is known to have."""
        return self._stamp.position

    @property
    def stamp(self) -> Put:
        """What the local volume writes beside the next commit."""
        return self._next.fact

    @property
    def _next(self) -> CommitStamp:
        return self._stamp._replace(position=self._stamp.position + 1)

    def append(self, writes: Sequence[Write]) -> None:
        """Return when the store has them; raise `StorageFencedError` if it never will."""
        changes = Changes.of(writes, self._bounds_of)
        while not self.attempt(changes):
            self._end.wait(self._retry_s)

    def attempt(self, changes: Changes) -> bool:
        """One try to have the store take the next commit; False: it cannot be reached, and the
        same commit is to be tried again."""
        if self._end.is_set():
            raise StorageFencedError(ENDED)
        try:
            if not (self._is_sent and self._is_there()):
                self._is_sent = True
                position = self._stamp.position + 1
                self._store.append(self._name, self._stamp.term, position, changes)
        except StoreUnreachableError as error:
            self.waits += not self.problem
            self.problem = error.problem
            return False
        except StorageFencedError:
            self._end.set()
            raise
        self.problem = ""
        self._is_sent = False
        self._stamp = self._next
        return True

    def _is_there(self) -> bool:
        """Whether a commit whose answer was lost has happened."""
        state, stamp = self._store.state(self._name), self._stamp
        if state is None or state.term != stamp.term:
            raise StorageFencedError(f"another process holds {self._name!r} under a newer term")
        return state.position == stamp.position + 1

    def stop(self) -> None:
        """Take nothing more; a commit that waits gets a `StorageFencedError`. From any thread."""
        self._end.set()
        self._store.interrupt()
