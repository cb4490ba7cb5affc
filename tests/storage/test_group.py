"""Group commit: one sync for all that waited, each with its own fate."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import StorageError, StorageFullError, StorageRefusedError
from gapless.storage.group import GroupCommit
from gapless.storage.volume import VolumeLimits
from gapless.testing.memory_volume import Fault, MemoryVolume

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gapless.core.effects import Write


class GatedVolume(MemoryVolume):
    """Commits only while the gate is open, so that a test decides who waits together."""

    def __init__(self, limits: VolumeLimits | None = None) -> None:
        super().__init__(limits=limits)
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.groups: list[int] = []

    def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        self.entered.release()
        assert self.gate.wait(30)
        self.groups.append(len(commits))
        return super().commit_each(commits)


@pytest.fixture
def volume() -> GatedVolume:
    return GatedVolume(VolumeLimits(commit_bytes_max=10_000))


@pytest.fixture
def group(volume: GatedVolume) -> Iterator[GroupCommit]:
    group = GroupCommit(volume, waiting_max=10, waiting_bytes_max=20_000)
    yield group
    volume.gate.set()
    group.close()


def append(index: int, size: int = 1) -> Append:
    return Append("a", (index,), (bytes(size),))


def test_all_that_wait_share_one_sync(volume: GatedVolume, group: GroupCommit) -> None:
    futures = [group.submit([append(0)])]
    volume.entered.acquire()  # the first is on its way: a lone write does not wait for company
    futures += [group.submit([append(index)]) for index in range(1, 9)]
    volume.gate.set()
    for future in futures:
        future.result(30)
    assert volume.groups == [1, 8]
    assert volume.statistics().syncs == 2
    assert volume.scan("a", 0, 99).indices == list(range(9))


def test_a_refused_commit_does_not_fail_its_neighbours(
    volume: GatedVolume, group: GroupCommit
) -> None:
    first = group.submit([append(5)])
    volume.entered.acquire()
    good = group.submit([append(6)])
    bad = group.submit([append(6), Put("t", "k", b"")])
    last = group.submit([append(7)])
    volume.gate.set()
    for future in (first, good, last):
        future.result(30)
    with pytest.raises(StorageRefusedError, match="index 6"):
        bad.result(30)
    assert volume.groups == [1, 3]
    assert volume.scan("a", 0, 99).indices == [5, 6, 7]
    assert volume.items("t") == {}


def test_a_failed_sync_fails_all_that_shared_it(volume: GatedVolume, group: GroupCommit) -> None:
    futures = [group.submit([append(0)])]
    volume.entered.acquire()
    futures += [group.submit([append(index)]) for index in range(1, 4)]
    volume.inject(Fault.FAILED)
    volume.gate.set()
    for future in futures:
        with pytest.raises(StorageError):
            future.result(30)
    assert volume.scan("a", 0, 99).indices == []
    volume.reopen()
    group.submit([append(0)]).result(30)


def test_a_chop_goes_through_in_a_group_that_does_not_fit(
    volume: GatedVolume, group: GroupCommit
) -> None:
    volume.size_max = 1000
    first = group.submit([append(0, 900)])
    volume.entered.acquire()
    too_much = group.submit([append(1, 500)])
    chop = group.submit([Chop("a", 1)])
    then_fits = group.submit([append(2, 500)])
    volume.gate.set()
    first.result(30)
    with pytest.raises(StorageFullError):
        too_much.result(30)
    chop.result(30)
    then_fits.result(30)
    assert volume.scan("a", 0, 99).indices == [2]


def test_a_group_keeps_within_the_size_of_a_commit(volume: GatedVolume, group: GroupCommit) -> None:
    futures = [group.submit([append(0)])]
    volume.entered.acquire()
    futures += [group.submit([append(index, 4000)]) for index in range(1, 5)]
    volume.gate.set()
    for future in futures:
        future.result(30)
    assert volume.groups == [1, 2, 2]


def test_a_full_queue_refuses_or_blocks(volume: GatedVolume, group: GroupCommit) -> None:
    futures = [group.submit([append(0)])]
    volume.entered.acquire()
    futures += [group.submit([append(index)], wait=False) for index in range(1, 11)]
    with pytest.raises(StorageRefusedError, match=r"10 commits of .* wait already"):
        group.submit([append(11)], wait=False)
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(lambda: group.submit([append(11)]))
        volume.gate.set()
        futures.append(blocked.result(30))
    for future in futures:
        future.result(30)
    assert volume.scan("a", 0, 99).indices == list(range(12))


def test_a_queue_is_bounded_in_bytes_too(volume: GatedVolume, group: GroupCommit) -> None:
    group.submit([append(0)])
    volume.entered.acquire()
    group.submit([append(1, 12_000)], wait=False)
    with pytest.raises(StorageRefusedError):
        group.submit([append(2, 9_000)], wait=False)


def test_close_commits_all_that_waits(volume: GatedVolume, group: GroupCommit) -> None:
    futures = [group.submit([append(0)])]
    volume.entered.acquire()
    futures += [group.submit([append(index)]) for index in range(1, 9)]
    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(group.close)
        volume.gate.set()
        closing.result(30)
    assert all(future.done() for future in futures)
    assert volume.scan("a", 0, 99).indices == list(range(9))
    with pytest.raises(StorageError, match="being closed"):
        group.submit([append(9)])


def test_a_broken_volume_does_not_leave_anyone_waiting() -> None:
    class BrokenVolume(MemoryVolume):
        def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
            raise AssertionError("I1")

    group = GroupCommit(BrokenVolume())
    with pytest.raises(AssertionError, match="I1"):
        group.submit([append(0)]).result(30)
    group.close()
