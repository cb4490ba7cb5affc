"""Gaps: a loss is told only where events were really released, exactly, and once.

Statement: in a span that is told to be lost no matching event is still in the pubend's log, unless
the subscription had itself acknowledged it (and its client has gone back), and none was delivered
before. It is told to one that is behind, never to one that keeps up; and in one piece: between two
losses of a pubend lies an event, or the subscription has caught up in between. Without a retention
policy an event is lost only to one that acknowledged it, or that did not exist when it was logged.
Where a broker lost its disk, and with it where a subscription was, all before its new life is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.node.subscriptions.attachments import FIRST_TICK
from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_span, show_tick

if TYPE_CHECKING:
    from gapless.core.client_messages import Lost
    from gapless.core.identity import ClientName, PubendName
    from gapless.node.config import Config
    from gapless.testing.record import Record, Subscription


class Gaps(Checker):
    """Looks at every loss that a client is told of."""

    promise = "a gap only where it must be"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self._before: dict[tuple[ClientName, int, PubendName], int] = {}

    def lost(self, subscriptions: list[Subscription], told: Lost) -> None:
        for subscription in subscriptions:
            problem = self._problem(subscription, told)
            if problem:
                raise self.violated(
                    f"{subscription} is told that {told.pubend} {show_span(told.span)} is lost: "
                    f"{problem}"
                )
            key = subscription.client, subscription.number, told.pubend
            self._before[key] = len(subscription.delivered)

    def _problem(self, subscription: Subscription, told: Lost) -> str:
        named, pubend, span = subscription.named, told.pubend, told.span
        has_lost_disk = self.record.hosts[pubend] in self.record.lost_disks
        if named is None and has_lost_disk:
            return ""
        if named is None or pubend not in subscription.behind:
            return "it keeps up"
        position = subscription.position[pubend]
        if span.start < position:
            return f"all below {show_tick(position)} was settled"
        # How far a lost disk reaches may come to its broker later than the first of it.
        if self._is_one_with_the_last(subscription, pubend) and not has_lost_disk:
            return "that is one with the loss before it"
        if span.start == FIRST_TICK and subscription.broker in self.record.lost_disks:
            return ""  # where it was went with a disk: it may have had any of these, or none
        acknowledged = named.acknowledged.get(pubend, 0)
        wanted = self.record.wanted(subscription, pubend, max(span.start, acknowledged), span.end)
        chopped = self.record.logs[pubend].chopped
        lost = self.record.logs[pubend].lost
        if kept := [tick for tick in wanted if tick >= chopped and tick not in lost]:
            return f"{show_tick(kept[0])} is still in the log"
        held = [tick for tick in wanted if tick >= named.held_from[pubend]]
        if held and not (self.record.has_retention(subscription.topic) or self.record.lost_disks):
            return f"it never acknowledged {show_tick(held[0])}"
        return ""

    def _is_one_with_the_last(self, subscription: Subscription, pubend: PubendName) -> bool:
        before = self._before.get((subscription.client, subscription.number, pubend))
        if before is None:
            return False
        return all(other != pubend for other, _ in subscription.delivered[before:])

    def caught_up(self, subscription: Subscription, pubend: PubendName) -> None:
        self._before.pop((subscription.client, subscription.number, pubend), None)
