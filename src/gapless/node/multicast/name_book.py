"""The book of names: which broker stands behind each node id of the multicast service.

Theory of operation
    A node id is the hash of a broker's name, so it does not tell who it is. Brokers of the network
    file are known from the start. Of all others, which joined while the network ran, the names
    travel with every message that speaks of them; unless both ends are in the file: then only what
    is not in it goes along. Where they are is the driver's business.

Invariants (checked by `check`)
    I1  at most `multicast_names_max` are known besides those of the network file
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.node.recent import remember
from gapless.scribe import messages as m
from gapless.scribe.identifiers import Space

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gapless.core.identity import BrokerName, NodeId
    from gapless.node.network import Network

SPACE = Space()


class NameBook:
    """See the module docstring."""

    def __init__(self, network: Network, names_max: int) -> None:
        self._names_max = names_max
        self._ids = {name: SPACE.node_id(name) for name in network.cell_of}
        self._of_file = {node: name for name, node in self._ids.items()}
        self._learnt: dict[NodeId, BrokerName] = {}  # the one heard of longest ago first

    def id_of(self, name: BrokerName) -> NodeId:
        return self._ids.get(name) or SPACE.node_id(name)

    def is_in_file(self, name: BrokerName) -> bool:
        return name in self._ids

    def find(self, node: NodeId) -> BrokerName | None:
        return self._of_file.get(node) or self._learnt.get(node)

    def learn(self, names: Iterable[BrokerName]) -> None:
        for name in names:
            if name in self._ids:
                continue
            node = SPACE.node_id(name)
            remember(self._learnt, node, name, self._names_max)

    def of(
        self, messages: Iterable[m.ScribeMessage], *, all_of_them: bool
    ) -> tuple[BrokerName, ...]:
        """Those whom the messages speak of, as far as the receiver may not know them."""
        known = self._learnt | self._of_file if all_of_them else self._learnt
        if not known:
            return ()
        nodes = dict.fromkeys(node for each in messages for node in mentioned(each))
        return tuple(known[node] for node in nodes if node in known)

    def check(self) -> None:
        assert len(self._learnt) <= self._names_max, "I1"


def mentioned(message: m.ScribeMessage | m.Payload) -> Iterator[NodeId]:
    """The nodes to which the receiver may come to send something because of the message."""
    match message:
        case m.Routed(payload=payload):
            yield from mentioned(payload)
        case m.RingJoin(newcomer=newcomer, contacts=contacts):
            yield newcomer
            yield from contacts
        case m.Create(source=node) | m.Graft(child=node) | m.Pull(asker=node):
            yield node
        case m.RootPublication(source=source):
            yield source.node
        case m.Probe(leaves=nodes) | m.ProbeReply(leaves=nodes) | m.Divert(siblings=nodes):
            yield from nodes
        case m.RowQuery(nodes=nodes) | m.RowReply(nodes=nodes):
            yield from nodes
        case m.RingWelcome(leaves=leaves, contacts=contacts):
            yield from leaves
            yield from contacts
        case m.Promise(state=state, known=known):
            yield from _of_group(state)
            yield from (seat.node for seat in known.seats)
        case m.Accept(state=state):
            yield from _of_group(state)
        case m.LogAppend(entries=entries):
            yield from (entry.source.node for entry in entries)
        case m.Hint(known=known) | m.Retired(known=known):
            yield from (seat.node for seat in known.seats)
        case _:
            pass


def _of_group(state: m.GroupState) -> Iterator[NodeId]:
    """Who has a seat, and who waits for a confirmation."""
    yield from (seat.node for seat in state.lineup.seats)
    yield from (entry.source.node for entry in state.entries)
