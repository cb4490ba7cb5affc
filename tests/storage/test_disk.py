"""The disk volume: files, permissions, locks and space."""

from __future__ import annotations

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.core.errors import (
    StorageCorruptError,
    StorageError,
    StorageMissingError,
)
from gapless.storage.disk import DiskVolume
from gapless.storage.folder import FORMAT
from gapless.storage.frame import ENTRY_BYTES
from gapless.storage.segment import PIECES_MAX, Sync
from gapless.storage.volume import VolumeLimits
from tests.storage.labs import NO_SYNC, SMALL_SEGMENT_BYTES, append, indices, small

if TYPE_CHECKING:
    from pathlib import Path


def test_only_the_owner_may_read_a_volume(tmp_path: Path) -> None:
    volume = small(tmp_path / "deep" / "volume")
    for index in range(100):
        volume.commit([append(index, size=1000), Chop("a", index - 9 if index > 9 else 0)])
    volume.close()
    assert (tmp_path / "deep" / "volume").stat().st_mode & 0o777 == 0o700
    files = list((tmp_path / "deep" / "volume").iterdir())
    assert {path.suffix for path in files} >= {".log", ".spare", ".json", ""}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_second_process_is_told_who_holds_the_volume(tmp_path: Path) -> None:
    volume = small(tmp_path)
    with pytest.raises(StorageError, match=f"is open in process {os.getpid()}"):
        small(tmp_path)
    volume.close()
    small(tmp_path).close()


def test_the_description_of_a_batch_is_checked_with_every_point_read(tmp_path: Path) -> None:
    volume = DiskVolume(tmp_path, sync=NO_SYNC)
    for start in range(0, 2000, 100):
        volume.commit([append(*range(start, start + 100), size=400)])
    assert volume.read("a", 1234) == append(1234, size=400).records[0]
    path = tmp_path / "000000000001.log"
    data = bytearray(path.read_bytes())
    place = data.find(b"1900,1900") - 200  # among the ends of the records of that batch
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageCorruptError, match="held records of 'a' between 1900 and 1999"):
        volume.read("a", 1950)
    assert volume.read("a", 1899) == append(1899, size=400).records[0]
    volume.close()


def test_a_commit_may_have_more_pieces_than_one_call_takes(tmp_path: Path) -> None:
    names = [f"s{number}" for number in range(PIECES_MAX + 100)]
    volume = DiskVolume(tmp_path, sync=NO_SYNC)
    volume.commit([Append(name, (1,), (name.encode(),)) for name in names])
    assert [volume.read(name, 1) for name in names] == [name.encode() for name in names]
    volume.close()


@pytest.mark.parametrize("version", [FORMAT - 1, FORMAT + 1])
def test_another_format_is_refused_and_left_alone(tmp_path: Path, version: int) -> None:
    small(tmp_path).close()
    path = tmp_path / "volume.json"
    other = path.read_text().replace(f'"format": {FORMAT}', f'"format": {version}')
    path.write_text(other)
    expected = f"has format {version}; this version of gapless knows {FORMAT}"
    with pytest.raises(StorageError, match=expected):
        small(tmp_path)
    assert path.read_text() == other


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "x", "salt": 1}', "\0\0"])
def test_a_damaged_format_marker_is_corruption(tmp_path: Path, text: str) -> None:
    small(tmp_path).close()
    (tmp_path / "volume.json").write_text(text)
    with pytest.raises(StorageCorruptError, match=r"volume\.json is damaged"):
        small(tmp_path)


