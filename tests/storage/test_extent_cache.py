"""Extents that are kept whole: when, for how long, and what is never seen in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop
from gapless.core.errors import StorageCorruptError
from gapless.storage import extent_cache
from gapless.storage.disk import DiskVolume
from tests.storage.labs import NO_SYNC, append

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[DiskVolume]:
    volume = DiskVolume(tmp_path, sync=NO_SYNC)
    yield volume
    volume.check()
    volume.close()


def fill(volume: DiskVolume, starts: Iterable[int]) -> None:
    """A hundred records of some 400 bytes in each commit."""
    for start in starts:
        volume.commit([append(*range(start, start + 100), size=400)])


def record(index: int) -> bytes:
    return append(index, size=400).records[0]


def look_often(volume: DiskVolume, index: int) -> None:
    """Until all of its extent is at hand."""
    assert any(len(volume.read_near("a", index)) == 100 for _ in range(20))


def test_who_wants_a_record_here_and_there_reads_no_others(volume: DiskVolume) -> None:
    fill(volume, range(0, 2_000, 100))
    for index in range(7, 2_000, 100):
        assert volume.read_near("a", index) == {index: record(index)}


def test_where_enough_was_looked_at_all_is_at_hand(volume: DiskVolume) -> None:
    fill(volume, range(0, 200, 100))
    looks = [len(volume.read_near("a", index)) for index in range(150, 170)]
    few = looks.index(100)
    assert 2 <= few <= 12, "about one for each 8 KiB of the 40 KiB or so"
    assert looks == [1] * few + [100] * (20 - few)
    near = volume.read_near("a", 199)
    assert near == {index: record(index) for index in range(100, 200)}


def test_there_is_nothing_near_a_record_that_is_not_there(volume: DiskVolume) -> None:
    volume.commit([Append("a", (10, 12), (b"ten", b"twelve"))])
    assert volume.read_near("b", 10) == {}
    for _ in range(5):
        assert volume.read_near("a", 13) == {}
        assert 11 not in volume.read_near("a", 11)
    assert volume.read_near("a", 12)[12] == b"twelve"


def test_an_extent_that_has_grown_is_looked_at_anew(volume: DiskVolume) -> None:
    for index in range(20):
        volume.commit([append(index)])
        for _ in range(3):
            near = volume.read_near("a", index)
        assert near == {each: append(each).records[0] for each in range(index + 1)}


def test_what_was_chopped_is_not_seen_though_it_was_kept(volume: DiskVolume) -> None:
    fill(volume, [0])
    look_often(volume, 60)
    volume.commit([Chop("a", 50)])
    assert volume.read_near("a", 49) == {}
    assert volume.read_near("a", 60) == {60: record(60)}


def test_beside_a_damaged_page_records_can_still_be_read(tmp_path: Path) -> None:
    volume = DiskVolume(tmp_path / "v", sync=NO_SYNC)
    fill(volume, [1_000])
    path = tmp_path / "v" / "000000000001.log"
    data = bytearray(path.read_bytes())
    data[data.find(b"1050,1050")] ^= 1
    path.write_bytes(data)
    for _ in range(20):
        assert volume.read_near("a", 1_005) == {1_005: record(1_005)}
    for _ in range(20):
        with pytest.raises(StorageCorruptError, match="damaged"):
            volume.read_near("a", 1_050)
    volume.close()


def test_no_more_is_kept_than_may_be_and_the_oldest_goes(
    volume: DiskVolume, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extent_cache, "WHOLE_BYTES_MAX", 200_000)
    fill(volume, range(0, 1_000, 100))
    for start in range(0, 1_000, 100):
        look_often(volume, start)
        volume.check()
    assert len(volume.read_near("a", 900)) == 100
    assert len(volume.read_near("a", 0)) == 1, "it was kept longest"
