"""Ways: topics named so that their streams go by the brokers that an experiment wants.

Which member of a cell carries a pubend is up to the node's own routing, by a hash of the pubend's
name. So names are tried until routing does as wanted, with all members up and with some down.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from gapless.core.broker_messages import AckExpected
from gapless.core.effects import Send
from gapless.core.identity import BrokerName, PubendName, TopicName
from gapless.node.config import Config
from gapless.node.network import Network
from gapless.node.routing import Routing
from gapless.testing.clock import START

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import CellName
    from gapless.node.network import Cell


def carrier(
    cells: Sequence[Cell],
    source: BrokerName,
    to: CellName,
    topic: TopicName,
    down: Sequence[BrokerName] = (),
) -> BrokerName:
    """The member of the cell that gets the topic's first pubend from its host."""
    routing = Routing(source, Network(cells=tuple(cells)), Config(), START)
    for broker in down:
        routing.lose(broker, START)
    pubend = PubendName(f"{topic}/0")
    (effect,) = routing.send(to, pubend, AckExpected(pubend, 0), START)
    assert isinstance(effect, Send)
    return BrokerName(effect.to)


def name_topic(
    word: str,
    cells: Sequence[Cell],
    source: BrokerName,
    to: CellName,
    wanted: dict[tuple[BrokerName, ...], BrokerName],
) -> TopicName:
    """A name that begins with the word; `wanted`: with these down, it goes by that member."""
    names = (TopicName(f"{word}-{number}") for number in count(1))
    return next(
        name
        for name in names
        if all(carrier(cells, source, to, name, down) == way for down, way in wanted.items())
    )
