"""Runs of an experiment, played by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless_lab.experiments.multicast import experiment as multicast
from gapless_lab.experiments.partitions import experiment as partitions
from gapless_lab.experiments.players import in_processes, in_spark
from tests.lab.experiments.multicast.tiny import TINY as TINY_MULTICAST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.slow]

TINY = partitions.Size(
    brokers=70,
    failed_counts=(7,),
    deliveries=((6, (1,)),),
    publications=1,
    runs=2,
)


def test_spark_and_processes_come_to_the_same(spark: SparkSession) -> None:
    runs = partitions.Results(seed=3, size=TINY).runs()
    runs += multicast.Results(seed=3, size=TINY_MULTICAST).runs()[1:]  # without memory
    by_spark = {run.name: outcome for run, outcome in in_spark(runs, "local[2]")}
    assert by_spark == {run.name: outcome for run, outcome in in_processes(runs)}
    assert len(by_spark) == len(runs)
