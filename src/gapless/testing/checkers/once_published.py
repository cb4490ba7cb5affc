"""Once published: an event stands in the logs once, however often its publisher retried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.identity import PubendName


class OncePublished(Checker):
    """Every event has bytes of its own, so a second record with the same bytes is a repeat."""

    promise = "once published"

    def committed(self, pubend: PubendName, tick: int, encoded: bytes) -> None:
        publication = self.record.publications.get(encoded)
        if publication is None:
            raise self.violated(f"{pubend} {show_tick(tick)} holds what nobody published")
        if place := self.record.places.get(encoded):
            who = f"{publication.publisher}:{publication.sequence}"
            raise self.violated(
                f"the event of {who} at {place[0]} {show_tick(place[1])} is there again at "
                f"{pubend} {show_tick(tick)}"
            )
