"""Durable before acknowledged: a receipt names ticks that hold those events, now and later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.client_messages import Receipt
    from gapless.core.identity import PubendName
    from gapless.testing.checkers.checker import Broker

FORGOTTEN = -1
"""The tick in a receipt for a repeat whose tick is no longer remembered."""


class DurableBeforeAcknowledged(Checker):
    """Looks at the log when a receipt leaves, and at the disk after every restart."""

    promise = "durable before acknowledged"

    def acknowledged(self, broker: Broker, receipt: Receipt, asked: tuple[bytes, ...]) -> None:
        if len(receipt.ticks) != len(asked):
            raise self.violated(f"{broker.name} acknowledged {len(receipt.ticks)} of {len(asked)}")
        for tick, encoded in zip(receipt.ticks, asked, strict=True):
            place = self.record.places.get(encoded)
            if place is None:
                raise self.violated(
                    f"{broker.name} acknowledged request {receipt.request} before its event was "
                    f"durable at {receipt.pubend} {show_tick(tick)}"
                )
            if place[0] != receipt.pubend or tick not in (place[1], FORGOTTEN):
                raise self.violated(
                    f"{broker.name} acknowledged {receipt.pubend} {show_tick(tick)} for an event "
                    f"that is at {place[0]} {show_tick(place[1])}"
                )

    def restarted(self, broker: Broker) -> None:
        for pubend, host in self.record.hosts.items():
            if host == broker.name:
                self._check_disk(broker, pubend)

    def _check_disk(self, broker: Broker, pubend: PubendName) -> None:
        log = self.record.logs[pubend]
        stream = f"log/{pubend}"
        found: set[int] = set()
        start = log.chopped
        while indices := broker.store.scan(stream, start, 1 << 63)[0]:
            found.update(indices)
            start = indices[-1] + 1
        for tick in log.ticks:
            if tick >= log.chopped and tick not in found and tick not in log.lost:
                raise self.violated(f"{broker.name} lost {pubend} {show_tick(tick)} in a restart")
