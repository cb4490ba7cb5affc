"""Bounded steps: no step of a broker does more than a bound, whatever waits to be done.

The bound is what those that catch up may do in one step (`catch_up_work_max`, in which so many
records of a filtered log count as one), a read of that log and a window more; and beside it what
has become settled, as much as may wait, for everyone who is connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker

if TYPE_CHECKING:
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.record import Record

SHARED = 8
"""Events that another one took from the log just before count an eighth each."""


class BoundedSteps(Checker):
    """Looks at what each step took."""

    promise = "bounded steps"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self.longest = 0
        self.total = 0

    def stepped(self, broker: Broker, effort: int) -> None:
        self.longest = max(self.longest, effort)
        self.total += effort
        if effort > self._least and effort > self._allowed():
            raise self.violated(
                f"one step of {broker.name} looks at or sends {effort}, more than {self._allowed()}"
            )

    @property
    def _least(self) -> int:
        """What is always allowed."""
        config = self.config
        behind = SHARED * config.catch_up_work_max + config.filtered_walk_max
        return behind + config.catch_up_window + config.batch_events_max

    def _allowed(self) -> int:
        live = sum(1 for _ in self.record.live())
        config = self.config
        return self._least + (config.waiting_events_max + config.catch_up_window) * live
