"""The lake of the demo: a Structured Streaming query in a process that is killed and started again.

Theory of operation
    The driver (`driver`) is one more subscriber: it archives the topic. What it says is read by a
    task. A virtual machine takes long to start, so the driver that is to follow starts as soon as
    the first has started, and stands by. Killing one kills its whole group, the virtual machine
    included; Spark's Python workers see that and end. Its standard input is ours: it ends when we
    do. What the lake has in the end is counted from the Parquet files, without Spark and without
    the manifest.

Invariants
    I1  after `close` no driver is left
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gapless.core.errors import UsageError
from gapless.pipelines.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from gapless.core.events import Event

PROGRAM = "import sys; from gapless_lab.demo.driver import run_driver; run_driver(sys.argv[1])"
JAVA_MIN = 17
PATIENCE_S = 120.0
"""How long a driver may take for anything: much longer than it does."""


async def why_no_spark() -> str:
    """What is missing to run Spark here; empty if nothing is."""
    if find_spec("pyspark") is None:
        return "no PySpark"
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        return "no Java"
    asked = await asyncio.create_subprocess_exec(
        java, "-version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await asked.communicate()
    version = re.search(rb'version "(\d+)', said)
    return "" if version and int(version[1]) >= JAVA_MIN else f"no Java {JAVA_MIN} or newer"


class Driver:
    """One process with a virtual machine; `heard` gets each thing that it says."""

    def __init__(self, folder: Path, heard: Callable[[dict[str, Any]], None]) -> None:
        self.folder = folder
        self._heard = heard
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._said: dict[str, Any] = {}
        self._news = asyncio.Event()

    @property
    def number(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """The virtual machine begins to start; nothing is waited for."""
        (self.folder / "scratch").mkdir(parents=True, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", PROGRAM, str(self.folder)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, "TMPDIR": str(self.folder / "scratch")},
                start_new_session=True,  # Ctrl-C is for us
            )
        self._reading = asyncio.create_task(self._read(self._process), name="lake")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            with suppress(ValueError):  # Java says things there, too
                said = json.loads(line)
                self._said |= said
                self._heard(said)
                self._news.set()
        self._said["ended"] = True
        self._news.set()

    async def wait_for(self, what: str) -> Any:
        """Until it has said it."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while what not in self._said:
                    if "ended" in self._said:
                        break
                    self._news.clear()
                    await self._news.wait()
                else:
                    return self._said[what]
        except TimeoutError:
            pass
        last = (self.folder / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
        problem = f"the Spark driver has ended, or hangs: {' '.join(last)}"
        raise UsageError(problem, "Try --no-spark, or --keep-data FOLDER and read lake/log there.")

    def ask(self, **what: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(what)}\n".encode())

    async def kill(self) -> None:
        """As `kill -9` does, of the whole group."""
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def close(self) -> None:
        await self.kill()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


class LakeQuery:
    """The query, in whichever process it runs; `state` and `archived` may be looked at."""

    def __init__(self, topic: str, folder: Path) -> None:
        self.topic = topic
        self.folder = folder
        self.state = "starting"
        self.archived = 0
        self._drivers: list[Driver] = []  # all there were; the last may stand by
        self._now = 0  # which of them runs the query

    @property
    def lake(self) -> Path:
        return self.folder / "lake"

    @property
    def number(self) -> int:
        return self._drivers[self._now].number

    async def start(self) -> None:
        """A driver begins to start."""
        self._drivers.append(Driver(self.folder, self._hear))
        await self._drivers[-1].start()

    async def stand_by(self) -> None:
        """The next one does, as soon as this one has."""
        await self.wait_for("session")
        await self.start()

    def take_over(self) -> None:
        """The one that stands by is meant from now on."""
        self.state, self._now = "starting", self._now + 1

    def _hear(self, said: dict[str, Any]) -> None:
        self.archived += said.get("events", 0)
        self.state = "connected" if "events" in said else self.state

    async def wait_for(self, what: str) -> Any:
        """Until the driver that runs the query has said it."""
        return await self._drivers[self._now].wait_for(what)

    def _ask(self, **what: Any) -> None:
        self._drivers[self._now].ask(**what)

    async def prepare(self, url: str) -> None:
        """From now on the log is held for the lake."""
        from gapless.pipelines.archive import hold_log
        from gapless.pipelines.topic_log import TopicLog

        await asyncio.to_thread(hold_log, TopicLog(url, self.topic), self.lake)

    def archive(self, url: str) -> None:
        """Begin, or go on."""
        self._ask(archive={"url": url, "topic": self.topic, "lake": str(self.lake)})

    async def finish(self, token: Mapping[str, int]) -> None:
        """Until the lake has all below this; then the query is over."""
        self._ask(finish=dict(token))
        await self.wait_for("finished")

    async def audit(self, file: Path) -> list[Verdict]:
        self._ask(audit={"file": str(file), "topic": self.topic, "lake": str(self.lake)})
        return [Verdict(**each) for each in await self.wait_for("verdicts")]

    async def kill(self) -> None:
        await self._drivers[self._now].kill()
        self.state = "killed"

    async def close(self) -> None:
        for driver in self._drivers:
            await driver.close()

    def events(self, publisher: str) -> Sequence[Event]:
        """What any reader of Parquet finds there, file by file."""
        import pyarrow.parquet as pq

        from gapless.pipelines.replay import events_of

        files = sorted(self.lake.rglob("*.parquet"))
        batches = [batch for path in files for batch in pq.ParquetFile(path).iter_batches()]
        events = [event for batch in batches for event in events_of(batch)]
        return [event for event in events if event.publisher == publisher]
