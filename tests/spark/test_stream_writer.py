"""The streaming sink with real sessions and brokers: exactly once, whoever dies when."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from gapless.testing.processes.brokers import cell, topic
from tests.spark.conftest import brokers
from tests.spark.hooked_sink import start_query, wait_for
from tests.spark.sink_job import FILE_ROWS, Job

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.fixture
def job(broker: Desk, tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    return Job(broker, request.node.name, tmp_path)


def test_what_a_failed_attempt_has_staged_is_not_published(spark: SparkSession, job: Job) -> None:
    job.feed(1)
    job.run(spark, hookAttempts="2")
    assert job.published() == job.rows()


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
        assert job.published() == job.rows()


def test_an_abort_after_a_commit_that_was_carried_out_takes_nothing_back(
    spark: SparkSession, job: Job
) -> None:
    job.feed(2)
    with pytest.raises(StreamingQueryException, match="fails on purpose"):
        job.run(spark, hookCommit="fail")
    assert job.published() == list(range(FILE_ROWS))
    job.run(spark, partitions=3)
    assert job.published() == job.rows()


def test_a_checkpoint_that_is_new_under_an_old_name_is_refused_instead_of_losing_its_rows(
    spark: SparkSession, job: Job
) -> None:
    job.feed(2)
    job.run(spark, txnAppId="ledger")
    (job.folder / "checkpoint").rename(job.folder / "old checkpoint")
    with pytest.raises(StreamingQueryException, match="batch 0 is older than the last"):
        job.run(spark, txnAppId="ledger")
    assert job.published() == job.rows()


@pytest.fixture(autouse=True)
def no_leftovers(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()
