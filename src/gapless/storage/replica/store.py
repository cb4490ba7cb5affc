"""What a store is: all commits of a broker beyond its machine, its lease and its term.

Theory of operation
    For each name of a broker the store has a term, the end of a lease, and a position, the number
    of its last commit. Each operation is one atomic step. `append` and `renew` name the term and
    are refused under any but the newest: that is the fence. The lease is counted by the store's own
    clock.

Invariants (tests/storage/replica holds both stores to them)
    I1  terms and positions only grow; a position is given once
    I2  after `acquire` has given a term, no commit of an earlier one takes effect
    I3  `read` shows the outcome of all commits up to one position, and of no other

Source: docs/protocols/replicated-commits.md, 3 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gapless.core.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from gapless.storage.replica.changes import Changes

TOMBSTONES_MAX = 100_000
"""So many commits long the store knows that a fact was deleted; an older copy compares all
facts."""


class StorageFencedError(StorageError):
    """Another process holds the name: this one commits nothing more."""

    default_remedy = "Nothing is lost: the process that holds the name serves its clients."


class StoreUnreachableError(StorageError):
    """The store did not answer. What was asked of it may have been done or not."""

    default_remedy = "Check that the database runs and can be reached; it is tried again."


class Grant(NamedTuple):
    """A lease that was given."""

    term: int
    position: int


class StandbyState(NamedTuple):
    """A process that stands by, as the store knows it."""

    process: str
    address: str
    position: int
    seen_s: float
    """How long ago it was heard of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreState:
    """What a store knows of a name at one moment."""

    identity: str
    """Of this name in this store; another database has another."""
    term: int
    position: int
    position_term: int
    """The term of the commit at `position`; 0 if there is none."""
    floor: int
    """A copy that is older cannot learn from changes alone which facts were deleted."""
    holder: str = ""
    address: str = ""
    lease_s: float = 0.0
    """How long the lease still runs; 0 or less: it has ended."""
    leaving: int = 0
    """The term whose holder was asked to hand over."""
    standbys: tuple[StandbyState, ...] = ()


NO_STATE = StoreState(identity="", term=0, position=0, position_term=0, floor=0)
"""Of a name that never had a holder."""


class CommitStore(Protocol):
    """One connection to a store. Not for several threads at once; `StoreUnreachableError` from any
    operation, after which the next one connects anew."""

    def acquire(self, name: str, process: str, address: str, lease_s: float) -> Grant | None:
        """A new term and the lease, if that has ended; None while another process has it."""
        ...

    def renew(self, name: str, term: int, lease_s: float) -> None:
        """Begin the lease anew; `StorageFencedError` if the term is not the newest."""
        ...

    def release(self, name: str, term: int) -> None:
        """End the lease now, if the term is the newest."""
        ...

    def append(self, name: str, term: int, position: int, changes: Changes) -> None:
        """Make a commit durable; `StorageFencedError` unless the term is the newest and the
        position the next one."""
        ...

    def send(self, name: str, term: int, position: int, changes: Changes) -> None:
        """Begin an `append` and do not wait for its answer; several may be under way, in order.
        Another thread may be in `settle`."""
        ...

    def settle(self) -> int:
        """Wait for answers: how many more of the commits that were sent are durable, at least one.
        `StorageFencedError`: the next one was refused, because of its term or of its position.
        After an error nothing is under way any more."""
        ...

    def stand_by(self, name: str, process: str, address: str, position: int) -> None:
        """Note that this process stands by, with a copy up to that position."""
        ...

    def state(self, name: str) -> StoreState | None:
        """What is known of the name; None if it never had a holder."""
        ...

    def contradicts(self, name: str, term: int, position: int) -> bool:
        """Is this commit not part of the history, though its position is not above the store's?"""
        ...

    def read(
        self, name: str, after: int
    ) -> AbstractContextManager[tuple[StoreState, Iterator[Changes]]]:
        """All that commits above `after` have changed, in pieces, with the state at the same
        moment. The bounds come in the first piece; extents of a stream ascend."""
        ...

    def interrupt(self) -> None:
        """Make an operation that waits fail soon. From any thread."""
        ...

    def close(self) -> None:
        """Fine to repeat."""
        ...
