"""The mirror: a commit counts when the store has it, however often the way there breaks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import StorageError, StorageFullError
from gapless.storage.disk import DiskVolume
from gapless.storage.replica.copy import CommitStamp, stamp_of
from gapless.storage.replica.mirror import StoreMirror
from gapless.storage.replica.store import StorageFencedError, StoreUnreachableError
from gapless.storage.volume import Bounds, VolumeLimits
from gapless.testing.memory_store import MemoryConnection, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gapless.core.effects import Write
    from gapless.storage.replica.changes import Changes

NAME = "p"
DEPTH = 4


class SlowConnection(MemoryConnection):
    """Commits wait until `deliver`; then they happen in order, or are lost with the connection."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.sent: list[tuple[str, int, int, Changes]] = []
        self.is_slow = True

    def send(self, name: str, term: int, position: int, changes: Changes) -> None:
        if self.is_slow:
            self.sent.append((name, term, position, changes))
        else:
            super().send(name, term, position, changes)

    def deliver(self, count: int) -> None:
        for each in self.sent[:count]:
            super().send(*each)
        del self.sent[:count]

    def break_off(self) -> None:
        """All that was sent is lost, and the sender learns that its connection is broken."""
        self.sent.clear()
        self.is_slow = False
        self.interrupt()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 0.0)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[DiskVolume]:
    volume = DiskVolume(tmp_path / "volume")
    yield volume
    if isinstance(volume.mirror, StoreMirror):
        volume.mirror.close()
    volume.close()


def mirror(store: MemoryStore, connection: MemoryConnection, volume: DiskVolume) -> StoreMirror:
    grant = store.connect().acquire(NAME, "p1", "", 0.0)
    assert grant is not None
    stamp = CommitStamp("memory-p", grant.term, 0)
    volume.mirror = made = StoreMirror(connection, NAME, stamp, volume, retry_s=0.001, depth=DEPTH)
    return made


