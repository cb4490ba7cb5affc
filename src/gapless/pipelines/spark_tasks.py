"""Spark tasks: one function over many items, on Spark's workers or in this process.

Items travel inside the function, and Spark is given their numbers: so it works on any session, and
the order of items is the order of rows.
"""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Item = TypeVar("Item")
Result = TypeVar("Result")

TASKS_MAX = 10_000
"""Tasks of one job; where there are more items, a task takes several."""

TASKS_MIN = 16
"""A job that reads files has at least this many tasks if there are as many items: then all cores
are busy to the end."""

TASK_BYTES = 32 << 20
"""Bytes of files that one task reads: about a second's work. What Spark and Python do for any task
takes a tenth of a second."""


def map_items(
    spark: SparkSession,
    work: Callable[[Item], Iterable[Any]],
    items: Sequence[Item],
    schema: StructType | str,
    tasks: int = TASKS_MAX,
) -> DataFrame:
    """All record batches that `work` makes of each item, in at most `tasks` tasks."""
    numbers = spark.range(0, len(items), 1, max(1, min(len(items), tasks, TASKS_MAX)))
    return numbers.mapInArrow(partial(_work_on, work, items), schema)


def task_count(size_bytes: int) -> int:
    """In how many tasks files of this size together should be read."""
    return max(TASKS_MIN, size_bytes // TASK_BYTES)


def _work_on(
    work: Callable[[Item], Iterable[Any]], items: Sequence[Item], batches: Iterator[Any]
) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from work(items[number])


def run_locally(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """The result of each item, one after the other in this process."""
    return [work(item) for item in items]


class SparkRunner:
    """As `run_locally`, on the workers of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        rows = map_items(self._spark, partial(_pickle, work), items, "result binary").collect()
        return [pickle.loads(row["result"]) for row in rows]


def _pickle(work: Callable[[Item], Result], item: Item) -> Iterator[Any]:
    yield pa.record_batch({"result": pa.array([pickle.dumps(work(item))], pa.binary())})
