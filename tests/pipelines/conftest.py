"""Pipelines are tested with the same Spark session as sources and sinks."""

from tests.spark.conftest import broker, spark

__all__ = ["broker", "spark"]
