"""The market of the demo: a seeded feed of trades, and desks that subscribe to some of them.

A desk's account compares what it was handed with what was published: which trades match is found
by evaluating its condition on each, without an index and without asking a broker. The feed knows
what it sent by the number that each event of a named publisher has.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from gapless.filters.filter import Filter
from gapless.testing.witnesses import Source, Witness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.events import Attributes, Event

TOPIC = "trades"
SYMBOLS = {"IBM": 92.0, "SAP": 131.0, "T": 18.5, "MSFT": 310.0, "NVDA": 122.0, "XOM": 104.0}
"""What is traded, and the price at the opening."""

BODY = b"x" * 100


class Feed(Source):
    """Publishes trades at a steady rate under a name, until it is stopped."""

    def __init__(self, seed: int, trades_per_s: int) -> None:
        super().__init__(TOPIC, "feed", trades_per_s, lambda _: (self.trade(), BODY))
        self._dice = random.Random(seed)
        self._prices = dict(SYMBOLS)

    @property
    def trades(self) -> list[Attributes]:
        return [attributes for attributes, _ in self.journal.sent]

    def trade(self) -> Attributes:
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
    """What a subscriber was owed, and what was wrong with what it got."""

    matched: int
    delivered: int
    missing: int
    duplicate: int
    out_of_order: int
    unwanted: int
    gaps: int

    @classmethod
    def of(
        cls, condition: str, trades: Sequence[Attributes], got: Sequence[Event], gaps: int = 0
    ) -> Account:
        """Who asked for this, of these trades, and got that."""
        parsed = Filter.parse(condition)
        wanted = {number for number, trade in enumerate(trades) if parsed.matches(trade)}
        numbers: list[int] = []
        unwanted = disordered = 0
        seen: set[int] = set()
        for event in got:
            number = event.sequence if event.sequence is not None else -1
            if number not in wanted or event.attributes != trades[number]:
                unwanted += 1
                continue
            disordered += bool(numbers) and number < numbers[-1]
            numbers.append(number)
            seen.add(number)
        return cls(
            matched=len(wanted),
            delivered=len(got),
            missing=len(wanted - seen),
            duplicate=len(numbers) - len(seen),
            out_of_order=disordered,
            unwanted=unwanted,
            gaps=gaps,
        )

    @property
    def is_right(self) -> bool:
        wrong = self.missing, self.duplicate, self.out_of_order, self.unwanted, self.gaps
        return self.matched == self.delivered > 0 and not any(wrong)


class Desk(Witness):
    """A named subscriber at one of the brokers."""

    def __init__(self, name: str, condition: str, broker: str) -> None:
        super().__init__(TOPIC, condition, label=name)
        self.name = name
        self.condition = condition
        self.broker = broker

    @property
    def received(self) -> int:
        return len(self.journal.events)

    def account(self, trades: Sequence[Attributes]) -> Account:
        return Account.of(self.condition, trades, self.journal.events, len(self.journal.gaps))
