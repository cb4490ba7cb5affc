"""The batch sink with a real session and a real broker: all rows or none, and once by version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from gapless.core.timestamps import EPOCH, MICROSECOND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def make_topic(broker: Desk, name: str) -> str:
    with broker.client() as client:
        client.create_topic(name)
        with client.subscribe(name, name=f"keep {name}"):
            pass
    return name


def published(broker: Desk, topic: str) -> list[tuple[dict[str, Any], bytes]]:
    with broker.client() as client:
        batches = client.read(topic)
        return [(dict(e.attributes), e.body) for batch in batches for e in batch.events()]  # type: ignore[union-attr]


def write(rows: DataFrame, broker: Desk, **options: str) -> None:
    rows.write.format("gapless").option("url", broker.url).options(**options).mode("append").save()


def test_rows_of_all_partitions_are_published_in_their_order_with_nulls_left_out(
    spark: SparkSession, broker: Desk
) -> None:
    topic = make_topic(broker, "batch")
    rows = spark.range(0, 100, 1, 3).selectExpr(
        "id as i",
        "if(id % 2 = 0, id / 4, null) as price",
        "concat('n', id % 3) as name",
        "id = 7 as lucky",
        "timestamp_micros(id) as at",
        "cast(id as string) as body",
    )
    write(rows, broker, topic=topic)
    price = [{"price": i / 4} if i % 2 == 0 else {} for i in range(100)]
    at = [EPOCH + i * MICROSECOND for i in range(100)]
    assert published(broker, topic) == [
        ({"i": i, **price[i], "name": f"n{i % 3}", "lucky": i == 7, "at": at[i]}, str(i).encode())
        for i in range(100)
    ]


def test_a_version_that_was_written_is_not_written_again(spark: SparkSession, broker: Desk) -> None:
    topic = make_topic(broker, "versions")
    named = {"topic": topic, "txnAppId": "nightly"}
    write(spark.range(0, 10, 1, 2).toDF("i"), broker, **named, txnVersion="4")
    write(spark.range(0, 10, 1, 3).toDF("i"), broker, **named, txnVersion="4")
    write(spark.range(90, 99).toDF("i"), broker, **named, txnVersion="3")
    write(spark.range(10, 20).toDF("i"), broker, **named, txnVersion="5")
    assert [event["i"] for event, _ in published(broker, topic)] == list(range(20))


def test_a_job_that_fails_in_one_partition_publishes_nothing_of_the_others(
    spark: SparkSession, broker: Desk
) -> None:
    topic = make_topic(broker, "failing")
    rows = spark.range(0, 40, 1, 2).selectExpr("if(id = 30, raise_error('no'), id) as i")
    with pytest.raises(PySparkException, match="no"):
        write(rows, broker, topic=topic)
    assert published(broker, topic) == []


def test_a_column_says_where_each_row_goes(spark: SparkSession, broker: Desk) -> None:
    topics = [make_topic(broker, name) for name in ("even", "odd")]
    rows = spark.range(0, 20, 1, 2).selectExpr("id as i", "if(id % 2 = 0, 'even', 'odd') as topic")
    write(rows, broker)
    found = [[event["i"] for event, _ in published(broker, topic)] for topic in topics]
    assert found == [list(range(0, 20, 2)), list(range(1, 20, 2))]


def test_what_cannot_be_is_refused_by_name_before_anything_is_written(
    spark: SparkSession, broker: Desk
) -> None:
    topic = make_topic(broker, "refused")
    rows = spark.range(3).selectExpr("id", "interval 1 day as pause")
    with pytest.raises(AnalysisException, match="column 'pause' is interval day"):
        write(rows, broker, topic=topic)
    with pytest.raises(AnalysisException, match="no option 'topci'"):
        write(spark.range(3).toDF("i"), broker, topci=topic)
    with pytest.raises(AnalysisException, match="cannot be overwritten"):
        spark.range(3).write.format("gapless").option("url", broker.url).mode("overwrite").save()
    assert published(broker, topic) == []
