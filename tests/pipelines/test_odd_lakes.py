"""Lakes that are empty, that grow while they are matched, and that have lost a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from gapless.client.columns import SCHEMA, attributes_column
from gapless.core.errors import StorageCorruptError, StorageMissingError, UsageError
from gapless.core.ticks import PUBEND_BITS
from gapless.pipelines import lake_files
from gapless.pipelines.archive import settle
from gapless.pipelines.lake import Lake, LakeWriter
from gapless.pipelines.lake_files import FileTask, PubendFiles, read_file
from gapless.pipelines.manifest import Coverage
from gapless.pipelines.match import _by_event, _find_in
from gapless.pipelines.replay import Replay, ReplayPlan, plan, replay_events
from gapless.pipelines.subscription_table import write_subscriptions

if TYPE_CHECKING:
    from pathlib import Path

FIRST = 1_700_000_000_000_000 << PUBEND_BITS


def put(lake: Lake, count: int) -> Path:
    """One hour of one pubend, in a file that replaces the one before."""
    ticks = pa.array(range(FIRST, FIRST + count), pa.int64())
    times = pa.array([tick >> PUBEND_BITS for tick in range(FIRST, FIRST + count)])
    same = [pa.array(["t"] * count), pa.array(["p"] * count)]
    nobody = [pa.nulls(count, pa.string()), pa.nulls(count, pa.int64())]
    maps = attributes_column([{"a": number} for number in range(count)])
    instants = times.cast(pa.timestamp("us", "UTC"))
    columns = [*same, ticks, instants, *nobody, maps, pa.array([b"x"] * count)]
    with LakeWriter(lake) as writer:
        before = lake.manifest()
        files = PubendFiles(FileTask(lake.folder, writer.unfinished, before.schema, 1 << 20), "p")
        files.add(pa.record_batch(columns, schema=SCHEMA))
        result = files.close()
        covered = {"p": Coverage(FIRST, FIRST + count)}
        manifest, moves = settle(lake, replace(before, schema=result.schema), covered, [result])
        [file] = writer.commit(manifest, moves).files
    return lake.folder / file.path


def matched(replay: Replay, planned: ReplayPlan, table: Path) -> list[int]:
    write_subscriptions([("even", "a % 2 = 0")], table)
    found = [_find_in(replay, str(table), _by_event, part) for part in planned.ranges]
    return [row["tick"] - FIRST for some in found for part in some for row in part.to_pylist()]


def test_a_lake_that_is_not_there_has_no_matches(tmp_path: Path) -> None:
    replay = Replay(Lake(tmp_path / "none", "t"), None)
    assert matched(replay, plan(replay), tmp_path / "audience") == []


@pytest.mark.parametrize("count", [3, 3_000])
def test_a_file_that_was_replaced_after_the_plan_gives_what_was_planned(
    tmp_path: Path, count: int
) -> None:
    lake = Lake(tmp_path, "t")
    before = put(lake, count)
    replay = Replay(lake, None)
    planned = plan(replay)
    put(lake, 2 * count + 1)
    assert not before.exists()
    assert matched(replay, planned, tmp_path / "table") == [*range(0, count, 2)]
    assert matched(replay, plan(replay), tmp_path / "table") == [*range(0, 2 * count + 1, 2)]
    assert [event.tick - FIRST for event in replay_events(replay, planned)] == [*range(count)]


def test_a_file_that_is_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "t")
    put(lake, 5)
    replay = Replay(lake, None)
    write_subscriptions([("all", "")], tmp_path / "table")
    [part] = plan(replay).ranges
    found = _find_in(replay, str(tmp_path / "table"), _by_event, part)
    first = next(found)
    put(lake, 9)
    rows = [row for part in (first, *found) for row in part.to_pylist()]
    assert [row["tick"] - FIRST for row in rows] == [*range(5)]


def test_a_file_that_is_gone_or_damaged_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "t")
    path, replay = put(lake, 3), Replay(lake, None)
    planned, whole = plan(replay), path.read_bytes()
    for end in (0, 3, 40, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(StorageCorruptError, match=f"{path.name} cannot be read"):
            matched(replay, planned, tmp_path / "table")
    path.unlink()
    with pytest.raises(StorageMissingError, match=path.name):
        matched(replay, planned, tmp_path / "table")


def test_of_a_file_exactly_the_rows_between_two_ticks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_files, "BATCH_ROWS", 7)
    path = put(Lake(tmp_path, "t"), 20)
    for start, end in ((0, 1_000), (3, 11), (10, 10), (19, 300), (20, 300)):
        read = list(read_file(path, FIRST + start, FIRST + end, ["a"]))
        ticks = [tick - FIRST for batch in read for tick in batch.column("tick").to_pylist()]
        assert ticks == [*range(start, min(end, 20))]
        assert all(batch.schema.names == ["pubend", "tick", "a"] for batch in read)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "../x",
        "a/../../x",
        "_manifest.json",
        ".hidden",
        "a b",
        "ä" * 100,
        "/" * 200,
        "\0",
    ],
)
def test_whatever_a_topic_is_called_its_files_are_in_one_folder_of_the_lake(
    tmp_path: Path, name: str
) -> None:
    lake = Lake(tmp_path / "lake", name)
    assert lake.folder.parent == tmp_path / "lake"
    lake.folder.mkdir(parents=True)
    place = lake.folder / lake.place(FIRST, 1)
    assert place.resolve().parents[3] == lake.folder.resolve()
    place.parent.mkdir(parents=True)  # no file system refuses it
    parts = place.relative_to(tmp_path / "lake").parts
    assert not any(part.startswith((".", "_")) for part in parts)  # readers would skip it


def test_folders_of_different_names_differ_and_plain_ones_are_as_they_were(tmp_path: Path) -> None:
    names = ["a", "A", "a/0", "a%2F0", ".", "%2E", "ä" * 100, "ä" * 99 + "ab", "_", "%5F"]
    assert len({Lake(tmp_path, name).folder for name in names}) == len(names)
    assert Lake(tmp_path, "trades-7.x").folder == tmp_path / "trades-7.x"
    with pytest.raises(UsageError, match="a topic has a name"):
        Lake(tmp_path, "")
