"""SpanSet: what an operation costs from a thousand to a million runs."""

from __future__ import annotations

import random
from functools import partial

from benchmarks.report import Report, cpu_seconds
from gapless.core.spans import SpanSet
from gapless.core.ticks import Span

PITCH = 20
"""A run every so many ticks."""


def run(quick: bool) -> list[Report]:
    report = Report(
        "spans",
        "SpanSet: µs per operation, and × the smallest set",
        ("runs", "look up", "×", "add and remove in the middle", "×", "extend at the end", "×"),
        notes=["Changes in the middle move the boundaries behind them, 8 bytes each."],
    )
    dice = random.Random(1)
    first: list[float] = []
    for count in (1_000, 10_000, 100_000) if quick else (1_000, 10_000, 100_000, 1_000_000):
        whole = SpanSet(Span(start, start + 5) for start in range(0, count * PITCH, PITCH))
        places = [dice.randrange(count) * PITCH + 12 for _ in range(200)]
        spans = [Span(place, place + 3) for place in places]
        tail = Span(count * PITCH, count * PITCH + 5)
        figures = [
            cpu_seconds(partial(look_up, whole, places)) / len(places),
            cpu_seconds(partial(change, whole, spans)) / (2 * len(spans)),
            cpu_seconds(partial(change, whole, [tail])) / 2,
        ]
        first = first or figures
        cells = [
            cell
            for figure, base in zip(figures, first, strict=True)
            for cell in (f"{figure * 1e6:.2f}", f"{figure / base:.1f}")
        ]
        report.add(f"{count:,}", *cells)
    return [report]


def look_up(whole: SpanSet, places: list[int]) -> list[bool]:
    return [place in whole for place in places]


def change(whole: SpanSet, spans: list[Span]) -> None:
    for span in spans:
        whole.add(span)
        whole.remove(span)
