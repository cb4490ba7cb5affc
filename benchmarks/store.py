"""What a store costs: receipts with files alone, with PostgreSQL, and with a standby of that.

Commits one at a time and in a pipeline, by psycopg and by asyncpg, come first.
All runs on one machine, and syncs. Contestants take turns in short rounds; a figure is the median
over rounds, a share is the median of the shares within each round.

Targets: pipelined publishers keep 60 % of the receipts of files alone; the median of a single
receipt takes at most three times as long as one synchronous commit of one row in the same
PostgreSQL.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.client.client import connect
from gapless.core.effects import Append, Put
from gapless.core.errors import GaplessError
from gapless.storage.replica.changes import Changes
from gapless.storage.replica.mirror import DEPTH
from gapless.storage.replica.postgres import APPEND, PostgresStore, init
from gapless.storage.volume import NO_BOUNDS
from gapless.testing.processes.postgres import PostgresCluster, PostgresServer
from gapless.testing.processes.standby import TOPIC, Pair, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.client.client import Client

BODY = os.urandom(200)
PUBLISHERS = 4
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
        PostgresCluster() as cluster,
    ):
        init(server.url)
        init(cluster.url)
        row_ms = one_row_ms(server.url)
        stores = {"files and PostgreSQL": server.url, "with a synchronous standby": cluster.url}
        return [
            drivers(server.url, rounds, row_ms),
            receipts(stores, Path(name), rounds, 1.5 if quick else 4.0),
        ]


def one_row_ms(url: str) -> float:
    """One synchronous commit of one row."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("create table if not exists one (number bigint)")
        times = []
        for number in range(200):
            begin = time.perf_counter()
            connection.execute("insert into one values (%s)", (number,), prepare=True)
            times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


# --- drivers --------------------------------------------------------------------------------------


def drivers(url: str, rounds: int, row_ms: float) -> Report:
    report = Report(
        "store-drivers",
        "One commit in PostgreSQL, by driver",
        (
            "records in a commit",
            "psycopg ms",
            f"{DEPTH} under way ms",
            "asyncpg ms",
            "asyncpg/psycopg",
        ),
        [
            f"One row, committed by psycopg: {row_ms:.2f} ms. With {DEPTH} under way: psycopg's "
            "libpq in pipeline mode. asyncpg has one under way: it offers no more on a connection."
        ],
    )
    has_asyncpg = find_spec("asyncpg") is not None
    for count in (1, 64, 1024):
        ours, piped, other = [], [], []
        for each in range(rounds):
            ours.append(psycopg_ms(url, f"psycopg-{count}-{each}", count))
            piped.append(pipeline_ms(url, f"pipeline-{count}-{each}", count))
            if has_asyncpg:
                other.append(asyncio.run(asyncpg_ms(url, f"asyncpg-{count}-{each}", count)))
        one, more = map(statistics.median, (ours, piped))
        two = statistics.median(other) if other else None
        cells = (f"{two:.2f}", f"{two / one:.2f}") if two else ("not installed", "-")
        report.add(count, f"{one:.2f}", f"{more:.2f}", *cells)
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


def pipeline_ms(url: str, name: str, count: int, commits: int = 40) -> float:
    store = PostgresStore(url)
    grant = store.acquire(name, "p", "", 60.0)
    assert grant is not None
    begin, under_way = time.perf_counter(), 0
    for number in range(commits):
        store.send(name, grant.term, number + 1, batch(number, count))
        under_way += 1
        while under_way >= DEPTH:
            under_way -= store.settle()
    while under_way:
        under_way -= store.settle()
    took = time.perf_counter() - begin
    store.close()
    return 1e3 * took / commits


async def asyncpg_ms(url: str, name: str, count: int, commits: int = 40) -> float:
    import asyncpg

    store = PostgresStore(url)
    grant = store.acquire(name, "p", "", 60.0)
    assert grant is not None
    store.close()
    connection = await asyncpg.connect(url)
    statement = await connection.prepare(APPEND)
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


def receipts(stores: dict[str, str], folder: Path, rounds: int, seconds: float) -> Report:
    report = Report(
        "store-receipts",
        "Receipts with files alone, with PostgreSQL, and with a synchronous standby of it",
        ("commits go to", "receipts/s, pipelined", "share", "p50 ms", "p99 ms", "p50/one row"),
        [
            f"Pipelined: {PUBLISHERS} named publishers, a topic each, 200-byte bodies. p50, p99: "
            "one event at a time.",
        ],
    )
    figures: dict[str, list[tuple[float, float, float, float]]] = {}
    with ExitStack() as stack:
        places = {"files": (stack.enter_context(plain(folder / "plain")), "")}
        for number, (kind, url) in enumerate(stores.items()):
            (folder / f"pair-{number}").mkdir()
            pair = stack.enter_context(Pair(url, folder / f"pair-{number}"))
            pair.start(0)
            asyncio.run(pair.holder())
            places[kind] = pair.url, url
        for _ in range(rounds):
            for kind, (where, url) in places.items():
                row_ms = one_row_ms(url) if url else 0.0
                many, p50, p99 = asyncio.run(measure(where, seconds))
                figures.setdefault(kind, []).append((many, p50, p99, row_ms))
    for kind, found in figures.items():
        many, p50, p99, row_ms = map(statistics.median, zip(*found, strict=True))
        pairs = list(zip(found, figures["files"], strict=True))
        share = f"{statistics.median(one[0] / alone[0] for one, alone in pairs):.0%}"
        times = f"{statistics.median(each[1] / each[3] for each in found):.1f}" if row_ms else "-"
        report.add(kind, f"{many:,.0f}", share, f"{p50:.2f}", f"{p99:.2f}", times)
        if row_ms:
            report.notes.append(f"{kind}: one row takes {row_ms:.2f} ms.")
    return report


async def measure(url: str, seconds: float) -> tuple[float, float, float]:
    """Receipts a second, and the median and the 99th percentile of single receipts, in ms."""
    async with connect(url, patience_s=60.0) as client:
        topics = [TOPIC, *(f"{TOPIC}{number}" for number in range(1, PUBLISHERS))]
        known = {each.name for each in await client.topics()}
        for topic in topics:
            if topic not in known:
                await client.create_topic(topic)
        begin = time.perf_counter()
        counts = await asyncio.gather(*(publish(client, each, begin + seconds) for each in topics))
        rate = sum(counts) / (time.perf_counter() - begin)
        times = []
        for number in range(200):
            begin = time.perf_counter()
            await client.publish(TOPIC, {"n": number}, BODY)
            times.append(1e3 * (time.perf_counter() - begin))
    return rate, statistics.median(times), statistics.quantiles(times, n=100)[98]


async def publish(client: Client, topic: str, end: float) -> int:
    """As much as is confirmed; how many events."""
    count = 0
    async with client.publisher(topic, name=f"bench-{time.time_ns()}") as publisher:
        while time.perf_counter() < end:
            await publisher.send_many([({"n": number}, BODY) for number in range(100)])
            count += 100
        await publisher.flush()
    return count


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
