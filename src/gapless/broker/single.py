"""A single broker with all roles: what `gapless serve` runs, and what a program may embed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gapless.broker.broker import Broker
from gapless.broker.settings import Settings
from gapless.core.identity import BrokerName, CellName, TopicName
from gapless.node.network import BrokerEntry as Member
from gapless.node.network import Cell, Network, Topic

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = BrokerName("serve")


def single_network(topics: Iterable[str] = (), security: object = None) -> Network:
    """One broker that hosts the pubends of all topics, and subscribers; clients create more."""
    return Network(
        cells=(Cell(CellName(NAME), (Member(NAME),), subscribers=True),),
        topics=tuple(Topic(TopicName(each), (NAME,)) for each in dict.fromkeys(topics)),
        security=security,
    )


def embedded(topics: Iterable[str], data: Path | str, listen: str = "127.0.0.1:0") -> Broker:
    """A broker for this process's own event loop: `async with embedded(…) as broker`."""
    settings = Settings(data=Path(data), listen=listen, admin=None)
    return Broker(NAME, single_network(topics), settings)
