"""Many subscriptions, one reader: whichever has something is handed out next.

A task for each of a thousand subscriptions is woken for each event. Here one task is woken once for
all that has come meanwhile, which costs a third. Subscriptions take turns: each hands out what it
has, then the next.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.client.delivery import Delivery
    from gapless.client.subscription import Subscription


class Together:
    """Made by `together`: `async for subscription, batch in …`."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._ready: dict[Subscription, None] = dict.fromkeys(subscriptions)
        self._open = set(self._ready)
        self._waiter: asyncio.Future[None] | None = None
        for each in self._open:
            each.on_ready = self._note

    def _note(self, subscription: Subscription) -> None:
        self._ready[subscription] = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Subscription, list[Delivery]]:
        while self._open:
            while self._ready:
                subscription = next(iter(self._ready))
                del self._ready[subscription]
                batch = subscription.take_at_once()
                if batch:
                    self._ready[subscription] = None  # what was handed out is finished next time
                    return subscription, batch
                if batch is None:
                    self._open.discard(subscription)
                    subscription.on_ready = None
            if self._open:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        raise StopAsyncIteration


def together(subscriptions: Iterable[Subscription]) -> Together:
    """Read several subscriptions at once: `async for subscription, batch in together(some)`.

    Each batch is all that one of them had; asking for the next says that it is finished. It ends
    when all are over; the error of one that failed is raised.
    """
    return Together(subscriptions)
