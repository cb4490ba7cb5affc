"""Spark's processes find gapless installed, or in a zip file that was shipped."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.listener import StreamingQueryProgress

import gapless
from gapless.spark import source_class
from gapless.spark.progress import LagListener

if TYPE_CHECKING:
    from gapless.spark.progress import QueryLag

STRANGER = """
import pickle, sys
from base64 import b64decode
class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name == "gapless" and not any(each.endswith("shipped.zip") for each in sys.path):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NotInstalled())
try:
    import gapless
except ModuleNotFoundError:
    made = pickle.loads(b64decode(sys.argv[1]))
    from pyspark.sql.types import StructType
    schema = StructType().add("tick", "long")
    for options in ({"subscription": "s"}, {"SUBSCRIPTION": "s", "Filter": "i > 3"}):
        reader = made(options).streamReader(schema)
        import gapless
        print(gapless.__file__, reader.options.url, reader.options.topics, reader.options.condition)
"""


def test_streams_find_the_zip_file_that_was_shipped(tmp_path: Path) -> None:
    """The process that Spark runs for a stream has no files of --py-files on its path."""
    package, shipped = Path(gapless.__file__).parent, tmp_path / "shipped.zip"
    with zipfile.ZipFile(shipped, "w") as file:
        for path in package.rglob("*.py"):
            file.write(path, Path("gapless") / path.relative_to(package))
    defaults = {"url": "gapless://elsewhere:1", "Topic": "t"}
    pickled: bytes = cloudpickle.dumps(source_class(defaults, str(shipped)))  # type: ignore[no-untyped-call]
    made = b64encode(pickled).decode()
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, made], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    assert all(str(shipped) in line and "elsewhere" in line and "('t',)" in line for line in lines)
    assert lines[1].endswith("i > 3")


def test_a_listener_is_told_how_far_a_query_is_behind() -> None:
    told: list[QueryLag] = []

    class Event:
        progress = StreamingQueryProgress.fromJson(
            {
                "id": "11111111-1111-1111-1111-111111111111",
                "runId": "22222222-2222-2222-2222-222222222222",
                "name": "dashboard",
                "timestamp": "2026-11-18T09:00:00.000Z",
                "batchId": 7,
                "batchDuration": 5,
                "durationMs": {},
                "eventTime": {},
                "stateOperators": [],
                "numInputRows": 3,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": 1.0,
                "observedMetrics": {},
                "sink": {"description": "x", "numOutputRows": 3, "metrics": {}},
                "sources": [
                    {
                        "description": "gapless",
                        "startOffset": "{}",
                        "endOffset": '{"t/0": 1024000, "query": "q"}',
                        "latestOffset": '{"t/0": 3072000}',
                        "numInputRows": 3,
                        "inputRowsPerSecond": 1.0,
                        "processedRowsPerSecond": 1.0,
                        "metrics": {},
                    }
                ],
            }
        )

    LagListener(told.append).onQueryProgress(Event())
    [lag] = told
    assert (lag.query, lag.batch, lag.rows, lag.lease) == ("dashboard", 7, 3, "q")
    assert lag.seconds == pytest.approx(0.002)
