"""After a crash, a torn write or damage: all that was acknowledged, or a clear error."""

from __future__ import annotations

import shutil
import signal
import sys
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import StorageCorruptError, StorageDamagedError, StorageError
from gapless.storage.disk import DiskVolume
from gapless.storage.frame import HEADER, MAGIC, SEAL_MAGIC, Header
from gapless.storage.segment import Sync
from tests.children import child, rest, told
from tests.storage.labs import NO_SYNC, SMALL_SEGMENT_BYTES, tried

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "000000000001.log"


def small(path: Path) -> DiskVolume:
    return DiskVolume(path, segment_bytes=SMALL_SEGMENT_BYTES, sync=NO_SYNC)


def record(index: int) -> bytes:
    return b"record %d " % index * (index % 7)


def append(*indices: int) -> Append:
    return Append("a", indices, tuple(map(record, indices)))


def made(path: Path, commits: int, *, crashed: bool = True) -> Path:
    """A volume of commits 2, 3, … with two records each, and a fact that names the last."""
    volume = small(path)
    for number in range(commits):
        volume.commit([append(2 * number, 2 * number + 1), Put("t", "last", b"%d" % number)])
    volume.close()
    if crashed:
        (path / "closed.json").unlink()
    return path


def commits_in(volume: DiskVolume) -> int:
    """How many commits are there: checks that they are whole, in order, and nothing else is."""
    found = volume.scan("a", 0, 1 << 60, bytes_max=1 << 30)
    assert found.records == list(map(record, range(len(found.records))))
    count = len(found.records) // 2
    assert volume.get("t", "last") == (b"%d" % (count - 1) if count else None)
    assert volume.bounds("a").end == 2 * count == len(found.records)
    volume.check()
    return count


def damaged_records(volume: DiskVolume) -> list[int]:
    """Which records are told to be damaged; all others read back as they were written."""
    lost, at = list[int](), 0
    end = volume.bounds("a").end
    while at < end:
        found = tried(partial(volume.read, "a", at))
        if isinstance(found, StorageDamagedError):
            assert found.stream == "a"
            assert found.start <= at < found.end
            lost += range(at, found.end)
            at = found.end
        else:
            assert found == record(at)
            at += 1
    return lost


def test_a_commit_torn_anywhere_is_cut_and_reported(tmp_path: Path) -> None:
    """Every length of what reached the disk; the volume works on after each."""
    before = (made(tmp_path / "before", 3) / FIRST).read_bytes()
    shutil.copytree(tmp_path / "before", tmp_path / "after")
    volume = small(tmp_path / "after")
    volume.commit([append(6, 7), Put("t", "last", b"3")])
    volume.close()
    after = (tmp_path / "after" / FIRST).read_bytes()
    start = next(n for n in range(len(after)) if before[n] != after[n])
    end = max(n for n in range(len(after)) if before[n] != after[n]) + 1
    work = tmp_path / "work"
    for cut in range(start, end + 1, 3):
        shutil.copytree(tmp_path / "before", work)
        (work / FIRST).write_bytes(after[:cut] + before[cut:])
        volume = small(work)
        whole = commits_in(volume) == 4
        assert whole == (after[:cut].ljust(end, b"\0") == after[:end])
        assert (volume.recovery.cut_bytes > 0) == (not whole and cut > start)
        assert volume.recovery.sequence == (5 if whole else 4)
        volume.commit([append(8), Put("t", "after", b"")])
        volume.close()
        volume = small(work)
        assert volume.read("a", 8) == record(8)
        volume.close()
        shutil.rmtree(work)


