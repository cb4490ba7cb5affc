"""The mirror: a commit counts when the store has it, however often the way there breaks."""

from __future__ import annotations

import threading

import pytest

from gapless.core.effects import Put
from gapless.storage.replica.copy import CommitStamp
from gapless.storage.replica.mirror import StoreMirror
from gapless.storage.replica.store import StorageFencedError
from gapless.storage.volume import NO_BOUNDS
from gapless.testing.memory_store import MemoryConnection, MemoryStore

NAME = "p"


def mirror(store: MemoryStore, connection: MemoryConnection) -> StoreMirror:
    grant = store.connect().acquire(NAME, "p1", "", 0.0)
    assert grant is not None
    stamp = CommitStamp("memory-p", grant.term, 0)
    return StoreMirror(connection, NAME, stamp, lambda _: NO_BOUNDS, retry_s=0.001)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 0.0)


def test_a_commit_whose_answer_was_lost_is_there_once(store: MemoryStore) -> None:
    connection = store.connect()
    sent = mirror(store, connection)
    connection.loses_answer = True
    sent.append([Put("t", "k", b"1")])
    sent.append([Put("t", "k", b"2")])
    assert store.of(NAME).position == sent.position == 2
    assert store.of(NAME).facts["t", "k"] == (2, b"2")
    assert (sent.waits, sent.problem) == (1, "")


def test_a_commit_waits_while_the_store_cannot_be_reached_and_then_goes_on(
    store: MemoryStore,
) -> None:
    connection = store.connect()
    sent = mirror(store, connection)
    connection.is_reachable = False
    thread = threading.Thread(target=sent.append, args=([Put("t", "k", b"1")],))
    thread.start()
    while not sent.problem:
        pass
    assert store.of(NAME).position == 0
    connection.is_reachable = True
    thread.join()
    assert store.of(NAME).position == 1


def test_after_another_process_took_the_name_nothing_is_sent_any_more(store: MemoryStore) -> None:
    connection = store.connect()
    sent = mirror(store, connection)
    assert store.connect().acquire(NAME, "p2", "", 100.0) is not None
    for _ in range(2):
        with pytest.raises(StorageFencedError):
            sent.append([Put("t", "k", b"1")])
    assert store.of(NAME).position == 0


def test_a_lost_answer_of_a_former_holder_is_not_taken_for_its_successors_commit(
    store: MemoryStore,
) -> None:
    connection = store.connect()
    sent = mirror(store, connection)
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
        sent.append([Put("t", "k", b"1")])


def test_one_that_is_told_to_stop_does_not_wait_for_ever(store: MemoryStore) -> None:
    connection = store.connect()
    sent = mirror(store, connection)
    connection.is_reachable = False
    sent.stop()
    with pytest.raises(StorageFencedError):
        sent.append([Put("t", "k", b"1")])
