"""Spread: one function over many items, on Spark's workers or right here.

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
"""Of a job whose items are files: so many at least, if there are as many files, for all cores to be
busy to the end."""

TASK_BYTES = 32 << 20
"""Of files that one task takes: about a second's work, as what Spark and Python do for any task
takes a tenth of one."""


def spread(
    spark: SparkSession,
    work: Callable[[Item], Iterable[Any]],
    items: Sequence[Item],
    schema: StructType | str,
    tasks: int = TASKS_MAX,
) -> DataFrame:
    """All record batches that `work` makes of each item, in so many tasks at most."""
    numbers = spark.range(0, len(items), 1, max(1, min(len(items), tasks, TASKS_MAX)))
    return numbers.mapInArrow(partial(_work_on, work, items), schema)


def tasks_for(sizes: Iterable[int]) -> int:
    """In how many tasks files of these sizes should be read."""
    return max(TASKS_MIN, sum(sizes) // TASK_BYTES)


def _work_on(
    work: Callable[[Item], Iterable[Any]], items: Sequence[Item], batches: Iterator[Any]
) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from work(items[number])


def run_here(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """One after the other in this process."""
    return [work(item) for item in items]


class InSpark:
    """As `run_here`, on the workers of a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __call__(self, work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        rows = spread(self._spark, partial(_pickled, work), items, "result binary").collect()
        return [pickle.loads(row["result"]) for row in rows]


def _pickled(work: Callable[[Item], Result], item: Item) -> Iterator[Any]:
    yield pa.record_batch({"result": pa.array([pickle.dumps(work(item))], pa.binary())})
