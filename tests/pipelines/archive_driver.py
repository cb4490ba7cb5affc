"""A driver of an archive query that kills itself: `python -m tests.pipelines.archive_driver`.

Arguments: a folder for its own use, where the broker is, the topic, the lake, and at which stage.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.pipelines.archive_query import start_archive
from gapless.pipelines.session import make_home, make_session
from gapless.pipelines.source import Source
from tests.spark.conftest import CONFIGURATION

if TYPE_CHECKING:
    from gapless.pipelines.archive import Progress


def main(home: str, url: str, topic: str, lake: str, stage: str) -> None:
    def tell(progress: Progress) -> None:
        if progress.stage == stage and progress.events:
            os.killpg(0, signal.SIGKILL)  # the virtual machine, too

    os.environ["SPARK_HOME"] = str(make_home(Path(home)))
    spark = make_session("local[2]", CONFIGURATION)
    start_archive(spark, Source(url, topic), lake, tell=tell).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
