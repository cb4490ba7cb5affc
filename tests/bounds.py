"""Loops that end: a fault that keeps a machine busy for ever makes a test fail, not hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS_MAX = 100_000
"""Many times what any test needs."""


def so_long_as(condition: Callable[[], object], steps_max: int = STEPS_MAX) -> Iterator[int]:
    """Count steps while the condition holds: `for _ in so_long_as(lambda: disk.waiting)`."""
    for step in range(steps_max):
        if not condition():
            return
        yield step
    raise AssertionError(f"there was no end after {steps_max} steps")
