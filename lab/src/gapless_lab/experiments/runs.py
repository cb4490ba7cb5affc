"""Runs: an experiment in small pieces that share nothing but their seed.

Theory of operation
    A point of a figure is a mean over runs. A run is a call without arguments whose outcome is
    plain data, and its name says all that the outcome depends on. So runs may be played in any
    order, in other processes or on other machines, and what was kept of a run of the same name is
    its outcome.

Invariants
    I1  outcomes of a point come by the number of the run, in whatever order they were made
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Run(NamedTuple):
    """One piece of an experiment."""

    point: str
    """What is played, with all that matters: the seed too."""
    number: int
    """Which of the runs of the point."""
    weight: float
    """About how many seconds it takes; only ratios matter."""
    play: Callable[[], Any]
    """Can be pickled, and so can what it returns, which JSON can say too."""

    @property
    def name(self) -> str:
        return f"{self.point}, run {self.number}"


class Outcomes:
    """What the runs of an experiment came to."""

    def __init__(self) -> None:
        self._by_point: dict[str, dict[int, Any]] = {}

    def keep(self, run: Run, outcome: Any) -> None:
        self._by_point.setdefault(run.point, {})[run.number] = outcome

    def of(self, point: str) -> list[Any]:
        """By number (I1); none where no run has been played."""
        return [outcome for _, outcome in sorted(self._by_point.get(point, {}).items())]

    def plain(self) -> dict[str, list[Any]]:
        """For JSON."""
        return {point: self.of(point) for point in sorted(self._by_point)}
