"""Spark finds the format by the name of a module, without a registration."""

from __future__ import annotations

from gapless.spark.data_source import GaplessSource


def test_the_module_that_spark_looks_for_has_the_source() -> None:
    """Spark imports each `pyspark_*` and takes its `DefaultSource`."""
    import pyspark_gapless

    assert pyspark_gapless.DefaultSource is GaplessSource
    assert GaplessSource.name() == "gapless"
