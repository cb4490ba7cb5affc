"""Journals: the JSON lines of `gapless subscribe --journal` and `gapless read --json`, as rows.

Theory of operation
    Spark reads a journal in pieces that any worker takes, and keeps no line numbers. But the lines
    of one piece are read in order by one task; so the number of the file, where the piece begins in
    it, and a counter that grows within the piece order all lines of a subscription.
    A line that is no delivery (the last one of a process that was killed) is not a row of either
    kind; it is counted.

Publishers' journals have the same form: an event a line, with its receipt's pubend and tick.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as sql

from gapless.client.columns import attributes_column
from gapless.client.json_values import from_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

LINE = "pubend string, tick long, gap struct<start: long, end: long>, silence long"
VALUE = (
    "struct<bool: boolean, int: long, float: double, text: string, timestamp: timestamp, "
    "bytes: binary>"
)
EVENTS = f"pubend string, tick long, attributes map<string, {VALUE}>"


def read_journals(spark: SparkSession, journals: Sequence[tuple[str, int, str]]) -> DataFrame:
    """From (subscription, number, path): rows of subscription, position and what the line says.

    `tick` is set for an event, `gap` for a gap, `silence` for silence, and none of them for a line
    that is none of these.
    """
    files = [(name, number, as_uri(path)) for name, number, path in journals]
    owners = spark.createDataFrame(files, "subscription string, number int, path string")
    lines = spark.read.text([path for _, _, path in journals]).select(
        sql.col("_metadata.file_path").alias("path"),
        sql.col("_metadata.file_block_start").alias("piece"),
        sql.monotonically_increasing_id().alias("line"),
        sql.from_json("value", LINE).alias("found"),
    )
    position = sql.struct("number", "piece", "line").alias("position")
    return lines.join(sql.broadcast(owners), "path").select("subscription", position, "found.*")


def as_uri(path: str) -> str:
    """As Spark names the file it reads, which has one slash where others write three."""
    if "://" in path:
        return path
    return f"file:{Path(path).absolute().as_uri().removeprefix('file://')}"


def read_published(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Events (pubend, tick, attributes) of JSON lines; lines of other kinds are left out."""
    return spark.read.text(list(paths)).mapInArrow(_parse, EVENTS)


def _parse(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        events = [event for line in batch.column(0).to_pylist() if (event := _event(line))]
        yield pa.record_batch(
            {
                "pubend": pa.array([event["pubend"] for event in events], pa.string()),
                "tick": pa.array([event["tick"] for event in events], pa.int64()),
                "attributes": attributes_column(
                    [from_json(event.get("attributes") or {}) for event in events]
                ),
            }
        )


def _event(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "tick" in found and "pubend" in found else None
