"""The lake has each event once for every reader, whoever is killed, and the log until then."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import gapless
from gapless.core.errors import StorageError, UsageError
from gapless.pipelines.archive import ArchiveLimits, ArchiveProgress, archive
from gapless.pipelines.lake import UNFINISHED, Lake, LakeWriter, create_durably, slice_end
from gapless.pipelines.topic_log import TopicLog
from tests.pipelines.logs import wait_for_release
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.sync import Client

KILLED = """
import os, signal, sys
from gapless.pipelines import archive
from gapless.pipelines.topic_log import TopicLog
from gapless.pipelines import lake
url, root, stage = sys.argv[1:]
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
def tell(progress):
    if progress.stage == stage:
        die()
    if progress.stage == "written" and stage == "files in place":
        lake.create_durably = die
    if progress.stage == "written" and stage == "manifest made":
        lake.LakeWriter._sweep = die
archive.archive(TopicLog(url, "t"), root, tell=tell)
"""
SLICES = ArchiveLimits(slice_us=1_000, slices_max=3)


def fill(client: Client, first: int, count: int) -> list[int]:
    events = [({"i": i}, b"x" * 50) for i in range(first, first + count)]
    return [receipt.tick for receipt in client.publish_many("t", events)]


def by_glob(root: Path) -> list[int]:
    """As any reader of Parquet sees the folder, which knows nothing of a manifest."""
    if not list(root.rglob("*.parquet")):
        return []
    return sorted(ds.dataset(root, format="parquet").to_table()["tick"].to_pylist())


def by_manifest(root: Path) -> list[int]:
    lake = Lake(root, "t")
    found: list[int] = []
    for covered in lake.manifest().pubends.values():
        covered.check()
        for file in covered.files:
            ticks = ds.dataset(lake.folder / file.path).to_table()["tick"].to_pylist()
            found += [tick for tick in ticks if file.start <= tick < file.end]
            assert file.rows == len(ticks)
    return found


def files_below(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*.parquet")}


def test_what_is_settled_is_in_the_lake_once_and_the_last_file_grows(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    told: list[ArchiveProgress] = []
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        source = TopicLog(url, "t")
        assert archive(source, lake) == 0  # now the subscription holds what comes
        ticks = fill(client, 0, 300)
        assert archive(source, lake, tell=told.append) == 300
        assert [each.stage for each in told] == ["written", "committed", "acknowledged"]
        assert by_glob(lake) == by_manifest(lake) == ticks
        before = files_below(lake)
        ticks += fill(client, 300, 10)
        assert archive(source, lake) == 10
        assert by_glob(lake) == by_manifest(lake) == ticks
        if slice_end(ticks[0]) == slice_end(ticks[-1]):  # not over the end of an hour
            assert len(files_below(lake)) == len(before) == 1
            assert files_below(lake) != before, "files never change: the larger one is new"
        assert archive(source, lake) == 0


def test_files_are_bounded_and_rounds_too(tmp_path: Path) -> None:
    lake, told = tmp_path / "lake", list[ArchiveProgress]()
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        source = TopicLog(url, "t")
        archive(source, lake)
        ticks = [tick for first in range(0, 200, 20) for tick in fill(client, first, 20)]
        assert archive(source, lake, limits=SLICES, tell=told.append) == 200
        rounds = [each for each in told if each.stage == "committed"]
        assert len(rounds) > 1
        assert all(each.files <= SLICES.slices_max for each in rounds)
        assert by_glob(lake) == by_manifest(lake) == ticks
        ticks += fill(client, 200, 5)
        small = ArchiveLimits(file_bytes_max=1)
        files = len(files_below(lake))
        assert archive(source, lake, limits=small) == 5
        assert len(files_below(lake)) > files
        assert by_glob(lake) == by_manifest(lake) == ticks
    with pytest.raises(UsageError, match="slices"):
        ArchiveLimits(slice_us=7_000_000)


@pytest.mark.parametrize(
    "stage", ["written", "files in place", "manifest made", "committed", "acknowledged"]
)
def test_a_driver_that_is_killed_leaves_nothing_lost_doubled_or_lying_about(
    tmp_path: Path, stage: str
) -> None:
    lake = tmp_path / "lake"
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        archive(TopicLog(url, "t"), lake)
        ticks = fill(client, 0, 100)
        archive(TopicLog(url, "t"), lake)
        ticks += fill(client, 100, 100)
        arguments = [sys.executable, "-c", KILLED, url, str(lake), stage]
        assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
        # Before the manifest nothing of it counts; after it, all.
        is_before = stage in ("written", "files in place")
        assert by_manifest(lake) == (ticks[:100] if is_before else ticks)
        if stage not in ("files in place", "manifest made"):
            assert by_glob(lake) == by_manifest(lake)
        ticks += fill(client, 200, 1)
        assert archive(TopicLog(url, "t"), lake) == (101 if is_before else 1)
        assert by_glob(lake) == by_manifest(lake) == ticks
        assert not (Lake(lake, "t").folder / UNFINISHED).exists()


def test_a_commit_killed_before_its_manifest_is_undone_and_after_it_is_finished(
    tmp_path: Path,
) -> None:
    lake, saved = Lake(tmp_path / "lake", "t"), tmp_path / "saved"
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        log = TopicLog(url, "t")
        archive(log, tmp_path / "lake")
        ticks = fill(client, 0, 10)
        archive(log, tmp_path / "lake")
        shutil.copytree(lake.folder, saved)
        ticks += fill(client, 10, 10)
        archive(log, tmp_path / "lake")
    new, old = lake.manifest(), Lake(saved.parent / "none", "t").manifest()
    assert (new.rows, old.rows) == (20, 0)
    for file in (saved / "data").rglob("*.parquet"):  # as if its removal had not happened
        shutil.copy(file, lake.folder / file.relative_to(saved))
    newest = max((lake.folder / "_manifests").iterdir())
    if slice_end(ticks[0]) == slice_end(ticks[-1]):  # else there is nothing that was replaced
        assert len(by_glob(tmp_path / "lake")) == 30, "both files are there"
    assert by_manifest(tmp_path / "lake") == ticks
    with LakeWriter(lake):
        assert by_glob(tmp_path / "lake") == by_manifest(tmp_path / "lake") == ticks
        with pytest.raises(StorageError, match="is open in process"), LakeWriter(lake):
            pass
    # And without the manifest, which is the last that a commit makes:
    for file in (saved / "data").rglob("*.parquet"):
        shutil.copy(file, lake.folder / file.relative_to(saved))
    newest.unlink()
    (lake.folder / UNFINISHED).mkdir()
    assert by_manifest(tmp_path / "lake") == ticks[:10]
    with LakeWriter(lake):
        assert by_glob(tmp_path / "lake") == by_manifest(tmp_path / "lake") == ticks[:10]


def test_of_two_that_commit_at_once_one_is_refused_and_nothing_is_overwritten(
    tmp_path: Path,
) -> None:
    lake = Lake(tmp_path, "t")
    with LakeWriter(lake) as writer:
        first = writer.commit(lake.manifest(), {})
        assert first.number == 1
        other = lake.folder / "_manifests" / f"{2:020d}.json"
        other.write_text("{}", encoding="utf-8")  # of a process that does not see our lock
        with pytest.raises(StorageError, match="another process has changed the lake"):
            create_durably(other, "mine")
        assert other.read_text(encoding="utf-8") == "{}"


def test_a_lake_of_the_layout_before_is_refused_with_what_to_do(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "t")
    lake.folder.mkdir()
    (lake.folder / "_manifest.json").write_text('{"version": 1}', encoding="utf-8")
    with pytest.raises(StorageError, match="Archive the topic into a new folder"):
        lake.manifest()
    with pytest.raises(StorageError, match="earlier version"), LakeWriter(lake):
        pass


def test_nothing_is_released_before_it_is_in_the_lake(tmp_path: Path) -> None:
    """The archive is the only subscriber: what it has not acknowledged can still be read."""
    lake = tmp_path / "lake"
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        source = TopicLog(url, "t")
        archive(source, lake)
        ticks = fill(client, 0, 50)
        assert sum(len(batch) for batch in client.read("t") if not isinstance(batch, tuple)) == 50

        def look(progress: ArchiveProgress) -> None:
            if progress.stage != "acknowledged":
                assert client.positions("t")["t/0"][0] <= ticks[0]

        archive(source, lake, tell=look)
        wait_for_release(client, "t", {"t/0": ticks[-1]})  # and then it is
        assert by_manifest(lake) == ticks
