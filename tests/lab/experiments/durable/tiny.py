"""A size of the experiment on durable subscriptions that plays in seconds, and its results."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from gapless_lab.experiments.durable.experiment import QUICK, Results, jobs

if TYPE_CHECKING:
    from collections.abc import Callable

TINY = replace(
    QUICK,
    latency_s=4,
    host_counts=(0, 1, 2),
    per_host=12,
    peak_s=1,
    leaving_s=2,
    absent_subscribers=12,
    absences_s=20,
    fan_in=(4, 8),
    crash_subscribers=8,
    before_s=2,
    down_s=5,
    after_s=2,
    acknowledgers=(1, 10),
    acknowledge_s=0.3,
    logging_s=1,
)


def ticking() -> Callable[[], float]:
    """A clock that goes on by 10 µs at each look."""
    count = itertools.count()
    return lambda: next(count) / 1e5


@cache
def tiny_results() -> Results:
    """One small run of everything. Copy before you change anything."""
    results = Results(seed=3, size=TINY)
    for _, job in jobs(results, ticking()):
        job()
    return results
