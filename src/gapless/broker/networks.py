"""Networks that a broker process can be a part of: of a file, on its own, or one that it joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.broker.addresses import show_endpoint
from gapless.core.errors import UsageError
from gapless.core.identity import BrokerName, CellName, TopicName
from gapless.node.network import BrokerEntry, Cell, Network, Topic, parse_network

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SINGLE = BrokerName("serve")
"""The name of a broker that is a network on its own."""


def read_network(path: Path) -> Network:
    """The network of a file; `UsageError` says what is wrong with it."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"cannot read {path}: {reason}", "Give a network file.") from None
    return parse_network(text)


def single_network(
    topics: Iterable[str] = (), security: object = None, name: BrokerName = SINGLE
) -> Network:
    """One broker that hosts the pubends of all topics, and subscribers; clients create more."""
    return Network(
        cells=(Cell(CellName(name), (BrokerEntry(name),), subscribers=True),),
        topics=tuple(Topic(TopicName(each), (name,)) for each in dict.fromkeys(topics)),
        security=security,
    )


FAN_OUT = 4
"""Processes of one broker that are linked to the same one."""


def process_name(name: str, number: int) -> BrokerName:
    return BrokerName(f"{name}-{number}")


def processes_network(
    name: str, count: int, host: str, topics: Iterable[str] = (), security: object = None
) -> Network:
    """One broker as `count` processes: each takes clients and hosts a pubend of every topic. They
    are a tree of few levels, so that no process passes on what all others say."""
    names = [process_name(name, number) for number in range(count)]
    listen = show_endpoint(host, 0)
    cells = [
        Cell(
            CellName(each),
            (BrokerEntry(each, listen),),
            links=(CellName(names[(number - 1) // FAN_OUT]),) if number else (),
            subscribers=True,
        )
        for number, each in enumerate(names)
    ]
    made = tuple(Topic(TopicName(each), tuple(names)) for each in dict.fromkeys(topics))
    return Network(tuple(cells), made, security=security)


def joining_network(name: str, security: object = None, listen: str | None = None) -> Network:
    """What a broker that joins a running network knows of it: itself, and how it is secured."""
    own = BrokerEntry(BrokerName(name), listen or "127.0.0.1:0")
    alone = Cell(CellName(name), (own,), subscribers=True)
    return Network((alone,), security=security, joins=True)
