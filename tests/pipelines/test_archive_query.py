"""A Structured Streaming query fills a lake: each event once, wherever its driver is killed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from gapless.client.columns import SCHEMA
from gapless.core.errors import StorageCorruptError
from gapless.pipelines.archive import ArchiveProgress, archive, hold_log
from gapless.pipelines.archive_query import (
    CHECKPOINT,
    TaskRows,
    batch_range,
    start_archive,
    write_rows,
)
from gapless.pipelines.lake import HOUR_US
from gapless.pipelines.lake_files import FileTask
from gapless.pipelines.lake_schema import LakeSchema
from gapless.pipelines.manifest import LakeFile
from gapless.pipelines.topic_log import TopicLog
from tests.pipelines.lakes import by_glob, fill
from tests.spark.conftest import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Desk

ROOT = Path(__file__).parents[2]


def run(
    spark: SparkSession,
    source: TopicLog,
    lake: Path,
    tell: Callable[[ArchiveProgress], None] = lambda _: None,
) -> None:
    query = start_archive(spark, source, lake, tell=tell)
    assert query.awaitTermination(WAIT_S)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_a_query_and_rounds_may_take_turns_and_a_lost_checkpoint_is_no_loss(
    spark: SparkSession, broker: Desk, tmp_path: Path
) -> None:
    lake, topic, told = tmp_path / "lake", "lake-turns", list[ArchiveProgress]()
    with broker.client() as client:
        client.create_topic(topic)
        source = TopicLog(broker.url, topic)
        hold_log(source, lake)
        ticks = fill(client, topic, 0, 20)
        run(spark, source, lake)
        ticks += fill(client, topic, 20, 20)
        assert archive(source, lake) == 20
        ticks += fill(client, topic, 40, 20)
        run(spark, source, lake, told.append)
        assert by_glob(lake) == ticks
        assert [(each.stage, each.events) for each in told] == [("written", 20), ("committed", 20)]
        shutil.rmtree(lake / topic / CHECKPOINT)
        ticks += fill(client, topic, 60, 20)
        run(spark, source, lake)
        assert by_glob(lake) == ticks
        client.unsubscribe(f"archive-{topic}")
    # The checkpoint of another lake: events between would be missing.
    manifest = max((lake / topic / "_manifests").iterdir())
    found = json.loads(manifest.read_text(encoding="utf-8"))
    for covered in found["pubends"].values():
        covered |= {"end": covered["start"], "files": []}
    manifest.write_text(json.dumps(found), encoding="utf-8")
    with broker.client() as client:
        hold_log(source, lake)
        fill(client, topic, 80, 1)
        query = start_archive(spark, source, lake)
        with pytest.raises(Exception, match="Remove the folder _checkpoint"):
            query.awaitTermination(WAIT_S)
        client.unsubscribe(f"archive-{topic}")


# --- a worker's part, without Spark ---------------------------------------------------------------

HOUR = HOUR_US << 10


def rows_of(
    *rows: tuple[str, int] | tuple[str, int, int],
) -> Iterator[pa.RecordBatch]:
    """An event, or a loss with its end; two rows a batch."""
    fields = [*SCHEMA, pa.field("lost_until", pa.int64())]
    schema = pa.schema([field.with_nullable(True) for field in fields])
    for first in range(0, len(rows), 2):
        yield pa.RecordBatch.from_pylist(
            [
                {"topic": "t", "pubend": row[0], "tick": row[1]}
                | ({"lost_until": row[2]} if len(row) == 3 else {"attributes": [], "body": b""})
                | {"published": row[1] >> 10}
                for row in rows[first : first + 2]
            ],
            schema=schema,
        )


def test_a_worker_cuts_by_hour_leaves_out_what_is_there_and_tells_what_is_lost(
    tmp_path: Path,
) -> None:
    import pickle

    task = FileTask(tmp_path, tmp_path, LakeSchema(), 1 << 20)
    rows = rows_of(
        ("a", 50), ("a", 90, 110), ("a", 120), ("a", HOUR - 1), ("a", HOUR), ("b", 7, 9), ("b", 11)
    )
    told = TaskRows(task, {"a": 100, "b": 0}, {})
    first, second = [pickle.loads(batch.column(0)[0].as_py()) for batch in write_rows(told, rows)]
    assert first.lost == [(100, 110)]
    assert [(f.start, f.end, f.rows) for f in first.files] == [(120, HOUR, 2), (HOUR, HOUR + 1, 1)]
    assert second.lost == [(7, 9)]
    assert [(f.start, f.end, f.rows) for f in second.files] == [(11, 12, 1)]

    last = first.files[1]
    grows = LakeFile(last.name, last.start, last.end, last.rows, last.bytes, last.groups)
    told = TaskRows(task, {"a": HOUR + 1}, {"a": grows})
    other = ("other", 7)
    [batch] = write_rows(told, rows_of(("a", HOUR), ("a", HOUR + 5), ("a", 2 * HOUR), other))
    grown = pickle.loads(batch.column(0)[0].as_py())
    assert (grown.grown_file, grown.events) == (grows, 2)
    assert [(f.start, f.end, f.rows) for f in grown.files] == [
        (HOUR, HOUR + 6, 2),
        (2 * HOUR, 2 * HOUR + 1, 1),
    ]
    [batch] = write_rows(told, rows_of(("a", 3 * HOUR)))
    assert pickle.loads(batch.column(0)[0].as_py()).grown_file is None, "it is of another hour"


def test_a_checkpoint_that_cannot_be_read_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"t/0":7}', encoding="utf-8")
    start, end = batch_range(tmp_path, 0)
    assert (dict(start), dict(end)) == ({}, {"t/0": 7})
    (tmp_path / "offsets" / "1").write_text('v9\n{}\n{"t/0":7}', encoding="utf-8")
    for number in (1, 2):
        with pytest.raises(StorageCorruptError, match="Remove the folder _checkpoint"):
            batch_range(tmp_path, number)
    assert os.listdir(tmp_path) == ["offsets"]
