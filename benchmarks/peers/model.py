"""Events, interests and payloads that all workloads and brokers share.

An event has four attributes (symbol, price, volume, exchange) and a payload of 250 bytes that says
its number and when it was published. A few thousand events are made and used in turn.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

PAYLOAD_BYTES = 250
EXCHANGES = ("NYSE", "NSDQ", "LSE", "TSE")
SYMBOL_COUNT = 1_000
MARK = b"~pB~"
NUMBER = slice(len(MARK), len(MARK) + 12)
TIME_NS = slice(NUMBER.stop, NUMBER.stop + 20)
_PADDING = b"." * (PAYLOAD_BYTES - TIME_NS.stop)

Kind = Literal["all", "symbol and price", "exchange"]


def make_payload(number: int, rest: bytes) -> bytes:
    return b"~pB~%012d%b" % (number, rest)


def rest_of_payload(time_ns: int) -> bytes:
    """What payloads that are published together share."""
    return b"%020d%b" % (time_ns, _PADDING)


class Event:
    """The attributes of one event.

    `cache` belongs to the broker's client: what it can encode once per event. `fan` is the number
    of interests that match, which the workload sets.
    """

    __slots__ = ("cache", "exchange", "fan", "group", "price", "symbol", "volume")

    def __init__(self, symbol: str, price: float, volume: int, exchange: str) -> None:
        self.symbol = symbol
        self.price = price
        self.volume = volume
        self.exchange = exchange
        self.group = EXCHANGES.index(exchange)
        self.fan = 0
        self.cache: Any = None

    def prefix(self) -> bytes:
        """The attributes as a line of text, for protocols whose messages have no headers."""
        return f"{self.symbol} {self.price:.2f} {self.volume} {self.exchange}\n".encode()


def make_events(count: int = 8_000, seed: int = 7) -> list[Event]:
    dice = random.Random(seed)
    return [
        Event(
            f"S{dice.randrange(SYMBOL_COUNT):04d}",
            round(dice.uniform(0, 100), 2),
            dice.randrange(1, 10_000),
            EXCHANGES[index % 4],
        )
        for index in range(count)
    ]


def _nowhere(_: bytes) -> None:
    raise AssertionError("a delivery before anybody wants it")


@dataclass
class Interest:
    """One subscription, in words that every broker's client can translate."""

    id: int
    kind: Kind = "all"
    symbol: str = ""
    price_above: float = 0.0
    exchange: str = ""
    durable: bool = False
    name: str = ""
    sink: Callable[[bytes], None] = field(default=_nowhere, repr=False, compare=False)
    """Called with the payload of each delivery; set in the process that subscribes."""

    def condition(self) -> str:
        """In SQL, as gapless and message selectors have it."""
        match self.kind:
            case "all":
                return ""
            case "symbol and price":
                return f"symbol = '{self.symbol}' AND price > {self.price_above:.2f}"
            case "exchange":
                return f"exchange = '{self.exchange}'"


def everything(count: int) -> list[Interest]:
    return [Interest(number, name=f"sub{number:04d}") for number in range(count)]


def selective(count: int = 2_000, seed: int = 11) -> list[Interest]:
    """Two interests for each symbol, each of which passes half of its events: so an event matches
    one on average."""
    dice = random.Random(seed)
    return [
        Interest(
            number,
            "symbol and price",
            symbol=f"S{number % SYMBOL_COUNT:04d}",
            price_above=round(dice.uniform(25, 75), 2),
            name=f"sub{number:04d}",
        )
        for number in range(count)
    ]


def durable_quarters(count: int) -> list[Interest]:
    """Durable, each matching one of the four exchanges."""
    return [
        Interest(
            number,
            "exchange",
            exchange=EXCHANGES[number % 4],
            durable=True,
            name=f"dur{number:04d}",
        )
        for number in range(count)
    ]


def set_fans(events: list[Event], interests: list[Interest]) -> None:
    """How many interests match each event: what a broker must deliver."""
    of_all = sum(1 for each in interests if each.kind == "all")
    by_exchange = Counter(each.exchange for each in interests if each.kind == "exchange")
    by_symbol: dict[str, list[float]] = defaultdict(list)
    for each in interests:
        if each.kind == "symbol and price":
            by_symbol[each.symbol].append(each.price_above)
    for event in events:
        above = sum(1 for limit in by_symbol.get(event.symbol, ()) if event.price > limit)
        event.fan = of_all + by_exchange[event.exchange] + above
