"""The Spark driver of the demo: an archive query, and the audit at the end, in one process.

Theory of operation
    It starts the virtual machine at once, and then does what lines of JSON on standard input say:
        {"archive": {"url": …, "topic": …, "lake": …}}   begin, or go on from the checkpoint
        {"finish": token}                                end when the lake has all below it
        {"audit": {"file": …, "topic": …, "lake": …}}    judge the subscriptions of that file
    It says what it has done as lines of JSON on standard output. It ends when its input does.

Invariants
    I1  it does not outlive the process that started it
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from gapless.pipelines.archive import ArchiveProgress

EVERY_S = 2.0
LOOK_S = 0.05
FINISH_S = 60.0


def run_driver(folder: str) -> None:
    """What the process runs; what it and Spark need for themselves is below the folder."""
    from gapless.pipelines.session import QUICK, make_home, make_session

    home, scratch = Path(folder) / "home", Path(folder) / "scratch"
    os.environ["SPARK_HOME"] = str(home if home.exists() else make_home(home))
    java = f"{QUICK['spark.driver.extraJavaOptions']} -Djava.io.tmpdir={scratch}"
    settings = {"spark.driver.extraJavaOptions": java, "spark.local.dir": str(scratch)}
    spark = make_session("local[2]", {**QUICK, **settings, "spark.log.level": "ERROR"})
    serve(spark, scratch)
    spark.stop()


def serve(spark: SparkSession, scratch: Path) -> None:
    say(session=spark.version)
    query: StreamingQuery | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        if "archive" in asked:
            query = begin(spark, **asked["archive"])
        elif "finish" in asked and query is not None:
            finish(query, asked["finish"])
        else:
            say(verdicts=judge(spark, str(scratch / "audit"), **asked["audit"]))


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def begin(spark: SparkSession, url: str, topic: str, lake: str) -> StreamingQuery:
    from gapless.pipelines.archive_query import start_archive
    from gapless.pipelines.topic_log import TopicLog

    def tell(progress: ArchiveProgress) -> None:
        if progress.stage == "committed":
            say(events=progress.events, token=dict(progress.manifest.token))

    return start_archive(spark, TopicLog(url, topic), lake, every_s=EVERY_S, tell=tell)


def finish(query: StreamingQuery, token: dict[str, int]) -> None:
    """By its own progress: then Spark's checkpoint has the batch, and it is acknowledged soon."""
    end_s = time.monotonic() + FINISH_S
    while not reached(query, token) and time.monotonic() < end_s:
        if (error := query.exception()) is not None:
            raise error
        time.sleep(LOOK_S)
    query.stop()
    say(finished=True)


def reached(query: StreamingQuery, token: dict[str, int]) -> bool:
    progress = query.lastProgress
    if progress is None:
        return False
    offset = json.loads(progress["sources"][0]["endOffset"] or "{}")
    return all(offset.get(pubend, 0) >= tick for pubend, tick in token.items())


def judge(spark: SparkSession, work: str, file: str, topic: str, lake: str) -> list[dict[str, Any]]:
    """What the lake has is what was published."""
    from gapless.cli.audit import read_subscriptions
    from gapless.pipelines.audit import audit
    from gapless.pipelines.lake import Lake
    from gapless.pipelines.replay import Replay, plan

    job = Replay(Lake(lake, topic), None, "", "skip")
    findings = audit(spark, (job, plan(job)), read_subscriptions(Path(file)), work)
    findings.close()
    return [asdict(verdict) for verdict in findings.verdicts]
