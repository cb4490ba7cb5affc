"""The match pipeline on Spark against the matcher alone: events/s, and how much of it is left.

Stock subscriptions and events as in `matcher`. Workers read them from a lake, or Spark reads them
from Parquet and hands them over ("DataFrame"), with an attributes map or one column for each
attribute. "Alone" is `match_batch` on ready columns in as many
processes at once as Spark has workers: what the cores could do. By name is a row a match, by number
a row an event. Rates are wall time of whole jobs, with the sink left out, run once before with
fewer events, each form of job in its turn: a virtual machine compiles what it has done often. Files
are read so often in one job that the matcher alone would take some seconds for it: what any job of
Spark costs is then small. CPU is that of all processes together: where others use the machine,
"CPU of alone" tells what a calm one would do, if both keep all cores busy.

    python -m benchmarks pipelines [--quick] [--keep] [--subscriptions 1000,100000] [--forms lake]

Five minutes or less for all sizes with the forms that have a target; others by name.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial, reduce
from itertools import repeat
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from benchmarks import workloads
from benchmarks.peers.usage import cpu_seconds, members
from benchmarks.report import Report, rate
from gapless.client.columns import SCHEMA, attributes_column
from gapless.pipelines.lake import Lake
from gapless.pipelines.lake_files import FileTask, PubendFiles
from gapless.pipelines.lake_schema import LakeSchema
from gapless.pipelines.replay import Replay, ReplayPlan, ReplayRange
from gapless.pipelines.subscription_table import open_subscriptions, write_subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

ROWS = 10_000
"""Rows of one Arrow batch."""

GROUP_ROWS = 1 << 16
"""Rows of one row group: about what a lake's have."""

SIZES = {1_000: 2_000_000, 100_000: 500_000, 1_000_000: 50_000}
"""By number of subscriptions: how many events are in the files."""

QUICK = {1_000: 500_000, 20_000: 100_000}
EVENTS = 100_000
"""With any other number of subscriptions."""

JOB_S, QUICK_JOB_S = 10.0, 4.0
"""How long the matcher alone would take for what one job does."""

ALONE_S = 2.0
"""How long it is measured, each time."""

WARM_PART, FIRST_WARM_PART = 0.3, 1.0
"""How much of it is done before, for the virtual machine to have compiled what it does; and of the
first job, when it has compiled nothing yet."""

FORMS = {
    "lake": "lake, by number",
    "lake-by-name": "lake, by name",
    "frame": "DataFrame of columns, by number",
    "frame-of-maps": "DataFrame of maps, by number",
}
WANTED = ("lake",)
"""What is measured unless others are named."""


class Speed(NamedTuple):
    """Of one way to match."""

    events_s: float  # by the clock
    cpu_s: float  # for one event, of all processes


