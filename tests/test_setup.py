"""`make setup` leaves a machine on which Spark runs, with a Java of its own or the machine's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_spark_runs_a_job(spark: SparkSession) -> None:
    assert spark.range(1000).filter("id % 7 = 0").count() == 143