def test_sectors_of_a_torn_commit_may_reach_the_disk_in_any_order(tmp_path: Path) -> None:
    base = made(tmp_path / "base", 2)
    large = Append("a", (4, 5), (b"x" * 2000, b"y" * 2000))
    shutil.copytree(base, tmp_path / "after")
    volume = small(tmp_path / "after")
    volume.commit([large])
    volume.close()
    before, after = (base / FIRST).read_bytes(), (tmp_path / "after" / FIRST).read_bytes()
    sectors = [n for n in range(0, len(after), 512) if before[n : n + 512] != after[n : n + 512]]
    assert len(sectors) in (8, 9)
    for lost in sectors:
        (base / FIRST).write_bytes(after[:lost] + before[lost : lost + 512] + after[lost + 512 :])
        volume = small(base)
        assert commits_in(volume) == 2
        assert volume.recovery.cut_bytes > 4000 or lost == sectors[0]
        volume.close()
        (base / "closed.json").unlink()


def test_old_frames_of_a_reused_segment_are_never_taken_for_new_ones(tmp_path: Path) -> None:
    volume = small(tmp_path / "0")
    life = 0
    for index in range(0, 600, 2):
        volume.commit([append(index, index + 1), Chop("a", max(0, index - 20))])
        if index % 23 == 0:  # crash at every kind of place within a segment
            shutil.copytree(tmp_path / str(life), tmp_path / str(life + 1))
            volume.close()
            life += 1
            volume = small(tmp_path / str(life))
            assert volume.recovery.cut_bytes == 0
            kept = volume.scan("a", 0, 1 << 60)
            assert kept.indices == list(range(max(0, index - 20), index + 2))
            assert kept.records == list(map(record, kept.indices))
    volume.close()


def test_an_old_frame_right_behind_the_newest_is_not_replayed(tmp_path: Path) -> None:
    """As when the last sector of a commit, with its terminator, did not reach a reused file."""
    path = made(tmp_path / "volume", 4)
    data = (path / FIRST).read_bytes()
    starts = [n for n in range(len(data)) if data.startswith(MAGIC, n)]
    end = starts[-1] + Header(data, starts[-1]).frame_bytes
    old = data[starts[2] : starts[3]]
    (path / FIRST).write_bytes(data[:end] + old + data[end + len(old) :])
    volume = small(path)
    assert commits_in(volume) == 4
    assert volume.recovery.sequence == 5
    volume.close()