def test_a_folder_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StorageCorruptError, match="is not empty"):
        small(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_volume_whose_making_was_interrupted_is_made_anew(tmp_path: Path) -> None:
    small(tmp_path).close()
    (tmp_path / "closed.json").unlink()
    (tmp_path / "volume.json").rename(tmp_path / "volume.json.new")
    volume = small(tmp_path)
    volume.commit([append(1)])
    volume.close()
    volume = small(tmp_path)
    assert indices(volume) == [1]
    volume.close()


def test_an_unusable_path_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot open"):
        small(tmp_path / "file")


def test_dead_segments_are_reused_and_the_rest_unlinked(tmp_path: Path) -> None:
    volume = small(tmp_path)
    for index in range(300):
        volume.commit([append(index, size=1000)])
    assert volume.statistics().bytes_on_disk > 300_000
    volume.commit([Chop("a", 300)])
    assert volume.statistics().bytes_on_disk == 3 * SMALL_SEGMENT_BYTES  # one, and two spares
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert on_disk < 3 * SMALL_SEGMENT_BYTES + 1000
    for index in range(300, 330):
        volume.commit([append(index, size=1000)])
    assert volume.statistics().bytes_on_disk == 3 * SMALL_SEGMENT_BYTES
    volume.check()
    volume.close()


def test_facts_alone_do_not_make_a_volume_grow(tmp_path: Path) -> None:
    volume = small(tmp_path)
    for number in range(2000):
        volume.commit([Put("tokens", f"subscriber {number % 20}", b"%d" % number)])
    assert volume.statistics().bytes_on_disk <= 3 * SMALL_SEGMENT_BYTES
    volume.close()
    volume = small(tmp_path)
    assert volume.items("tokens")["subscriber 19"] == b"1999"
    volume.close()


def test_tables_larger_than_a_segment_are_kept(tmp_path: Path) -> None:
    volume = small(tmp_path)
    for number in range(100):
        volume.commit([Put("t", str(number), bytes(1000)), append(number)])
    volume.commit([Delete("t", "0")])
    volume.close()
    volume = small(tmp_path)
    assert len(volume.items("t")) == 99
    assert indices(volume) == list(range(100))
    volume.close()


def test_records_copied_together_are_still_there_after_another_crash(tmp_path: Path) -> None:
    """A slow stream pins every segment; its records move forward, more than once."""
    volume = small(tmp_path)
    for index in range(1000):
        volume.commit([append(index, size=1000), Append("slow", (index,), (b"%d" % index,))])
        volume.commit([Chop("a", index)])
    assert volume.statistics().bytes_on_disk < 10 * SMALL_SEGMENT_BYTES
    for path in tmp_path.glob("*.index"):
        path.unlink()
    volume.check()
    volume.close()
    volume = small(tmp_path)
    assert len(volume.recovery.rebuilt) > 0
    found = volume.scan("slow", 0, 1000, bytes_max=1 << 20)
    assert found.records == [b"%d" % index for index in range(1000)]
    assert volume.read("slow", 500) == b"500"
    volume.check()
    volume.close()


def test_statistics_count_what_happened(tmp_path: Path) -> None:
    volume = small(tmp_path)
    before = volume.statistics()
    volume.commit([append(1, 2), Put("t", "key", b"value")])
    after = volume.statistics()
    assert (after.commits - before.commits, after.syncs - before.syncs) == (1, 1)
    assert after.bytes_live == 2 * (50 + ENTRY_BYTES) + len("keyvalue")
    assert (after.streams, after.facts) == (1, 1)
    assert sum(after.sync_buckets) == after.syncs
    volume.close()


def test_closing_says_with_which_commit(tmp_path: Path) -> None:
    volume = small(tmp_path)
    volume.commit([append(1)])
    assert not (tmp_path / "closed.json").exists()
    volume.close()
    assert json.loads((tmp_path / "closed.json").read_text()) == {"sequence": 2}


def test_a_new_segment_has_its_name_for_good_before_it_is_used(tmp_path: Path) -> None:
    seen: set[str] = set()

    def sync_folder(descriptor: int) -> None:
        seen.update(os.listdir(descriptor))

    volume = DiskVolume(
        tmp_path,
        segment_bytes=SMALL_SEGMENT_BYTES,
        sync=Sync(file=NO_SYNC.file, folder=sync_folder),
    )
    for index in range(50):
        volume.commit([append(index, size=1000)])
    names = {path.name for path in tmp_path.glob("*.log")}
    assert len(names) > 2
    assert names <= seen
    volume.close()
    assert {"volume.json", "closed.json"} <= seen


def test_a_damaged_record_does_not_stop_the_others_from_being_copied(tmp_path: Path) -> None:
    volume = small(tmp_path, VolumeLimits(size_max=8 * SMALL_SEGMENT_BYTES))
    for index in range(400):
        volume.commit([append(index, size=1000)])
        volume.commit([Append("slow", (index,), (b"needle %d;" % index,)), Chop("a", index)])
        if index == 5:
            path = tmp_path / "000000000001.log"
            with path.open("r+b") as file:
                place = path.read_bytes().index(b"needle 3;")
                os.pwrite(file.fileno(), b"noodle", place)
    with pytest.raises(StorageCorruptError, match="record 3 of 'slow'"):
        volume.read("slow", 3)
    assert volume.scan("slow", 4, 1 << 60).indices == list(range(4, 400))
    volume.check()
    volume.close()


def test_readers_see_whole_records_while_segments_come_and_go(tmp_path: Path) -> None:
    volume = small(tmp_path)
    volume.commit([append(0, size=1000)])
    is_done = threading.Event()

    def read() -> int:
        count = 0
        while not (is_done.is_set() and count):
            start, end = volume.bounds("a")
            for index in (start, (start + end) // 2, end - 1):
                with suppress(StorageMissingError):  # chopped meanwhile
                    assert volume.read("a", index) == append(index, size=1000).records[0]
                    count += 1
            found = volume.scan("a", start, end)
            assert found.indices == list(range(end - len(found.indices), end))
            assert volume.statistics().streams >= 1
        return count

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for index in range(1, 600):
            slow = Append("slow", (index,), (b"slow",))
            volume.commit([append(index, size=1000), slow, Chop("a", max(0, index - 30))])
        is_done.set()
        assert all(reader.result() > 0 for reader in readers)
    volume.check()
    volume.close()
