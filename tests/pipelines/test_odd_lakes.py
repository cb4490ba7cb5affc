"""Lakes that are empty, that grow while they are matched, and that have lost a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from gapless.client.columns import SCHEMA, attributes_column
from gapless.core.errors import StorageMissingError, UsageError
from gapless.core.ticks import PUBEND_BITS
from gapless.pipelines.audience import write_audience
from gapless.pipelines.lake import Lake, LakeWriter
from gapless.pipelines.manifest import Covered, LakeFile, Manifest
from gapless.pipelines.match import _by_event, _find_in, _sizes
from gapless.pipelines.replay import Pieces, Replay, plan
from gapless.pipelines.writing import FileWriter

if TYPE_CHECKING:
    from pathlib import Path

FIRST = 1_700_000_000_000_000 << PUBEND_BITS


def put(lake: Lake, count: int) -> Path:
    """One hour of one pubend, in a file that takes the place of the one before."""
    ticks = pa.array(range(FIRST, FIRST + count), pa.int64())
    times = pa.array([tick >> PUBEND_BITS for tick in range(FIRST, FIRST + count)])
    same = [pa.array(["t"] * count), pa.array(["p"] * count)]
    nobody = [pa.nulls(count, pa.string()), pa.nulls(count, pa.int64())]
    maps = attributes_column([{"a": number} for number in range(count)])
    instants = times.cast(pa.timestamp("us", "UTC"))
    columns = [*same, ticks, instants, *nobody, maps, pa.array([b"x"] * count)]
    with LakeWriter(lake) as writer:
        target = FileWriter(writer.unfinished)
        target.add(pa.record_batch(columns, schema=SCHEMA))
        name, first, end, rows, size = target.close(FIRST + count)
        place = lake.place("p", first)
        covered = Covered(FIRST, FIRST + count, (), (LakeFile(place, first, end, rows, size),))
        writer.commit(Manifest("t", {"p": covered}), {name: place})
    return lake.folder / place


def matched(replay: Replay, pieces: Pieces, audience: Path) -> list[int]:
    write_audience([("even", "a % 2 = 0")], audience)
    found = [_find_in(replay, str(audience), _by_event, piece) for piece in pieces.pieces]
    return [row["tick"] - FIRST for some in found for part in some for row in part.to_pylist()]


def test_a_lake_that_is_not_there_has_no_matches(tmp_path: Path) -> None:
    replay = Replay(Lake(tmp_path / "none", "t"), None)
    assert matched(replay, plan(replay), tmp_path / "audience") == []
    assert list(_sizes(replay, plan(replay))) == []


@pytest.mark.parametrize("count", [3, 3_000])
def test_a_file_that_has_grown_gives_what_was_planned(tmp_path: Path, count: int) -> None:
    """Few events are read by Arrow, many without it."""
    lake = Lake(tmp_path, "t")
    put(lake, count)
    replay = Replay(lake, None)
    pieces = plan(replay)
    put(lake, 2 * count + 1)
    assert matched(replay, pieces, tmp_path / "audience") == [*range(0, count, 2)]
    assert matched(replay, plan(replay), tmp_path / "audience") == [*range(0, 2 * count + 1, 2)]


def test_a_file_that_is_replaced_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "t")
    put(lake, 5)
    replay = Replay(lake, None)
    write_audience([("all", "")], tmp_path / "audience")
    [piece] = plan(replay).pieces
    found = _find_in(replay, str(tmp_path / "audience"), _by_event, piece)
    first = next(found)
    put(lake, 9)
    rows = [row for part in (first, *found) for row in part.to_pylist()]
    assert [row["tick"] - FIRST for row in rows] == [*range(5)]


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path, "t")
    path, replay = put(lake, 3), Replay(lake, None)
    pieces = plan(replay)
    path.unlink()
    with pytest.raises(StorageMissingError, match=path.name):
        list(_sizes(replay, pieces))
    with pytest.raises(StorageMissingError, match=path.name):
        matched(replay, pieces, tmp_path / "audience")


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
    place = lake.folder / lake.place(f"{name}/0", FIRST)
    assert place.resolve().parent.parent.parent == lake.folder.resolve()
    place.parent.mkdir(parents=True)  # no file system refuses it
    parts = place.relative_to(tmp_path / "lake").parts
    assert not any(part.startswith((".", "_")) for part in parts)  # readers would skip it


def test_folders_of_different_names_differ_and_plain_ones_are_as_they_were(tmp_path: Path) -> None:
    names = ["a", "A", "a/0", "a%2F0", ".", "%2E", "ä" * 100, "ä" * 99 + "ab", "_", "%5F"]
    assert len({Lake(tmp_path, name).folder for name in names}) == len(names)
    assert Lake(tmp_path, "trades-7.x").folder == tmp_path / "trades-7.x"
    assert Lake(tmp_path, "a/b").place("a/b/0", FIRST).startswith("a%2Fb%2F0/")
    with pytest.raises(UsageError, match="a topic has a name"):
        Lake(tmp_path, "")


def test_a_lake_of_before_is_found_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "_old").mkdir()
    (tmp_path / "_old" / "_manifest.json").write_text("{}")
    assert Lake(tmp_path, "_old").folder == tmp_path / "_old"
    assert Lake(tmp_path, "_new").folder == tmp_path / "%5Fnew"