@pytest.mark.parametrize("crashed", [True, False], ids=["crashed", "closed"])
def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path, crashed: bool) -> None:
    """Never wrong data: all commits, or an error, or (after a crash) all but a last torn one; or,
    where only records are damaged, all but those, of which whoever reads them is told."""
    path = made(tmp_path / "volume", 5, crashed=crashed)
    whole = (path / FIRST).read_bytes()
    end = len(whole.rstrip(b"\0"))
    outcomes = set()
    for place in range(0, end, 5):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << place % 8
        (path / FIRST).write_bytes(damaged)
        try:
            volume = small(path)
        except StorageCorruptError:
            outcomes.add("refused")
            continue
        if lost := damaged_records(volume):
            assert set(lost) < {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
            assert volume.get("t", "last") == b"4"
            outcomes.add("told")
        else:
            count = commits_in(volume)
            assert count == 5 or (crashed and count == 4 and volume.recovery.cut_bytes > 0)
            outcomes.add("all" if count == 5 else "cut")
        volume.close()
        if crashed:
            (path / "closed.json").unlink()
    expected = {"refused", "all", "told"} | ({"cut"} if crashed else set())
    assert outcomes == expected


def test_damage_in_an_old_segment_is_named_when_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "volume"
    volume = small(path)
    for index in range(40):
        volume.commit([Append("a", (index,), (b"needle %03d " % index * 100,))])
    volume.close()
    data = (path / FIRST).read_bytes()
    (path / FIRST).write_bytes(data.replace(b"needle 003 needle", b"needle 003 noodle", 1))
    volume = small(path)
    with pytest.raises(StorageCorruptError, match=r"record 3 of 'a' in .*000000000001\.log"):
        volume.read("a", 3)
    with pytest.raises(StorageCorruptError, match="record 3 of 'a'"):
        volume.scan("a", 0, 40)
    assert volume.read("a", 2) == b"needle 002 " * 100
    assert volume.scan("a", 4, 40, bytes_max=1 << 20).indices == list(range(4, 40))
    volume.commit([Chop("a", 4)])  # what cannot be read can still be let go
    assert volume.scan("a", 0, 40, bytes_max=1 << 20).indices == list(range(4, 40))
    volume.close()


def test_damage_in_a_batch_takes_its_page_with_it_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "volume"
    volume = DiskVolume(path, sync=NO_SYNC)
    volume.commit([Append("a", tuple(range(40)), tuple(b"%03d" % n * 333 for n in range(40)))])
    assert volume.read("a", 9) == b"009" * 333, "what was found once is remembered, not trusted"
    data = (path / FIRST).read_bytes()
    (path / FIRST).write_bytes(data.replace(b"009009", b"009008", 1))
    lost = r"records from 8 to 11 of 'a' in .*000000000001\.log are damaged"
    for index in range(8, 12):
        with pytest.raises(StorageCorruptError, match=lost):
            volume.read("a", index)
        with pytest.raises(StorageCorruptError, match=lost):
            volume.scan("a", index, index + 1)
    for start, end in ((0, 8), (12, 40)):
        assert volume.scan("a", start, end).indices == list(range(start, end))
        assert volume.read("a", end - 1) == b"%03d" % (end - 1) * 333
    volume.close()


def test_a_damaged_description_names_the_file_and_the_records(tmp_path: Path) -> None:
    path = tmp_path / "volume"
    volume = small(path)
    for index in range(40):
        volume.commit([Append("a", (index,), (bytes(1000),))])
    volume.close()
    data = bytearray((path / FIRST).read_bytes())
    place = data.find(b"gLf", 2000)
    data[place + 30] ^= 1
    (path / FIRST).write_bytes(data)
    volume = small(path)
    with pytest.raises(StorageCorruptError, match=rf"byte {place} of .*log is damaged.*'a'"):
        volume.scan("a", 0, 40)
    with pytest.raises(StorageCorruptError, match=rf"byte {place} of .*log is damaged.*'a'"):
        volume.read("a", 2)
    assert volume.read("a", 1) == volume.read("a", 3) == bytes(1000), "others are not lost with it"
    assert volume.scan("a", 0, 2).indices == [0, 1]
    assert volume.scan("a", 3, 40, bytes_max=1 << 20).indices == list(range(3, 40))
    volume.close()
    (path / "000000000001.index").unlink()
    with pytest.raises(StorageCorruptError, match=r"000000000001\.log is damaged: commits \d+ to"):
        small(path)


@pytest.mark.parametrize("kept_bytes", [0, 1, 63, 64, 200, SMALL_SEGMENT_BYTES - 1])
def test_a_truncated_file_is_refused_at_once(tmp_path: Path, kept_bytes: int) -> None:
    path = made(tmp_path / "volume", 3)
    with (path / FIRST).open("r+b") as file:
        file.truncate(kept_bytes)
    with pytest.raises(StorageCorruptError, match=f"was cut to {kept_bytes}"):
        small(path)


def test_a_missing_segment_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "volume"
    volume = small(path)
    for index in range(100):
        volume.commit([Append("a", (index,), (bytes(1000),))])
    volume.close()
    files = sorted(path.glob("*.log"))
    assert len(files) > 4
    for file in (files[0], files[2]):
        kept = file.read_bytes()
        file.unlink()
        with pytest.raises(StorageCorruptError, match=rf"{file.name} is gone; it held .* 'a'"):
            small(path)
        file.write_bytes(kept)
    files[-1].unlink()
    gone = rf"{files[-1].name}, .* is gone: {files[-2].name} is full, and all commits from \d+ on"
    with pytest.raises(StorageCorruptError, match=gone):
        small(path)
    for file in files[:-1]:
        file.unlink()
    with pytest.raises(StorageCorruptError, match="lost all its segments"):
        small(path)


def test_a_segment_of_another_volume_is_not_taken(tmp_path: Path) -> None:
    one, other = made(tmp_path / "one", 3), made(tmp_path / "other", 3)
    shutil.copy(other / FIRST, one / FIRST)
    with pytest.raises(StorageCorruptError, match="not start like a segment of this volume"):
        small(one)


@pytest.mark.parametrize("damage", ["missing", "empty", "garbled", "of another segment"])
def test_a_lost_index_is_made_anew(tmp_path: Path, damage: str) -> None:
    path = made(tmp_path / "volume", 300)
    index = path / "000000000002.index"
    match damage:
        case "missing":
            index.unlink()
        case "empty":
            index.write_bytes(b"")
        case "garbled":
            index.write_bytes(index.read_bytes()[:-1] + b"!")
        case _:
            shutil.copy(path / "000000000001.index", index)
    volume = small(path)
    assert volume.recovery.rebuilt == ("000000000002.log",)
    assert commits_in(volume) == 300
    volume.close()
    volume = small(path)
    assert volume.recovery.rebuilt == ()
    assert commits_in(volume) == 300
    volume.close()


@pytest.mark.slow
def test_a_sync_may_fail_anywhere_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """Each sync of a run that fills, chops, reuses and copies segments fails once."""
    place = 0
    while True:
        path = tmp_path / str(place)
        calls = 0

        def sync(descriptor: int) -> None:
            nonlocal calls
            calls += 1
            if calls > place:  # noqa: B023
                raise OSError(5, "injected")

        states, last = [(0, 0, 0)], (0, 0, 0)
        with (
            suppress(StorageError),
            closing(
                DiskVolume(path, segment_bytes=2048, sync=Sync(file=sync, folder=sync))
            ) as volume,
        ):
            for number in range(1, 22):
                last = (max(0, 2 * number - 6), 2 * number, number)
                volume.commit(
                    [
                        Append("a", (last[1] - 2, last[1] - 1), (bytes(300), bytes(300))),
                        Append("slow", (number - 1,), (b"%d" % number,)),
                        Chop("a", last[0]),
                    ]
                )
                states = [last]
        finished = states == [last] and calls <= place
        states.append(last)
        volume = DiskVolume(path, segment_bytes=2048, sync=NO_SYNC)
        start, end = volume.bounds("a")
        assert (start, end, volume.bounds("slow").end) in states
        assert volume.scan("a", 0, 999).indices == list(range(start, end))
        slow = volume.scan("slow", 0, 999)
        assert slow.records == [b"%d" % number for number in range(1, end // 2 + 1)]
        volume.check()
        volume.close()
        if finished:
            break
        shutil.rmtree(path)
        place += 1
    assert place > 40


KILLED = """
import sys
from gapless.core.effects import Append, Put
from gapless.storage.disk import DiskVolume

volume = DiskVolume(sys.argv[1], segment_bytes=64 << 10)
start = volume.bounds("a").end
while True:
    indices = tuple(range(start, start + start % 9 + 1))
    volume.commit([
        Append("a", indices, tuple(b"%d " % n * (n % 50) for n in indices)),
        Put("t", "end", b"%d" % (indices[-1] + 1)),
    ])
    start = indices[-1] + 1
    print(start, flush=True)
"""


@pytest.mark.slow
def test_all_that_a_killed_process_acknowledged_is_there(tmp_path: Path) -> None:
    """kill -9 in mid-load, again and again, on one volume with real syncs."""
    acknowledged = 0
    for life in range(4):
        with child([sys.executable, "-c", KILLED, str(tmp_path / "volume")]) as process:
            for _ in range(20 + 13 * life):
                acknowledged = int(told(process))
            process.kill()
            for line in rest(process).splitlines(keepends=True):
                if line.endswith("\n"):
                    acknowledged = int(line)
            assert process.wait() == -signal.SIGKILL
        volume = DiskVolume(tmp_path / "volume")
        found = volume.scan("a", 0, 1 << 60, bytes_max=1 << 30)
        assert len(found.indices) >= acknowledged
        assert found.indices == list(range(len(found.indices)))
        assert found.records == [b"%d " % n * (n % 50) for n in found.indices]
        assert volume.get("t", "end") == b"%d" % len(found.indices)
        assert not volume.recovery.clean
        volume.close()


def full_segments(path: Path) -> list[Path]:
    """The segments of a volume that crashed, with several of them full."""
    volume = small(path)
    for index in range(100):
        volume.commit([Append("a", (index,), (bytes(1000),))])
    volume.close()
    (path / "closed.json").unlink()
    files = sorted(path.glob("*.log"))
    assert len(files) > 4
    return files


@pytest.mark.parametrize("lost", [1, 2], ids=["the newest", "the newest two"])
@pytest.mark.parametrize("has_index", [True, False], ids=["", "without indexes"])
def test_after_a_crash_a_newest_segment_that_is_missing_is_noticed(
    tmp_path: Path, lost: int, has_index: bool
) -> None:
    files = full_segments(tmp_path / "volume")
    for file in files[-lost:]:
        file.unlink()
    if not has_index:
        for index in (tmp_path / "volume").glob("*.index"):
            index.unlink()
    gone = rf"{files[-lost].name}, .* is gone: {files[-lost - 1].name} is full"
    with pytest.raises(StorageCorruptError, match=gone):
        small(tmp_path / "volume")


def test_an_index_alone_tells_that_a_segment_was_full(tmp_path: Path) -> None:
    """As in volumes of versions that did not seal segments."""
    files = full_segments(tmp_path / "volume")
    files[-1].unlink()
    data = bytearray(files[-2].read_bytes())
    place = data.rindex(SEAL_MAGIC)
    data[place : place + HEADER.size] = bytes(HEADER.size)
    files[-2].write_bytes(data)
    with pytest.raises(StorageCorruptError, match="is gone"):
        small(tmp_path / "volume")
    files[-2].with_suffix(".index").unlink()
    volume = small(tmp_path / "volume")  # nothing tells any more that there was another
    volume.close()


def test_a_crash_before_the_seal_loses_nothing_with_the_new_segment_or_without(
    tmp_path: Path,
) -> None:
    """What is acknowledged stands in the new segment only once the old one is sealed."""
    calls, path = list[str](), tmp_path / "volume"

    def file(descriptor: int) -> None:
        calls.append("file")
        if calls[-2:] == ["folder", "file"] and len(calls) > 20:
            raise OSError(5, "power is gone")

    def folder(descriptor: int) -> None:
        calls.append("folder")

    volume = DiskVolume(path, segment_bytes=SMALL_SEGMENT_BYTES, sync=Sync(file, folder))
    index = 0
    with suppress(StorageError):
        while index < 100:
            volume.commit([Append("a", (index,), (bytes(1000),))])
            index += 1
    assert index < 100
    shutil.copytree(path, tmp_path / "copy")
    volume.close()
    files = sorted((tmp_path / "copy").glob("*.log"))
    assert len(files) > 1
    data = files[-2].read_bytes()  # the seal was written and did not reach the disk
    place = data.rindex(SEAL_MAGIC)
    files[-2].write_bytes(data[:place] + bytes(HEADER.size) + data[place + HEADER.size :])
    shutil.copytree(tmp_path / "copy", tmp_path / "without")
    (tmp_path / "without" / files[-1].name).unlink()
    for copy in ("copy", "without"):
        volume = small(tmp_path / copy)
        assert volume.scan("a", 0, 1 << 60, bytes_max=1 << 30).indices == list(range(index))
        volume.commit([Append("a", (index,), (b"more",))])
        volume.close()
    (tmp_path / "copy" / "closed.json").unlink()
    files[-1].unlink()
    files[-2].with_suffix(".index").unlink()
    with pytest.raises(StorageCorruptError, match="is gone"):  # it was sealed when it was opened
        small(tmp_path / "copy")


def test_a_mark_of_closing_from_an_older_life_is_not_believed(tmp_path: Path) -> None:
    path = made(tmp_path / "volume", 3, crashed=False)
    old = (path / "closed.json").read_bytes()
    volume = small(path)
    volume.commit([append(6)])
    volume.close()
    (path / "closed.json").write_bytes(old)
    volume = small(path)
    assert not volume.recovery.clean
    assert volume.bounds("a").end == 7
    volume.close()
