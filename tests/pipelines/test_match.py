"""The match pipeline finds exactly the pairs that testing each event with each condition finds."""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.client.columns import attributes_column
from gapless.core.errors import StorageMissingError, UsageError
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.pipelines import match as matching
from gapless.pipelines.attributes import match_maps, to_columns
from gapless.pipelines.audience import open_audience, write_audience
from gapless.pipelines.match import match, match_files, match_numbers
from gapless.pipelines.match_files import read_events

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    Attributes = dict[str, Any]

VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 60), 1 << 60),
    st.integers(-2, 2),
    st.floats(allow_nan=False, width=32),
    st.sampled_from(["", "x", "xy", "1"]),
)
CONDITIONS = (
    "",
    "a = 1",
    "a > 0.5 AND b <> 'x'",
    "a IS NULL",
    "b LIKE 'x%' OR c",
    "a BETWEEN -1 AND 2 AND b IS NOT NULL",
    "c = FALSE OR a + 1 > 2",
)


ALIKE = st.fixed_dictionaries({"b": st.sampled_from(["x", "y"]), "a": VALUES, "c": st.booleans()})


@given(
    st.one_of(
        st.lists(st.dictionaries(st.sampled_from("abc"), VALUES), max_size=12),
        st.lists(ALIKE, max_size=12),
    ),
    st.integers(0, 3),
    st.booleans(),
)
def test_maps_match_as_the_attributes_they_hold(
    events: list[Attributes], skipped: int, in_parquet: bool
) -> None:
    """Whatever the types, and also where the array is a part of a larger one, or has dictionaries
    as it does when it comes from Parquet."""
    matcher = Matcher[int](enumerate(CONDITIONS), engine="python")
    maps = attributes_column(events)
    if in_parquet:
        maps = with_dictionaries(maps)
    maps = maps[skipped:]
    counts, handles = match_maps(matcher, maps)
    assert len(counts) == len(events[skipped:])
    rows = [row for row, count in enumerate(counts.tolist()) for _ in range(count)]
    wanted = [
        (row, number)
        for row, event in enumerate(events[skipped:])
        for number, condition in enumerate(CONDITIONS)
        if Filter.parse(condition).matches(event)
    ]
    assert list(zip(rows, handles.tolist(), strict=True)) == wanted


def with_dictionaries(maps: Any) -> Any:
    """The same with names and texts as dictionaries, that of names with one that is not used."""
    names = maps.keys.dictionary_encode()
    more = pa.concat_arrays([names.dictionary, pa.array(["other"])])
    fields = maps.items.flatten()
    return pa.MapArray.from_arrays(
        maps.offsets,
        pa.DictionaryArray.from_arrays(names.indices, more),
        pa.StructArray.from_arrays(
            [*fields[:3], fields[3].dictionary_encode()], ["bool", "int", "float", "text"]
        ),
    )


def test_columns_of_events_that_are_alike_are_made_without_sorting() -> None:
    events = [{"a": i, "s": f"s{i % 3}", "f": i / 2, "b": i % 2 == 0} for i in range(10)]
    wanted = {name: [event[name] for event in events] for name in events[0]}
    for maps in (attributes_column(events), with_dictionaries(attributes_column(events))):
        for columns in (to_columns(maps), to_columns(maps[2:])):
            assert columns is not None
            skipped = 10 - columns.num_rows
            assert columns.to_pydict() == {name: some[skipped:] for name, some in wanted.items()}
    turned = [events[0], dict(reversed(events[1].items()))]
    assert to_columns(attributes_column(turned)).to_pylist() == turned  # type: ignore[union-attr]
    events[4]["a"] = 0.5
    columns = to_columns(attributes_column(events))
    assert columns is not None
    assert columns.column("a").to_pylist() == [0, 1, 2, 3, 0.5, 5, 6, 7, 8, 9]


def test_columns_of_many_events_that_are_alike_are_right_whatever_is_missing_where() -> None:
    """More than eight runs, whole or not, from any place on; one that differs anywhere counts."""
    for count in (7, 8, 16, 33):
        events: list[Attributes] = [{"a": i, "s": f"s{i}", "f": i / 2} for i in range(count)]
        for maps in (attributes_column(events), with_dictionaries(attributes_column(events))):
            for low in range(0, count, 4):
                columns = to_columns(maps[low:])
                assert columns is not None
                assert columns.to_pylist() == events[low:]
        for odd in range(count):
            changed = [*events]
            changed[odd] = {"a": 0.5, "s": "s", "f": 1}
            columns = to_columns(attributes_column(changed))
            assert columns is not None
            assert columns.to_pylist() == changed
            changed[odd] = {"a": "a", "s": "s", "f": 1}
            assert (to_columns(attributes_column(changed)) is None) is (count > 1)


