"""The data source `gapless` of Spark: names its parts, and nothing else.

Spark makes one of these from the options of a query, in several processes; the parameters' names
are Spark's and must not change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from gapless.spark.options import CREDENTIALS, is_table, lowered, parse_shape
from gapless.spark.reader import BatchReader
from gapless.spark.schema import check_topic, default_schema
from gapless.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

KEPT = "gapless"


def keep_options(schema: StructType, options: dict[str, str]) -> None:
    """Spark keeps the options of a table, and hands them to nobody who reads it; but it hands over
    the columns. So the first column has the options, except secrets, in its metadata."""
    known = {name: value for name, value in options.items() if name not in CREDENTIALS}
    schema.fields[0].metadata = {KEPT: json.dumps(known)}


def kept_options(schema: StructType) -> dict[str, str]:
    """The options of the table that has these columns; none if it is no table."""
    found = [each.metadata[KEPT] for each in schema if KEPT in (each.metadata or {})]
    return dict(json.loads(found[0])) if found else {}


class GaplessSource(DataSource):
    """`format("gapless")`."""

    @classmethod
    def name(cls) -> str:
        return "gapless"

    def schema(self) -> StructType:
        """Spark asks when a query is made: what can be refused then is refused then."""
        options = parse_shape(self.options)
        check_topic(options)
        schema = default_schema(options)
        if is_table(self.options):
            keep_options(schema, lowered(self.options))
        return schema

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(kept_options(schema) | dict(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return StreamReader(kept_options(schema) | dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from gapless.spark.writer import BatchWriter

        made: DataSourceWriter = BatchWriter(self.options, schema, overwrite)
        return made

    def streamWriter(  # noqa: N802 - Spark's
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from gapless.spark.stream_writer import StreamWriter

        made: DataSourceStreamWriter = StreamWriter(self.options, schema, overwrite)
        return made
