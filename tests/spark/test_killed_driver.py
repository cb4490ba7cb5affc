"""A Spark driver is killed with -9 between write and commit: nothing is lost or doubled."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import pytest

from gapless.pipelines.archive import ArchiveProgress, hold_log
from gapless.pipelines.archive_query import CHECKPOINT, start_archive
from gapless.pipelines.audit import AuditedSubscription, audit
from gapless.pipelines.lake import Lake
from gapless.pipelines.replay import Replay, plan, replay_rows
from gapless.pipelines.topic_log import TopicLog
from tests.pipelines.lakes import by_glob, fill
from tests.pipelines.logs import wait_for_release
from tests.spark.conftest import WAIT_S
from tests.spark.killed_driver import run_and_kill
from tests.spark.sink_job import FILE_ROWS, Job

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

TOPIC = "lake-killed"


class Wreck(NamedTuple):
    """What a killed driver has left: two sinks, stopped before and after their commit, and a lake
    with events of these pubends and ticks."""

    before: Job
    after: Job
    lake: Path
    ticks: list[tuple[str, int]]


@pytest.fixture(scope="module")
def wreck(broker: Desk, tmp_path_factory: pytest.TempPathFactory) -> Wreck:
    folder = tmp_path_factory.mktemp("wreck")
    jobs = {}
    for place in ("before", "after"):
        (folder / place).mkdir()
        jobs[place] = Job(broker, f"killed {place}", folder / place)
        jobs[place].feed(3)
    lake, flag = folder / "lake", folder / "flag"
    with broker.client() as client:
        client.create_topic(TOPIC, pubends=2)
        hold_log(TopicLog(broker.url, TOPIC), lake)
        ticks = fill(client, TOPIC, 0, 60)
    sinks = [
        job.arguments(2, hookFlag=str(job.flag), hookCommit=place, hookBatch="1")
        for place, job in jobs.items()
    ]
    archive = {"url": broker.url, "topic": TOPIC, "lake": str(lake), "flag": str(flag)}
    flags = [*(job.flag for job in jobs.values()), flag]
    run_and_kill(folder, flags, {"sinks": sinks, "archive": archive})
    return Wreck(jobs["before"], jobs["after"], lake, ticks)


def test_a_sink_publishes_each_row_once_in_order_killed_before_or_after_its_commit(
    spark: SparkSession, wreck: Wreck
) -> None:
    assert wreck.before.published() == list(range(FILE_ROWS))
    assert wreck.after.published() == list(range(2 * FILE_ROWS))
    for job in (wreck.before, wreck.after):
        job.run(spark, partitions=3)
        assert job.published() == job.rows()


def test_a_lake_has_each_event_once_whether_its_manifest_or_sparks_checkpoint_knew_last(
    spark: SparkSession, broker: Desk, wreck: Wreck, tmp_path: Path
) -> None:
    lake, ticks, source = wreck.lake, list(wreck.ticks), TopicLog(broker.url, TOPIC)
    checkpoint = lake / TOPIC / CHECKPOINT
    assert (checkpoint / "offsets" / "0").exists()
    assert not (checkpoint / "commits" / "0").exists(), (
        "the lake has the batch, Spark does not know"
    )
    assert by_glob(lake) == sorted(ticks)
    with broker.client() as client:
        # The next one is stopped when its files are written, and the lake does not have them.
        ticks += fill(client, TOPIC, 60, 40)

        def stop(progress: ArchiveProgress) -> None:
            if progress.stage == "written" and progress.events:
                raise RuntimeError("stopped on purpose")

        query = start_archive(spark, source, lake, tell=stop)
        with pytest.raises(Exception, match="stopped on purpose"):
            query.awaitTermination(WAIT_S)
        assert by_glob(lake) == sorted(ticks[:60])
        assert start_archive(spark, source, lake).awaitTermination(WAIT_S)
        assert by_glob(lake) == sorted(ticks)
        # What is acknowledged is in the lake; so all of it may go, and the lake alone is enough.
        last = {pubend: max(tick for name, tick in ticks if name == pubend) for pubend, _ in ticks}
        wait_for_release(client, TOPIC, last)
        client.unsubscribe(f"archive-{TOPIC}")
    judge(spark, tmp_path, ticks, lake)


def judge(spark: SparkSession, folder: Path, ticks: list[tuple[str, int]], lake: Path) -> None:
    """The audit takes what the lake has as what was published: so both must be the same."""
    journal = folder / "all.jsonl"
    lines = [json.dumps({"pubend": pubend, "tick": tick}) for pubend, tick in ticks]
    journal.write_text("\n".join(lines), encoding="utf-8")
    job = Replay(Lake(lake, TOPIC), None, "", "raise")
    planned = plan(job)
    everything = [AuditedSubscription("all", "", (str(journal),))]
    rows = replay_rows(spark, job, planned)
    findings = audit(spark, (job, planned), everything, folder / "work")
    [verdict] = findings.verdicts
    findings.close()
    assert verdict.is_clean
    assert verdict.expected == verdict.delivered == len(ticks) == rows.count()
