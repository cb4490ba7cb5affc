"""The match pipeline on Spark against the matcher alone: events/s, and how much of it is left.

Stock subscriptions and events as in `matcher`. Events are in Parquet with an attributes map, as in
a lake ("maps"), or with a column an attribute ("columns"). Workers read them themselves, or Spark
does and hands them over ("DataFrame"). "Alone" is `match_batch` on ready columns in as many
processes at once as Spark has workers: what the cores could do. By name is a row a match, by number
a row an event. All rates are wall time of whole jobs that were run once before, with the sink left
out; the files are read several times in one job, so that what any job of Spark costs is small.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import workloads
from benchmarks.report import Report, rate
from gapless.client.columns import attributes_column
from gapless.pipelines.audience import open_audience, write_audience
from gapless.pipelines.lake import Lake
from gapless.pipelines.replay import Piece, Pieces, Replay

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

ROWS = 10_000
"""Rows of one Arrow batch."""

SIZES = {1_000: (2_000_000, 4), 100_000: (500_000, 2), 1_000_000: (50_000, 2)}
"""By number of subscriptions: how many events, and how often each is matched in one job."""

QUICK = {1_000: (200_000, 4), 20_000: (50_000, 2)}


def write_events(folder: Path, load: workloads.Workload, count: int) -> None:
    """The same events twice: as maps and as columns; one file a core."""
    cores = os.cpu_count() or 1
    names = list(load.events[0])
    maps = attributes_column(load.events)
    columns = {name: pa.array([event[name] for event in load.events]) for name in names}
    for form, given in (("maps", {"attributes": maps}), ("columns", columns)):
        (folder / form).mkdir()
        one = pa.table(given)
        for core in range(cores):
            rows = count // cores
            table = pa.concat_tables([one] * (rows // len(one) + 1)).slice(0, rows)
            ticks = pa.array(range(core * rows, (core + 1) * rows), pa.int64())
            table = table.add_column(0, "tick", ticks)
            table = table.add_column(0, "pubend", pa.repeat(pa.scalar("t/0"), rows))
            pq.write_table(table.combine_chunks(), folder / form / f"{core}.parquet")


def match_alone(folder: str, core: int, repeats: int) -> float:
    """Events a second of one process, on batches that are in memory."""
    opened = open_audience(f"{folder}/audience")
    table = pq.read_table(f"{folder}/columns/{core}.parquet").drop_columns(["pubend", "tick"])
    batches = table.combine_chunks().to_batches(ROWS)
    opened.matcher.match_batch(batches[0])
    begin = time.perf_counter()
    for _ in range(repeats):
        for batch in batches:
            opened.matcher.match_batch(batch)
    return float(table.num_rows * repeats / (time.perf_counter() - begin))


def alone(folder: Path) -> float:
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        return sum(pool.map(match_alone, repeat(str(folder)), range(cores), repeat(3)))


def as_lake(folder: Path, passes: int) -> tuple[Replay, Pieces]:
    """The files with maps, as if they were a lake's."""
    paths = sorted((folder / "maps").iterdir()) * passes
    pieces = [Piece("t/0", 0, 1 << 62, str(path)) for path in paths]
    return Replay(Lake(folder, "t"), None), Pieces(pieces, [])


def of_job(make: Callable[[], DataFrame], count: int) -> float:
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        make().write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - begin)
    return count / min(seconds[1:])


def forms(
    spark: SparkSession, folder: Path, passes: int
) -> dict[str, tuple[Callable[[], DataFrame], int]]:
    """What is measured, and how often it takes each event."""
    from gapless.pipelines.match import match_files, match_numbers, match_replay

    audience = str(folder / "audience")
    replay, pieces = as_lake(folder, passes)
    paths = [str(path) for path in sorted((folder / "columns").iterdir())] * passes

    def rows(form: str) -> DataFrame:
        return spark.read.parquet(str(folder / form))

    by_number = partial(match_replay, spark, replay, pieces, audience, by_number=True)
    return {
        "columns, by number": (
            partial(match_files, spark, paths, audience, by_number=True),
            passes,
        ),
        "maps, by number": (by_number, passes),
        "maps, by name": (partial(match_replay, spark, replay, pieces, audience), passes),
        "DataFrame of columns, by number": (lambda: match_numbers(rows("columns"), audience), 1),
        "DataFrame of maps, by number": (lambda: match_numbers(rows("maps"), audience), 1),
    }


def run(quick: bool) -> list[Report]:
    from gapless.pipelines.session import make_session

    report = Report(
        "pipelines",
        "The match pipeline: events/s on all cores, and as a part of the matcher alone",
        ("subscriptions", "events", "alone", "job", "events/s", "of alone"),
        notes=[f"{os.cpu_count()} cores; others on the machine slow both."],
    )
    settings = {
        "spark.driver.memory": "2g",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
    }
    spark = make_session("local[*]", settings)
    try:
        for size, (count, passes) in (QUICK if quick else SIZES).items():
            print(f"{size:,} subscriptions …", flush=True)
            with TemporaryDirectory() as scratch:
                folder = Path(scratch)
                load = workloads.make("stock", size)
                write_events(folder, load, count)
                named = ((f"n{number}", text) for number, text in enumerate(load.conditions))
                write_audience(named, folder / "audience")
                for name, (make, times) in forms(spark, folder, passes).items():
                    before = alone(folder)  # each time, and around it: the machine changes
                    found = of_job(make, count * times)
                    limit = (before + alone(folder)) / 2
                    cells = (rate(limit), name, rate(found), f"{found / limit:.0%}")
                    report.add(f"{size:,}", f"{count * times:,}", *cells)
                    print("  ".join(report.rows[-1]), flush=True)
    finally:
        spark.stop()
    return [report]
