"""Cutting a run of events into batches of bounded count and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def cut(events: Sequence[bytes], count_max: int, bytes_max: int) -> list[tuple[int, int]]:
    """The bounds of consecutive batches within both limits; one event always fits. At least one
    batch, be it empty."""
    if len(events) <= count_max and sum(map(len, events)) <= bytes_max:
        return [(0, len(events))]
    bounds, low, size = [], 0, 0
    for index, event in enumerate(events):
        if index > low and (index - low == count_max or size + len(event) > bytes_max):
            bounds.append((low, index))
            low, size = index, 0
        size += len(event)
    bounds.append((low, len(events)))
    return bounds
