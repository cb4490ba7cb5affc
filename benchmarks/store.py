"""What a store costs: receipts with files alone and with PostgreSQL; psycopg against asyncpg.

PostgreSQL runs on the same machine and syncs. Contestants take turns in short rounds; a figure is
the median over rounds.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.client.client import connect
from gapless.core.effects import Append, Put
from gapless.core.errors import GaplessError
from gapless.storage.replica.changes import Changes
from gapless.storage.replica.postgres import APPEND, PostgresStore, init
from gapless.storage.volume import NO_BOUNDS
from gapless.testing.processes.postgres import PostgresServer
from gapless.testing.processes.standby import TOPIC, Pair, free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BODY = os.urandom(200)
PLAIN = (
    "import sys; from pathlib import Path; from gapless.broker.process import run;"
    "from gapless.broker.networks import SINGLE, single_network;"
    "from gapless.broker.settings import Settings;"
    "run(SINGLE, single_network(('t',)), Settings(data=Path(sys.argv[1]),"
    " listen='127.0.0.1:' + sys.argv[2], admin=None), with_parent=True)"
)


def run(quick: bool) -> list[Report]:
    rounds = 3 if quick else 9
    with (
        tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name,
        PostgresServer() as server,
    ):
        init(server.url)
        row_ms = one_row_ms(server.url)
        return [
            drivers(server.url, rounds, row_ms),
            receipts(server.url, Path(name), rounds, 2.0 if quick else 5.0, row_ms),
        ]


def one_row_ms(url: str) -> float:
    """One synchronous commit of one row."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table one (number bigint)")
        times = []
        for number in range(200):
            begin = time.perf_counter()
            connection.execute("insert into one values (%s)", (number,), prepare=True)
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


# --- drivers --------------------------------------------------------------------------------------


def drivers(url: str, rounds: int, row_ms: float) -> Report:
    report = Report(
        "store_drivers",
        "One commit in PostgreSQL, by driver",
        ("records in a commit", "psycopg ms", "asyncpg ms", "asyncpg/psycopg"),
        [f"One row, committed by psycopg: {row_ms:.2f} ms. One commit is under way at a time."],
    )
    for count in (1, 64, 1024):
        ours, other = [], []
        for each in range(rounds):
            ours.append(psycopg_ms(url, f"psycopg-{count}-{each}", count))
            other.append(asyncio.run(asyncpg_ms(url, f"asyncpg-{count}-{each}", count)))
        one, two = statistics.median(ours), statistics.median(other)
        report.add(count, f"{one:.2f}", f"{two:.2f}", f"{two / one:.2f}")
    return report


def batch(number: int, count: int) -> Changes:
    indices = range(number * count, (number + 1) * count)
    writes = (Append("log/t", indices, (BODY,) * count), Put("publishers", "me", b"%d" % number))
    return Changes.of(writes, lambda _: NO_BOUNDS)


def psycopg_ms(url: str, name: str, count: int, commits: int = 40) -> float:
    store = PostgresStore(url)
    grant = store.acquire(name, "p", "", 60.0)
    assert grant is not None
    begin = time.perf_counter()
    for number in range(commits):
        store.append(name, grant.term, number + 1, batch(number, count))
    took = time.perf_counter() - begin
    store.close()
    return 1e3 * took / commits


async def asyncpg_ms(url: str, name: str, count: int, commits: int = 40) -> float:
    import asyncpg

    store = PostgresStore(url)
    grant = store.acquire(name, "p", "", 60.0)
    assert grant is not None
    store.close()
    query = APPEND
    for number in range(1, 16):
        place = min((at for mark in ("%s", "%b") if (at := query.find(mark)) >= 0), default=-1)
        query = f"{query[:place]}${number}{query[place + 2 :]}"
    connection = await asyncpg.connect(url)
    statement = await connection.prepare(query)
    begin = time.perf_counter()
    for number in range(commits):
        changes = batch(number, count)
        extent, bounds = changes.extents[0], changes.bounds["log/t"]
        ((table, key), value), stream = next(iter(changes.facts.items())), b"log/t"
        await statement.fetchval(
            *(name, grant.term, number + 1),
            *([stream], [extent.first], [extent.last], [extent.data]),
            *([stream], [bounds.start], [bounds.end]),
            *([table.encode()], [key.encode()], [value], [], []),
        )
    took = time.perf_counter() - begin
    await connection.close()
    return 1e3 * took / commits


# --- receipts -------------------------------------------------------------------------------------


def receipts(url: str, folder: Path, rounds: int, seconds: float, row_ms: float) -> Report:
    report = Report(
        "store_receipts",
        "Receipts with files alone and with PostgreSQL on the same machine",
        ("commits go to", "receipts/s, pipelined", "share", "p50 ms", "p99 ms", "p50/one row"),
        [
            f"One row, committed synchronously in PostgreSQL: {row_ms:.2f} ms.",
            "Pipelined: one named publisher, 200-byte bodies. p50, p99: one event at a time.",
        ],
    )
    kinds: dict[str, Callable[[], object]] = {}
    figures: dict[str, list[tuple[float, float, float]]] = {"files": [], "files and store": []}
    with plain(folder / "plain") as alone:
        (folder / "pair").mkdir()
        with Pair(url, folder / "pair") as pair:
            pair.start(0)
            asyncio.run(pair.holder())
            kinds = {"files": lambda: alone, "files and store": lambda: pair.url}
            for _ in range(rounds):
                for kind, where in kinds.items():
                    figures[kind].append(asyncio.run(measure(str(where()), seconds)))
    best = statistics.median(each[0] for each in figures["files"])
    for kind, found in figures.items():
        many, p50, p99 = (statistics.median(column) for column in zip(*found, strict=True))
        share = f"{many / best:.0%}"
        report.add(kind, f"{many:,.0f}", share, f"{p50:.2f}", f"{p99:.2f}", f"{p50 / row_ms:.1f}")
    return report


async def measure(url: str, seconds: float) -> tuple[float, float, float]:
    """Receipts a second, and the median and the 99th percentile of single receipts, in ms."""
    async with connect(url) as client:
        end, count = time.perf_counter() + seconds, 0
        async with client.publisher(TOPIC, name=f"bench-{time.time_ns()}") as publisher:
            begin = time.perf_counter()
            while time.perf_counter() < end:
                await publisher.send_many([({"n": number}, BODY) for number in range(100)])
                count += 100
            await publisher.flush()
            rate = count / (time.perf_counter() - begin)
        times = []
        for number in range(200):
            begin = time.perf_counter()
            await client.publish(TOPIC, {"n": number}, BODY)
            times.append(1e3 * (time.perf_counter() - begin))
    return rate, statistics.median(times), statistics.quantiles(times, n=100)[98]


@contextmanager
def plain(folder: Path) -> Iterator[str]:
    """A broker without a store, as a process; its URL."""
    port = free_port()
    command = [sys.executable, "-c", PLAIN, str(folder), str(port)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=DEVNULL, stderr=DEVNULL
    ) as process:
        url = f"gapless://127.0.0.1:{port}"
        try:
            asyncio.run(reached(url))
            yield url
        finally:
            process.kill()


async def reached(url: str) -> None:
    while True:
        try:
            async with connect(url, patience_s=60.0):
                return
        except GaplessError:
            await asyncio.sleep(0.1)
