"""What every volume promises, over memory and disk alike."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.core.errors import (
    StorageError,
    StorageFullError,
    StorageMissingError,
    StorageRefusedError,
)
from gapless.core.ticks import TICK_MAX
from gapless.storage.group import GroupCommit
from gapless.storage.volume import Bounds, Records, Volume, VolumeLimits
from tests.storage.labs import DiskLab, Lab, MemoryLab

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "disk"])
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Lab]:
    lab: Lab = MemoryLab() if request.param == "memory" else DiskLab(tmp_path)
    yield lab
    lab.close()


@pytest.fixture
def volume(lab: Lab) -> Volume:
    return lab.open()


def everything(volume: Volume, stream: str) -> Records:
    found = Records([], [])
    start = 0
    while (batch := volume.scan(stream, start, TICK_MAX + 1)).indices:
        found.indices.extend(batch.indices)
        found.records.extend(batch.records)
        start = batch.indices[-1] + 1
    return found


def append(stream: str, *indices: int) -> Append:
    return Append(stream, indices, tuple(f"{stream} {index}".encode() for index in indices))


def test_what_was_committed_is_read_back_by_index_and_by_range(volume: Volume) -> None:
    volume.commit([append("a", 3, 7, 20), append("b", 1)])
    volume.commit([append("a", 21)])
    assert volume.read("a", 7) == b"a 7"
    assert volume.read_near("a", 7)[7] == b"a 7"
    assert 8 not in volume.read_near("a", 8)
    assert volume.scan("a", 7, 21) == Records([7, 20], [b"a 7", b"a 20"])
    assert everything(volume, "a").indices == [3, 7, 20, 21]
    assert everything(volume, "b").records == [b"b 1"]


def test_indices_at_equal_steps_may_be_a_range(lab: Lab) -> None:
    volume = lab.open()
    volume.commit([Append("a", range(3, 12, 4), (b"x", b"yy", b"z"))])
    for indices in (range(11, 13), range(20, 10, -4), range(20, 26, 3)):
        with pytest.raises(StorageRefusedError):
            volume.commit([Append("a", indices, (b"x", b"yy", b"z"))])
    volume.commit([Append("a", range(12, 13), (b"last",))])
    found = Records([3, 7, 11, 12], [b"x", b"yy", b"z", b"last"])
    assert everything(volume, "a") == found
    assert everything(lab.crash(), "a") == found


@pytest.mark.parametrize("how", ["crash", "restart"])
def test_a_commit_is_there_after_the_process_ends(lab: Lab, how: str) -> None:
    lab.open().commit([append("a", 5, 6), Put("facts", "key", b"value"), Chop("a", 6)])
    volume = lab.crash() if how == "crash" else lab.restart()
    assert volume.recovery.clean == (how == "restart")
    assert volume.recovery.cut_bytes == 0
    assert everything(volume, "a") == Records([6], [b"a 6"])
    assert volume.bounds("a") == Bounds(6, 7)
    assert volume.get("facts", "key") == b"value"


def test_a_refused_commit_changes_nothing_at_all(volume: Volume) -> None:
    volume.commit([append("a", 10), Put("facts", "key", b"old")])
    with pytest.raises(StorageRefusedError):
        volume.commit([Put("facts", "key", b"new"), append("b", 1), Chop("a", 11), append("a", 10)])
    assert everything(volume, "a").indices == [10]
    assert volume.get("facts", "key") == b"old"
    assert volume.streams() == ["a"]


@pytest.mark.parametrize(
    ("writes", "says"),
    [
        ([append("a", 10)], "is taken or chopped: it ends at 11"),
        ([append("a", 9)], "is taken or chopped"),
        ([append("a", -1)], "is taken or chopped"),
        ([append("a", 11, 11)], "strictly increase"),
        ([append("a", 12, 11)], "strictly increase"),
        ([append("a", TICK_MAX + 1)], "up to 2\\^63 - 1"),
        ([append("a", 11), append("a", 11)], "ends at 12"),
        ([Chop("a", 20), append("a", 19)], "ends at 20"),
        ([Append("a", (11, 12), (b"one",))], "2 indices for 1 records"),
        ([Chop("a", -1)], "cannot chop"),
        ([Chop("a", TICK_MAX + 1)], "cannot chop"),
        ([append("", 11)], "cannot name a stream"),
        ([append("x" * 1025, 11)], "cannot name a stream"),
        ([Put("t", "\ud800", b"")], "cannot name a key"),
        ([Delete("", "key")], "cannot name a table"),
    ],
)
def test_a_write_against_the_rules_is_refused(
    volume: Volume, writes: list[Append | Chop | Put | Delete], says: str
) -> None:
    volume.commit([append("a", 10)])
    with pytest.raises(StorageRefusedError, match=says):
        volume.commit(writes)
    assert volume.bounds("a") == Bounds(0, 11)
    volume.commit([append("a", 11)])


def test_the_largest_index_may_be_used_once(lab: Lab) -> None:
    lab.open().commit([append("a", TICK_MAX)])
    volume = lab.crash()
    assert volume.read("a", TICK_MAX) == f"a {TICK_MAX}".encode()
    with pytest.raises(StorageRefusedError):
        volume.commit([append("a", TICK_MAX)])


def test_what_is_missing_is_said_to_be_missing(volume: Volume) -> None:
    volume.commit([append("a", 3, 5), Chop("a", 5)])
    for stream, index in [("a", 3), ("a", 4), ("a", 6), ("never", 0)]:
        with pytest.raises(StorageMissingError, match=f"'{stream}' has no record {index}"):
            volume.read(stream, index)
    with pytest.raises(KeyError):
        volume.read("a", 4)
    assert volume.bounds("never") == Bounds(0, 0)
    assert volume.scan("never", 0, 100) == Records([], [])
    assert volume.get("facts", "none") is None


def test_bounds_outlive_chop_and_restart(lab: Lab) -> None:
    volume = lab.open()
    volume.commit([append("a", 1, 2, 3)])
    volume.commit([Chop("a", 4)])
    volume.commit([Chop("a", 2)])  # further back than it is: no change
    volume = lab.restart()
    assert volume.bounds("a") == Bounds(4, 4)
    assert everything(volume, "a").indices == []
    with pytest.raises(StorageRefusedError):
        volume.commit([append("a", 3)])
    volume.commit([Chop("a", 50)])  # beyond all there is
    volume = lab.crash()
    assert volume.bounds("a") == Bounds(50, 50)
    volume.commit([append("a", 50)])
    assert everything(volume, "a").indices == [50]


def test_a_scan_gives_at_least_one_record_and_keeps_its_bound(volume: Volume) -> None:
    records = (b"x" * 100, b"", b"y" * 100, b"z" * 300, b"")
    volume.commit([Append("a", (1, 2, 3, 4, 5), records)])
    assert volume.scan("a", 0, 9, bytes_max=0).indices == [1]
    assert volume.scan("a", 1, 9, bytes_max=100).indices == [1, 2]
    assert volume.scan("a", 1, 9, bytes_max=199).indices == [1, 2]
    assert volume.scan("a", 1, 9, bytes_max=200).indices == [1, 2, 3]
    assert volume.scan("a", 4, 9, bytes_max=10).indices == [4]
    assert volume.scan("a", 2, 3).indices == [2]
    assert volume.scan("a", 3, 3).indices == []
    assert volume.scan("a", 6, 9).indices == []


def test_runs_hold_what_a_scan_gives_end_to_end(volume: Volume) -> None:
    for low in range(0, 600, 100):  # several pages each, at equal steps and not
        indices = tuple(range(low, low + 90)) + ((low + 95,) if low % 200 else ())
        records = tuple(bytes([index % 251]) * (index % 97) for index in indices)
        volume.commit([Append("a", indices, records), append("b", low)])
    for start, end, bytes_max in (
        (0, 600, 1 << 20),
        (37, 512, 1 << 20),
        (3, 600, 7000),
        (95, 96, 0),
    ):
        scanned = volume.scan("a", start, end, bytes_max=bytes_max)
        runs = volume.scan_runs("a", start, end, bytes_max=bytes_max)
        assert [index for run in runs for index in run.indices] == scanned.indices
        for run in runs:
            assert len(run.data) == run.ends[-1] - run.start
        cuts = [
            bytes(run.data[low - run.start : high - run.start])
            for run in runs
            for low, high in pairwise([run.start, *run.ends])
        ]
        assert cuts == scanned.records
    assert volume.scan_runs("never", 0, 100, bytes_max=1) == []


def test_a_scan_goes_on_over_commits_and_segments(lab: Lab) -> None:
    volume = lab.open()
    for index in range(0, 400, 2):
        volume.commit([Append("a", (index,), (bytes(index),)), append("other", index)])
    for reopen in (None, lab.crash, lab.restart):
        volume = reopen() if reopen else volume
        seen = []
        start = 0
        while (batch := volume.scan("a", start, 399, bytes_max=1000)).indices:
            assert sum(map(len, batch.records)) <= 1000
            assert [len(record) for record in batch.records] == batch.indices
            seen += batch.indices
            start = batch.indices[-1] + 1
        assert seen == list(range(0, 399, 2))
        assert volume.read("a", 222) == bytes(222)


def test_tables_keep_the_last_fact(lab: Lab) -> None:
    volume = lab.open()
    volume.commit([Put("t", "b", b"1"), Put("t", "a", b""), Put("u", "b", b"2")])
    volume.commit([Put("t", "b", b"3"), Delete("t", "none"), Delete("none", "none")])
    for reopen in (None, lab.crash):
        volume = reopen() if reopen else volume
        assert list(volume.items("t").items()) == [("a", b""), ("b", b"3")]
        assert volume.items("u") == {"b": b"2"}
        assert volume.items("none") == {}
    volume.commit([Delete("t", "b")])
    assert lab.restart().items("t") == {"a": b""}


def test_an_empty_commit_is_fine(lab: Lab) -> None:
    volume = lab.open()
    volume.commit([])
    volume.commit([Append("a", (), ())])
    volume.commit([append("a", 1)])
    assert everything(lab.crash(), "a").indices == [1]


def test_large_and_empty_records_are_kept(lab: Lab) -> None:
    volume = lab.open(VolumeLimits(record_bytes_max=3 << 20))
    large = bytes(range(256)) * (3 << 12)
    volume.commit([Append("a", (1, 2, 3), (b"", large, b""))])
    volume.commit([append("a", 4)])
    volume = lab.crash()
    assert volume.read("a", 2) == large
    assert everything(volume, "a").records == [b"", large, b"", b"a 4"]
    with pytest.raises(StorageRefusedError, match=r"a record of .* is over the limit"):
        volume.commit([Append("a", (5,), (large + b"!",))])


def test_a_commit_has_a_limit(lab: Lab) -> None:
    volume = lab.open(VolumeLimits(commit_bytes_max=100))
    with pytest.raises(StorageRefusedError, match=r"a commit of .* is over the limit"):
        volume.commit([Append("a", (1, 2), (bytes(60), bytes(60)))])
    assert volume.streams() == []


def test_tables_have_a_limit(lab: Lab) -> None:
    volume = lab.open(VolumeLimits(table_bytes_max=100))
    volume.commit([Put("t", "a", bytes(80))])
    with pytest.raises(StorageFullError, match="no room for 31 more"):
        volume.commit([Put("t", "b", bytes(30))])
    volume.commit([Delete("t", "a")])
    volume.commit([Put("t", "b", bytes(30))])


def test_a_thousand_streams_and_any_names_work(lab: Lab) -> None:
    volume = lab.open()
    names = [f"stream {number} · ключ 流 🦉\n" for number in range(1000)]
    volume.commit([append(name, 1, 2) for name in names])
    volume.commit([append(name, 3) for name in names[::2]])
    volume.commit([Put("表", "ключ", "🦉".encode())])
    volume = lab.crash()
    assert volume.streams() == sorted(names)
    assert everything(volume, names[500]).indices == [1, 2, 3]
    assert everything(volume, names[501]).indices == [1, 2]
    assert volume.get("表", "ключ") == "🦉".encode()
    assert volume.statistics().streams == 1000


def test_a_full_volume_takes_chops_and_then_appends_again(lab: Lab) -> None:
    volume = lab.open(VolumeLimits(size_max=128 << 10))
    with suppress(StorageFullError):
        for count in range(1000):
            volume.commit([Append("a", (count,), (bytes(1000),)), Put("t", "last", b"%d" % count)])
    assert 50 < count < 130
    assert volume.get("t", "last") == b"%d" % (count - 1)
    assert len(everything(volume, "a").indices) == count
    with pytest.raises(StorageFullError):
        volume.commit([Append("a", (count,), (bytes(10000),))])
    for index in range(count // 2):
        volume.commit([Chop("a", index)])
    for index in range(count, count + 20):
        volume.commit([Append("a", (index,), (bytes(1000),))])
    assert everything(lab.crash(), "a").indices == list(range(count // 2 - 1, count + 20))


def test_chop_gives_the_space_back(lab: Lab) -> None:
    """Ten times the bound goes through, one slow stream in between pinning old parts."""
    volume = lab.open()
    for index in range(1500):
        writes: list[Append | Chop] = [Append("fast", (index,), (bytes(1000),))]
        if index % 50 == 0:
            writes.append(append("slow", index))
        if index >= 20:
            writes.append(Chop("fast", index - 20))
        volume.commit(writes)
        assert volume.statistics().bytes_on_disk < 170_000
    volume = lab.crash()
    assert everything(volume, "slow").indices == list(range(0, 1500, 50))
    assert everything(volume, "fast").indices == list(range(1479, 1500))


def test_commits_made_together_keep_their_own_fate(lab: Lab) -> None:
    volume = lab.open()
    verdicts = volume.commit_each(
        [
            [append("a", 1)],
            [append("a", 1), Put("t", "refused", b"")],  # taken by the commit before it
            [append("a", 2), Put("t", "taken", b"")],
        ]
    )
    assert [type(error) for error in verdicts] == [type(None), StorageRefusedError, type(None)]
    volume = lab.crash()
    assert everything(volume, "a").indices == [1, 2]
    assert list(volume.items("t")) == ["taken"]


def test_many_threads_share_a_group_commit(lab: Lab) -> None:
    volume = lab.open()
    group = GroupCommit(volume)

    def work(writer: int) -> None:
        for index in range(20):
            group.submit(
                [append(f"w{writer}", index), Put("t", f"w{writer}", b"%d" % index)]
            ).result()
            assert volume.read(f"w{writer}", index) == b"w%d %d" % (writer, index)
            assert volume.get("t", f"w{writer}") == b"%d" % index

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    group.close()
    assert volume.statistics().commits <= 160
    volume = lab.crash()
    for writer in range(8):
        assert everything(volume, f"w{writer}").indices == list(range(20))


def test_a_closed_volume_says_so(lab: Lab) -> None:
    volume = lab.open()
    volume.commit([append("a", 1)])
    volume.close()
    volume.close()
    for use in (
        lambda: volume.commit([append("a", 2)]),
        lambda: volume.read("a", 1),
        lambda: volume.scan("a", 0, 9),
        lambda: volume.get("t", "k"),
    ):
        with pytest.raises(StorageError, match="closed"):
            use()
