"""Start points: a named subscription starts, and goes on, exactly where it should.

Statement: with a token it starts there; at an instant, at its tick, or now if the stream has not
come there; with the oldest kept event (which a position of 0 stands for), where nothing that it
wants and that is kept lies before. One that returns without a token goes on from what its
client acknowledged: not before what it was assured to be durable, not behind what it has said.
If its broker has lost its disk, it may begin at the first tick, and is told a gap from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Put
from gapless.core.identity import PubendName
from gapless.core.ticks import PUBEND_BITS
from gapless.knowledge.past import LIVES
from gapless.node.subscriptions.attachments import FIRST_TICK
from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.client_messages import Subscribed
    from gapless.core.effects import Write
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.named import Named
    from gapless.testing.record import Record, Subscription


class StartPoints(Checker):
    """Looks at every start that a client is told."""

    promise = "it starts where it should"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self._born: dict[PubendName, int] = {}

    def written(self, broker: Broker, write: Write) -> None:
        if isinstance(write, Put) and write.table == LIVES:
            self._born[PubendName(write.key)] = int.from_bytes(write.value[:8], "little")

    def begun(self, subscription: Subscription, told: Subscribed) -> None:
        named, asked = subscription.named, subscription.asked
        if named is None:
            return
        for pubend in self.record.pubends_of(subscription.topic):
            start = told.start[pubend]
            if asked is not None and asked.token is not None:
                low = high = asked.token.get(pubend, 0)
                high = high or self._oldest(subscription, pubend)
            elif not named.origin and named.birth.at == "earliest":
                low, high = 0, self._oldest(subscription, pubend)
            elif not named.origin:
                low, high = _first(named)
            elif subscription.broker in self.record.lost_disks and start == FIRST_TICK:
                low = high = FIRST_TICK
            else:
                low, high = _kept(named, pubend)
            if named.birth.instant is not None and not named.origin:
                high = max(high, self._born.get(pubend, 0))  # or where the topic began
            if not low <= start <= high:
                raise self.violated(
                    f"{subscription} starts at {pubend} {show_tick(start)}, not between "
                    f"{show_tick(low)} and {show_tick(high)}"
                )

    def _oldest(self, subscription: Subscription, pubend: PubendName) -> int:
        """Where the first event that it wants, of those that are kept, lies at the latest."""
        log = self.record.logs[pubend]
        wanted = self.record.wanted(subscription, pubend, log.chopped, 1 << 63)
        return next((tick for tick in wanted if tick not in log.lost), 1 << 63)


def _first(named: Named) -> tuple[int, int]:
    birth = named.birth
    if birth.instant is not None:
        return 0, (birth.instant + 1) << PUBEND_BITS
    return 0, 1 << 63


def _kept(named: Named, pubend: PubendName) -> tuple[int, int]:
    origin = named.origin[pubend]
    return (
        max(origin, named.assured.get(pubend, 0)),
        max(origin, named.acknowledged.get(pubend, 0)),
    )
