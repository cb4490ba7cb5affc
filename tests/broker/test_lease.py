"""Standing by, holding, and being silent in time."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gapless.broker import lease as module
from gapless.broker.lease import LEASE_PART, Holding, Lease, Standby, StoreOptions
from gapless.core.effects import Append, Put
from gapless.core.errors import StorageError, UsageError
from gapless.storage.disk import DiskVolume
from gapless.storage.replica.store import Grant, StorageFencedError
from gapless.testing.memory_store import MemoryConnection, MemoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAME = "p"


class World:
    """A store and the processes' clock, both set by the test."""

    def __init__(self) -> None:
        self.store_s = 0.0
        self.store = MemoryStore(lambda: self.store_s)
        self.connections: list[MemoryConnection] = []

    def connect(self) -> MemoryConnection:
        self.connections.append(self.store.connect())
        return self.connections[-1]

    def options(self, process: str) -> StoreOptions:
        return StoreOptions(connect=self.connect, name=NAME, process=process, look_s=0.001)


@pytest.fixture
def world() -> World:
    return World()


def hold(world: World, process: str, folder: Path) -> Holding:
    standby = Standby(world.options(process), folder)
    holding = standby.wait()
    standby.close()
    assert holding is not None
    return holding


def wait_until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        time.sleep(0.001)


def let_go(holding: Holding) -> None:
    holding.close()


def test_the_next_holder_has_every_commit_of_the_one_before(world: World, tmp_path: Path) -> None:
    first = hold(world, "p1", tmp_path / "1")
    first.volume.commit([Append("s", (1, 2), (b"a", b"b")), Put("t", "k", b"1")])
    let_go(first)
    second = hold(world, "p2", tmp_path / "2")
    assert second.lease.term == first.lease.term + 1
    assert second.volume.scan("s", 0, 9).records == [b"a", b"b"]
    second.volume.commit([Append("s", (3,), (b"c",))])
    assert second.mirror.position == 2
    let_go(second)


def test_a_standby_follows_while_another_holds_and_takes_over_when_the_lease_is_over(
    world: World, tmp_path: Path
) -> None:
    first = hold(world, "p1", tmp_path / "1")
    standby = Standby(world.options("p2"), tmp_path / "2")
    outcome: list[Holding | None] = []
    thread = threading.Thread(target=lambda: outcome.append(standby.wait()))
    thread.start()
    first.volume.commit([Put("t", "k", b"1")])
    standbys = world.store.of(NAME).standbys  # the standby's thread changes it
    while not any(each[1] == 1 for each in standbys.copy().values()):
        standby._noted_s = 0.0
    assert not outcome
    let_go(first)
    thread.join()
    standby.close()
    assert outcome[0] is not None
    assert outcome[0].volume.get("t", "k") == b"1"
    let_go(outcome[0])


def test_a_process_asks_for_the_lease_only_when_its_copy_is_up_to_date(
    world: World, tmp_path: Path
) -> None:
    """So one with an empty folder does not keep a warm standby from taking over."""
    first = hold(world, "p1", tmp_path / "1")
    first.volume.commit([Append("s", (1,), (b"a",))])
    let_go(first)
    standby = Standby(world.options("p2"), tmp_path / "2")
    store = world.connections[-1]
    acquire, copied = store.acquire, list[int]()

    def note(*arguments: Any) -> Grant | None:
        assert standby._volume is not None
        copied.append(standby._volume.bounds("s").end)
        return acquire(*arguments)

    store.acquire = note  # type: ignore[method-assign, assignment]
    holding = standby.wait()
    assert holding is not None
    assert copied == [2]
    standby.close()
    let_go(holding)


def test_a_standby_that_is_told_to_stop_lets_go_of_its_folder(world: World, tmp_path: Path) -> None:
    holding = hold(world, "p1", tmp_path / "1")
    standby = Standby(world.options("p2"), tmp_path / "2")
    standby.stop()
    assert standby.wait() is None
    standby.close()
    DiskVolume(tmp_path / "2").close()
    let_go(holding)


def test_a_holder_is_silent_before_its_lease_can_have_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(module, "now_s", lambda: clock[0])
    options = world.options("p1")
    world.store.of(NAME).term = 1
    lease = Lease(options, Grant(1, 0), 100.0)
    world.connections[-1].is_reachable = False
    clock[0] = 100.0 + LEASE_PART * options.lease_s - 0.001
    assert not lease.has_ended()
    clock[0] += 0.002
    assert lease.has_ended()
    lease.end()