class Outcomes:
    """What became of commits, in the order in which that was told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, BaseException | None]] = []

    def begin(self, sent: StoreMirror, number: int, *writes: Write) -> None:
        sent.begin_each([(writes, lambda error: self.told.append((number, error)))])


def test_several_commits_are_under_way_and_are_told_in_order(
    store: MemoryStore, volume: DiskVolume
) -> None:
    connection, outcomes = SlowConnection(store), Outcomes()
    sent = mirror(store, connection, volume)
    for number in range(DEPTH):
        outcomes.begin(sent, number, Append("s", (number,), (b"%d" % number,)))
    assert [each[2] for each in connection.sent] == [1, 2, 3, 4][:DEPTH]
    assert not outcomes.told
    assert volume.bounds("s") == Bounds(0, 0), "readers see only what the store has"
    waiting = threading.Thread(target=outcomes.begin, args=(sent, DEPTH, Put("t", "k", b"1")))
    waiting.start()
    connection.is_slow = False
    connection.deliver(DEPTH)
    waiting.join()
    sent.wait_idle()
    assert outcomes.told == [(number, None) for number in range(DEPTH + 1)]
    assert volume.scan("s", 0, 9).indices == list(range(DEPTH))
    stamp = stamp_of(volume)
    assert stamp is not None
    assert stamp.position == sent.position == DEPTH + 1


def test_commits_of_a_connection_that_broke_are_sent_again_from_the_first_that_is_missing(
    store: MemoryStore, volume: DiskVolume
) -> None:
    connection, outcomes = SlowConnection(store), Outcomes()
    sent = mirror(store, connection, volume)
    outcomes.begin(sent, 0, Append("s", (1,), (b"a",)))
    outcomes.begin(sent, 1, Chop("s", 2))
    outcomes.begin(sent, 2, Append("s", (5,), (b"b",)))
    connection.deliver(1)
    connection.break_off()
    sent.wait_idle()
    assert outcomes.told == [(0, None), (1, None), (2, None)]
    assert store.of(NAME).bounds["s"] == (3, Bounds(2, 6))
    assert volume.bounds("s") == Bounds(2, 6)


def test_a_commit_that_came_without_its_predecessor_is_refused_and_sent_again_in_order(
    store: MemoryStore, volume: DiskVolume
) -> None:
    connection, outcomes = SlowConnection(store), Outcomes()
    sent = mirror(store, connection, volume)
    outcomes.begin(sent, 0, Put("t", "k", b"1"))
    outcomes.begin(sent, 1, Put("t", "k", b"2"))
    del connection.sent[0]
    connection.is_slow = False
    connection.deliver(1)
    sent.wait_idle()
    assert outcomes.told == [(0, None), (1, None)]
    assert store.of(NAME).facts["t", "k"] == (2, b"2")


def test_a_commit_is_checked_against_those_under_way(
    store: MemoryStore, volume: DiskVolume
) -> None:
    connection, outcomes = SlowConnection(store), Outcomes()
    sent = mirror(store, connection, volume)
    outcomes.begin(sent, 0, Append("s", (7,), (b"a",)))
    outcomes.begin(sent, 1, Append("s", (7,), (b"twice",)))
    connection.is_slow = False
    connection.deliver(1)
    sent.wait_idle()
    assert outcomes.told[0] == (0, None)
    assert isinstance(outcomes.told[1][1], StorageError)
    assert store.of(NAME).position == 1


def test_a_full_disk_refuses_before_the_store_has_it_and_what_gives_room_goes_through(
    store: MemoryStore, tmp_path: Path
) -> None:
    limits = VolumeLimits(size_max=1 << 18)
    volume = DiskVolume(tmp_path / "small", limits=limits, segment_bytes=1 << 16)
    connection, outcomes = store.connect(), Outcomes()
    sent = mirror(store, connection, volume)
    last, number = None, 0
    while last is None:
        number += 1
        outcomes.begin(sent, number, Append("s", (number,), (b"x" * 5_000,)))
        sent.wait_idle()
        last = outcomes.told[-1][1]
    assert isinstance(last, StorageFullError)
    assert store.of(NAME).bounds["s"][1] == volume.bounds("s") == Bounds(0, number)
    group: list[tuple[list[Write], object]] = [
        ([Append("s", (number,), (b"x" * 5_000,))], None),
        ([Chop("s", number)], None),
    ]
    verdicts = volume.commit_each([writes for writes, _ in group])
    assert isinstance(verdicts[0], StorageFullError)
    assert verdicts[1] is None
    sent.close()
    volume.close()


def test_a_commit_whose_answer_was_lost_is_there_once(
    store: MemoryStore, volume: DiskVolume
) -> None:
    connection = store.connect()
    sent = mirror(store, connection, volume)
    connection.loses_answer = True
    volume.commit([Put("t", "k", b"1")])
    volume.commit([Put("t", "k", b"2")])
    assert store.of(NAME).position == sent.position == 2
    assert store.of(NAME).facts["t", "k"] == (2, b"2")
    assert (sent.waits, sent.problem) == (1, "")


def test_a_commit_waits_while_the_store_cannot_be_reached_and_then_goes_on(
    store: MemoryStore, volume: DiskVolume
) -> None:
    connection = store.connect()
    sent = mirror(store, connection, volume)
    connection.is_reachable = False
    thread = threading.Thread(target=volume.commit, args=([Put("t", "k", b"1")],))
    thread.start()
    while not sent.problem:
        pass
    assert store.of(NAME).position == 0
    connection.is_reachable = True
    thread.join()
    assert store.of(NAME).position == 1


def test_after_another_process_took_the_name_nothing_is_sent_any_more(
    store: MemoryStore, volume: DiskVolume
) -> None:
    mirror(store, store.connect(), volume)
    assert store.connect().acquire(NAME, "p2", "", 100.0) is not None
    for _ in range(2):
        with pytest.raises(StorageFencedError):
            volume.commit([Put("t", "k", b"1")])
    assert store.of(NAME).position == 0


def test_a_lost_answer_of_a_former_holder_is_not_taken_for_its_successors_commit(
    store: MemoryStore, volume: DiskVolume
) -> None:
    connection = store.connect()
    mirror(store, connection, volume)
    connection.loses_answer = True
    other = store.connect()

    class Overtaken(MemoryConnection):
        """The successor is there before we ask again."""

        def state(self, name: str) -> None:
            grant = other.acquire(NAME, "p2", "", 100.0)
            assert grant is not None
            return super().state(name)  # type: ignore[return-value]

    connection.__class__ = Overtaken
    with pytest.raises(StorageFencedError):
        volume.commit([Put("t", "k", b"1")])


def test_one_that_is_told_to_stop_does_not_wait_for_ever(
    store: MemoryStore, volume: DiskVolume
) -> None:
    connection = store.connect()
    sent = mirror(store, connection, volume)
    connection.is_reachable = False
    outcomes = Outcomes()
    outcomes.begin(sent, 0, Put("t", "k", b"1"))
    sent.stop()
    sent.wait_idle()
    outcomes.begin(sent, 1, Put("t", "k", b"1"))
    assert [type(error) for _, error in outcomes.told] == 2 * [StorageFencedError]
    assert not isinstance(outcomes.told[0][1], StoreUnreachableError)
