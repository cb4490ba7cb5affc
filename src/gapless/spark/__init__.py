"""Spark reads topics as tables and streams, and writes them: `format("gapless")`.

    gapless.spark.register(spark)
    spark.read.format("gapless").option("url", "gapless://127.0.0.1:7117").option("topic", "trades")

PySpark is imported when it is first needed: the rest of gapless does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["read_log", "register"]


def register(spark: SparkSession) -> None:
    """Make `format("gapless")` known to this session, also over Spark Connect."""
    from gapless.spark.data_source import GaplessSource

    spark.dataSource.register(GaplessSource)


def read_log(
    spark: SparkSession,
    url: str,
    topic: str,
    *,
    where: str = "",
    columns: Sequence[str] | None = None,
    schema: StructType | str | None = None,
    **options: str | int | bool,
) -> DataFrame:
    """What is in the log of a topic and matches `where`, which the broker decides.

    Each call looks anew at what there is: two calls are two reads, with a condition of their own.
    `columns` are some of the eight; `schema` has attributes as columns. Further options are those
    of `format("gapless")`.
    """
    reader = spark.read.format("gapless").option("url", url).option("topic", topic)
    if where:
        reader = reader.option("filter", where)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    for name, value in options.items():
        reader = reader.option(name, value)
    return (reader if schema is None else reader.schema(schema)).load()
