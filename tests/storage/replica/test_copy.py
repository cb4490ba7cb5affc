"""A volume that follows a store, and one that does not."""

from __future__ import annotations

import random
from contextlib import closing, suppress
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.core.errors import StorageError, StorageFullError
from gapless.storage.disk import DiskVolume
from gapless.storage.replica.changes import Changes
from gapless.storage.replica.copy import (
    KEY,
    TABLE,
    CommitStamp,
    agreed_position,
    catch_up,
    is_ahead,
    keeps_up_to,
    stamp_of,
)
from gapless.storage.replica.mirror import StoreMirror
from gapless.storage.replica.store import StorageFencedError
from gapless.storage.volume import Volume, VolumeLimits
from gapless.testing.memory_store import MemoryConnection, MemoryStore
from gapless.testing.memory_volume import MemoryVolume

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.effects import Write

NAME = "p"


def content(volume: Volume) -> object:
    """All that can be read from a volume, apart from its stamp."""
    return (
        {each: volume.bounds(each) for each in volume.streams()},
        {each: volume.scan(each, 0, 1 << 60, bytes_max=1 << 30) for each in volume.streams()},
        {each: volume.items(each) for each in volume.tables() if each != TABLE},
    )


def mirrored(volume: DiskVolume, store: MemoryStore) -> MemoryConnection:
    """Make the volume the holder's; the connection of its mirror."""
    connection = store.connect()
    grant = connection.acquire(NAME, "p1", "", 0.0)
    assert grant is not None
    stamp = catch_up(volume, connection, NAME)._replace(term=grant.term)
    volume.mirror = StoreMirror(connection, NAME, stamp, volume, retry_s=0.001)
    return connection


def place(stamp: CommitStamp | None) -> tuple[str, int, int]:
    """All of a stamp but what its writer knew of the store."""
    assert stamp is not None
    return stamp.identity, stamp.term, stamp.position


def random_writes(dice: random.Random, volume: Volume) -> list[Write]:
    writes: list[Write] = []
    for stream in dice.sample(["a", "b", "c"], dice.randint(0, 2)):
        start, end = volume.bounds(stream)
        indices = tuple(sorted(dice.sample(range(end, end + 30), dice.randint(1, 5))))
        writes.append(Append(stream, indices, tuple(dice.randbytes(9) for _ in indices)))
        if dice.random() < 0.3:
            writes.append(Chop(stream, dice.randint(start, end + 40)))
    puts, deleted, _ = dice.sample("klm", 3)
    return [*writes, Put("t", puts, dice.randbytes(3)), Delete("t", deleted)]


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_is_equal_however_often_and_from_wherever_it_is_brought_up_to_date(
    seed: int, tmp_path: Path
) -> None:
    dice, store = random.Random(seed), MemoryStore(lambda: 0.0)
    store.tombstones_max = dice.choice([2, 1000])
    holder = DiskVolume(tmp_path / "holder")
    connection = mirrored(holder, store)
    copies = [MemoryVolume() for _ in range(3)]
    for _ in range(60):
        holder.commit(random_writes(dice, holder))
        connection.renew(NAME, store.of(NAME).term, 0.0)
        if dice.random() < 0.3:
            copy = dice.choice(copies)
            assert place(catch_up(copy, connection, NAME)) == place(stamp_of(holder))
            assert content(copy) == content(holder)
    holder.close()


def test_a_copy_that_was_cut_short_is_finished_by_the_next_try(tmp_path: Path) -> None:
    store = MemoryStore(lambda: 0.0)
    holder, copy = DiskVolume(tmp_path / "holder"), MemoryVolume()
    connection = mirrored(holder, store)
    holder.commit([Append("a", (1, 2), (b"x", b"y")), Put("t", "k", b"1")])
    catch_up(copy, connection, NAME)
    holder.commit([Append("a", (3,), (b"z",)), Put("t", "l", b"1")])
    stamp = stamp_of(copy)
    assert stamp is not None
    catch_up(copy, connection, NAME)
    copy.commit([stamp.fact])  # as if it had ended before the new stamp
    holder.commit([Append("a", (4,), (b"z",)), Delete("t", "l")])
    assert place(catch_up(copy, connection, NAME)) == place(stamp_of(holder))
    assert content(copy) == content(holder)
    holder.close()