def test_kinds_of_values_that_a_file_does_not_have_are_not_read(tmp_path: Path) -> None:
    rows: list[list[Attributes]] = [[{"i": 1}, {"i": 2}], [{"i": 3.5}, {"s": "x"}], [{}, {}]]
    wanted = [["int"], ["float", "text"], ["int"]]
    events = [event for some in rows for event in some]
    ids = {"pubend": ["p"] * 6, "tick": range(6)}
    table = pa.table(ids | {"attributes": attributes_column(events)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    read = [batch.column("attributes") for batch in read_events(tmp_path / "a.parquet", 0, 6)]
    assert [[field.name for field in maps.type.item_type] for maps in read] == wanted
    matcher = Matcher[int]([(0, "i > 1 OR s = 'x'")], engine="python")
    assert [match_maps(matcher, maps)[0].tolist() for maps in read] == [[0, 1], [1, 1], [0, 0]]


def test_of_a_file_exactly_the_rows_between_two_ticks_are_read(tmp_path: Path) -> None:
    events = [{"i": i, "s": f"s{i % 3}"} for i in range(20)]
    ids = {"pubend": ["p"] * 20, "tick": range(100, 120), "more": [b"x"] * 20}
    columns = {name: [event[name] for event in events] for name in events[0]}
    forms: tuple[dict[str, Any], ...] = ({"attributes": attributes_column(events)}, columns)
    for form in forms:
        pq.write_table(pa.table(ids | form), tmp_path / "a.parquet", row_group_size=7)
        for start, end in ((0, 1_000), (103, 111), (110, 110), (119, 300), (120, 300)):
            read = list(read_events(tmp_path / "a.parquet", start, end))
            ticks = [tick for batch in read for tick in batch.column("tick").to_pylist()]
            assert ticks == [*range(max(start, 100), min(end, 120))]
            assert all(("more" in batch.schema.names) is ("i" in form) for batch in read)


def test_each_row_has_its_pubend_whether_it_was_read_or_told_by_figures(tmp_path: Path) -> None:
    pubends = [*"ppp", *"pqp", None, *"ss"]
    ids = {"pubend": pubends, "tick": range(9)}
    for form in ({"attributes": attributes_column([{"i": 1}] * 9)}, {"i": [1] * 9}):
        pq.write_table(pa.table(ids | form), tmp_path / "a.parquet", row_group_size=3)
        read = list(read_events(tmp_path / "a.parquet", 1, 9))
        assert [batch.num_rows for batch in read] == [2, 3, 3]
        assert [one for batch in read for one in batch.column("pubend").to_pylist()] == pubends[1:]


def test_texts_that_are_too_many_for_a_dictionary_are_read_too(tmp_path: Path) -> None:
    events = [{"s": f"{i:050}"} for i in range(3_000)]
    ids = {"pubend": ["p"] * 3_000, "tick": range(3_000)}
    table = pa.table(ids | {"attributes": attributes_column(events)})
    pq.write_table(table, tmp_path / "a.parquet", dictionary_pagesize_limit=10_000)
    [batch] = read_events(tmp_path / "a.parquet", 0, 3_000)
    columns = to_columns(batch.column("attributes"))
    assert columns is not None
    assert columns.to_pylist() == events


def test_columns_are_made_where_types_allow() -> None:
    columns = to_columns(attributes_column([{"a": 1, "b": "x"}, {}, {"a": 2.5}]))
    assert columns is not None
    assert columns.to_pydict() == {"a": [1.0, None, 2.5], "b": ["x", None, None]}
    assert to_columns(attributes_column([{"a": 1}, {"a": "x"}])) is None
    assert to_columns(attributes_column([{"a": (1 << 53) + 1}, {"a": 0.5}])) is None
    assert to_columns(attributes_column([{}, {}])) is None


def test_bad_conditions_are_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    table = [("a", "i > 1"), ("b", "i >"), ("a", "i = 7"), ("c", "")]
    count, refusals = write_audience(table, tmp_path)
    assert (count, [(each.name, each.condition) for each in refusals]) == (
        2,
        [("b", "i >"), ("a", "i = 7")],
    )
    assert all(each.reason for each in refusals)
    assert open_audience(str(tmp_path)).names.to_pylist() == ["a", "c"]
    kept = gc.get_freeze_count()
    assert kept > 0  # what a worker looks through after each task has nothing of it
    assert open_audience(str(tmp_path)) is open_audience(str(tmp_path))
    assert gc.get_freeze_count() <= kept  # nothing more; some is gone, perhaps
    write_audience(table[-1:], tmp_path)
    assert open_audience(str(tmp_path)).names.to_pylist() == ["c"]
    with pytest.raises(UsageError, match="no audience"):
        open_audience(str(tmp_path / "none"))


@pytest.mark.parametrize(("matches_max", "times"), [(1, 8 + 5), (1 << 20, 3)])
def test_matches_are_the_same_however_many_events_are_matched_at_once(
    matches_max: int, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "ROWS_MIN", 8)
    monkeypatch.setattr(matching, "MATCHES_MAX", matches_max)
    write_audience([(f"n{n}", f"i % 5 = {n} OR i < {10 * n}") for n in range(6)], tmp_path)
    events: list[Attributes] = [{"i": i, "s": "x"} for i in range(100)]
    ids = {"pubend": ["p"] * 100, "tick": range(100)}
    wanted = [
        {"pubend": "p", "tick": i, "subscriptions": found}
        for i in range(100)
        if (found := [n for n in range(6) if i % 5 == n or i < 10 * n])
    ]
    for form in ({"attributes": attributes_column(events)}, {"i": range(100)}):
        batches = pa.table(ids | form).to_batches(60)
        parts = list(matching._find(str(tmp_path), matching._by_event, iter(batches)))
        assert [row for part in parts for row in part.to_pylist()] == wanted
        assert len(parts) == times


def stock(dice: random.Random) -> Attributes:
    return {"symbol": f"S{dice.randrange(50)}", "price": dice.randrange(100), "hot": True}


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_all_ways_to_match_equal_brute_force(spark: SparkSession, tmp_path: Path) -> None:
    """Maps and columns, few and many subscriptions, rows by name and by event, and as a stream."""
    dice = random.Random(7)
    events = [stock(dice) for _ in range(200)]
    conditions = {
        f"n{n}": f"symbol = 'S{dice.randrange(50)}' AND price > {dice.randrange(100)}"
        for n in range(300)
    }
    filters = {name: Filter.parse(text) for name, text in conditions.items()}
    wanted = {
        (name, "p", tick)
        for tick, event in enumerate(events)
        for name, each in filters.items()
        if each.matches(event)
    }
    audience = str(tmp_path / "audience")
    write_audience(conditions.items(), audience)
    ids = {"pubend": ["p"] * 200, "tick": list(range(200))}
    folder = tmp_path / "events"
    folder.mkdir()
    pq.write_table(pa.table({**ids, "attributes": attributes_column(events)}), folder / "1.parquet")
    columns = {name: [event[name] for event in events] for name in events[0]}
    maps, flat = spark.read.parquet(str(folder)), spark.createDataFrame(pa.table(ids | columns))
    for form in (maps, flat):
        found = [tuple(row) for row in match(form, audience).collect()]
        assert len(found) == len(wanted)
        assert set(found) == wanted
    pq.write_table(pa.table(ids | columns), tmp_path / "flat.parquet")
    assert match_files(spark, [], audience).collect() == []
    with pytest.raises(StorageMissingError, match="gone"):
        match_files(spark, [str(tmp_path / "gone.parquet")], audience)
    for path in (folder / "1.parquet", tmp_path / "flat.parquet"):
        assert {tuple(row) for row in match_files(spark, [str(path)], audience).collect()} == wanted
    names = list(conditions)
    for numbers in (
        match_numbers(maps, audience),
        match_files(spark, [str(folder / "1.parquet")], audience, by_number=True),
    ):
        assert [
            (names[number], row["pubend"], row["tick"])
            for row in numbers.collect()
            for number in row["subscriptions"]
        ] == sorted(wanted, key=lambda match: (match[2], names.index(match[0])))
    stream = match(spark.readStream.schema(maps.schema).parquet(str(folder)), audience)
    query = (
        stream.writeStream.format("memory")
        .queryName("found")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert {tuple(row) for row in spark.table("found").collect()} == wanted
