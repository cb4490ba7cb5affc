"""Inbox: what a client was sent for its named subscriptions and has not consumed yet, in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.client_messages import Deliveries
    from gapless.core.identity import PubendName
    from gapless.core.ticks import Span
    from gapless.testing.record import Subscription
    from gapless.testing.watch import Watch


class Item(NamedTuple):
    """One thing in the inbox: an event, a loss, or only that all below `through` is settled."""

    sessions: tuple[Subscription, ...]
    pubend: PubendName
    through: int
    tick: int | None = None
    lost: Span | None = None


class Inbox:
    """Items in the order they came."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._items: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def clear(self) -> None:
        self._items.clear()

    def put(self, message: Deliveries, sessions: Sequence[Subscription]) -> None:
        """Every event counts, for `Consumed`; those of other subscriptions move no token."""
        pubend = message.pubend
        assert pubend is not None, "named subscriptions have publisher order"
        for tick, takers in zip(message.ticks, message.takers, strict=True):
            takes = tuple(each for each in sessions if each.number in takers)
            self._items.append(Item(takes, pubend, tick + 1, tick))
        only = message.only
        moved = tuple(
            each
            for each in sessions
            if each.topic == message.topic
            and (pubend not in each.behind if only is None else each.number == only)
        )
        self._items.append(Item(moved, pubend, message.through))

    def put_loss(self, sessions: Sequence[Subscription], pubend: PubendName, span: Span) -> None:
        self._items.append(Item(tuple(sessions), pubend, span.end, lost=span))

    def take(self, limit: int, sessions: Sequence[Subscription]) -> int:
        """Consume up to `limit` events, of these sessions only; how many came off the queue."""
        count = 0
        while self._items and count < limit:
            item = self._items.popleft()
            count += item.tick is not None
            for session in item.sessions:
                if session not in sessions:
                    continue
                if item.lost is not None:
                    self._watch.skip(session, item.pubend, item.lost)
                else:
                    ticks = [] if item.tick is None else [item.tick]
                    self._watch.consume(session, item.pubend, ticks, item.through)
        return count
