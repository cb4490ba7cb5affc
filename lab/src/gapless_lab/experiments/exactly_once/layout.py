"""The network of the paper's fault experiments, and the load on it.

A broker that hosts two pubends, two cells of two brokers below it, and below them the brokers that
host subscribers. The topics are named so that their streams take different brokers of both cells:
`rates` by b1 and b4, `orders` by b2 and b3. So a fault on one way leaves the other for comparison.

Source: DSN 2002, fig. 1 (cells, link bundles); docs/experiments/exactly-once.md
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, CellName, TopicName
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from gapless.core.events import Attributes

HOST = BrokerName("p")
UPPER = (BrokerName("b1"), BrokerName("b2"))
LOWER = (BrokerName("b3"), BrokerName("b4"))
TOPICS = (TopicName("rates"), TopicName("orders"))
"""Their names decide which way they go: by b1 and b4, and by b2 and b3."""

EVENT_BYTES = 250
"""How long each encoded event is."""

SYMBOL_COUNT = 10
"""Event n has the symbol n modulo this, so a subscription to one symbol wants every tenth."""


def paper_network(host_count: int) -> Network:
    """p - {b1, b2} - {b3, b4} - s1 .. sN."""
    upper, lower = CellName("upper"), CellName("lower")
    return Network(
        cells=(
            Cell(upper, tuple(map(BrokerEntry, UPPER))),
            Cell(lower, tuple(map(BrokerEntry, LOWER)), (upper,)),
            Cell(CellName(HOST), (BrokerEntry(HOST),), (upper,)),
            *(
                Cell(CellName(name), (BrokerEntry(name),), (lower,), subscribers=True)
                for name in subscriber_hosts(host_count)
            ),
        ),
        topics=tuple(Topic(name, (HOST,)) for name in TOPICS),
    )


def subscriber_hosts(count: int) -> list[BrokerName]:
    return [BrokerName(f"s{number + 1}") for number in range(count)]


def level_of(sender: str, receiver: str) -> str:
    """Between which levels of the network a message goes; brokers of one cell are one level."""
    names = {HOST: "p", **dict.fromkeys(UPPER, "upper"), **dict.fromkeys(LOWER, "lower")}
    return f"{names.get(BrokerName(sender), 'hosts')} → {names.get(BrokerName(receiver), 'hosts')}"


def make_event(topic: TopicName, number: int) -> bytes:
    """Event `number` of a topic: `EVENT_BYTES` long, and unlike all others."""
    attributes: Attributes = {"symbol": f"S{number % SYMBOL_COUNT}", "number": number}
    body = f"{topic} {number} ".encode()
    bare = len(encode_event(attributes, bytes(EVENT_BYTES - 100))) - (EVENT_BYTES - 100)
    encoded = encode_event(attributes, body.ljust(EVENT_BYTES - bare, b"."))
    assert len(encoded) == EVENT_BYTES
    return encoded
