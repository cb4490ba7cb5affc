"""A backup has one instant of a volume; a cut or damaged one is refused whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.broker.adoption import adopt, hosted
from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import StorageCorruptError, StorageError, UsageError
from gapless.storage.backup import Snapshot, check_backup, restore
from gapless.storage.disk import DiskVolume
from gapless.storage.examination import examine

if TYPE_CHECKING:
    from pathlib import Path


def filled(path: Path) -> DiskVolume:
    volume = DiskVolume(path)
    for number in range(1, 200):
        volume.commit([Append("log/t/0", (number,), (b"x" * 1_000 + bytes([number]),))])
    volume.commit([Put("lives", "t/0", b"life"), Put("publishers/t/0", "feed", b"7")])
    volume.commit([Append("stage/3/t/0", (1,), (b"staged",)), Append("log/u/t/0", (5,), (b"o",))])
    volume.commit([Chop("log/t/0", 20), Put("durable", "desk", b"definition")])
    return volume


def contents(volume: DiskVolume) -> tuple[object, ...]:
    streams = {each: volume.scan(each, 0, 2**62, bytes_max=2**30) for each in volume.streams()}
    shown = {each: (list(found[0]), list(map(bytes, found[1]))) for each, found in streams.items()}
    return shown, {each: dict(volume.items(each)) for each in volume.tables()}


def write(volume: DiskVolume, path: Path) -> None:
    snapshot = Snapshot(volume, {"broker": "b"})
    volume.commit([Append("log/t/0", (1_000,), (b"later",)), Put("durable", "late", b"")])
    with path.open("wb") as out:
        while data := snapshot.take(10_000):
            out.write(data)


def test_what_is_restored_is_what_was_there_when_the_backup_began(tmp_path: Path) -> None:
    volume = filled(tmp_path / "a")
    before = contents(volume)
    write(volume, tmp_path / "file")
    assert check_backup(tmp_path / "file")["broker"] == "b"
    copy = DiskVolume(tmp_path / "b")
    restore(tmp_path / "file", copy, lambda _: None)
    assert contents(copy) == before
    assert copy.bounds("log/t/0") == (20, 200)
    for each in (volume, copy):
        each.close()
    assert not examine(tmp_path / "b", lambda *_: None).damages


def test_a_backup_that_is_cut_or_damaged_is_refused_before_anything_is_written(
    tmp_path: Path,
) -> None:
    volume, file = filled(tmp_path / "a"), tmp_path / "file"
    write(volume, file)
    whole = file.read_bytes()
    for bad in (whole[:-1], whole[: len(whole) // 2], whole[:5_000] + b"?" + whole[5_001:]):
        file.write_bytes(bad)
        with pytest.raises(StorageCorruptError, match="cut or damaged"):
            check_backup(file)
    file.write_bytes(b"something else")
    with pytest.raises(UsageError, match="no backup"):
        check_backup(file)
    volume.close()


def test_a_folder_with_data_is_not_restored_to(tmp_path: Path) -> None:
    volume = filled(tmp_path / "a")
    write(volume, tmp_path / "file")
    with pytest.raises(UsageError, match="has data already"):
        restore(tmp_path / "file", volume, lambda _: None)
    volume.close()


def test_an_adopted_pubend_has_its_log_its_publishers_and_its_transactions(tmp_path: Path) -> None:
    old, new = filled(tmp_path / "a"), DiskVolume(tmp_path / "b")
    assert hosted(old) == ["t/0", "u/t/0"]
    assert adopt(old, new, "t/0") == 180
    assert new.bounds("log/t/0") == (20, 200)
    assert new.streams() == ["log/t/0", "stage/3/t/0"]  # and nothing of the topic u/t
    assert new.get("publishers/t/0", "feed") == b"7"
    assert new.get("lives", "t/0") == b"life"
    assert new.get("durable", "desk") is None
    with pytest.raises(StorageError, match="there already"):
        adopt(old, new, "t/0")
    for each in (old, new):
        each.close()