def write_events(folder: Path, load: workloads.Workload, count: int) -> None:
    """The same events as maps, as columns, and as a lake has them; one file a core."""
    cores = os.cpu_count() or 1
    rows, names = count // cores, list(load.events[0])
    columns = {name: pa.array([event[name] for event in load.events]) for name in names}
    kinds = pa.schema([SCHEMA.field(name) for name in ("pubend", "tick", "attributes")])
    for form, given in (
        ("maps", {"attributes": attributes_column(load.events)}),
        ("columns", columns),
    ):
        (folder / form).mkdir()
        one = pa.table(given)
        table = pa.concat_tables([one] * (rows // len(one) + 1)).slice(0, rows)
        for core in range(cores):
            ticks = pa.array(range(core * rows, (core + 1) * rows), pa.int64())
            whole = table.add_column(0, "tick", ticks)
            whole = whole.add_column(0, "pubend", pa.repeat(pa.scalar("t/0"), rows))
            whole = whole.cast(kinds) if form == "maps" else whole
            path = folder / form / f"{core}.parquet"
            pq.write_table(whole.combine_chunks(), path, row_group_size=GROUP_ROWS)
            if form == "maps":
                write_lake_file(folder, whole)


def write_lake_file(folder: Path, events: pa.Table) -> None:
    (folder / "lake").mkdir(exist_ok=True)
    count = len(events)
    others: dict[str, object] = {
        "topic": pa.repeat(pa.scalar("t"), count),
        "published": pa.array([0] * count, SCHEMA.field("published").type),
        "publisher": pa.nulls(count, pa.string()),
        "sequence": pa.nulls(count, pa.int64()),
        "body": pa.repeat(pa.scalar(b""), count),
    }
    columns = [others.get(name) or events.column(name) for name in SCHEMA.names]
    files = PubendFiles(FileTask(folder, folder / "lake", LakeSchema(), 1 << 40), "t/0")
    for batch in pa.table(columns, schema=SCHEMA).to_batches(ROWS):
        files.add(batch)
    files.close()


def match_alone(folder: str, core: int) -> Speed:
    """Of one process, on batches that are in memory."""
    opened = open_subscriptions(f"{folder}/audience")
    table = pq.read_table(f"{folder}/columns/{core}.parquet").drop_columns(["pubend", "tick"])
    batches = table.combine_chunks().to_batches(ROWS)
    opened.matcher.match_batch(batches[0])
    count, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < ALONE_S:
        for batch in batches:
            opened.matcher.match_batch(batch)
        count += table.num_rows
    cpu = time.process_time() - cpu
    return Speed(count / (time.perf_counter() - begin), cpu / count)


def alone(folder: Path) -> Speed:
    cores = os.cpu_count() or 1
    with ProcessPoolExecutor(cores) as pool:
        found = list(pool.map(match_alone, repeat(str(folder)), range(cores)))
    return Speed(sum(each.events_s for each in found), sum(each.cpu_s for each in found) / cores)


def as_lake(folder: Path, passes: int) -> tuple[Replay, ReplayPlan]:
    paths = sorted((folder / "lake").iterdir()) * passes
    ranges = [ReplayRange("t/0", 0, 1 << 62, str(path), path.stat().st_size) for path in paths]
    return Replay(Lake(folder, "t"), None), ReplayPlan(ranges, [])


def of_job(make: Callable[[int], DataFrame], count: int, passes: int, warm_part: float) -> Speed:
    """Of a job that takes each event so often; a part of it is done before."""

    def run(times: int) -> None:
        make(times).write.format("noop").mode("overwrite").save()

    run(ceil(passes * warm_part))
    begin, cpu = time.perf_counter(), cpu_of_all()
    run(passes)
    seconds, cpu = time.perf_counter() - begin, cpu_of_all() - cpu
    return Speed(count * passes / seconds, cpu / (count * passes))


def cpu_of_all() -> float:
    """Of this process, the virtual machine and all workers."""
    return sum(map(cpu_seconds, members(os.getpid())))


def forms(spark: SparkSession, folder: Path) -> dict[str, Callable[[int], DataFrame]]:
    """What is measured: jobs that take each event so often."""
    from gapless.pipelines.match import match_numbers, match_replay

    audience = str(folder / "audience")

    def lake(times: int, *, by_number: bool) -> DataFrame:
        return match_replay(spark, *as_lake(folder, times), audience, by_number=by_number)

    def rows(form: str, times: int) -> DataFrame:
        tables = [spark.read.parquet(str(folder / form)) for _ in range(times)]
        return match_numbers(reduce(DataFrame.unionAll, tables), audience)

    return {
        "lake": partial(lake, by_number=True),
        "lake-by-name": partial(lake, by_number=False),
        "frame": partial(rows, "columns"),
        "frame-of-maps": partial(rows, "maps"),
    }


def measure(
    report: Report, spark: SparkSession, size: int, count: int, job_s: float, wanted: Sequence[str]
) -> None:
    print(f"{size:,} subscriptions …", flush=True)
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        load = workloads.make("stock", size)
        write_events(folder, load, count)
        named = ((f"n{number}", text) for number, text in enumerate(load.conditions))
        write_subscriptions(named, folder / "audience")
        before, jobs = alone(folder), forms(spark, folder)
        for name in wanted:
            # By CPU, so that a busy machine makes no job so short that what any job costs counts.
            passes = ceil(job_s * (os.cpu_count() or 1) / (before.cpu_s * count))
            warm_part = WARM_PART if report.rows else FIRST_WARM_PART
            found = of_job(jobs[name], count, passes, warm_part)
            after = alone(folder)  # before and behind each job: the machine changes
            limit = (before.events_s + after.events_s) / 2
            cpu = min(before.cpu_s, after.cpu_s)
            report.add(
                f"{size:,}",
                f"{count * passes:,}",
                rate(limit),
                FORMS[name],
                rate(found.events_s),
                f"{found.events_s / limit:.0%}",
                f"{found.cpu_s * 1e6:.2f} µs",
                f"{cpu / found.cpu_s:.0%}",
            )
            print("  ".join(report.rows[-1]), flush=True)
            before = after


def run(
    quick: bool, sizes: Sequence[int] | None = None, wanted: Sequence[str] = WANTED
) -> list[Report]:
    from gapless.pipelines.session import make_session

    report = Report(
        "pipelines",
        "The match pipeline: events/s on all cores, and as a part of the matcher alone",
        (
            *("subscriptions", "events", "alone", "job", "events/s", "of alone"),
            *("CPU an event", "CPU of alone"),
        ),
        notes=[f"{os.cpu_count()} cores; others on the machine slow both."],
    )
    settings = {
        "spark.driver.memory": "2g",
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ROWS),
    }
    counts = QUICK if quick else SIZES
    spark = make_session("local[*]", settings)
    try:
        for size in sizes or counts:
            count = counts.get(size, EVENTS)
            measure(report, spark, size, count, QUICK_JOB_S if quick else JOB_S, wanted)
    finally:
        spark.stop()
    return [report]


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks pipelines")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a first look")
    parser.add_argument("--keep", action="store_true", help="write benchmarks/results/*.md")
    parser.add_argument("--subscriptions", help="how many, with commas; all sizes if not given")
    parser.add_argument("--forms", default=",".join(WANTED), help=f"of {', '.join(FORMS)}")
    options = parser.parse_args(words)
    wanted = options.forms.split(",")
    if not FORMS.keys() >= {*wanted}:
        parser.error(f"--forms: choose from {', '.join(FORMS)}")
    sizes = [int(size) for size in (options.subscriptions or "").split(",") if size]
    for report in run(options.quick, sizes, wanted):
        report.show()
        if options.keep:
            report.keep(" ".join(["python -m benchmarks pipelines", *words]))
