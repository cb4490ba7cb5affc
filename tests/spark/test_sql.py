"""Topics as tables and views of Spark's SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import gapless.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_tables_views_and_inserts(spark: SparkSession, broker: Desk) -> None:
    with broker.client() as client:
        client.create_topic("sql", keep_seconds=3_600)
        client.publish_many("sql", [({"i": i}, b"") for i in range(10)])
    options = f"OPTIONS (url '{broker.url}', topic 'sql', filter 'i >= 4')"
    spark.sql(f"CREATE TABLE sql_table USING gapless {options}")
    try:
        assert spark.table("sql_table").count() == 6
        [row] = spark.sql("SELECT count(*) FROM sql_table WITH (filter = 'i >= 7')").collect()
        assert row[0] == 3
        spark.sql(f"CREATE TEMPORARY VIEW sql_view USING gapless {options}")
        [row] = spark.sql("SELECT max(tick) FROM sql_view").collect()
        spark.sql("CREATE VIEW lasting AS SELECT * FROM sql_table WITH (filter = 'i >= 8')")
        assert spark.sql("SELECT * FROM lasting").count() == 2
        gapless.spark.register(spark, url=broker.url, topic="sql")
        spark.sql("CREATE TABLE sql_sink (i BIGINT) USING gapless")
        spark.sql("INSERT INTO sql_sink VALUES (10), (11)")
        assert spark.table("sql_table").count() == 8
        assert sorted(row.i for row in spark.sql("SELECT i FROM sql_sink").collect()) == list(
            range(12)
        )
    finally:
        gapless.spark.register(spark)
        for name in ("VIEW lasting", "VIEW sql_view", "TABLE sql_table", "TABLE sql_sink"):
            spark.sql(f"DROP {name.replace(' ', ' IF EXISTS ')}")
