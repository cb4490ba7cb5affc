"""The streaming sink with real sessions and brokers: exactly once, whoever dies when."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from gapless.cli.real.processes import cell, topic
from tests.spark.conftest import brokers
from tests.spark.hooked_sink import start_query, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

ROOT = Path(__file__).parent.parent.parent
FILE_ROWS = 20


class Job:
    """A query over files of ascending numbers, its checkpoint, and what it has published."""

    def __init__(self, desk: Desk, name: str, folder: Path) -> None:
        self.desk = desk
        self.topic = name
        self.folder = folder
        self.flag = folder / "flag"
        self.files = 0
        (folder / "files").mkdir()
        with desk.client() as client:
            client.create_topic(name)
            with client.subscribe(name, name=f"keep {name}"):
                pass

    def feed(self, files: int) -> None:
        for number in range(self.files, self.files + files):
            rows = range(number * FILE_ROWS, (number + 1) * FILE_ROWS)
            path = self.folder / "files" / f"{number:03}.txt"
            path.write_text("".join(f"{i}\n" for i in rows), encoding="utf-8")
            os.utime(path, (number, number))  # files are taken in the order of their times
        self.files += files

    def arguments(self, partitions: int, **hooks: str) -> tuple[Any, ...]:
        options = {"url": self.desk.url, "topic": self.topic, **hooks}
        return (str(self.folder / "files"), str(self.folder / "checkpoint"), partitions, options)

    def run(self, spark: SparkSession, partitions: int = 2, **hooks: str) -> None:
        """Until all files are published, or it fails."""
        query = start_query(spark, *self.arguments(partitions, **hooks))
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def published(self) -> list[int]:
        """By an independent read of the log."""
        with self.desk.client() as client:
            events = [event for batch in client.read(self.topic) for event in batch.events()]  # type: ignore[union-attr]
        assert all(event.body == str(event.attributes["i"]).encode() for event in events)
        return [int(event.attributes["i"]) for event in events]


def run_and_kill(folder: Path, jobs: dict[Job, dict[str, str]]) -> None:
    """In a driver of their own, which is killed when each has stopped at its hook."""
    queries = [job.arguments(2, hookFlag=str(job.flag), **hooks) for job, hooks in jobs.items()]
    given = json.dumps({"home": str(folder / "home"), "queries": queries})
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.hooked_sink", given],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        for job in jobs:
            wait_for(job.flag, lambda: driver.poll() is None)
    except TimeoutError:
        raise AssertionError((folder / "log").read_text(encoding="utf-8")) from None
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python and the Java machine below it
        driver.wait()


@pytest.fixture
def job(broker: Desk, tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    return Job(broker, request.node.name, tmp_path)


def all_rows(job: Job) -> list[int]:
    return list(range(job.files * FILE_ROWS))


def test_each_row_is_published_once_in_order_though_drivers_are_killed_before_and_after_a_commit(
    spark: SparkSession, broker: Desk, tmp_path: Path
) -> None:
    hooks = {}
    for place in ("before", "after"):
        (tmp_path / place).mkdir()
        job = Job(broker, f"killed {place}", tmp_path / place)
        job.feed(3)
        hooks[job] = {"hookCommit": place, "hookBatch": "1"}
    run_and_kill(tmp_path, hooks)
    before, after = hooks
    assert before.published() == list(range(FILE_ROWS))
    assert after.published() == list(range(2 * FILE_ROWS))
    for job in hooks:
        job.run(spark, partitions=3)
        assert job.published() == all_rows(job)


def test_what_a_failed_attempt_has_staged_is_not_published(spark: SparkSession, job: Job) -> None:
    job.feed(1)
    job.run(spark, hookAttempts="2")
    assert job.published() == all_rows(job)


def test_a_broker_killed_between_the_tasks_of_a_batch_loses_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    network = (cell("edge", ["b"], subscribers=True), topic("t", "b"))
    with brokers(*network, start=("b",)) as desk:
        job = Job(desk, "killed", tmp_path)
        job.feed(1)
        gate = tmp_path / "gate"
        hooks = {"hookFlag": str(job.flag), "hookGate": str(gate)}
        query = start_query(spark, *job.arguments(2, **hooks))
        wait_for(job.flag)
        desk.kill("b")
        desk.start("b")
        gate.touch()
        query.awaitTermination()
        assert job.published() == all_rows(job)


def test_an_abort_after_a_commit_that_was_carried_out_takes_nothing_back(
    spark: SparkSession, job: Job
) -> None:
    job.feed(2)
    with pytest.raises(StreamingQueryException, match="fails on purpose"):
        job.run(spark, hookCommit="fail")
    assert job.published() == list(range(FILE_ROWS))
    job.run(spark, partitions=3)
    assert job.published() == all_rows(job)


def test_a_checkpoint_that_is_new_under_an_old_name_is_refused_instead_of_losing_its_rows(
    spark: SparkSession, job: Job
) -> None:
    job.feed(2)
    job.run(spark, txnAppId="ledger")
    (job.folder / "checkpoint").rename(job.folder / "old checkpoint")
    with pytest.raises(StreamingQueryException, match="batch 0 is older than the last"):
        job.run(spark, txnAppId="ledger")
    assert job.published() == all_rows(job)


@pytest.fixture(autouse=True)
def no_leftovers(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()
