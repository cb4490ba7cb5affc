"""Catalogues: what a client was told about a topic is durable and stays; in the end all agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import Done
from gapless.core.identity import ClientName
from gapless.core.topic_messages import CreateTopic, DeleteTopic
from gapless.node.directory.catalogue import CATALOGUE, decode
from gapless.testing.checkers.checker import Checker

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.identity import PeerName, TopicName
    from gapless.core.messages import Message
    from gapless.node.node import Node
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.record import Record


class ToldIsDurable(Checker):
    """Looks at the disk of a broker that tells a client that a topic is there, or is not."""

    promise = "a topic is durable before its founder is told"

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        if not isinstance(message, Done):
            return
        asked = self.record.founded.asked.get((ClientName(to), message.request))
        if not isinstance(asked, CreateTopic | DeleteTopic):
            return
        fact = broker.store.get(CATALOGUE, asked.name)
        entry = decode(fact) if fact is not None else None
        is_there = entry is not None and not entry.is_deleted
        if entry is None or is_there != isinstance(asked, CreateTopic):
            raise self.violated(f"{broker.name} told {to} {message}, and its disk has {entry}")
        if isinstance(asked, CreateTopic) and len(entry.hosts) != asked.pubends:
            raise self.violated(f"{to} asked for {asked.pubends} pubends and got {entry}")
        self.record.founded.told(entry)


class Catalogues:
    """Compares the catalogues of all brokers, when nothing changes any more."""

    promise = "all catalogues agree once quiet"

    def __init__(self, record: Record, nodes: Iterable[Node]) -> None:
        self._record = record
        self._nodes = list(nodes)

    def wrong(self) -> list[str]:
        """What is not as it should be, in words."""
        told = self._record.founded.newest
        found: list[str] = []
        for node in self._nodes:
            entries = node.catalogue.entries
            if entries != self._nodes[0].catalogue.entries:
                found.append(f"{node.name} and {self._nodes[0].name} differ")
            found += [
                f"{node.name} has {entries.get(name)}, and a client was told {entry}"
                for name, entry in told.items()
                if name not in entries or entries[name].incarnation < entry.incarnation
            ]
            live = {name for name, entry in entries.items() if not entry.is_deleted}
            if live != self._topics(node):
                found.append(f"{node.name} runs {sorted(self._topics(node))}, not {sorted(live)}")
        return found

    def _topics(self, node: Node) -> set[TopicName]:
        return set(node.network.topic) - node.catalogue.static
