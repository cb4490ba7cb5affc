"""Meter: how long each of many short things took, in few figures.

A bucket for each power of two of a microsecond, and the longest of all. Nobody else is served while
one of them lasts, so the longest is what counts.
"""

from __future__ import annotations

BUCKETS = 32
"""The last one has what took longer than half an hour."""


class Meter:
    """One kind of thing."""

    __slots__ = ("buckets", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.total_ns = 0
        self.longest_ns = 0

    def add(self, elapsed_ns: int) -> None:
        """One more took so long."""
        self.buckets[min((elapsed_ns // 1_000).bit_length(), BUCKETS - 1)] += 1
        self.total_ns += elapsed_ns
        self.longest_ns = max(self.longest_ns, elapsed_ns)

    def statistics(self) -> dict[str, object]:
        return {
            "longest_s": self.longest_ns / 1e9,
            "total_s": self.total_ns / 1e9,
            "buckets": list(self.buckets),
        }
