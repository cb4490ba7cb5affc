"""The workload: events and conditions that overlap in interesting ways.

Few symbols and small numbers, so that most conditions match some events and hardly any matches
all; attributes are missing now and then, for SQL's NULL. Every event has a body of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.testing.record import Publication
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    import random

    from gapless.core.events import Attributes
    from gapless.core.identity import PublisherName, TopicName

SYMBOLS = ("IBM", "INTC", "AMD", "AAPL", "MSFT")


def draw_attributes(dice: random.Random) -> Attributes:
    attributes: Attributes = {"symbol": dice.choice(SYMBOLS), "price": dice.randrange(100)}
    if dice.random() < 0.3:
        attributes["urgent"] = dice.random() < 0.5
    if dice.random() < 0.2:
        del attributes["price"]
    return attributes


def draw_condition(dice: random.Random) -> str:
    low = dice.randrange(100)
    return dice.choice(
        (
            "",
            f"symbol = '{dice.choice(SYMBOLS)}'",
            f"price > {low}",
            f"price BETWEEN {low} AND {low + 30}",
            f"symbol IN ('{dice.choice(SYMBOLS)}', '{dice.choice(SYMBOLS)}') AND price < {low}",
            "symbol LIKE 'A%' OR urgent",
            f"NOT (price < {low})",
            "price IS NULL",
            f"urgent = FALSE AND price * 2 > {low}",
        )
    )


def draw_publication(
    dice: random.Random, topic: TopicName, body: str, named: tuple[PublisherName, int] | None
) -> Publication:
    """A new event; `body` makes it unlike all others."""
    attributes = draw_attributes(dice)
    publisher, sequence = named or (None, None)
    encoded = encode_event(attributes, body.encode(), publisher, sequence)
    return Publication(encoded, attributes, topic, publisher, sequence or 0)
