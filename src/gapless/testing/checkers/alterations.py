"""Altered from its tick: a changed condition counts from the ticks on that its caller was told.

Statement: the client of a named subscription is told of each change with the very ticks that the
caller was told. What it gets is checked against these ticks by the other checkers. A client that
moves to another broker without knowing of the change learns of it late (`Named.is_late`), and its
new broker chooses the ticks.
"""

from __future__ import annotations

from gapless.core.identity import PubendName
from gapless.testing.checkers.checker import Checker


class Alterations(Checker):
    """Compares what callers and clients were told, at the end of each phase."""

    promise = "altered from its tick"

    def finished(self) -> None:
        for named, altered, ticks, asked_at in self.record.alterations:
            conditions = named.conditions
            if any(when >= asked_at and known < altered for when, known in named.moves):
                continue  # its new broker adopts the change at ticks of its own (decision 0037)
            if named.is_late or named.is_over or conditions.altered < altered:
                continue  # it has ended, or no client was there since
            ends = [each.until for each in conditions.former]
            done = {
                pubend: max(named.acknowledged.get(pubend, 0), start)
                for pubend, start in named.origin.items()
            }
            is_over = all(tick <= done.get(PubendName(pubend), 0) for pubend, tick in ticks.items())
            if ticks not in ends and not is_over:  # else nobody needs to know any more
                raise self.violated(f"{named}: its caller was told {ticks}, and its client {ends}")
