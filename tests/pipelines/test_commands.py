"""The commands of `gapless pipeline` that need Spark, one after the other, as a user has them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from tests.cli.test_pipeline import command, ok, publish
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def archive_and_subscribe(url: str, folder: Path) -> list[int]:
    """The ticks of 10 events: in the lake, and 7 of them in a journal."""
    archive = ("pipeline", "archive", "t", folder / "lake", "--url", url)
    ok(*archive)
    ticks = publish(url, 0, 7)
    desk = ("subscribe", "t", "i > 2", "--name", "desk", "--start", "earliest", "--url", url)
    ok(*desk, "--journal", folder / "desk.jsonl", "--count", 4)
    assert "7 events" in ok(*archive, "--master", "local[2]")
    ticks += publish(url, 7, 3)
    ok(*desk, "--journal", folder / "desk.jsonl", "--count", 3)
    assert "3 events were moved" in ok(*archive, "--stream")
    return ticks


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_jobs_on_spark_archive_match_and_audit_what_a_subscriber_saw(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark is not None  # all commands use it
    with broker_in_a_thread(tmp_path / "data") as url:
        ticks = archive_and_subscribe(url, tmp_path)
    lake, journal, details = tmp_path / "lake", tmp_path / "desk.jsonl", tmp_path / "details"
    table = tmp_path / "table.csv"
    table.write_text("name,condition\nold,i < 1\nbad,i <\n", encoding="utf-8")
    alone = ("--lake", lake, "--no-log")
    result = json.loads(ok("pipeline", "match", "t", table, tmp_path / "out", *alone, "--json"))
    assert result == {"subscriptions": 1, "refused": 1, "matches": 1}
    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert rows == [{"subscription": "old", "pubend": "t/0", "tick": ticks[0]}]
    assert "bad" in (tmp_path / "out" / "_refused.jsonl").read_text(encoding="utf-8")

    file = tmp_path / "audit.toml"
    file.write_text(
        "[[subscription]]\nname = 'desk'\ncondition = 'i > 2'\njournals = ['desk.jsonl']\n",
        encoding="utf-8",
    )
    verdict: dict[str, Any] = json.loads(ok("pipeline", "audit", "t", file, *alone, "--json"))
    assert (verdict["ok"], verdict["expected"], verdict["delivered"]) == (True, 7, 7)
    lines = journal.read_text(encoding="utf-8").splitlines(keepends=True)
    journal.write_text("".join(lines[:3] + lines[4:]), encoding="utf-8")
    judged = command("pipeline", "audit", "t", file, *alone, "--details", details)
    assert judged.exit_code == 1, judged.exception
    assert "VIOLATED" in judged.stdout
    assert pq.read_table(details).to_pylist() == [
        {"subscription": "desk", "pubend": "t/0", "tick": ticks[6], "problem": "lost"}
    ]
