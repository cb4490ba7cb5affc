"""Requests about a named subscription, by its name, whichever client is attached to it.

A subscription over several topics has a part for each (`parts`): a request goes to all of them, one
after the other. Each may be repeated, so one that failed on the way is simply made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.client import arguments
from gapless.client.errors import RefusedError
from gapless.client.parts import find_parts, split_token
from gapless.client.requests import ask_for, ask_until_answered
from gapless.core.client_messages import (
    Acknowledge,
    AlterSubscription,
    Done,
    Forget,
    Refused,
    SubscriptionAltered,
)
from gapless.core.token import Token

if TYPE_CHECKING:
    from gapless.client.channel import Channel
    from gapless.core.identity import SubscriptionName, TopicName

    Parts = dict[TopicName, SubscriptionName]
    """By topic; empty for a subscription on one topic alone."""

KNOWN_MAX = 1_000
"""Names whose parts are remembered; beyond it all are forgotten."""


class NameRequests:
    """The requests about named subscriptions that a client has."""

    channel: Channel
    known_parts: dict[SubscriptionName, Parts]

    async def _parts(self, name: SubscriptionName) -> Parts:
        if name not in self.known_parts:
            found = await find_parts(self.channel, name)
            if len(self.known_parts) >= KNOWN_MAX:
                self.known_parts.clear()
            self.known_parts[name] = found
        return self.known_parts[name]

    async def acknowledge(self, name: str, token: Token, *, run: str = "") -> None:
        """Let the broker release everything below the token, as far as the named subscription is
        concerned; durable when this returns. A token that is behind changes nothing.

        For applications that read a range instead of subscribing: their named subscription only
        holds back the release of what they have not read. `run`: of `lease`.
        """
        subscription = arguments.subscription(name)
        consumed = arguments.token("token", token)
        run = arguments.name("run", run) if run else ""
        parts = await self._parts(subscription)
        tokens = split_token(consumed, [*parts]) if parts else {}
        try:
            for topic, part in parts.items():
                await self._acknowledge(part, tokens[topic], run)
            if not parts:
                await self._acknowledge(subscription, consumed, run)
        except RefusedError:
            self.known_parts.pop(subscription, None)  # it may have ended, and begun again, since
            raise

    async def lease(self, name: str, *, query: str, run: str) -> None:
        """Have a named subscription alone, as one run of a query that reads it by ranges.

        From then on this run, and no other, may acknowledge; it must do so every few seconds, be it
        an empty token, or another query may take the lease. A later run of the same query takes it
        at once, and this one is refused with a `RefusedError`.
        """
        subscription = arguments.subscription(name)
        query, run = arguments.name("query", query), arguments.name("run", run)
        self.known_parts.pop(subscription, None)
        for part in (await self._parts(subscription)).values() or (subscription,):
            await self._acknowledge(part, Token(), run, query)

    async def _acknowledge(
        self, name: SubscriptionName, token: Token, run: str, query: str = ""
    ) -> None:
        await ask_for(
            self.channel,
            lambda request: Acknowledge(0, dict(token), request, name, run, query),
            Done,
            f"subscription {name}",
        )

    async def alter_subscription(self, name: str, *, condition: str) -> Token:
        """Give a named subscription another condition, even while a client is connected to it: the
        ticks, by pubend, from which it counts. Before them the old condition decides, from them on
        the new one, so that no event is lost or delivered twice.

        A client that is attached goes on and need do nothing. A client that subscribes later gives
        the new condition.
        """
        subscription, text = arguments.subscription(name), arguments.condition(condition)
        ticks = Token()
        self.known_parts.pop(subscription, None)
        for part in (await self._parts(subscription)).values() or (subscription,):
            ticks = ticks.join(await self._alter(part, text))
        return ticks

    async def _alter(self, name: SubscriptionName, condition: str) -> Token:
        answer = await ask_for(
            self.channel,
            lambda request: AlterSubscription(request, name, condition),
            SubscriptionAltered,
            f"subscription {name}",
        )
        return Token(answer.former[-1].until)

    async def unsubscribe(self, name: str) -> None:
        """End a named subscription for good, even while a client is connected to it."""
        subscription = arguments.subscription(name)
        self.known_parts.pop(subscription, None)
        first, *others = (await self._parts(subscription)).values() or (subscription,)
        for part in others:  # the one that knows of the others comes last
            await self._forget(part, is_first=False)
        await self._forget(first)
        self.known_parts.pop(subscription, None)

    async def _forget(self, name: SubscriptionName, *, is_first: bool = True) -> None:
        reply = await ask_until_answered(self.channel, lambda request: Forget(request, name))
        refused = reply.message
        if is_first and isinstance(refused, Refused) and not reply.was_asked:
            raise RefusedError(refused.problem, refused.remedy)  # else the first reply was lost
