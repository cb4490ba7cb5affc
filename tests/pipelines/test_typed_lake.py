"""A lake has one column for each attribute; every engine counts what the audit counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.client.columns import SCHEMA, attributes_column
from gapless.core.timestamps import EPOCH, LAST
from gapless.filters.filter import Filter
from gapless.filters.matcher import Matcher
from gapless.pipelines import lake_schema
from gapless.pipelines.archive import ArchiveLimits, archive
from gapless.pipelines.lake import Lake
from gapless.pipelines.lake_schema import LakeSchema, attributes_of_rows, match_rows, to_lake
from gapless.pipelines.replay import Replay, plan, replay_events, replay_rows
from gapless.pipelines.topic_log import TopicLog
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    Attributes = dict[str, Any]

VALUES = st.one_of(
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=False),
    st.sampled_from(["", "x", "é"]),
    st.sampled_from([EPOCH, LAST, b"", b"x"]),
)
NAMES = st.sampled_from(["a", "A", "b", "tick", "a_int", "", "x.y", "published_date"])
CONDITIONS = (
    "",
    "a = 1",
    "a IS NULL",
    "b > 0.5 OR a LIKE 'x%'",
    '"tick" = TRUE',
    "A <> b",
    "a > TIMESTAMP '1969-12-31T00:00:00Z' OR b = X'78'",
)


def batch_of(events: list[Attributes]) -> Any:
    count = len(events)
    columns: dict[str, Any] = {
        "topic": ["t"] * count,
        "pubend": ["t/0"] * count,
        "tick": range(count),
        "published": [0] * count,
        "publisher": [None] * count,
        "sequence": [None] * count,
        "attributes": attributes_column(events),
        "body": [b""] * count,
    }
    arrays = [pa.array(columns[each.name], each.type) for each in SCHEMA]
    return pa.record_batch(arrays, schema=SCHEMA)


@given(st.lists(st.dictionaries(NAMES, VALUES), min_size=1, max_size=12), st.booleans())
def test_events_come_back_from_columns_as_they_were_and_match_the_same(
    events: list[Attributes], is_full: bool
) -> None:
    """Whatever names and kinds there are, and also where only some of them have columns."""
    schema = LakeSchema().extend([("a", "int"), ("b", "text")])
    table, grown = to_lake([batch_of(events)], schema, grow=not is_full)
    assert (grown == schema) or not is_full
    columns = [name.lower() for name in table.schema.names]
    assert len(set(columns)) == len(columns)
    [batch] = table.to_batches()
    found = attributes_of_rows(batch)
    assert found == events
    assert [list(map(type, each.values())) for each in found] == [
        [type(event[name]) for name in each] for each, event in zip(found, events, strict=True)
    ]
    matcher = Matcher[int](enumerate(CONDITIONS), engine="python")
    counts, handles = match_rows(matcher, batch)
    rows = [row for row, count in enumerate(counts.tolist()) for _ in range(count)]
    assert list(zip(rows, handles.tolist(), strict=True)) == [
        (row, number)
        for row, event in enumerate(events)
        for number, condition in enumerate(CONDITIONS)
        if Filter.parse(condition).matches(event)
    ]


def test_a_name_keeps_its_column_and_another_kind_gets_one_of_its_own() -> None:
    schema = LakeSchema().extend([("price", "float"), ("price", "int"), ("Price", "float")])
    schema = schema.extend([("tick", "int"), ("price_int", "text"), ("", "bool")])
    assert schema.columns == {
        "price": ("price", "float"),
        "price_int": ("price", "int"),
        "Price_float": ("Price", "float"),
        "tick_int": ("tick", "int"),
        "price_int_text": ("price_int", "text"),
        "unnamed": ("", "bool"),
    }
    assert schema.extend([("price", "int")]) is schema


def test_schemas_that_disagree_do_not_merge_and_others_do() -> None:
    base = LakeSchema().extend([("a", "int")])
    left, right = base.extend([("b", "int")]), base.extend([("c", "text")])
    merged = left.merge(right)
    assert merged is not None
    assert list(merged.columns) == ["a", "b", "c"]
    assert left.merge(left) == left
    assert left.merge(base.extend([("b", "text")])) is None, "one column, two kinds"
    assert left.merge(base.extend([("B", "int")])) is None, "differ in case alone"
    twice = base.extend([("b", "text"), ("b", "int")])
    assert left.merge(twice) is None, "one kind, two columns"


def test_beyond_the_limit_attributes_share_one_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_schema, "COLUMNS_MAX", 3)
    events = [{f"n{i}": i} for i in range(6)]
    table, schema = to_lake([batch_of(events)], LakeSchema(), grow=True)
    assert list(schema.columns) == ["n0", "n1", "n2"]
    assert table.column("other_attributes").null_count == 3
    assert attributes_of_rows(table.to_batches()[0]) == events


FIRST: list[Attributes] = [{"symbol": "IBM", "price": 92.5, "live": True}] * 40
SECOND: list[Attributes] = [{"symbol": "SAP", "price": 17, "desk": "x"}] * 30
THIRD: list[Attributes] = [{"symbol": 7, "Price": math.inf}, {}, {"tick": "early"}]


def fill(url: str, root: Path) -> list[Attributes]:
    """Three rounds of the archive, each with attributes or kinds that are new."""
    with gapless.sync.connect(url) as client:
        archive(TopicLog(url, "t"), root)
        for events in (FIRST, SECOND, THIRD):
            client.publish_many("t", [(event, b"") for event in events])
            archive(TopicLog(url, "t"), root, limits=ArchiveLimits(file_bytes_max=1))
    return [*FIRST, *SECOND, *THIRD]


def test_duckdb_and_polars_count_what_the_lake_says_and_prune_by_time(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path / "data") as url:
        events = fill(url, tmp_path / "lake")
    lake = Lake(tmp_path / "lake", "t")
    manifest = lake.manifest()
    assert manifest.rows == len(events) == 73
    assert [
        event.attributes for event in replay_events(Replay(lake, None), plan(Replay(lake, None)))
    ] == events
    assert manifest.schema.columns == {
        "symbol": ("symbol", "text"),
        "price": ("price", "float"),
        "live": ("live", "bool"),
        "price_int": ("price", "int"),
        "desk": ("desk", "text"),
        "symbol_int": ("symbol", "int"),
        "Price_float": ("Price", "float"),
        "tick_text": ("tick", "text"),
    }
    source = f"read_parquet('{lake.data}/**/*.parquet', hive_partitioning=true, union_by_name=true)"
    query = (
        "SELECT count(*), count(DISTINCT tick), sum(price), sum(price_int), count(desk) FROM "
        f"{source} WHERE published_date >= DATE '2020-01-01' AND published_hour BETWEEN 0 AND 23"
    )
    [row] = duckdb.connect().execute(query).fetchall()
    assert row == (73, 73, 40 * 92.5, 30 * 17, 30)
    listed = f"read_parquet({[str(path) for path in lake.files()]}, union_by_name=true)"
    [row] = duckdb.connect().execute(f"SELECT count(*) FROM {listed}").fetchall()
    assert row == (73,)
    frame = pl.scan_parquet(lake.files(), missing_columns="insert", extra_columns="ignore")
    assert frame.select(pl.len()).collect().item() == 73
    frame = pl.scan_parquet(lake.files()[-1], hive_partitioning=True)
    assert frame.filter(pl.col("published_hour") < 24).select(pl.len()).collect().item() == 3
    newest = pq.read_schema(lake.files()[-1])
    assert {"symbol", "live", "desk", "tick_text"} <= set(newest.names), "the newest has them all"


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_reads_the_lake_as_a_table_and_workers_that_disagree_write_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        archive(TopicLog(url, "two"), tmp_path / "lake")
        for number in range(6):  # the pubends get the same new name with two kinds
            with client.publisher("two", name=f"p{number}") as publisher:
                kind = number if number % 2 else f"text {number}"
                publisher.send_many([({"n": kind}, b"") for _ in range(5)])
        assert archive(TopicLog(url, "two"), tmp_path / "lake") == 30
    lake = Lake(tmp_path / "lake", "two")
    assert set(lake.manifest().schema.columns.values()) == {("n", "int"), ("n", "text")}
    table = spark.read.option("mergeSchema", "true").parquet(str(lake.data))
    assert table.count() == 30
    assert {"published_date", "published_hour"} <= set(table.columns)
    texts = "n_text" if "n_text" in table.columns else "n"
    assert table.where(f"{texts} LIKE 'text%'").count() == 15
    replay = Replay(lake, None)
    assert replay_rows(spark, replay, plan(replay)).where(f"{texts} IS NULL").count() == 15
