"""`make setup` leaves a machine on which Spark runs, with a Java of its own or the machine's."""

from __future__ import annotations

import subprocess
import sys

import pytest

JOB = """
from pyspark.sql import SparkSession
session = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
print("rows:", session.range(1000).filter("id % 7 = 0").count())
session.stop()
"""


@pytest.mark.slow
def test_spark_runs_a_job() -> None:
    command = [sys.executable, "-c", JOB]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert "rows: 143" in result.stdout, result.stderr[-2000:]
