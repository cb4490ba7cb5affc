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

from gapless.client.columns import VALUE, attributes_column
from gapless.core.errors import UsageError
from gapless.core.timestamps import EPOCH, LAST
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.pipelines import match as matching
from gapless.pipelines.attribute_maps import match_maps, to_columns
from gapless.pipelines.match import match, match_frame, match_numbers
from gapless.pipelines.subscription_table import open_subscriptions, write_subscriptions

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
    st.sampled_from([EPOCH, LAST, b"", b"x"]),
)
CONDITIONS = (
    "",
    "a = 1",
    "a > 0.5 AND b <> 'x'",
    "a IS NULL",
    "b LIKE 'x%' OR c",
    "a BETWEEN -1 AND 2 AND b IS NOT NULL",
    "c = FALSE OR a + 1 > 2",
    "a >= TIMESTAMP '1970-01-01T00:00:00Z' OR b <> X''",
    "a IN (TIMESTAMP '1970-01-01T00:00:00Z', X'78')",
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
            [*fields[:3], fields[3].dictionary_encode(), *fields[4:]], VALUE.names
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


def test_columns_are_made_where_types_allow() -> None:
    columns = to_columns(attributes_column([{"a": 1, "b": "x"}, {}, {"a": 2.5}]))
    assert columns is not None
    assert columns.to_pydict() == {"a": [1.0, None, 2.5], "b": ["x", None, None]}
    assert to_columns(attributes_column([{"a": 1}, {"a": "x"}])) is None
    assert to_columns(attributes_column([{"a": (1 << 53) + 1}, {"a": 0.5}])) is None
    assert to_columns(attributes_column([{}, {}])) is None


def test_bad_conditions_are_reported_and_the_rest_goes_on(tmp_path: Path) -> None:
    table = [("a", "i > 1"), ("b", "i >"), ("a", "i = 7"), ("c", "")]
    count, refusals = write_subscriptions(table, tmp_path)
    assert (count, [(each.name, each.condition) for each in refusals]) == (
        2,
        [("b", "i >"), ("a", "i = 7")],
    )
    assert all(each.reason for each in refusals)
    assert open_subscriptions(str(tmp_path)).names.to_pylist() == ["a", "c"]
    kept = gc.get_freeze_count()
    assert kept > 0  # what a worker looks through after each task has nothing of it
    assert open_subscriptions(str(tmp_path)) is open_subscriptions(str(tmp_path))
    assert gc.get_freeze_count() <= kept  # nothing more; some is gone, perhaps
    write_subscriptions(table[-1:], tmp_path)
    assert open_subscriptions(str(tmp_path)).names.to_pylist() == ["c"]
    with pytest.raises(UsageError, match="no table of subscriptions"):
        open_subscriptions(str(tmp_path / "none"))


@pytest.mark.parametrize(("matches_max", "times"), [(1, 8 + 5), (1 << 20, 3)])
def test_matches_are_the_same_however_many_events_are_matched_at_once(
    matches_max: int, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "ROWS_MIN", 8)
    monkeypatch.setattr(matching, "MATCHES_MAX", matches_max)
    write_subscriptions([(f"n{n}", f"i % 5 = {n} OR i < {10 * n}") for n in range(6)], tmp_path)
    events: list[Attributes] = [{"i": i, "s": "x"} for i in range(100)]
    ids = {"pubend": ["p"] * 100, "tick": range(100)}
    wanted = [
        {"pubend": "p", "tick": i, "subscriptions": found}
        for i in range(100)
        if (found := [n for n in range(6) if i % 5 == n or i < 10 * n])
    ]
    for form in ({"attributes": attributes_column(events)}, {"i": range(100)}):
        batches = pa.table(ids | form).to_batches(60)
        parts = list(matching._find(str(tmp_path), match_frame, matching._by_event, iter(batches)))
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
    table = str(tmp_path / "table")
    write_subscriptions(conditions.items(), table)
    ids = {"pubend": ["p"] * 200, "tick": list(range(200))}
    folder = tmp_path / "events"
    folder.mkdir()
    pq.write_table(pa.table({**ids, "attributes": attributes_column(events)}), folder / "1.parquet")
    columns = {name: [event[name] for event in events] for name in events[0]}
    maps, flat = spark.read.parquet(str(folder)), spark.createDataFrame(pa.table(ids | columns))
    for form in (maps, flat):
        found = [tuple(row) for row in match(form, table).collect()]
        assert len(found) == len(wanted)
        assert set(found) == wanted
    names = list(conditions)
    assert [
        (names[number], row["pubend"], row["tick"])
        for row in match_numbers(maps, table).collect()
        for number in row["subscriptions"]
    ] == sorted(wanted, key=lambda match: (match[2], names.index(match[0])))
    with pytest.raises(UsageError, match="the column 'tick' is of type string, and not bigint"):
        match(maps.selectExpr("pubend", "string(tick) AS tick"), table)
    with pytest.raises(UsageError, match="there is no column 'pubend'"):
        match(maps.select("tick"), table)
    stream = match(spark.readStream.schema(maps.schema).parquet(str(folder)), table)
    query = (
        stream.writeStream.format("memory")
        .queryName("found")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert {tuple(row) for row in spark.table("found").collect()} == wanted
