"""Source, sink and replay work from a client of Spark Connect."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from gapless.client.range_reads import RangeBatch
from gapless.core.events import EventBatch
from gapless.wire.events import decode_attributes
from tests.spark.conftest import WAIT_S
from tests.spark.killed_driver import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Desk

pytest.importorskip("grpc", reason="Spark Connect needs the extra connect")

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

TOPIC, COUNT = "connect", 60


@pytest.fixture
def remote(spark: SparkSession) -> Iterator[str]:
    """A server of Connect in the virtual machine that is there, at a port that was free."""
    package: Any = spark._jvm.org.apache.spark.sql.connect.service  # type: ignore[union-attr]
    service = getattr(getattr(package, "SparkConnectService$"), "MODULE$")
    service.start(spark.sparkContext._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    service.stop(*(getattr(service, f"stop$default${number}")() for number in (1, 2)))


def run_client(**given: object) -> Any:
    """What the client prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_job", json.dumps(given)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=3 * WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    return json.loads(done.stdout)


def test_a_client_of_connect_writes_reads_streams_and_replays(
    remote: str, broker: Desk, tmp_path: Path
) -> None:
    with broker.client() as client:
        client.create_topic(TOPIC, pubends=2)
        with client.subscribe(TOPIC, name="keeper of all that Connect writes"):
            pass
        found = run_client(
            remote=remote, url=broker.url, topic=TOPIC, count=COUNT, folder=str(tmp_path)
        )
        rows: list[tuple[int, Any]] = [
            (tick, decode_attributes(EventBatch((event,)))[0])
            for batch in client.read(TOPIC)
            if isinstance(batch, RangeBatch)
            for tick, event in zip(batch.ticks, batch.encoded, strict=True)
        ]
    assert sorted(row["n"] for _, row in rows) == list(range(COUNT))
    assert found == {
        "read": sorted(tick for tick, _ in rows),
        "filtered": sorted(tick for tick, row in rows if row["rare"] == 7),
        "streamed": sorted(tick for tick, _ in rows),
        "replayed": sorted(tick for tick, row in rows if row["n"] >= 20),
    }
