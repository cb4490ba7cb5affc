"""Maps that are read without Arrow hold what Arrow reads, and what is not regular is left to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gapless.client.columns import SCHEMA, attributes_column
from gapless.filters.filter import Filter
from gapless.pipelines import regular_maps
from gapless.pipelines.audience import write_audience
from gapless.pipelines.match import _by_event, _find
from gapless.pipelines.match_files import read_events
from gapless.pipelines.regular_maps import has_known_maps, read_regular
from gapless.pipelines.writing import LAYOUT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    Attributes = dict[str, Any]

VALUES = {
    "bool": st.booleans(),
    "int": st.integers(-(1 << 63), (1 << 63) - 1),
    "few": st.integers(0, 3),
    "float": st.floats(allow_nan=False),
    "text": st.sampled_from(["", "x", "ä" * 9, "1"]),
}
KINDS = {bool: "bool", int: "int", float: "float", str: "text"}
MAPS = SCHEMA.field("attributes").type


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_maps, "EVENTS_MIN", 1)


@st.composite
def alike(draw: st.DrawFn) -> list[Attributes]:
    """Events with the same names and kinds, of which some come again."""
    kinds = draw(st.lists(st.sampled_from([*VALUES]), min_size=1, max_size=11))
    names = [f"{place}{kind}" for place, kind in enumerate(kinds)]
    values = st.tuples(*(VALUES[kind] for kind in kinds))
    some = draw(st.lists(values, min_size=1, max_size=5))
    events = [dict(zip(names, each, strict=True)) for each in some]
    return (events * draw(st.integers(1, 60)))[draw(st.integers(0, len(events) - 1)) :]


@st.composite
def layouts(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "compression": draw(st.sampled_from(["zstd", "lz4", "snappy", "gzip", "none"])),
        "data_page_size": draw(st.sampled_from([1, 100, 1 << 20])),
        "write_batch_size": draw(st.sampled_from([16, 64, 1_024])),
        "row_group_size": draw(st.sampled_from([9, 1 << 16])),
    }


def write(path: Path, events: list[Attributes], **layout: Any) -> None:
    ids = {"pubend": ["p"] * len(events), "tick": range(len(events))}
    maps = attributes_column(events)
    is_nullable = layout.pop("is_nullable", False)
    table = pa.table(ids | {"attributes": maps})
    if not is_nullable:
        names = ("pubend", "tick", "attributes")
        table = table.cast(pa.schema([SCHEMA.field(name) for name in names]))
    pq.write_table(table, path, **layout)


def read(path: Path) -> list[Any]:
    """By row group, what is read here."""
    with pa.OSFile(str(path)) as data:
        facts = pq.read_metadata(data)
        groups = map(facts.row_group, range(facts.num_row_groups))
        return [read_regular(data, facts.schema, group) for group in groups]


@given(alike(), layouts(), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_maps_with_the_same_names_are_read_as_columns(
    tmp_path: Path, events: list[Attributes], layout: dict[str, Any], is_nullable: bool
) -> None:
    write(tmp_path / "a.parquet", events, **layout, is_nullable=is_nullable)
    groups = read(tmp_path / "a.parquet")
    assert None not in groups
    assert [row for cut in groups for row in pa.table(cut).to_pylist()] == events


def test_the_lake_s_own_layout_is_known(tmp_path: Path) -> None:
    events = [{"s": f"s{i % 7}", "p": i / 4, "v": i, "b": i % 3 == 0} for i in range(5_000)]
    write(tmp_path / "a.parquet", events, **LAYOUT, row_group_size=2_000)
    assert [row for cut in read(tmp_path / "a.parquet") for row in pa.table(cut).to_pylist()] == (
        events
    )


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"a": 1},
        {"b": "x", "a": 1},
        {"a": 1, "c": "x"},
        {"a": 1, "b": 2},
        {"a": 1.0, "b": "x"},
        {"a": 1, "b": "x", "c": 1},
    ],
)
def test_what_differs_anywhere_is_left_to_arrow(tmp_path: Path, odd: Attributes) -> None:
    for count in (1, 8, 700):
        for place in {0, count // 2, count - 1}:
            events: list[Attributes] = [{"a": i % 5, "b": "x"} for i in range(count)]
            events.insert(place, odd)
            write(tmp_path / "a.parquet", events)
            assert read(tmp_path / "a.parquet") == [None]
            batches = list(read_events(tmp_path / "a.parquet", 0, 1_000))
            assert [dict(map(plain, row)) for batch in batches for row in rows(batch)] == events


def rows(batch: Any) -> list[Any]:
    return batch.column("attributes").to_pylist()  # type: ignore[no-any-return]


def plain(item: tuple[str, Attributes]) -> tuple[str, Any]:
    return item[0], next(value for value in item[1].values() if value is not None)


def test_layouts_that_are_not_known_are_left_to_arrow(tmp_path: Path) -> None:
    events = [{"a": i, "b": f"x{i % 3}"} for i in range(300)]
    unknown: list[dict[str, Any]] = [
        {"data_page_version": "2.0"},
        {"use_dictionary": False},
        {"compression": "brotli"},
        {"dictionary_pagesize_limit": 100, "write_batch_size": 10},
    ]
    for layout in unknown:
        write(tmp_path / "a.parquet", events, **layout)
        assert read(tmp_path / "a.parquet") == [None]
        [batch] = read_events(tmp_path / "a.parquet", 0, 1_000)
        assert [dict(map(plain, row)) for row in rows(batch)] == events


def test_attributes_that_are_called_like_places_stay_in_their_map(tmp_path: Path) -> None:
    for name in ("pubend", "tick"):
        write(tmp_path / "a.parquet", [{name: i} for i in range(10)])
        [batch] = read_events(tmp_path / "a.parquet", 2, 10)
        assert [dict(map(plain, row)) for row in rows(batch)] == [{name: i} for i in range(2, 10)]
        assert batch.column("tick").to_pylist() == [*range(2, 10)]


def test_the_places_of_columns_in_a_file_do_not_matter(tmp_path: Path) -> None:
    maps = attributes_column([{"a": i} for i in range(4)])
    table = pa.table({"attributes": maps, "tick": range(4), "pubend": [*"ppqq"]})
    pq.write_table(table, tmp_path / "a.parquet")
    [batch] = read_events(tmp_path / "a.parquet", 1, 4)
    wanted = {"pubend": [*"pqq"], "tick": [1, 2, 3], "a": [1, 2, 3]}
    assert batch.to_pydict() == wanted


ONE: dict[str, Any] = {"int": 1}
ODD: list[Any] = [
    None,
    [("a", None)],
    [("a", {"int": None})],
    [("a", {"int": 1, "text": "x"})],
    [("a", ONE), ("b", None)],
]


@pytest.mark.parametrize("odd", ODD)
def test_null_maps_and_null_values_are_left_to_arrow(tmp_path: Path, odd: Any) -> None:
    """Where it is one event, and where all are like that."""
    for rows in ([[("a", ONE)], odd, [("a", ONE)]], [odd] * 3):
        assert read_maps(tmp_path / "a.parquet", rows) == [None]


def test_what_begins_an_event_counts_though_names_repeat(tmp_path: Path) -> None:
    pair = [("a", ONE), ("b", ONE)]
    assert read_maps(tmp_path / "a.parquet", [pair, pair]) != [None]
    assert read_maps(tmp_path / "a.parquet", [pair[:1], [pair[1], *pair]]) == [None]


def read_maps(path: Path, maps: list[Any]) -> list[Any]:
    ids = {"pubend": ["p"] * len(maps), "tick": range(len(maps))}
    pq.write_table(pa.table(ids | {"attributes": pa.array(maps, MAPS)}), path)
    return read(path)


def test_a_file_that_was_damaged_never_breaks_the_reader(tmp_path: Path) -> None:
    """Each byte of the columns in turn: it is read as before, or otherwise, or left to Arrow."""
    path = tmp_path / "a.parquet"
    write(path, [{"a": i % 5, "b": f"x{i % 3}"} for i in range(20)], compression="none")
    whole = path.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    refused = 0
    for place in range(4, len(whole) - footer):
        for change in (1, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[place] ^= change
            path.write_bytes(damaged)
            [found] = read(path)
            refused += found is None
            assert found is None or all(len(column) == 20 for column in found.values())
    assert refused > 300


@st.composite
def odd_files(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    """Maps of which most are alike, and how they are written: known or not."""
    events = draw(alike())[:100]
    maps: list[Any] = [
        [(name, {KINDS[type(value)]: value}) for name, value in event.items()] for event in events
    ]
    for place in draw(st.lists(st.integers(0, len(maps) - 1), max_size=2)):
        pairs = draw(st.permutations(maps[place] or []))
        more = draw(st.sampled_from([[], pairs[:1], [("a", ONE)], [("a", None)], [("a", {})]]))
        maps[place] = draw(st.sampled_from([None, [], pairs[1:], pairs, [*pairs, *more]]))
    layout = draw(layouts()) | {
        "data_page_size": draw(st.sampled_from([20, 1 << 20])),
        "data_page_version": draw(st.sampled_from(["1.0", "1.0", "2.0"])),
        "use_dictionary": draw(st.sampled_from([True, True, False, ["attributes.key_value.key"]])),
        "dictionary_pagesize_limit": draw(st.sampled_from([30, 1 << 20])),
        "write_statistics": draw(st.booleans()),
    }
    return maps, layout


DAMAGE = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=2)


@given(odd_files(), DAMAGE)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_whatever_is_read_here_arrow_reads_too(
    tmp_path: Path, given: tuple[list[Any], dict[str, Any]], damage: list[tuple[float, int]]
) -> None:
    """Any maps in any layout, whole or damaged; where Arrow reads nothing, there is no truth."""
    path, (maps, layout) = tmp_path / "a.parquet", given
    ids = {"pubend": ["p"] * len(maps), "tick": range(len(maps))}
    pq.write_table(pa.table(ids | {"attributes": pa.array(maps, MAPS)}), path, **layout)
    whole = bytearray(path.read_bytes())
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    for place, change in damage:
        whole[4 + int(place * (len(whole) - footer - 4))] ^= change
    path.write_bytes(whole)
    groups = read(path)
    for number, cut in enumerate(groups):
        if cut is not None:
            names, columns = [*cut], [column.to_pylist() for column in cut.values()]
            found = [[*zip(names, row, strict=True)] for row in zip(*columns, strict=True)]
            try:
                wanted = pq.ParquetFile(path).read_row_group(number, ["attributes"])["attributes"]
            except (OSError, ValueError):
                assert damage
            else:
                assert repr(found) == repr([[*map(plain, row)] for row in wanted.to_pylist()])


def test_matches_are_the_same_whoever_reads_the_maps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Attributes] = [{"s": f"s{i % 7}", "p": i / 4, "b": i % 3 == 0} for i in range(500)]
    write(tmp_path / "a.parquet", events, **LAYOUT)
    conditions = {"x": "s = 's3' AND p > 40", "y": "b OR p < 2", "z": "v IS NULL AND s <> 's1'"}
    write_audience(conditions.items(), tmp_path / "audience")
    filters = list(map(Filter.parse, conditions.values()))
    wanted = [
        {"pubend": "p", "tick": tick, "subscriptions": found}
        for tick, event in enumerate(events)
        if (found := [n for n, each in enumerate(filters) if each.matches(event)])
    ]
    for least in (1, 1_000):
        monkeypatch.setattr(regular_maps, "EVENTS_MIN", least)
        batches = list(read_events(tmp_path / "a.parquet", 0, 500))
        assert ("attributes" in batches[0].schema.names) is (least > 500)
        parts = _find(str(tmp_path / "audience"), _by_event, iter(batches))
        assert [row for part in parts for row in part.to_pylist()] == wanted


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_what_spark_has_written_is_read_as_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    """Its first version of pages without Arrow, if it is compressed in a known way."""
    events: list[Attributes] = [{"s": f"s{i % 7}", "p": i / 4, "b": i % 3 == 0} for i in range(500)]
    write(tmp_path / "a.parquet", events)
    maps = spark.read.parquet(str(tmp_path / "a.parquet")).coalesce(1)
    for version, codec in (("1_0", "snappy"), ("1_0", "zstd"), ("2_0", "snappy")):
        folder = tmp_path / f"{version}{codec}"
        form = maps.write.option("parquet.writer.version", f"PARQUET_{version}")
        form.option("parquet.page.row.count.limit", "100").parquet(str(folder), compression=codec)
        [path] = folder.glob("*.parquet")
        [cut] = read(path)
        assert (cut is None) is (version == "2_0")
        if cut is not None:
            assert pa.table(cut).to_pylist() == events
        else:
            [batch] = read_events(path, 0, 1_000)
            assert [dict(map(plain, row)) for row in rows(batch)] == events


def test_only_maps_of_our_own_type_are_known() -> None:
    assert has_known_maps(MAPS)
    assert not has_known_maps(pa.map_(pa.string(), pa.string()))
    assert not has_known_maps(pa.map_(pa.large_string(), MAPS.item_type))
    assert not has_known_maps(pa.map_(pa.string(), pa.struct([("int", pa.int32())])))
    assert not has_known_maps(pa.list_(MAPS.item_type))
