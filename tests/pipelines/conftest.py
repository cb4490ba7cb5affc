"""Pipelines are tested with the same Spark session as sources and sinks."""

from tests.spark.conftest import spark

__all__ = ["spark"]
