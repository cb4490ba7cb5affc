"""Feed: what one HTTP subscription delivers, from a position on, over detachments.

Theory of operation
    While its reader keeps up, a feed is a live subscription. When the reader does not, the stream
    detaches the feed: the subscription is closed, and all that was not handed out is dropped. When
    the reader is back, the feed reads the log from its position, range by range, each when the
    reader has taken the one before; once it is almost level it subscribes again, reads what lies
    between its position and the start of that subscription, and goes on live. So a slow reader
    costs the memory of one range. What was released meanwhile is a `Gap`.
    A named subscription holds back the release of what it has not acknowledged, so it has no gaps
    unless the topic's retention makes them. It begins by attaching to its name, by its token.
    A topic that keeps nothing has no positions: each time its feed begins anew, something may be
    missing that nobody can name. That is `MISSED`.

Invariants
    I1  the position moves only by what was handed out, or does not match
    I2  nothing below the position is handed out
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gapless.client import arguments
from gapless.client.delivery import Gap
from gapless.client.errors import RefusedError, SubscriptionInterruptedError
from gapless.client.subscription_options import parse_start
from gapless.core.errors import UsageError
from gapless.core.events import Event
from gapless.core.ticks import AHEAD_MAX, Span, Tick
from gapless.core.token import Token
from gapless.doors.http.problems import HttpError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from gapless.client.client import Client
    from gapless.client.delivery import Delivery
    from gapless.client.range_reads import RangeBatch
    from gapless.client.subscription import Subscription

NEAR_EVENTS = 1_000
"""A read that found no more than this is almost level: what is left fits into the live backlog."""

NOTHING_STORED = "which stores nothing"
"""How a broker refuses to read a topic that keeps no events."""

SETTLE_S = 0.02
"""How long to wait where a pubend is not settled yet up to the start of a live subscription."""

MISSED = Gap("", "", Span(Tick(0), Tick(1)))  # type: ignore[arg-type]
"""Something may be missing, and nobody can name it."""


class Feed:
    """One HTTP subscription. Make it, `open` it, then take from it with `take`; `close` it."""

    def __init__(
        self, client: Client, topic: str, condition: str, name: str | None, start: str
    ) -> None:
        """`start`: "latest", "earliest", or the JSON text of a token."""
        self.topic = topic
        self.name = name
        self._client = client
        self._condition = condition
        self._start = start
        self._position: dict[str, int] = {}
        self._is_stored = True
        self._subscription: Subscription | None = None
        self._reading: AsyncGenerator[RangeBatch | Gap] | None = None
        self._is_late = False  # MISSED is due

    async def open(self) -> None:
        """Subscribe, or begin to read; an error says why that cannot be."""
        arguments.topic(self.topic)
        parse_start(self._start)  # refuses what is no start
        is_resumed = is_token(self._start)
        if is_resumed:
            self._position = dict(Token.from_json(self._start))
        positions = await self._positions()
        if positions is None:
            self._is_stored = False
            if self.name is not None:
                problem = f"topic {self.topic!r:.80} keeps nothing, and so no named subscriptions"
                raise HttpError(400, problem, "Leave the name out.")
            self._is_late, self._position = is_resumed, {}
            await self._subscribe("latest")
        elif self.name is not None or self._start == "latest":
            await self._subscribe(self._start)
        else:
            if not is_resumed:
                self._position = {name: low for name, (low, _) in positions.items()}
            ends = {name: high for name, (_, high) in positions.items()}
            check_position(self._position, ends)
            self._reading = self._catch_up(Token(ends))

    async def _positions(self) -> dict[str, tuple[int, int]] | None:
        """Of the topic; None if it keeps nothing."""
        try:
            return await self._client.positions(self.topic)
        except RefusedError as error:
            if NOTHING_STORED in error.problem:
                return None
            raise

    @property
    def token(self) -> Token:
        """Everything below it was handed out, or does not match, or is lost."""
        return Token(self._position)

    async def take(self, patience_s: float) -> list[Delivery] | None:
        """What has come; nothing if none came in this time, though the token may have moved. None:
        the subscription is over."""
        if self._subscription is None and self._reading is None:
            await self._resume()
        if self._is_late:
            self._is_late = False
            return [MISSED]
        if self._reading is not None:
            item = await anext(self._reading, None)
            if item is not None:
                return [item] if isinstance(item, Gap) else list(item.events())
            self._reading = None
        assert self._subscription is not None
        try:
            async with asyncio.timeout(patience_s):
                items = await self._subscription.take()
        except TimeoutError:
            self._move(self._subscription.token)
            return []
        except SubscriptionInterruptedError:
            if self.name is not None:
                raise
            await self.detach()
            return []
        return [item for item in items if not self._has(item)] if items else None

    def advance(self, item: Delivery) -> dict[str, int]:
        """Count this item as handed out; returns the token as a dictionary."""
        if self._is_stored:
            match item:
                case Event(pubend=pubend, tick=tick):
                    self._position[pubend] = tick + 1
                case Gap(pubend=pubend, span=span):
                    self._position[pubend] = max(span.end, self._position.get(pubend, 0))
                case _:
                    pass
        return self._position

    async def acknowledge(self, token: Token) -> None:
        """Let the broker release everything below the token."""
        if self.name is None:
            problem = "an anonymous subscription acknowledges nothing"
            raise HttpError(400, problem, "Give it a name.")
        await self._client.acknowledge(self.name, token)

    async def detach(self) -> None:
        """Let go of all that was not handed out; `take` goes on from the position."""
        if self._reading is not None:
            await self._reading.aclose()
            self._reading = None
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()

    close = detach

    def _has(self, item: Delivery) -> bool:
        """I2: was this handed out before the live subscription began?"""
        match item:
            case Event(pubend=pubend, tick=tick):
                return tick < self._position.get(pubend, 0)
            case Gap(pubend=pubend, span=span):
                return self._is_stored and span.end <= self._position.get(pubend, 0)
            case _:
                return True

    def _move(self, token: Token) -> None:
        """Everything below this token does not match, or was handed out."""
        if self._is_stored:
            self._position = dict(self.token.join(token))

    async def _subscribe(self, start: str | Token) -> None:
        subscription = self._client.subscribe(
            self.topic,
            self._condition,
            name=self.name,
            start=start if self.name is not None else "latest",
        )
        self._subscription = await subscription.__aenter__()
        if not self._position:
            self._move(subscription.token)

    # --- going on from a position ----------------------------------------------------------------

    async def _resume(self) -> None:
        if self._is_stored:
            self._reading = self._catch_up(await self._settled())
        else:
            self._is_late = True
            await self._subscribe("latest")

    async def _settled(self) -> Token:
        positions = await self._client.positions(self.topic)
        return Token({name: high for name, (_, high) in positions.items()})

    async def _catch_up(self, end: Token) -> AsyncGenerator[RangeBatch | Gap]:
        """Read the log until the feed is level, and subscribe."""
        while True:
            count = 0
            async for item in self._read(end):
                count += 0 if isinstance(item, Gap) else len(item)
                yield item
            self._move(end)
            if count <= NEAR_EVENTS:
                break
            end = await self._settled()
        await self._subscribe(self.token)
        assert self._subscription is not None
        begin = self._subscription.token
        while not begin <= self.token.join(await self._settled()):  # noqa: ASYNC110
            await asyncio.sleep(SETTLE_S)
        async for item in self._read(begin):
            yield item

    async def _read(self, end: Token) -> AsyncGenerator[RangeBatch | Gap]:
        """The log from the position to this token."""
        token = self.token
        names = [name for name, high in end if high > token.get(name)]
        if not names:
            return
        reading = self._client.read(
            self.topic, self._condition, start=token, end=end, pubends=names, gaps="yield"
        )
        async for item in reading:
            if isinstance(item, Gap) or len(item):
                yield item


def is_token(start: str) -> bool:
    return start.lstrip().startswith("{")


def check_position(position: Mapping[str, int], ends: Mapping[str, int]) -> None:
    """`UsageError` if a token is not of this topic, or of a future that nobody has seen."""
    remedy = "Give a token that this topic has given."
    for name, tick in position.items():
        if name not in ends:
            raise UsageError(f"the token names {name!r:.80}, which the topic does not have", remedy)
        if tick > ends[name] + AHEAD_MAX:
            raise UsageError(f"{name!r} is settled up to {ends[name]}, and not {tick}", remedy)
