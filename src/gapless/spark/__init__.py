"""Spark reads topics as tables and streams, and writes them: `format("gapless")`.

    gapless.spark.register(spark)
    spark.read.format("gapless").option("url", "gapless://127.0.0.1:7117").option("topic", "trades")

PySpark is imported when it is first needed: the rest of gapless does without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.streaming.listener import StreamingQueryListener
    from pyspark.sql.types import StructType

    from gapless.spark.progress import QueryLag

__all__ = ["lag_listener", "read_log", "register"]

CONFIGURATION = "spark.gapless."
"""Settings of a session that begin so are defaults of options."""


def register(spark: SparkSession, **defaults: str | int | bool) -> None:
    """Make `format("gapless")` known to this session, also over Spark Connect.

    `defaults` are options for all reads and writes that do not give them; so are the session's
    settings `spark.gapless.url` and the like. Where gapless is not installed but shipped as a zip
    file (`--py-files`), this call is needed: it lets streams find the file.
    """
    configured = {
        name.removeprefix(CONFIGURATION): value
        for name, value in spark.conf.getAll.items()
        if name.startswith(CONFIGURATION)
    }
    given = {name: str(value) for name, value in defaults.items()}
    spark.dataSource.register(source_class({**configured, **given}, shipped_file()))


def shipped_file() -> str:
    """The zip file that gapless was imported from; empty if it is installed."""
    head, dot, _ = __file__.partition(".zip/")
    return f"{head}.zip" if dot else ""


def source_class(defaults: dict[str, str], zip_file: str) -> type[DataSource]:
    """The data source with these defaults. Spark's processes get the class by value, and find the
    rest of gapless installed, or in the zip file."""
    from pyspark.sql.datasource import DataSource

    class GaplessFormat(DataSource):
        @classmethod
        def name(cls) -> str:
            return "gapless"

        def _source(self) -> DataSource:
            import sys

            if zip_file and zip_file not in sys.path:
                sys.path.insert(0, zip_file)
            from gapless.spark.data_source import GaplessSource

            known = {name.lower(): value for name, value in defaults.items()}
            return GaplessSource({**known, **dict(self.options)})

        def schema(self) -> Any:
            return self._source().schema()

        def reader(self, schema: StructType) -> Any:
            return self._source().reader(schema)

        def streamReader(self, schema: StructType) -> Any:  # noqa: N802 - Spark's
            return self._source().streamReader(schema)

        def writer(self, schema: StructType, overwrite: bool) -> Any:
            return self._source().writer(schema, overwrite)

        def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: N802 - Spark's
            return self._source().streamWriter(schema, overwrite)

    return GaplessFormat


def lag_listener(
    tell: Callable[[QueryLag], None], *, url: str = "", condition: str = ""
) -> StreamingQueryListener:
    """A listener that calls `tell` after each batch of a query that reads gapless, with how far the
    query is behind. With a `url` the brokers are asked how many events that are, of those that
    match the `condition`.

    `spark.streams.addListener(gapless.spark.lag_listener(print, url="gapless://…"))`
    """
    from gapless.spark.progress import LagListener

    return LagListener(tell, url, condition)


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
