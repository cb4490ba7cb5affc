"""Merge: several pubends of a topic in one total order, the same for everyone.

Theory of operation
    Events are ordered by tick; no two pubends share one. An event may be delivered once no input
    can still have an earlier one: below the least horizon of all inputs. If that horizon has not
    moved for `gap_patience` (which the node sets to `merge_patience`) although other inputs are
    ahead, the merge asks the inputs that lag, up to where the foremost is. Their pubends answer
    with silence, ahead of their clocks if need be.

Invariants (checked by `check`)
    I1  `position` never moves back and never passes the horizon of an input
    I2  every input is taken exactly up to `position`

Source: DSN 2002, sec. 2.3 and 2.4 (merge edges); docs/protocols/exactly-once.md, 4.5.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.knowledge.subend import Settled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.broker_messages import Knowledge, Nack
    from gapless.core.identity import PubendName
    from gapless.knowledge.subend import Subend
    from gapless.knowledge.timing import KnowledgeTiming


class Merge:
    """All pubends of one topic at one broker, for subscribers that want one order."""

    def __init__(self, inputs: Mapping[PubendName, Subend], timing: KnowledgeTiming) -> None:
        self.inputs = dict(sorted(inputs.items()))
        self.timing = timing
        [self.position] = {subend.taken for subend in self.inputs.values()}
        self._lag_due: Instant | None = None
        self._lag_from = self.position  # the least horizon when the lag was first seen

    @property
    def deadline(self) -> Instant | None:
        due = [subend.deadline for subend in self.inputs.values() if subend.deadline is not None]
        if self._lag_due is not None:
            due.append(self._lag_due)
        return min(due, default=None)

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> list[Nack]:
        nacks = self.inputs[knowledge.pubend].receive_knowledge(knowledge, now)
        self._watch(now)
        return nacks

    def fitting(self, count: int, size: int) -> int:
        """The tick up to which the settled events of each input fit this count and size."""
        return min(subend.fitting(count, size) for subend in self.inputs.values())

    def take(self, now: Instant, through: int | None = None) -> Settled:
        """Remove and return what is settled for all inputs, in tick order; all of it, or up to a
        tick."""
        through = self.horizon if through is None else through
        settled = [subend.take(through, now) for subend in self.inputs.values()]
        self.position = through
        self._watch(now)
        merged = sorted(
            (pair for each in settled for pair in zip(each.ticks, each.events, strict=True)),
            key=itemgetter(0),
        )
        lost = [each for taken in settled for each in taken.lost]
        return Settled([tick for tick, _ in merged], [event for _, event in merged], lost)

    @property
    def horizon(self) -> int:
        return min(subend.horizon for subend in self.inputs.values())

    @property
    def whole_through(self) -> int:
        """The end of the settled part in which each input is uniform: nothing of it is lost, or all
        of it is."""
        return min(subend.whole_through for subend in self.inputs.values())

    def expect(self, pubend: PubendName, tick: int, now: Instant) -> list[Nack]:
        return self.inputs[pubend].expect(tick, now)

    def fire(self, now: Instant) -> list[Nack]:
        nacks = [nack for subend in self.inputs.values() for nack in subend.fire(now)]
        if self._lag_due is not None and self._lag_due <= now:
            self._lag_due = None
            if self.horizon == self._lag_from:
                foremost = max(subend.horizon for subend in self.inputs.values())
                for subend in self.inputs.values():
                    if subend.horizon < foremost:
                        nacks += subend.expect(foremost, now)
            self._watch(now)
        return nacks

    def _watch(self, now: Instant) -> None:
        horizons = {subend.horizon for subend in self.inputs.values()}
        if len(horizons) == 1:
            self._lag_due = None
        elif self._lag_due is None:
            self._lag_due = Instant(now + self.timing.gap_patience)
            self._lag_from = self.horizon

    def check(self) -> None:
        for subend in self.inputs.values():
            subend.check()
            assert subend.taken == self.position <= subend.horizon, "I1, I2"