def test_a_holder_is_cut_off_only_if_it_asked_after_its_lease_had_ended(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(module, "now_s", lambda: clock[0])
    options = replace(world.options("p1"), lease_s=0.5)
    assert world.store.connect().acquire(NAME, "p1", "", options.lease_s) is not None
    lease = Lease(options, Grant(1, 0), 100.0)
    connection = world.connections[-1]
    connection.is_reachable = False
    wait_until(lambda: bool(lease.problem))
    assert not lease.has_ended()
    assert not lease.is_cut_off, "its lease is good"
    clock[0] = 100.0 + LEASE_PART * options.lease_s
    assert lease.has_ended()
    wait_until(lambda: lease.is_cut_off)
    connection.is_reachable = True
    wait_until(lambda: not lease.has_ended())
    assert not lease.is_cut_off, "nobody had the name, and the lease is good again"
    lease.end()


def test_a_holder_that_was_cut_off_and_replaced_ends_when_it_hears_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(module, "now_s", lambda: clock[0])
    options = replace(world.options("p1"), lease_s=0.5)
    assert world.store.connect().acquire(NAME, "p1", "", options.lease_s) is not None
    lease = Lease(options, Grant(1, 0), 100.0)
    world.connections[-1].is_reachable = False
    clock[0] += 10.0
    world.store_s += 10.0
    wait_until(lambda: lease.is_cut_off)
    assert world.store.connect().acquire(NAME, "p2", "", 1000.0) is not None
    world.connections[-1].is_reachable = True
    wait_until(lambda: lease.is_lost)
    assert lease.has_ended()
    assert not lease.is_cut_off
    lease.end()


def test_a_former_holder_commits_nothing_and_says_so(world: World, tmp_path: Path) -> None:
    first = hold(world, "p1", tmp_path / "1")
    world.store_s += 1000.0
    second = hold(world, "p2", tmp_path / "2")
    with pytest.raises(StorageFencedError):
        first.volume.commit([Put("t", "k", b"1")])
    second.volume.commit([Put("t", "k", b"2")])
    let_go(first)
    assert world.store.of(NAME).lease_end > world.store_s, "the release of the former one is void"
    let_go(second)


def test_a_volume_that_the_store_contradicts_is_set_aside_and_filled_anew(
    world: World, tmp_path: Path
) -> None:
    first = hold(world, "p1", tmp_path / "1")
    first.volume.commit([Put("t", "k", b"1")])
    let_go(first)
    kept = world.store.of(NAME)
    kept.position, kept.facts = 0, {}  # the store has lost a commit
    second = hold(world, "p2", tmp_path / "1")
    assert second.volume.get("t", "k") is None
    assert len(list(tmp_path.glob("1.ahead-*"))) == 1
    let_go(second)


def test_commits_that_a_fenced_holder_had_on_its_disk_alone_are_cut_off(
    world: World, tmp_path: Path
) -> None:
    first = hold(world, "p1", tmp_path / "1")
    first.volume.commit([Put("t", "k", b"1")])
    world.store_s += 1000.0
    second = hold(world, "p2", tmp_path / "2")
    with pytest.raises(StorageFencedError):
        first.volume.commit([Append("s", (1,), (b"a",))])
    let_go(first)
    second.volume.commit([Append("s", (1,), (b"b",))])
    let_go(second)
    third = hold(world, "p1", tmp_path / "1")
    assert third.volume.scan("s", 0, 9).records == [b"b"]
    assert third.volume.get("t", "k") == b"1"
    assert not list(tmp_path.glob("1.ahead-*"))
    third.volume.commit([Append("s", (2,), (b"c",))])
    let_go(third)


def test_a_folder_of_a_broker_without_a_store_is_refused_before_a_lease_is_taken(
    world: World, tmp_path: Path
) -> None:
    volume = DiskVolume(tmp_path / "1")
    volume.commit([Append("s", (1,), (b"a",))])
    volume.close()
    standby = Standby(world.options("p1"), tmp_path / "1")
    with pytest.raises(StorageError, match="without a store"):
        standby.wait()
    standby.close()
    assert NAME not in world.store.names


def test_a_lease_of_no_use_is_refused() -> None:
    with pytest.raises(UsageError):
        StoreOptions(connect=MemoryStore(lambda: 0.0).connect, name=NAME, lease_s=0.1)
