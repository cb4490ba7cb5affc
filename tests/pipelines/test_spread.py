"""How a job is cut into tasks."""

from __future__ import annotations

from gapless.pipelines.spread import TASK_BYTES, TASKS_MIN, tasks_for


def test_few_bytes_make_few_tasks_and_many_make_tasks_of_a_good_size() -> None:
    assert tasks_for([]) == tasks_for([1_000] * 500) == TASKS_MIN
    assert tasks_for([TASK_BYTES] * 100) == 100
    assert tasks_for([TASK_BYTES // 4] * 400) == 100
