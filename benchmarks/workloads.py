"""Workloads: seeded filters and events of the shapes that content-based systems meet.

stock    symbol = X AND price > y, half of them AND volume BETWEEN; 5,000 symbols, Zipf
ranges   2 to 4 BETWEENs over 10 attributes, no equality at all
topics   LIKE 'region/site/line/%' over a hierarchy of names, a third of them AND qos >= n
mixed    OR, NOT IN, IN, <>, LIKE '%x%', IS NULL and arithmetic; attributes missing, wrong kinds
eq       three equalities
all      every filter matches every event
sparse   as stock, but as many symbols as there are filters: equal matches at every size
"""

from __future__ import annotations

import random
from bisect import bisect
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.events import Attributes, Value

SYMBOL_COUNT = 5_000


class Workload(NamedTuple):
    """Conditions, and events to match against them."""

    name: str
    conditions: list[str]
    events: list[Attributes]


class Zipf:
    """Draws 0, 1, 2, … with chances 1, 1/2, 1/3, …"""

    def __init__(self, count: int) -> None:
        self._sums = list(accumulate(1 / rank for rank in range(1, count + 1)))

    def __call__(self, dice: random.Random) -> int:
        return min(bisect(self._sums, dice.random() * self._sums[-1]), len(self._sums) - 1)


def _stock_condition(dice: random.Random, symbol: int) -> str:
    text = f"symbol = 'S{symbol:07}' AND price > {(symbol % 97 + 3) * dice.uniform(0.96, 1):.4f}"
    if dice.random() < 0.5:
        low = dice.randrange(8_000)
        text += f" AND volume BETWEEN {low} AND {low + 2_000}"
    return text


def _stock_event(dice: random.Random, symbol: int) -> Attributes:
    return {
        "symbol": f"S{symbol:07}",
        "price": round((symbol % 97 + 3) * dice.random(), 4),
        "volume": dice.randrange(10_000),
    }


def stock(dice: random.Random, count: int, event_count: int) -> Workload:
    zipf = Zipf(SYMBOL_COUNT)
    return Workload(
        "stock",
        [_stock_condition(dice, zipf(dice)) for _ in range(count)],
        [_stock_event(dice, zipf(dice)) for _ in range(event_count)],
    )


def sparse(dice: random.Random, count: int, event_count: int) -> Workload:
    symbols = count // 20
    return Workload(
        "sparse",
        [_stock_condition(dice, dice.randrange(symbols)) for _ in range(count)],
        [_stock_event(dice, dice.randrange(symbols)) for _ in range(event_count)],
    )


def ranges(dice: random.Random, count: int, event_count: int) -> Workload:
    names = [f"a{index}" for index in range(10)]

    def condition() -> str:
        parts = []
        for name in sorted(dice.sample(names, dice.randint(2, 4))):
            width = dice.uniform(50, 350)
            low = dice.uniform(0, 1_000 - width)
            parts.append(f"{name} BETWEEN {low:.2f} AND {low + width:.2f}")
        return " AND ".join(parts)

    events: list[Attributes] = [
        {name: round(dice.uniform(0, 1_000), 2) for name in names} for _ in range(event_count)
    ]
    return Workload("ranges", [condition() for _ in range(count)], events)


def topics(dice: random.Random, count: int, event_count: int) -> Workload:
    def path(depth: int) -> str:
        return "/".join(f"{'abcde'[level]}{dice.randrange(12)}" for level in range(depth))

    def condition() -> str:
        text = f"topic LIKE '{path(dice.choice((2, 3, 3, 4, 4, 4)))}/%'"
        return text + (f" AND qos >= {dice.randrange(3)}" if dice.random() < 0.3 else "")

    events: list[Attributes] = [
        {"topic": path(5), "qos": dice.randrange(3)} for _ in range(event_count)
    ]
    return Workload("topics", [condition() for _ in range(count)], events)


def mixed(dice: random.Random, count: int, event_count: int) -> Workload:
    words = ["error", "warn", "disk", "net", "cpu", "auth"]
    regions = [f"r{index}" for index in range(40)]

    def condition() -> str:
        one, two = dice.sample(regions, 2)
        word, limit = dice.choice(words), dice.randrange(100)
        return dice.choice(
            [
                f"region = '{one}' OR region = '{two}' AND level > {limit}",
                f"region IN ('{one}', '{two}') AND level BETWEEN {limit} AND {limit + 10}",
                f"region NOT IN ('{one}', '{two}') AND host = 'h{dice.randrange(500)}'",
                f"message LIKE '%{word}%' AND level > {limit}",
                f"owner IS NULL AND region <> '{one}' AND level = {limit}",
                f"NOT (level < {limit} OR urgent = FALSE) AND host = 'h{dice.randrange(500)}'",
                f"latency * bytes > {limit * 100} AND region = '{one}'",
            ]
        )

    def event() -> Attributes:
        level: list[Value] = ["high", dice.randrange(100), dice.uniform(0, 100)]
        whole: Attributes = {
            "region": dice.choice(regions),
            "host": f"h{dice.randrange(500)}",
            "level": dice.choice(level),
            "message": f"{dice.choice(words)} {dice.choice(words)} at {dice.randrange(1_000)}",
            "owner": dice.choice(regions),
            "urgent": dice.random() < 0.3,
            "latency": dice.uniform(0, 100),
            "bytes": dice.randrange(200),
        }
        return {name: value for name, value in whole.items() if dice.random() < 0.85}

    return Workload(
        "mixed", [condition() for _ in range(count)], [event() for _ in range(event_count)]
    )


def eq(dice: random.Random, count: int, event_count: int) -> Workload:
    zipf = Zipf(200)

    def draw() -> tuple[int, int, int]:
        return zipf(dice), dice.randrange(20), dice.randrange(5)

    conditions = [
        "kind = 'k{}' AND site = 's{}' AND grade = {}".format(*draw()) for _ in range(count)
    ]
    events: list[Attributes] = []
    for _ in range(event_count):
        kind, site, grade = draw()
        events.append({"kind": f"k{kind}", "site": f"s{site}", "grade": grade})
    return Workload("eq", conditions, events)


def all_match(dice: random.Random, count: int, event_count: int) -> Workload:
    conditions = [f"price > {-dice.randrange(1, 1_000)}" for _ in range(count)]
    events: list[Attributes] = [{"price": dice.random()} for _ in range(event_count)]
    return Workload("all", conditions, events)


SHAPES: dict[str, Callable[[random.Random, int, int], Workload]] = {
    "stock": stock,
    "ranges": ranges,
    "topics": topics,
    "mixed": mixed,
    "eq": eq,
    "all": all_match,
    "sparse": sparse,
}


def make(shape: str, count: int, event_count: int = 4_096, seed: int = 7) -> Workload:
    return SHAPES[shape](random.Random(f"{shape}:{seed}"), count, event_count)
