"""A standalone master and two workers, as processes: streams read and write there, also when a
worker is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from gapless.client.range_reads import RangeBatch
from gapless.pipelines.session import make_home
from tests.spark.conftest import WAIT_S, wait_until
from tests.spark.killed_driver import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.sync import Client
    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

DEPLOY = "org.apache.spark.deploy"
COUNT = 300


class Cluster:
    """A master, and workers with one core each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._environment = {
            **os.environ,
            "SPARK_HOME": str(make_home(folder / "home")),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._start("master", "master.Master", "--host", "127.0.0.1", "--port", "0")
        self.url = self._find("master", r"Starting Spark master at (spark://\S+)")
        for name in ("one", "two"):
            self.start_worker(name)

    def start_worker(self, name: str) -> None:
        given = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g")
        self._start(name, "worker.Worker", *given, "-d", str(self._folder / name), self.url)
        self._find(name, "Successfully registered with (master)")

    def _start(self, name: str, what: str, *options: str) -> None:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        log = self._stack.enter_context((self._folder / f"{name}.log").open("wb"))
        made = subprocess.Popen(
            [program, f"{DEPLOY}.{what}", "--webui-port", "0", *options],
            stdout=log,
            stderr=log,
            env=self._environment,
            start_new_session=True,
        )
        self.processes[name] = made
        self._stack.callback(self.kill, name)

    def submit(self, given: dict[str, str]) -> subprocess.Popen[bytes]:
        """The job, in a process that is its driver."""
        log = self._stack.enter_context((self._folder / "job.log").open("wb"))
        job = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.cluster_job", json.dumps(given)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            env=self._environment,
            start_new_session=True,
        )
        self.processes["job"] = job
        self._stack.callback(self.kill, "job")
        return job

    def _find(self, name: str, pattern: str) -> str:
        log = self._folder / f"{name}.log"
        wait_until(lambda: re.search(pattern, log.read_text(errors="replace")))
        found = re.search(pattern, log.read_text(errors="replace"))
        assert found is not None
        return found[1]

    def kill(self, name: str) -> None:
        """With what it has started."""
        process = self.processes[name]
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


def test_a_stream_reads_and_writes_on_two_workers_of_which_one_is_killed(
    cluster: Cluster, broker: Desk, tmp_path: Path
) -> None:
    with broker.client() as client:
        for name in ("cluster in", "cluster out"):
            client.create_topic(name, pubends=2, keep_seconds=3_600)
        for publisher in ("alice", "bob"):
            with client.publisher("cluster in", name=publisher) as feed:
                feed.send_many(({"i": i, "by": publisher}, b"") for i in range(COUNT))
        given = {"master": cluster.url, "url": broker.url, "folder": str(tmp_path)}
        job = cluster.submit(given)
        wait_until(lambda: _published(client) or job.poll() is not None, 3 * WAIT_S)
        cluster.kill("one")
        out, _ = job.communicate(timeout=3 * WAIT_S)
        log = (tmp_path / "job.log").read_text(errors="replace")
        assert job.returncode == 0, log[-3_000:]
        seen = [
            (event.attributes["by"], event.attributes["i"])
            for batch in client.read("cluster out")
            if isinstance(batch, RangeBatch)
            for event in batch.events()
        ]
    assert len(seen) == 2 * COUNT
    assert set(seen) == {(by, i) for by in ("alice", "bob") for i in range(COUNT)}
    assert json.loads(out)["batches"] > 1


def _published(client: Client) -> bool:
    """Is there a row in the topic that the job writes?"""
    return any(isinstance(each, RangeBatch) and len(each) for each in client.read("cluster out"))
