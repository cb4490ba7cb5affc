"""What the laboratory's tests share: one Spark session."""

from __future__ import annotations

from tests.spark.conftest import spark

__all__ = ["spark"]
