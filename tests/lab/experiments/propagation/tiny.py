"""A size that plays in a few seconds, its results, and a clock for them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from gapless_lab.experiments.propagation.experiment import QUICK, Results, jobs

if TYPE_CHECKING:
    from collections.abc import Callable

TINY = replace(
    QUICK,
    publisher_counts=(40, 120),
    load_s=0.5,
    hop_counts=(1, 3),
    latency_s=2.0,
    leaf_counts=(2, 4),
    vector_events_per_s=500,
    failure_events_per_s=20,
    failure_repeats=2,
)


def ticking() -> Callable[[], float]:
    """A clock that goes on by a µs at each look."""
    count = itertools.count()
    return lambda: next(count) / 1e6


@cache
def tiny_results() -> Results:
    """One small run of everything. Copy before you change anything."""
    results = Results(seed=3, size=TINY)
    for _, job in jobs(results, ticking()):
        job()
    return results
