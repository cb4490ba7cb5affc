"""The address book: which broker stands behind each node id of the multicast service, and where.

Theory of operation
    A node id is the hash of a broker's name, so it tells nothing. Brokers of the network file are
    known from the start, and so are their addresses. Of all others, which joined while the network
    ran, name and address travel with every message that speaks of them; unless both ends are in the
    file: then only what is not in it goes along.

Invariants (checked by `check`)
    I1  at most `multicast_contacts_max` are known besides those of the network file
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.scribe import messages as m
from gapless.scribe.identifiers import Space

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gapless.core.identity import BrokerName, NodeId
    from gapless.node.network import Network

SPACE = Space()


class AddressBook:
    """See the module docstring."""

    def __init__(self, network: Network, contacts_max: int) -> None:
        self._contacts_max = contacts_max
        self._ids = {name: SPACE.node_id(name) for name in network.cell_of}
        self._of_file = {node: m.Contact(name) for name, node in self._ids.items()}
        self._learnt: dict[NodeId, m.Contact] = {}  # the one heard of longest ago first

    def id_of(self, name: BrokerName) -> NodeId:
        return self._ids.get(name) or SPACE.node_id(name)

    def is_in_file(self, name: BrokerName) -> bool:
        return name in self._ids

    def find(self, node: NodeId) -> m.Contact | None:
        return self._of_file.get(node) or self._learnt.get(node)

    def address_of(self, name: BrokerName) -> str:
        """Of one that is not in the network file; empty if it is not known."""
        contact = self._learnt.get(SPACE.node_id(name))
        return contact.address if contact is not None else ""

    def learn(self, contacts: Iterable[m.Contact]) -> None:
        for contact in contacts:
            if contact.name in self._ids or not contact.address:
                continue
            node = SPACE.node_id(contact.name)
            self._learnt.pop(node, None)
            self._learnt[node] = contact
            if len(self._learnt) > self._contacts_max:
                del self._learnt[next(iter(self._learnt))]

    @property
    def joined(self) -> list[m.Contact]:
        return list(self._learnt.values())

    def of(
        self, messages: Iterable[m.ScribeMessage], *, all_of_them: bool
    ) -> tuple[m.Contact, ...]:
        """Those whom the messages speak of, as far as the receiver may not know them."""
        nodes = dict.fromkeys(node for each in messages for node in mentioned(each))
        known = self._learnt | self._of_file if all_of_them else self._learnt
        return tuple(known[node] for node in nodes if node in known) if known else ()

    def check(self) -> None:
        assert len(self._learnt) <= self._contacts_max, "I1"


def mentioned(message: m.ScribeMessage | m.Payload) -> Iterator[NodeId]:
    """The nodes to which the receiver may come to send something because of the message."""
    match message:
        case m.Routed(payload=payload):
            yield from mentioned(payload)
        case m.Join(newcomer=newcomer, contacts=contacts):
            yield newcomer
            yield from contacts
        case m.Create(source=node) | m.Subscribe(child=node) | m.Pull(asker=node):
            yield node
        case m.Publication(source=source):
            yield source.node
        case m.Probe(leaves=nodes) | m.ProbeReply(leaves=nodes) | m.Divert(siblings=nodes):
            yield from nodes
        case m.RowQuery(nodes=nodes) | m.Row(nodes=nodes):
            yield from nodes
        case m.Welcome(leaves=leaves, contacts=contacts):
            yield from leaves
            yield from contacts
        case m.Promise(state=state, known=known):
            yield from _of_group(state)
            yield from (seat.node for seat in known.seats)
        case m.Accept(state=state):
            yield from _of_group(state)
        case m.Append(entries=entries):
            yield from (entry.source.node for entry in entries)
        case m.Hint(known=known) | m.Retired(known=known):
            yield from (seat.node for seat in known.seats)
        case _:
            pass


def _of_group(state: m.GroupState) -> Iterator[NodeId]:
    """Who has a seat, and who waits for a confirmation."""
    yield from (seat.node for seat in state.lineup.seats)
    yield from (entry.source.node for entry in state.entries)