def test_what_the_store_did_not_take_is_not_seen_in_the_volume(tmp_path: Path) -> None:
    store = MemoryStore(lambda: 0.0)
    holder = DiskVolume(tmp_path / "holder")
    connection = mirrored(holder, store)
    connection.acquire(NAME, "p2", "", 100.0)
    with pytest.raises(StorageFencedError):
        holder.commit([Put("t", "k", b"1")])
    assert holder.get("t", "k") is None
    assert store.of(NAME).position == 0
    holder.close()


@pytest.mark.parametrize("arrived", range(4))
def test_what_never_came_to_the_store_is_cut_off_and_nothing_else(
    arrived: int, tmp_path: Path
) -> None:
    """A holder dies with three commits under way, of which the store got some."""
    store = MemoryStore(lambda: 0.0)
    holder = DiskVolume(tmp_path / "holder")
    connection = mirrored(holder, store)
    holder.commit([Append("a", (1,), (b"x",)), Put("t", "k", b"0")])
    stamp = stamp_of(holder)
    assert stamp is not None
    for number in range(1, 4):
        append, put = Append("a", (number + 1,), (b"y",)), Put("t", "k", b"%d" % number)
        position = stamp.position + number
        if number <= arrived:
            changes = Changes.of([append, put], holder.bounds)
            connection.append(NAME, stamp.term, position, changes)
        told = CommitStamp(stamp.identity, stamp.term, position, stamp.position)
        holder.stage([append, put, told.fact])
    assert holder.get("t", "k") == b"0", "nobody sees what is staged"
    holder.close()
    assert connection.acquire(NAME, "p2", "", 0.0) is not None
    state, again = connection.state(NAME), DiskVolume(tmp_path / "holder")
    found = stamp_of(again)
    assert state is not None
    assert found is not None
    assert is_ahead(again, connection, NAME, state) == (arrived < 3)
    kept = agreed_position(found, connection, NAME, state)
    assert kept == stamp.position + arrived
    again.close()
    again = DiskVolume(tmp_path / "holder", keeps=keeps_up_to(kept))
    assert not is_ahead(again, connection, NAME, state)
    assert again.get("t", "k") == b"%d" % arrived
    copy = MemoryVolume()
    catch_up(copy, connection, NAME)
    assert content(copy) == content(again)
    again.commit([Append("a", (9,), (b"z",))])
    again.check()
    again.close()
    with closing(DiskVolume(tmp_path / "holder")) as last:
        assert last.bounds("a").end == 10
        assert last.get("t", "k") == b"%d" % arrived


def test_a_store_that_lost_what_it_had_confirmed_is_told_from_one_that_never_got_it() -> None:
    store = MemoryStore(lambda: 0.0)
    connection = store.connect()
    connection.acquire(NAME, "p1", "", 0.0)
    state = connection.state(NAME)
    assert state is not None
    assert agreed_position(CommitStamp("i", 1, 2, told=0), connection, NAME, state) == 0
    assert agreed_position(CommitStamp("i", 1, 2, told=1), connection, NAME, state) is None


def test_a_full_volume_says_so_before_the_store_has_the_commit(tmp_path: Path) -> None:
    store = MemoryStore(lambda: 0.0)
    limits = VolumeLimits(size_max=40 << 10)
    holder = DiskVolume(tmp_path / "holder", segment_bytes=16 << 10, limits=limits)
    mirrored(holder, store)
    index = 0
    with suppress(StorageFullError):
        while index < 100:
            holder.commit([Append("a", (index,), (bytes(1000),))])
            index += 1
    assert 0 < index < 100
    stamp = stamp_of(holder)
    assert stamp is not None
    assert store.of(NAME).position == stamp.position > 0
    holder.commit([Chop("a", 1000)])
    assert store.of(NAME).position == stamp.position + 1
    holder.close()


def test_a_folder_of_another_history_is_refused_or_told_to_be_ahead() -> None:
    store = MemoryStore(lambda: 0.0)
    connection = store.connect()
    connection.acquire(NAME, "p1", "", 0.0)
    state = connection.state(NAME)
    assert state is not None
    volume = MemoryVolume()
    assert not is_ahead(volume, connection, NAME, state)
    volume.commit([CommitStamp(state.identity, 1, 5).fact])
    assert is_ahead(volume, connection, NAME, state)
    volume.commit([CommitStamp("another", 1, 0).fact])
    with pytest.raises(StorageError, match="another store"):
        is_ahead(volume, connection, NAME, state)
    volume.commit([Delete(TABLE, KEY), Append("a", (1,), (b"",))])
    with pytest.raises(StorageError, match="without a store"):
        is_ahead(volume, connection, NAME, state)
