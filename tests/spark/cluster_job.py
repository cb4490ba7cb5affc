"""A job on a cluster: `python -m tests.spark.cluster_job OPTIONS`, as JSON.

It reads a topic in small batches, and writes every row to another, spread by a column.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import gapless.spark
from gapless.pipelines.session import QUICK, make_session


def main() -> None:
    given: dict[str, Any] = json.loads(sys.argv[1])
    local = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    memory = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
    spark = make_session(given["master"], {**QUICK, **local, **memory})
    gapless.spark.register(spark, url=given["url"])
    rows = (
        spark.readStream.format("gapless")
        .options(topic="cluster in", subscription="on a cluster", startingOffsets="earliest")
        .options(maxEventsPerTrigger="200", minPartitions="4")
        .schema("i bigint, by string")
        .load()
    )
    query = (
        rows.writeStream.format("gapless")
        .options(topic="cluster out", spreadBy="by")
        .option("checkpointLocation", str(Path(given["folder"]) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(json.dumps({"batches": len(query.recentProgress)}))
    spark.stop()


if __name__ == "__main__":
    main()
