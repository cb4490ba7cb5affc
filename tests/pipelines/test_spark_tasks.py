"""How a job is cut into tasks."""

from __future__ import annotations

from gapless.pipelines.spark_tasks import TASK_BYTES, TASKS_MIN, task_count


def test_few_bytes_make_few_tasks_and_many_make_tasks_of_a_good_size() -> None:
    assert task_count(0) == task_count(500_000) == TASKS_MIN
    assert task_count(TASK_BYTES * 100) == 100
