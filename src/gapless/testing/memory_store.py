"""A store in memory, for the simulator and for tests: the same contract, a clock from outside.

Theory of operation
    Several connections (`MemoryConnection`) share one `MemoryStore`. `is_reachable` may be set to
    False for a connection; `loses_answer` makes the next operation happen and its answer get lost.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gapless.core.errors import StorageError
from gapless.storage.replica.changes import Changes, StoredExtent
from gapless.storage.replica.store import (
    TOMBSTONES_MAX,
    Grant,
    StandbyState,
    StorageFencedError,
    StoreState,
    StoreUnreachableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.storage.volume import Bounds

SETTLE_S = 10.0
UNREACHABLE = "the store cannot be reached"
FENCED = "another process holds {!r} under a newer term"


@dataclass(slots=True)
class _Name:
    """All that a store has of one name."""

    identity: str
    term: int = 0
    position: int = 0
    floor: int = 0
    holder: str = ""
    address: str = ""
    lease_end: float = float("-inf")
    starts: dict[int, int] = field(default_factory=dict)  # term -> position before its first commit
    extents: dict[str, list[tuple[int, StoredExtent]]] = field(default_factory=dict)
    bounds: dict[str, tuple[int, Bounds]] = field(default_factory=dict)
    facts: dict[tuple[str, str], tuple[int, bytes | None]] = field(default_factory=dict)
    standbys: dict[str, tuple[str, int, float]] = field(default_factory=dict)


class MemoryStore:
    """What all connections share. `clock` is the store's, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.names: dict[str, _Name] = {}
        self.checks_term = True  # planted faults take this away
        self.tombstones_max = TOMBSTONES_MAX

    def connect(self) -> MemoryConnection:
        return MemoryConnection(self)

    def of(self, name: str) -> _Name:
        return self.names.setdefault(name, _Name(f"memory-{name}"))


class MemoryConnection:
    """A `CommitStore`. See the module docstring."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.is_reachable = True
        self.loses_answer = False
        self._outcomes: SimpleQueue[StorageError | None] = (
            SimpleQueue()
        )  # of commits that were sent

    def _reach(self) -> MemoryStore:
        if not self.is_reachable:
            raise StoreUnreachableError(UNREACHABLE)
        return self._store

    def _answer(self) -> None:
        if self.loses_answer:
            self.loses_answer = False
            raise StoreUnreachableError(UNREACHABLE)

    def _held(self, name: str, term: int) -> _Name:
        of = self._reach().of(name)
        if self._store.checks_term and of.term != term:
            raise StorageFencedError(FENCED.format(name))
        return of

    def acquire(self, name: str, process: str, address: str, lease_s: float) -> Grant | None:
        of, now = self._reach().of(name), self._store.clock()
        if of.lease_end > now:
            return None
        of.term += 1
        of.starts[of.term] = of.position
        of.holder, of.address, of.lease_end = process, address, now + lease_s
        of.standbys.pop(process, None)
        self._answer()
        return Grant(of.term, of.position)

    def renew(self, name: str, term: int, lease_s: float) -> None:
        of = self._held(name, term)
        of.lease_end = self._store.clock() + lease_s
        of.floor = max(of.floor, of.position - self._store.tombstones_max)
        for key, (position, value) in list(of.facts.items()):
            if value is None and position <= of.floor:
                del of.facts[key]
        self._answer()

    def release(self, name: str, term: int) -> None:
        of = self._reach().of(name)
        if of.term == term:
            of.lease_end = self._store.clock()
        self._answer()

    def append(self, name: str, term: int, position: int, changes: Changes) -> None:
        of = self._held(name, term)
        if position != of.position + 1 and self._store.checks_term:
            raise StorageFencedError(FENCED.format(name))
        position = of.position = of.position + 1
        for extent in changes.extents:
            of.extents.setdefault(extent.stream, []).append((position, extent))
        for stream, bounds in changes.bounds.items():
            of.bounds[stream] = position, bounds
            kept = of.extents.get(stream, [])
            of.extents[stream] = [each for each in kept if each[1].last >= bounds.start]
        for key, value in changes.facts.items():
            of.facts[key] = position, value
        self._answer()

    def send(self, name: str, term: int, position: int, changes: Changes) -> None:
        try:
            self.append(name, term, position, changes)
        except StorageError as error:
            self._outcomes.put(error)
        else:
            self._outcomes.put(None)

    def settle(self) -> int:
        try:
            error = self._outcomes.get(timeout=SETTLE_S)
        except Empty:
            raise StoreUnreachableError(UNREACHABLE) from None
        if error is not None:
            raise error
        return 1

    def stand_by(self, name: str, process: str, address: str, position: int) -> None:
        self._reach().of(name).standbys[process] = address, position, self._store.clock()
        self._answer()

    def state(self, name: str) -> StoreState | None:
        self._reach()
        if name not in self._store.names:
            return None
        of, now = self._store.of(name), self._store.clock()
        begun = [term for term, start in of.starts.items() if start < of.position]
        return StoreState(
            identity=of.identity,
            term=of.term,
            position=of.position,
            position_term=max(begun, default=0),
            floor=of.floor,
            holder=of.holder,
            address=of.address,
            lease_s=of.lease_end - now,
            standbys=tuple(
                StandbyState(process, address, position, now - seen)
                for process, (address, position, seen) in of.standbys.copy().items()
            ),
        )

    def contradicts(self, name: str, term: int, position: int) -> bool:
        starts = self._reach().of(name).starts
        return any(later > term and start < position for later, start in starts.items())

    @contextmanager
    def read(self, name: str, after: int) -> Iterator[tuple[StoreState, Iterator[Changes]]]:
        state = self.state(name)
        assert state is not None
        yield state, iter([self._changes(name, after)])

    def _changes(self, name: str, after: int) -> Changes:
        of = self._store.of(name)
        extents = [
            (position, extent)
            for kept in of.extents.values()
            for position, extent in kept
            if position > after
        ]
        facts_after = after if after >= of.floor else -1
        return Changes(
            [extent for _, extent in sorted(extents, key=lambda each: each[0])],
            {stream: bounds for stream, (at, bounds) in of.bounds.items() if at > after},
            {key: value for key, (at, value) in of.facts.items() if at > facts_after},
        )

    def interrupt(self) -> None:
        self._outcomes.put(StoreUnreachableError(UNREACHABLE))

    def close(self) -> None:
        self._outcomes = SimpleQueue()
