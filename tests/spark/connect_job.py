"""A client of Spark Connect: `python -m tests.spark.connect_job OPTIONS`, both as JSON.

In a process of its own, for a session is either a client of Connect or not, and the tests' is not.
It has no virtual machine: it uses that of the tests.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gapless.spark
from gapless.pipelines.replay import Replay, plan, replay_rows
from gapless.pipelines.session import make_session
from gapless.pipelines.topic_log import TopicLog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ticks_of(table: DataFrame) -> list[int]:
    return sorted(row["tick"] for row in table.select("tick").collect())


def stream(spark: SparkSession, url: str, topic: str, folder: Path) -> DataFrame:
    """All that is there now, by a streaming query into files."""
    reader = spark.readStream.format("gapless").option("url", url).option("topic", topic)
    reader = reader.option("subscription", "over connect").option("startingOffsets", "earliest")
    writer = reader.load().select("tick").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    query.awaitTermination()
    return spark.read.parquet(str(folder / "out"))


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    url, topic = given["url"], given["topic"]
    spark = make_session(given["remote"])
    gapless.spark.register(spark)
    rows = spark.range(0, given["count"], 1, 2).selectExpr("id AS n", "id % 10 AS rare")
    rows.write.format("gapless").option("url", url).option("topic", topic).mode("append").save()
    replay = Replay(None, TopicLog(url, topic), "n >= 20")
    found = {
        "read": ticks_of(gapless.spark.read_log(spark, url, topic)),
        "filtered": ticks_of(gapless.spark.read_log(spark, url, topic, where="rare = 7")),
        "streamed": ticks_of(stream(spark, url, topic, Path(given["folder"]))),
        "replayed": ticks_of(replay_rows(spark, replay, plan(replay))),
    }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
