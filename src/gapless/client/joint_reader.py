"""One reader for many subscriptions: it hands out what any of them has.

With a task for each of a thousand subscriptions, each event wakes a task. Here one task is woken
once for all that has arrived. `batches` hands out all of that at once, as pairs of a subscription
and what came for it, and is the quickest way: subscriptions with nothing of their own to do share a
backlog (`gapless.client.shared_backlog`), so that an event costs a pair and no more. Iterating over
the reader itself hands out one subscription's batch at a time; subscriptions take turns.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self, cast

from gapless.client.shared_backlog import SharedBacklog
from gapless.client.subscription import Subscription
from gapless.core.errors import GaplessError, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from gapless.client.channel import ChannelInbox
    from gapless.client.delivery import Delivery

    Pairs = list[tuple[Subscription, Delivery]]


class JointReader:
    """Made by `together`; for one task at a time."""

    def __init__(self, subscriptions: Iterable[Subscription]) -> None:
        self._ready: dict[Subscription, None] = dict.fromkeys(subscriptions)
        self._open = set(self._ready)
        self._inboxes: list[ChannelInbox] = []  # whose shared backlogs are ours
        self._error: GaplessError | None = None
        self._waiter: asyncio.Future[None] | None = None
        if not all(isinstance(each, Subscription) for each in self._open):
            problem = "only subscriptions to one topic each, and no groups, are read together"
            raise UsageError(problem, "Read the others by themselves.")
        if any(each.acknowledges_each for each in self._ready):
            raise UsageError(
                'tokens="each" and together do not go together: it hands out many events at once',
                'Use tokens="broker", or a task for each subscription.',
            )
        for each in self._open:
            each.on_ready = self._note

    def _note(self, subscription: Subscription) -> None:
        self._ready[subscription] = None
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def _close(self, subscription: Subscription) -> None:
        self._open.discard(subscription)
        subscription.on_ready = None

    # --- one after the other ---------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Subscription, list[Delivery]]:
        while self._open:
            while self._ready:
                subscription = next(iter(self._ready))
                del self._ready[subscription]
                batch = subscription.take_available()
                if batch:
                    self._ready[subscription] = None  # what was handed out is finished next time
                    return subscription, batch
                if batch is None:
                    self._close(subscription)
            if self._open:
                await self._wait()
        raise StopAsyncIteration

    # --- all at once -----------------------------------------------------------------------------

    async def batches(self) -> AsyncIterator[Pairs]:
        """All that has come, as pairs of a subscription and what came for it, in the order of each
        subscription. Asking for the next batch means that this one is finished."""
        try:
            while self._open:
                if batch := self._gather():
                    yield batch
                elif self._open:
                    await self._wait()
        finally:
            inboxes, self._inboxes = self._inboxes, []
            for inbox in inboxes:
                shared, inbox.shared = inbox.shared, None
                if shared is not None:
                    shared.close()

    def _gather(self) -> Pairs:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        pairs: Pairs = []
        for subscription in list(self._ready):
            try:
                batch = subscription.take_available()
            except GaplessError as error:
                del self._ready[subscription]
                self._close(subscription)
                if not pairs:
                    raise
                self._error = error  # after what was taken just now
                return pairs
            if batch:
                pairs += [(subscription, item) for item in batch]
                continue
            del self._ready[subscription]
            if batch is None:
                self._close(subscription)
            else:
                self._share(subscription)
        for inbox in self._inboxes:
            assert inbox.shared is not None
            shared_pairs = cast("Pairs", inbox.shared.take())
            pairs = [*pairs, *shared_pairs] if pairs else shared_pairs
        return pairs

    def _share(self, subscription: Subscription) -> None:
        """It has nothing of its own to do: let it share a backlog with the others."""
        inbox = subscription.inbox
        if inbox.shared is None:
            inbox.shared = SharedBacklog(inbox.channel, self._wake)
            self._inboxes.append(inbox)
        if inbox in self._inboxes:  # otherwise another reader was here first
            subscription.join_shared(inbox.shared)


def together(subscriptions: Iterable[Subscription]) -> JointReader:
    """Read several subscriptions at once.

    `async for batch in together(some).batches()`: each batch is all that has come, as a list of
    pairs `(subscription, delivery)`. `async for subscription, batch in together(some)`: each batch
    is all that one subscription had. Asking for the next batch means that the last is finished. It
    ends when all subscriptions are over. If one fails, its error is raised, and the others may be
    read on.
    """
    return JointReader(subscriptions)
