"""Files that others write are matched as what they hold, and damaged ones as Arrow reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapless.client.columns import VALUE, attributes_column
from gapless.core.errors import StorageCorruptError, StorageMissingError, UsageError
from gapless.pipelines import regular_maps
from gapless.pipelines.audience import write_audience
from gapless.pipelines.match import _by_event, _find
from gapless.pipelines.match_files import read_events

if TYPE_CHECKING:
    from pathlib import Path

ONE: dict[str, Any] = {"int": 1}
TWO: dict[str, Any] = {"int": 2}
EVENTS: list[dict[str, Any]] = [{"a": 1}, {"a": 2, "s": "q"}, {"s": "q"}]
WANTED = {0: ["one"], 1: ["q"], 2: ["none", "q"]}
ALL_NONE = {0: ["none"], 1: ["none"], 2: ["none"]}
MAPS = attributes_column(EVENTS)
IDS: dict[str, Any] = {"pubend": ["p"] * 3, "tick": pa.array(range(3))}


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_maps, "EVENTS_MIN", 1)


def found(path: Path, table: Any = None, **layout: Any) -> dict[int, list[str]]:
    """By tick, the subscriptions that match."""
    if table is not None:
        pq.write_table(pa.table(table), path, **layout)
    conditions = {"one": "a = 1", "none": "a IS NULL", "q": "s = 'q'"}
    audience, names = str(path.with_name("audience")), [*conditions]
    write_audience(conditions.items(), audience)
    parts = _find(audience, _by_event, read_events(path, 0, 1_000))
    rows = [row for part in parts for row in part.to_pylist()]
    assert {row["pubend"] for row in rows} <= {"p"}
    return {row["tick"]: [names[number] for number in row["subscriptions"]] for row in rows}


def test_a_map_with_other_names_in_between_is_read_whole(tmp_path: Path) -> None:
    """A writer is free to call the pairs of a map as it likes."""
    path = tmp_path / "a.parquet"
    for events in (EVENTS, [{"a": 1}, {"a": 2}, {"a": 3}]):
        maps = {**IDS, "attributes": attributes_column(events)}
        pq.write_table(pa.table(maps), path, store_schema=False)
        path.write_bytes(path.read_bytes().replace(b"key_value", b"map_pairs"))
        assert pq.read_table(path).num_rows == 3
        assert found(path) == (WANTED if events is EVENTS else {0: ["one"]})


def test_the_order_of_columns_does_not_matter(tmp_path: Path) -> None:
    assert found(tmp_path / "a.parquet", {**IDS, "attributes": MAPS}) == WANTED
    assert found(tmp_path / "a.parquet", {"attributes": MAPS, **IDS}) == WANTED
    turned = pa.record_batch({"attributes": MAPS, **IDS})
    parts = _find(str(tmp_path / "audience"), _by_event, iter([turned]))
    assert [len(row["subscriptions"]) for part in parts for row in part.to_pylist()] == [1, 1, 2]


@pytest.mark.parametrize(
    ("maps", "wanted"),
    [
        ([[("a", ONE)], None, [("s", {"text": "q"})]], {0: ["one"], 1: ["none"], 2: ["none", "q"]}),
        ([[("a", ONE)], [("a", None)], [("a", TWO)]], {0: ["one"], 1: ["none"]}),
        ([[("a", {"int": None})]] * 3, ALL_NONE),
        ([[("a", None)]] * 3, ALL_NONE),
        (
            [[("a", ONE), ("b", {"text": None})], [], [("a", {"text": "q"})]],
            {0: ["one"], 1: ["none"]},
        ),
        ([[("a", TWO), ("a", ONE)], [], [("a", TWO)]], {0: ["one"], 1: ["none"]}),
        ([[("a", ONE), ("a", TWO)], [], [("a", ONE)]], {1: ["none"], 2: ["one"]}),
        ([[("a", ONE), ("a", TWO)]] * 3, {}),
        ([[]] * 3, ALL_NONE),
    ],
)
def test_names_without_a_value_are_not_there_and_of_two_the_last_counts(
    tmp_path: Path, maps: list[Any], wanted: dict[int, list[str]]
) -> None:
    assert found(tmp_path / "a.parquet", {**IDS, "attributes": pa.array(maps, MAPS.type)}) == wanted


def test_a_column_that_is_called_attributes_is_one_like_others(tmp_path: Path) -> None:
    table = {**IDS, "attributes": ["x"] * 3, "a": [1, 2, None], "s": [None, "q", "q"]}
    assert found(tmp_path / "a.parquet", table) == WANTED


@pytest.mark.parametrize("encoding", ["DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_texts_that_arrow_makes_no_dictionary_of_are_read_too(
    tmp_path: Path, encoding: str
) -> None:
    texts = ("pubend", "attributes.key_value.key", "attributes.key_value.value.text")
    layout = {"use_dictionary": False, "write_statistics": False}
    encodings = dict.fromkeys(texts, encoding)
    table = {**IDS, "attributes": MAPS}
    assert found(tmp_path / "a.parquet", table, column_encoding=encodings, **layout) == WANTED
    table = {**IDS, "a": [1, 2, None], "s": [None, "q", "q"]}
    assert found(tmp_path / "a.parquet", table, column_encoding={"s": encoding}, **layout) == WANTED


def test_maps_of_another_type_are_refused_by_name(tmp_path: Path) -> None:
    maps = pa.array([[("a", "1")]] * 3, pa.map_(pa.string(), pa.string()))
    with pytest.raises(UsageError, match="attributes are map<"):
        found(tmp_path / "a.parquet", {**IDS, "attributes": maps})


def test_rows_without_a_tick_stand_nowhere(tmp_path: Path) -> None:
    for ticks, wanted in (([0, None, 2], {0: ["one"], 2: ["none", "q"]}), ([None] * 3, {})):
        ids = {"pubend": ["p"] * 3, "tick": pa.array(ticks, pa.int64())}
        assert found(tmp_path / "a.parquet", {**ids, "attributes": MAPS}) == wanted


def test_files_and_row_groups_without_rows_have_no_matches(tmp_path: Path) -> None:
    path, table = tmp_path / "a.parquet", pa.table({**IDS, "attributes": MAPS})
    for counts in ((), (0,), (0, 3, 0), (3, 0)):
        with pq.ParquetWriter(path, table.schema) as writer:
            for count in counts:
                writer.write_table(table.slice(0, count))
        assert found(path) == (WANTED if 3 in counts else {})


@pytest.mark.parametrize(("name", "kind"), [("pubend", 12), ("int", 4), ("key", 12)])
def test_of_a_column_with_a_damaged_type_no_figures_are_asked(
    tmp_path: Path, name: str, kind: int
) -> None:
    """Arrow would end the process; where it reads the column nevertheless, that is what counts."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({**IDS, "attributes": attributes_column([{"a": 1}] * 3)}), path)
    whole = bytearray(path.read_bytes())
    told = whole.rindex(bytes([len(name)]) + name.encode())  # its path, which is behind the type
    whole[whole.rindex(bytes([0x1C, 0x15, kind, 0x19]), 0, told) + 2] = 126
    path.write_bytes(whole)
    group = pq.read_metadata(path).row_group(0)
    kinds = [group.column(number).physical_type for number in range(group.num_columns)]
    assert kinds.count("UNKNOWN") == 1
    try:
        pq.read_table(path)
    except OSError:
        with pytest.raises(StorageCorruptError, match="does not match"):
            found(path)
    else:
        assert found(path) == {0: ["one"], 1: ["one"], 2: ["one"]}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({**IDS, "attributes": MAPS}), path)
    whole = path.read_bytes()
    for end in (0, 3, 40, len(whole) - 1):
        path.write_bytes(whole[:end])
        with pytest.raises(StorageCorruptError, match=r"a\.parquet cannot be read"):
            found(path)
    path.unlink()
    with pytest.raises(StorageMissingError, match=r"a\.parquet"):
        found(path)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"tick": pa.array(["1"])}, "the column 'tick' is of type string, and not int64"),
        ({"tick": pa.array([1], pa.timestamp("us"))}, "the column 'tick' is of type timestamp"),
        ({"pubend": pa.array([1])}, "the column 'pubend' is of type int64, and not string"),
        ({"pubend": None}, "there is no column 'pubend'"),
        ({"tick": None}, "there is no column 'tick'"),
        (
            {"attributes": pa.array([[(1, {"int": 1})]], pa.map_(pa.int64(), VALUE))},
            "the column 'attributes' is of type map<int64",
        ),
    ],
)
def test_a_column_of_another_type_is_named_with_it(
    tmp_path: Path, changed: dict[str, Any], problem: str
) -> None:
    sound = {"pubend": pa.array(["p"]), "tick": pa.array([1], pa.int64()), "a": pa.array([1])}
    columns = {name: each for name, each in (sound | changed).items() if each is not None}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=problem):
        list(read_events(tmp_path / "a.parquet", 0, 9))
