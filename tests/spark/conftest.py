"""For tests with Spark: one session for all of them, tuned to start quickly, and a broker.

The session is that of a process: all tests that use it are in the group "spark", so that
pytest-xdist runs them in one process; who forgets the mark is told so. Spark's workers find pyspark
in a folder of links instead of a zip file, so that it is not compiled anew for each of them.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import SparkSession

import gapless.spark
from gapless.pipelines.session import CHECKPOINTS, QUICK, make_home
from gapless.testing.processes.brokers import Processes, cell, topic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from gapless.sync import Client

WAIT_S = 120
"""Much longer than anything takes."""

CONFIGURATION = {
    **QUICK,
    "spark.driver.memory": "1g",
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.connect.grpc.binding.address": "127.0.0.1",  # for the test that starts a server
    "spark.connect.grpc.binding.port": "0",
}


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    for item in request.session.items:
        if "spark" in getattr(item, "fixturenames", ()):
            group = item.get_closest_marker("xdist_group")
            assert group is not None, f"{item.name} is not in the group"
            assert group.args == ("spark",)
    scratch = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_HOME"] = str(make_home(scratch / "home"))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,3]")  # a task may fail twice
    for name, value in {**CONFIGURATION, "spark.sql.warehouse.dir": str(scratch)}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    gapless.spark.register(session)
    yield session
    session.stop()


class Desk:
    """A network of brokers as processes, and a loop that drives them from plain functions."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    def close(self) -> None:
        self.run(self.processes.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def start(self, *names: str) -> None:
        self.run(self.processes.start(*names))

    def kill(self, *names: str) -> None:
        self.processes.kill(*names)

    @property
    def url(self) -> str:
        return self.processes.url(*self.processes.running)

    def client(self) -> Client:
        return gapless.sync.connect(self.url)


@contextmanager
def brokers(*text: str, start: tuple[str, ...], **options: Any) -> Iterator[Desk]:
    """A network as a file has it, with these brokers running."""
    desk = Desk(Processes(*text, **options))
    try:
        desk.run(desk.processes.__aenter__())
        desk.start(*start)
        yield desk
    finally:
        desk.close()


def wait_until(is_so: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """For what comes about in another process; fails when it never does."""
    deadline_s = time.monotonic() + wait_s
    while not is_so():
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not so after {wait_s} s")
        time.sleep(0.01)


@pytest.fixture(scope="session")
def broker() -> Iterator[Desk]:
    """One broker for all tests that do not harm it; each makes topics of its own."""
    with brokers(cell("edge", ["b"], subscribers=True), topic("t", "b"), start=("b",)) as desk:
        yield desk
