"""The data source `gapless` of Spark: names its parts, and nothing else.

Spark makes one of these from the options of a query, in several processes; the parameters' names
are Spark's and must not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from gapless.spark.options import parse_shape
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


class GaplessSource(DataSource):
    """`format("gapless")`."""

    @classmethod
    def name(cls) -> str:
        return "gapless"

    def schema(self) -> StructType:
        """Spark asks when a query is made: what can be refused then is refused then."""
        options = parse_shape(self.options)
        check_topic(options)
        return default_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        return StreamReader(self.options, schema)

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
