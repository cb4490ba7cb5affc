"""A driver that is killed in the middle: `python -m tests.spark.killed_driver OPTIONS`.

It runs queries of the hooked sink, which stop where they are told to, and an archive query, which
stops when the lake has a batch and Spark does not know. One virtual machine for all of them: that
is what costs. Who starts it waits for the flags of all, and kills its group.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.spark.hooked_sink import HANG_S, start_query, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.pipelines.archive import ArchiveProgress

ROOT = Path(__file__).parent.parent.parent


def run_and_kill(folder: Path, flags: Sequence[Path], options: dict[str, Any]) -> None:
    """With kill -9, when each query has stopped where it should."""
    given = json.dumps({"home": str(folder / "home"), **options})
    with (folder / "log").open("wb") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.killed_driver", given],
            cwd=ROOT,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        for flag in flags:
            wait_for(flag, lambda: driver.poll() is None)
    except TimeoutError:
        raise AssertionError((folder / "log").read_text(encoding="utf-8")) from None
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # Python and the Java machine below it
        driver.wait()


def main() -> None:
    from gapless.pipelines.archive_query import start_archive
    from gapless.pipelines.session import make_home, make_session
    from gapless.pipelines.topic_log import TopicLog
    from tests.spark.conftest import CONFIGURATION

    given = json.loads(sys.argv[1])
    os.environ["SPARK_HOME"] = str(make_home(Path(given["home"])))
    spark = make_session("local[2]", CONFIGURATION)
    queries = [start_query(spark, *each) for each in given["sinks"]]

    def tell(progress: ArchiveProgress) -> None:
        if progress.stage == "committed" and progress.events:
            Path(given["archive"]["flag"]).touch()
            threading.Event().wait(HANG_S)

    url, topic, lake = (given["archive"][key] for key in ("url", "topic", "lake"))
    for query in (*queries, start_archive(spark, TopicLog(url, topic), lake, tell=tell)):
        query.awaitTermination()


if __name__ == "__main__":
    main()
