"""Membership: the nodes in the leaf set, being probed, and failed.

Theory of operation
    A node gets into the leaf set when it has proved that it lives: the dead are not brought back by
    hearsay. Hearsay makes us probe nodes that would have a place. A member that fails leaves a gap:
    the ends of the set, and the nodes next to us, are asked for theirs. A table's entry that
    fails makes us ask another node of its row. The failed are remembered, and asked now and then
    whether they are back: after a split that is how the halves find together. One that is back had
    been cut off, perhaps with others: it is asked to look up our place on its side.

Invariants (checked by `check`)
    I1  we know when we last heard each member of the leaf set, and which life of it
    I2  no node that failed is in the leaf set; failed and probed ones are bounded in number
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.scribe.contacts import Contacts
from gapless.scribe.effects import Effect, ToNode
from gapless.scribe.messages import Probe, RowQuery, Seat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.scribe.identifiers import NodeId, Space
    from gapless.scribe.settings import RingSettings

REVIVED_AT_ONCE = 2
"""Failed nodes that are probed at a time."""


class Membership:
    """See the module docstring."""

    __slots__ = (
        "_digit_bits",
        "_failed",
        "_heard",
        "_lives",
        "_probing",
        "_seat",
        "_settings",
        "changes",
        "contacts",
        "is_active",
    )

    def __init__(
        self, seat: Seat, settings: RingSettings, space: Space, proximity: Callable[[NodeId], int]
    ) -> None:
        self._seat = seat
        self._settings = settings
        self._digit_bits = space.digit_bits
        self.contacts = Contacts(seat.node, settings, space, proximity)
        self.is_active = False
        self.changes = 0  # grows whenever the leaf set, or a life in it, is another
        self._heard: dict[NodeId, Instant] = {}
        self._lives: dict[NodeId, int] = {}
        self._probing: dict[NodeId, tuple[Instant, int]] = {}  # when due, which attempt
        self._failed: dict[NodeId, None] = {}  # in the order in which they failed

    @property
    def leaves(self) -> tuple[NodeId, ...]:
        return tuple(self.contacts.leaves.members)

    def row(self, index: int) -> tuple[NodeId, ...]:
        """Ourselves and those in a row of the table."""
        return (self._seat.node, *self.contacts.table.row(index))

    def seats_near(self, key: int, count: int) -> tuple[Seat, ...]:
        """The `count` closest nodes to the key that we know to live, closest first."""
        own = self._seat
        return tuple(
            own if node == own.node else Seat(node, self._lives[node])
            for node in self.contacts.leaves.nearest(key, count)
        )

    # --- nodes that live -------------------------------------------------------------------------

    def hear(self, node: NodeId, now: Instant) -> None:
        """A message came from this node."""
        if node in self._heard:
            self._heard[node] = now

    def meet(self, node: NodeId, born: int, now: Instant) -> bool:
        """A node has proved that it lives and is active. Did we think that it had failed?"""
        was_failed = node in self._failed
        self._failed.pop(node, None)
        self._probing.pop(node, None)
        if node not in self._heard:
            self.contacts.hear_of(node)
        if self.contacts.leaves.add(node):
            self.changes += 1
            self._heard[node] = now
            for gone in [n for n in self._heard if n not in self.contacts.leaves]:
                del self._heard[gone], self._lives[gone]
        if node in self._heard and self._lives.get(node) != born:
            self._lives[node] = born
            self.changes += 1
        return was_failed

    def hear_of(self, nodes: Iterable[NodeId]) -> None:
        """Hearsay, for the table."""
        for node in nodes:
            if node not in self._failed:
                self.contacts.hear_of(node)

    def consider(self, nodes: Iterable[NodeId], now: Instant) -> list[Effect]:
        """Hearsay: probe nodes that would have a place in the leaf set."""
        effects: list[Effect] = []
        for node in nodes:
            if node in self._heard or node in self._failed or node == self._seat.node:
                continue
            self.contacts.hear_of(node)
            if self.contacts.leaves.would_take(node):
                effects += self.probe(node, now)
        return effects

    # --- nodes that may not ----------------------------------------------------------------------

    @property
    def probe_message(self) -> Probe:
        return Probe(self._seat.born, self.leaves, active=self.is_active)

    def probe(self, node: NodeId, now: Instant, attempt: int = 1) -> list[Effect]:
        if node in self._probing or len(self._probing) >= self._settings.probes_max:
            return []
        self._probing[node] = Instant(now + self._settings.answer_patience), attempt
        return [ToNode(node, self.probe_message)]

    @property
    def is_probing(self) -> bool:
        return bool(self._probing)

    @property
    def probe_due(self) -> Instant | None:
        return next((due for due, _ in self._probing.values()), None)

    def probe_again(self, now: Instant) -> tuple[list[Effect], list[NodeId]]:
        """Repeat unanswered probes; a node probed often enough has failed."""
        effects: list[Effect] = []
        failed: list[NodeId] = []
        for node in [node for node, (due, _) in self._probing.items() if due <= now]:
            _, attempt = self._probing.pop(node)
            if attempt < self._settings.attempts_max:
                effects += self.probe(node, now, attempt + 1)
            else:
                failed.append(node)
        return effects, failed

    def silent(self, now: Instant) -> list[NodeId]:
        """Members of the leaf set that were not heard for too long."""
        longest = self._settings.dead_after
        return [node for node, heard in self._heard.items() if now - heard >= longest]

    def forget(self, node: NodeId) -> bool:
        """It is no longer known. Was it in the leaf set?"""
        if not self.contacts.remove(node):
            return False
        del self._heard[node], self._lives[node]
        self.changes += 1
        return True

    def fail(self, node: NodeId) -> list[Effect]:
        """A node has failed: remember it, and close the gaps that it leaves."""
        self._probing.pop(node, None)
        self._failed[node] = None
        if len(self._failed) > self._settings.failed_max:
            del self._failed[next(iter(self._failed))]
        effects: list[Effect] = []
        was_in_table = node in self.contacts.table
        leaves = self.contacts.leaves
        ends = leaves.ends_without(node)  # as the sides are now: without it they run together
        if self.forget(node):
            asked = sorted({*ends, *leaves.neighbours})
            effects += [ToNode(each, self.probe_message) for each in asked]
        if was_in_table:
            row = self.contacts.table.cell_of(node) >> self._digit_bits
            nodes = self.row(row)
            effects += [ToNode(each, RowQuery(row, nodes)) for each in nodes[1:2]]
        return effects

    def revive(self) -> list[Effect]:
        """Ask a few of the failed whether they are back; those asked go to the end of the line."""
        asked = list(self._failed)[:REVIVED_AT_ONCE]
        for node in asked:
            self._failed[node] = self._failed.pop(node)
        return [ToNode(node, self.probe_message) for node in asked]

    def check(self) -> None:
        self.contacts.check()
        members = sorted(self.contacts.leaves.members)
        assert sorted(self._heard) == members == sorted(self._lives), "I1"
        assert not self._failed.keys() & self._heard.keys(), "I2"
        assert len(self._failed) <= self._settings.failed_max, "I2"
        assert len(self._probing) <= self._settings.probes_max, "I2"
        assert self._seat.node not in self._failed
