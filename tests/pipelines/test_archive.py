"""The lake has each event once for every reader, whoever is killed, and the log until then."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

import gapless
from gapless.client.columns import SCHEMA
from gapless.core.errors import StorageError, UsageError
from gapless.pipelines.archive import Limits, Progress, archive
from gapless.pipelines.lake import INTENT, UNFINISHED, Lake, LakeWriter, slice_end
from gapless.pipelines.source import Source
from tests.pipelines.logs import wait_for_release
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.sync import Client

KILLED = """
import os, signal, sys
from gapless.pipelines import archive
from gapless.pipelines.source import Source
url, root, stage = sys.argv[1:]
def tell(progress):
    if progress.stage == stage:
        os.kill(os.getpid(), signal.SIGKILL)
archive.archive(Source(url, "t"), root, tell=tell)
"""
SLICES = Limits(slice_us=1_000, units_max=3)


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
    told: list[Progress] = []
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        source = Source(url, "t")
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
            assert files_below(lake) == before
        table = ds.dataset(lake, format="parquet").to_table()
        assert table.schema == SCHEMA
        assert archive(source, lake) == 0


def test_files_are_bounded_and_rounds_too(tmp_path: Path) -> None:
    lake, told = tmp_path / "lake", list[Progress]()
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        source = Source(url, "t")
        archive(source, lake)
        ticks = [tick for first in range(0, 200, 20) for tick in fill(client, first, 20)]
        assert archive(source, lake, limits=SLICES, tell=told.append) == 200
        rounds = [each for each in told if each.stage == "committed"]
        assert len(rounds) > 1
        assert all(each.files <= SLICES.units_max for each in rounds)
        assert by_glob(lake) == by_manifest(lake) == ticks
        ticks += fill(client, 200, 5)
        small = Limits(file_bytes_max=1)
        files = len(files_below(lake))
        assert archive(source, lake, limits=small) == 5
        assert len(files_below(lake)) > files
        assert by_glob(lake) == by_manifest(lake) == ticks
    with pytest.raises(UsageError, match="slices"):
        Limits(slice_us=7_000_000)


@pytest.mark.parametrize("stage", ["written", "committed", "acknowledged"])
def test_a_driver_that_is_killed_leaves_nothing_lost_doubled_or_lying_about(
    tmp_path: Path, stage: str
) -> None:
    lake = tmp_path / "lake"
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        archive(Source(url, "t"), lake)
        ticks = fill(client, 0, 100)
        archive(Source(url, "t"), lake)
        ticks += fill(client, 100, 100)
        arguments = [sys.executable, "-c", KILLED, url, str(lake), stage]
        assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
        # Before the manifest nothing of it is seen; after it, all.
        assert by_glob(lake) == by_manifest(lake) == (ticks[:100] if stage == "written" else ticks)
        ticks += fill(client, 200, 1)
        assert archive(Source(url, "t"), lake) == (101 if stage == "written" else 1)
        assert by_glob(lake) == by_manifest(lake) == ticks
        assert not (Lake(lake, "t").folder / UNFINISHED).exists()


def test_a_change_that_was_begun_is_finished_by_the_next(tmp_path: Path) -> None:
    lake, saved = tmp_path / "lake", tmp_path / "saved"
    folder = Lake(lake, "t").folder
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        source = Source(url, "t")
        archive(source, lake)
        ticks = fill(client, 0, 10)

        def keep(progress: Progress) -> None:
            if progress.stage == "written":
                os.link(next((folder / UNFINISHED).iterdir()), saved)

        archive(source, lake, tell=keep)
        manifest = Lake(lake, "t").manifest()
    # As if it had been killed when only the intent was there.
    [place] = [file.path for covered in manifest.pubends.values() for file in covered.files]
    intent = {"manifest": manifest.to_json(), "moves": {"new": place}}
    (folder / place).unlink()
    (folder / "_manifest.json").unlink()
    (folder / UNFINISHED).mkdir()
    saved.rename(folder / UNFINISHED / "new")
    (folder / INTENT).write_text(json.dumps(intent), encoding="utf-8")
    assert by_manifest(lake) == []
    with LakeWriter(Lake(lake, "t")):
        assert by_glob(lake) == by_manifest(lake) == ticks
        with pytest.raises(StorageError, match="is open in process"), LakeWriter(Lake(lake, "t")):
            pass
    assert not (folder / INTENT).exists()


def test_nothing_is_released_before_it_is_in_the_lake(tmp_path: Path) -> None:
    """The archive is the only subscriber: what it has not acknowledged can still be read."""
    lake = tmp_path / "lake"
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        source = Source(url, "t")
        archive(source, lake)
        ticks = fill(client, 0, 50)
        assert sum(len(batch) for batch in client.read("t") if not isinstance(batch, tuple)) == 50

        def look(progress: Progress) -> None:
            if progress.stage != "acknowledged":
                assert client.positions("t")["t/0"][0] <= ticks[0]

        archive(source, lake, tell=look)
        wait_for_release(client, "t", {"t/0": ticks[-1]})  # and then it is
        assert by_manifest(lake) == ticks
