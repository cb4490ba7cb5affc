"""Delta and Iceberg tables have each event once, whoever is killed, and the engines count it."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable

import gapless
from gapless.core.timestamps import EPOCH
from gapless.pipelines.archive import ArchiveLimits
from gapless.pipelines.spark_tasks import run_locally
from gapless.pipelines.table_archive import (
    DeltaEvents,
    EventTable,
    IcebergEvents,
    TableProgress,
    archive_table,
    archive_table_by,
)
from gapless.pipelines.topic_log import TopicLog
from tests.cli.test_pipeline import command, ok, publish
from tests.pipelines.logs import wait_for_release
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MORE = {"at": EPOCH, "raw": b"\x00\xff"}
FORMATS = {"delta": DeltaEvents, "iceberg": IcebergEvents}
KILLED = """
import os, signal, sys
from gapless.pipelines import table_archive
from gapless.pipelines.topic_log import TopicLog
from tests.pipelines.test_table_archive import WAYS
url, root, kind, stage, way = sys.argv[1:]
make = {"delta": table_archive.DeltaEvents, "iceberg": table_archive.IcebergEvents}[kind]
method = "append" if way == "here" else "add"
table, commit = make(root, "t"), getattr(make, method)
def die(*arguments):
    if stage == "after":
        commit(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(make, method, die)
WAYS[way](TopicLog(url, "t"), table, "archive")
"""


def by_workers(log: TopicLog, table: EventTable, name: str, tell: Any = lambda _: None) -> int:
    return archive_table_by(run_locally, log, table, name, ArchiveLimits(), tell)


WAYS: dict[str, Callable[..., int]] = {"here": archive_table, "by workers": by_workers}


def rows_of(kind: str, root: Path) -> Any:
    """As a reader of that format sees the table, which knows nothing of gapless."""
    if kind == "delta":
        return DeltaTable(str(root)).to_pyarrow_table()
    events = IcebergEvents(root, "t")
    return events._catalog.load_table(("gapless", "t")).scan().to_arrow()


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("way", WAYS)
def test_a_table_has_each_event_once_wherever_its_archive_is_killed(
    tmp_path: Path, kind: str, stage: str, way: str
) -> None:
    archive_table = WAYS[way]
    root, told = tmp_path / "table", list[TableProgress]()
    table: EventTable = FORMATS[kind](root, "t")
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        log = TopicLog(url, "t")
        assert archive_table(log, table, "archive") == 0  # now the subscription holds the log
        events: list[dict[str, Any]] = [{"i": i, "symbol": "IBM"} for i in range(50)]
        receipts = client.publish_many("t", [(event, b"x") for event in events])
        assert archive_table(log, table, "archive", told.append) == 50
        assert [each.events for each in told] == [50]
        more: list[dict[str, Any]] = [{"i": i / 2, "desk": "x", **MORE} for i in range(30)]
        receipts += client.publish_many("t", [(event, b"y") for event in more])
        arguments = [sys.executable, "-c", KILLED, url, str(root), kind, stage, way]
        assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
        assert archive_table(log, table, "archive") == (30 if stage == "before" else 0)
        assert archive_table(log, table, "archive") == 0, "a repeated archive changes nothing"
        wait_for_release(client, "t", {"t/0": receipts[-1].tick})
    rows = rows_of(kind, root)
    assert sorted(rows["tick"].to_pylist()) == [receipt.tick for receipt in receipts]
    assert sorted(filter(None, rows["i_float"].to_pylist())) == [i / 2 for i in range(1, 30)]
    assert rows["symbol"].null_count == 30
    assert rows["desk"].null_count == 50
    assert {name: rows[name].to_pylist().count(value) for name, value in MORE.items()} == {
        "at": 30,
        "raw": 30,
    }


def test_the_command_makes_tables_and_refuses_what_it_does_not_do(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path / "data") as url:
        for kind in FORMATS:
            archive = ("pipeline", "archive", "t", tmp_path / kind, "--format", kind, "--url", url)
            ok(*archive)
        publish(url, 0, 5)
        for kind in FORMATS:
            archive = ("pipeline", "archive", "t", tmp_path / kind, "--format", kind, "--url", url)
            assert "5 events were moved" in ok(*archive)
            assert rows_of(kind, tmp_path / kind).num_rows == 5
            refused = command(*archive, "--stream").exception
            assert "--stream makes a lake" in str(refused)
        publish(url, 5, 4)
        for kind in FORMATS:
            archive = ("pipeline", "archive", "t", tmp_path / kind, "--format", kind, "--url", url)
            assert "4 events were moved" in ok(*archive, "--master", "local[1]")
            assert sorted(rows_of(kind, tmp_path / kind)["i"].to_pylist()) == list(range(9))
            assert "0 events were moved" in ok(*archive)


def test_polars_and_duckdb_read_a_delta_table(tmp_path: Path) -> None:
    table = DeltaEvents(tmp_path / "table", "t")
    with broker_in_a_thread(tmp_path / "data") as url, gapless.sync.connect(url) as client:
        archive_table(TopicLog(url, "t"), table, "archive")
        client.publish_many("t", [({"i": i}, b"") for i in range(20)])
        archive_table(TopicLog(url, "t"), table, "archive")
        for way in WAYS:
            with pytest.raises(Exception, match=r"(?i)transaction"):
                racing(TopicLog(url, "t"), client, table, way)
    frame = pl.from_arrow(DeltaTable(str(tmp_path / "table")).to_pyarrow_table())
    assert isinstance(frame, pl.DataFrame)
    files = DeltaTable(str(tmp_path / "table")).file_uris()
    [row] = duckdb.connect().execute(f"SELECT sum(i) FROM read_parquet({files})").fetchall()
    assert frame["i"].sum() == row[0] == sum(range(20)) + 7 + 7


def racing(log: TopicLog, client: gapless.sync.Client, table: DeltaEvents, way: str) -> None:
    """Another archive commits the same events between the read and the commit of this one."""
    client.publish("t", {"i": 7})

    class Late(DeltaEvents):
        def append(self, rows: Any, state: Any, pubend: str) -> None:
            archive_table(log, table, "archive")
            super().append(rows, state, pubend)

        def add(self, files: Any, state: Any, pubends: Any) -> None:
            archive_table(log, table, "archive")
            super().add(files, state, pubends)

    WAYS[way](log, Late(table._path, "t"), "archive")
