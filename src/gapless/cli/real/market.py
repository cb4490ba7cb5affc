"""The market of the demo: a seeded feed of trades, and desks that subscribe to some of them.

A desk's account compares what it was handed with what was published: which trades match is found
by evaluating its condition on each, without an index and without asking a broker. The feed knows
what it sent by the number that each event of a named publisher has.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.filters.filter import Filter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.client.subscription import Subscription
    from gapless.core.events import Attributes
    from gapless.core.token import Token

TOPIC = "trades"
SYMBOLS = {"IBM": 92.0, "SAP": 131.0, "T": 18.5, "MSFT": 310.0, "NVDA": 122.0, "XOM": 104.0}
"""What is traded, and the price at the opening."""

PACE_S = 0.02
"""How often trades of the time that has passed are sent."""

BODY = b"x" * 100


class Feed:
    """Publishes trades at a steady rate under a name, until it is stopped."""

    def __init__(self, seed: int, trades_per_s: int) -> None:
        self.trades: list[Attributes] = []
        self._dice = random.Random(seed)
        self._prices = dict(SYMBOLS)
        self._trades_per_s = trades_per_s
        self._is_over = False

    async def run(self, url: str) -> None:
        """At the end all of it is on stable storage."""
        async with connect(url) as client, client.publisher(TOPIC, name="feed") as publisher:
            begin_s = time.monotonic()
            while not self._is_over:
                due = int((time.monotonic() - begin_s) * self._trades_per_s)
                while len(self.trades) < due:
                    self.trades.append(self._trade())
                    await publisher.send(self.trades[-1], BODY)
                await asyncio.sleep(PACE_S)

    def stop(self) -> None:
        self._is_over = True

    def _trade(self) -> Attributes:
        symbol = self._dice.choice(list(SYMBOLS))
        opening, price = SYMBOLS[symbol], self._prices[symbol]
        self._prices[symbol] = price * self._dice.uniform(0.96, 1.04) + 0.05 * (opening - price)
        return {
            "symbol": symbol,
            "price": round(self._prices[symbol], 2),
            "volume": self._dice.randrange(1, 1_000),
            "side": self._dice.choice(["buy", "sell"]),
        }


class Account(NamedTuple):
    """What a desk was owed, and what was wrong with what it got."""

    matched: int
    delivered: int
    missing: int
    duplicate: int
    out_of_order: int
    unwanted: int
    gaps: int

    @property
    def is_right(self) -> bool:
        wrong = self.missing, self.duplicate, self.out_of_order, self.unwanted, self.gaps
        return self.matched == self.delivered > 0 and not any(wrong)


@dataclass
class Desk:
    """A named subscriber, connected or away."""

    name: str
    condition: str
    broker: str
    got: list[Event] = field(default_factory=list)
    gaps: int = 0
    token: Token | None = None
    subscription: Subscription | None = None
    _task: asyncio.Task[None] | None = None

    @property
    def is_here(self) -> bool:
        return self.subscription is not None

    async def come(self, url: str) -> None:
        """Subscribe, or go on after the token; returns when it counts."""
        ready = asyncio.Event()
        self._task = asyncio.create_task(self._read(url, ready), name=f"desk {self.name}")
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((self._task, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task.done():
            self._task.result()  # raises why

    async def leave(self) -> None:
        """Close the connection, with the token in hand. Raises what ended it, if anything did."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _read(self, url: str, ready: asyncio.Event) -> None:
        async with (
            connect(url) as client,
            client.subscribe(
                TOPIC, self.condition, name=self.name, start=self.token or "latest", silence=True
            ) as subscription,
        ):
            self.subscription = subscription
            ready.set()
            try:
                async for batch in subscription.batches():
                    self.got += [item for item in batch if isinstance(item, Event)]
                    self.gaps += sum(isinstance(item, Gap) for item in batch)
            finally:
                self.token, self.subscription = subscription.token, None

    def has_settled(self, pubend: str, tick: int) -> bool:
        """Was it handed all that it is owed up to here?"""
        if self._task is not None and self._task.done():
            self._task.result()
        return self.subscription is not None and self.subscription.token.get(pubend) > tick

    def account(self, trades: Sequence[Attributes]) -> Account:
        condition = Filter.parse(self.condition)
        wanted = {number for number, trade in enumerate(trades) if condition.matches(trade)}
        numbers: list[int] = []
        unwanted = disordered = 0
        seen: set[int] = set()
        for event in self.got:
            number = event.sequence if event.sequence is not None else -1
            if number not in wanted or event.attributes != trades[number]:
                unwanted += 1
                continue
            disordered += bool(numbers) and number < numbers[-1]
            numbers.append(number)
            seen.add(number)
        return Account(
            matched=len(wanted),
            delivered=len(self.got),
            missing=len(wanted - seen),
            duplicate=len(numbers) - len(seen),
            out_of_order=disordered,
            unwanted=unwanted,
            gaps=self.gaps,
        )
