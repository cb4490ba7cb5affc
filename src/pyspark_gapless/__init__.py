"""Spark finds `format("gapless")` here by itself: it imports every module that is called pyspark_*.

Nothing has to be registered where gapless is installed on the driver and on executors.
"""

from gapless.spark.data_source import GaplessSource as DefaultSource

__all__ = ["DefaultSource"]
