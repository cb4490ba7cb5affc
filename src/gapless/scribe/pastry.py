"""Pastry: one node of the ring. It joins, routes, notices failures, and repairs what it knows.

Theory of operation
    A newcomer asks a node to route a `RingJoin` to the newcomer's identifier. Nodes on the way add
    rows of their tables, the last one its leaf set. The newcomer probes all of that leaf set, and
    the nodes that these name. With no probe left it is active, and says so. Only then do other
    nodes route through it.
    Members of a leaf set ping each other, and the nodes next to each other compare their sets. A
    node that pings us and has no place in our set is told our set, so that it learns of nodes
    between. A message on its way is confirmed by each hop. Where that does not happen it goes out
    again by a route computed anew: around a table's entry that failed, but to the leaf set's choice
    for as long as that counts as alive, for no other is responsible.

Invariants (checked by `check`)
    I1  every hop gains (see `contacts`)
    I2  one that is not active passes nothing on, and is in no leaf set by its own doing

Source: the Scribe paper, section 2. Deviation: a newcomer is active only after its leaf set has
answered, and hops are confirmed (the paper has TCP); both close gaps that lose or misroute.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Protocol

import msgspec

from gapless.core.identity import Instant
from gapless.scribe.effects import Effect, ToNode
from gapless.scribe.hops import Hops
from gapless.scribe.membership import Membership
from gapless.scribe.messages import (
    LeafPing,
    Leave,
    Passed,
    Probe,
    ProbeReply,
    RingJoin,
    RingWelcome,
    Routed,
    RowQuery,
    RowReply,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.scribe.identifiers import Identifier, NodeId, Space
    from gapless.scribe.messages import Payload, RingMessage, Seat
    from gapless.scribe.settings import RingSettings


JOIN_ASKED = 2
"""Nodes that are asked at a time to let us in: of those that we know some may be down."""


SEEDS_MAX = 64
"""Nodes that may let us in which are remembered; beyond it the first that was told goes."""


class RingPhase(Enum):
    """How far a node has come."""

    OUTSIDE = "outside"
    JOINING = "joining"  # a Join is under way
    PROBING = "probing"  # its leaf set is being probed
    ACTIVE = "active"


class Application(Protocol):
    """What is layered on the ring."""

    def forward(
        self, payload: Payload, key: Identifier, hop: NodeId, now: Instant
    ) -> tuple[Payload | None, list[Effect]]:
        """A payload is about to go on to `hop`: perhaps changed, or None to end its way here."""

    def deliver(self, payload: Payload, key: Identifier, now: Instant) -> list[Effect]:
        """A payload has arrived: no node is closer to its key than we are."""

    def failed(self, node: NodeId, now: Instant) -> list[Effect]:
        """A node does not answer any more."""


class Pastry:
    """See the module docstring."""

    __slots__ = (
        "_application",
        "_revive_due",
        "_round_due",
        "_round_number",
        "_seeds",
        "_settings",
        "_space",
        "_table_due",
        "contacts",
        "hops",
        "members",
        "phase",
        "seat",
    )

    def __init__(
        self,
        seat: Seat,
        application: Application,
        settings: RingSettings,
        space: Space,
        proximity: Callable[[NodeId], int],
    ) -> None:
        self.seat = seat
        self._application = application
        self._settings = settings
        self._space = space
        self.members = Membership(seat, settings, space, proximity)
        self.contacts = self.members.contacts
        self.hops = Hops(settings)
        self.phase = RingPhase.OUTSIDE
        self._seeds: list[NodeId] = []
        self._round_due = self._revive_due = self._table_due = Instant(0)
        self._round_number = 0

    # --- what a user wants -----------------------------------------------------------------------

    def found(self, now: Instant) -> list[Effect]:
        """Be the first node of a ring."""
        return self._become_active(now)

    def join(self, seeds: Iterable[NodeId], now: Instant) -> list[Effect]:
        """Join the ring that one of these is in: nodes that are near, or those known before."""
        self._seeds = [node for node in seeds if node != self.seat.node]
        assert self._seeds, "nobody to join"
        return self._become_joining(now)

    def join_too(self, seed: NodeId, now: Instant) -> list[Effect]:
        """Another one that may let us in; or, if we are in, whose ring may be another."""
        if seed not in self._seeds:
            self._seeds = [seed, *self._seeds][:SEEDS_MAX]
        if seed in self.contacts.leaves:
            return []
        return [self._look_up_place(seed, fresh=not self._is_active)]

    def suspect(self, node: NodeId, now: Instant) -> list[Effect]:
        """Something tells that a node may have failed: ask it, and do not wait long."""
        if not self._is_active:
            return []
        return self.members.probe(node, now, max(1, self._settings.attempts_max - 1))

    def leave(self) -> list[Effect]:
        """Go, and say so."""
        self.phase = RingPhase.OUTSIDE
        self.members.is_active = False
        return [ToNode(node, Leave()) for node in self.members.leaves]

    def route(self, payload: Payload, key: Identifier, now: Instant) -> list[Effect]:
        """Take a payload to the node closest to the key."""
        return self._pass_on(Routed(0, key, payload), now)

    @property
    def deadline(self) -> Instant:
        due = self._round_due
        for other in (self.hops.deadline, self.members.probe_due):
            if other is not None and other < due:
                due = other
        return due

    # --- messages --------------------------------------------------------------------------------

    def receive(self, sender: NodeId, message: RingMessage, now: Instant) -> list[Effect]:
        self.members.hear(sender, now)
        match message:
            case Routed():
                return self._receive_hop(sender, message, now)
            case Passed(number):
                self.hops.confirm(sender, number)
            case LeafPing(born):
                return self._receive_ping(sender, born, now)
            case Probe():
                return self._receive_probe(sender, message, now)
            case ProbeReply(born, leaves):
                met = self._meet(sender, born, now)
                return met + self.members.consider(leaves, now) + self._end_probing(now)
            case RingWelcome():
                return self._receive_welcome(sender, message, now)
            case Leave():
                return self._fail(sender, now)
            case RowQuery(row, nodes):
                self.members.hear_of(nodes)
                return [ToNode(sender, RowReply(self.members.row(row)))] if self._is_active else []
            case RowReply(nodes):
                self.members.hear_of(nodes)
        return []

    def _receive_hop(self, sender: NodeId, routed: Routed, now: Instant) -> list[Effect]:
        if not self._is_active:
            return []  # I2: unconfirmed, it will find another way
        passed: list[Effect] = [ToNode(sender, Passed(routed.number))]
        return passed + self._pass_on(routed, now)

    def _receive_ping(self, sender: NodeId, born: int, now: Instant) -> list[Effect]:
        if not self._is_active:
            return []
        effects = self._meet(sender, born, now)
        if sender not in self.contacts.leaves:
            effects.append(ToNode(sender, ProbeReply(self.seat.born, self.members.leaves)))
        return effects

    def _receive_probe(self, sender: NodeId, probe: Probe, now: Instant) -> list[Effect]:
        if not self._is_active:
            return []
        effects = self._meet(sender, probe.born, now) if probe.active else []
        effects.append(ToNode(sender, ProbeReply(self.seat.born, self.members.leaves)))
        return effects + self.members.consider(probe.leaves, now)

    def _receive_welcome(self, sender: NodeId, welcome: RingWelcome, now: Instant) -> list[Effect]:
        self.members.hear_of(welcome.contacts)
        effects = self.members.consider((sender, *welcome.leaves), now)
        if self.phase is RingPhase.JOINING:
            self.phase = RingPhase.PROBING
        return effects + self._end_probing(now)

    # --- time ------------------------------------------------------------------------------------

    def fire(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for hop in self.hops.overdue(now):
            if hop.node in self.contacts.leaves:
                effects += self.members.probe(hop.node, now)
            elif hop.attempt >= 2:
                effects += self._fail(hop.node, now)
            if hop.attempt < 2 * self._settings.attempts_max:  # longer than it takes to fail
                effects += self._hop_again(hop.routed, now, hop.attempt + 1)
        probes, failed = self.members.probe_again(now)
        effects += probes
        for node in failed:
            effects += self._fail(node, now)
        effects += self._end_probing(now)
        if now >= self._round_due and self.phase is not RingPhase.OUTSIDE:
            effects += self._round(now)
        return effects

    def _round(self, now: Instant) -> list[Effect]:
        self._round_number += 1
        if not self._is_active:
            # No answer, or not from all: begin again, with another.
            return self._become_joining(now)
        self._round_due = Instant(now + self._settings.ping_every)
        effects: list[Effect] = []
        for node in self.members.silent(now):
            effects += self._fail(node, now)
        neighbours = self.contacts.leaves.neighbours
        probe, ping = self.members.probe_message, LeafPing(self.seat.born)
        for node in self.members.leaves:
            effects.append(ToNode(node, probe if node in neighbours else ping))
        if now >= self._revive_due:
            self._revive_due = Instant(now + self._settings.revive_every)
            effects += self.members.revive()
            # The node that let us in may be in another ring by now, or have been from the start.
            if strangers := [node for node in self._seeds if node not in self.contacts.leaves]:
                asked = strangers[self._round_number % len(strangers)]
                effects.append(self._look_up_place(asked, fresh=False))
        return effects + self._compare_row(now)

    def _compare_row(self, now: Instant) -> list[Effect]:
        """Show one row of the table to one of its nodes, and see what it has there."""
        if now < self._table_due or not (depth := self.contacts.table.depth):
            return []
        self._table_due = Instant(now + self._settings.table_every)
        row = self._round_number % depth
        own, *others = self.members.row(row)
        if not others:
            return []
        asked = others[self._round_number // depth % len(others)]
        return [ToNode(asked, RowQuery(row, (own, *others)))]

    # --- routing ---------------------------------------------------------------------------------

    def _pass_on(self, routed: Routed, now: Instant) -> list[Effect]:
        payload, own = routed.payload, self.seat.node
        if isinstance(payload, RingJoin):
            payload = self._add_row(payload, routed.hops)
            if payload.newcomer == own:
                return []  # it is known here already
        hop, near = self.contacts.next_hop(routed.key, near=routed.near)
        if hop == own:
            return self._arrive(payload, routed.key, now)
        effects: list[Effect] = []
        if not isinstance(payload, RingJoin):
            onward, effects = self._application.forward(payload, routed.key, hop, now)
            if onward is None:
                return effects
            payload = onward
        number = self.hops.next_number()
        routed = Routed(number, routed.key, payload, near, routed.hops + 1)
        self.hops.watch(hop, routed, now, 1)
        effects.append(ToNode(hop, routed))
        return effects

    def _hop_again(self, routed: Routed, now: Instant, attempt: int) -> list[Effect]:
        hop, near = self.contacts.next_hop(routed.key, near=routed.near)
        if hop == self.seat.node:
            return self._arrive(routed.payload, routed.key, now)
        routed = msgspec.structs.replace(routed, number=self.hops.next_number(), near=near)
        self.hops.watch(hop, routed, now, attempt)
        return [ToNode(hop, routed)]

    def _arrive(self, payload: Payload, key: Identifier, now: Instant) -> list[Effect]:
        if not isinstance(payload, RingJoin):
            return self._application.deliver(payload, key, now)
        if payload.newcomer == self.seat.node:
            return []
        return [ToNode(payload.newcomer, RingWelcome(self.members.leaves, payload.contacts))]

    # --- joining, and nodes that fail ------------------------------------------------------------

    @property
    def _is_active(self) -> bool:
        return self.phase is RingPhase.ACTIVE

    def _become_joining(self, now: Instant) -> list[Effect]:
        self.phase = RingPhase.JOINING
        self._round_due = Instant(now + self._settings.join_repeat)
        count = min(JOIN_ASKED, len(self._seeds))
        first = self._round_number * count
        asked = [self._seeds[index % len(self._seeds)] for index in range(first, first + count)]
        return [self._look_up_place(seed, fresh=True) for seed in asked]

    def _look_up_place(self, node: NodeId, *, fresh: bool) -> ToNode:
        own = self.seat.node
        return ToNode(node, Routed(self.hops.next_number(), own, RingJoin(own, fresh), hops=1))

    def _add_row(self, join: RingJoin, hops: int) -> RingJoin:
        if join.fresh and join.newcomer != self.seat.node:
            self.members.forget(join.newcomer)  # whatever it was before, it knows nothing now
        shared = self._space.prefix_length(self.seat.node, join.newcomer)
        if shared == self._space.digit_count:
            return join
        first = 0 if hops <= 1 else shared  # the first on the way is near: all its rows are good
        rows = (node for row in range(first, shared + 1) for node in self.contacts.table.row(row))
        return msgspec.structs.replace(join, contacts=(*join.contacts, self.seat.node, *rows))

    def _end_probing(self, now: Instant) -> list[Effect]:
        if (
            self.phase is not RingPhase.PROBING
            or self.members.is_probing
            or not self.members.leaves
        ):
            return []
        return self._become_active(now)

    def _become_active(self, now: Instant) -> list[Effect]:
        self.phase = RingPhase.ACTIVE
        self.members.is_active = True
        self.members.changes += 1
        self._round_due = Instant(now + self._settings.ping_every)
        self._revive_due = Instant(now + self._settings.revive_every)
        self._table_due = Instant(now + self._settings.table_every)
        everyone = sorted(set(self.contacts.everyone()))
        return [ToNode(node, self.members.probe_message) for node in everyone]

    def _meet(self, node: NodeId, born: int, now: Instant) -> list[Effect]:
        """A node lives. If it had been cut off, we may have a place on its side."""
        if self.members.meet(node, born, now) and self._is_active:
            return [self._look_up_place(node, fresh=False)]
        return []

    def _fail(self, node: NodeId, now: Instant) -> list[Effect]:
        """A node has failed: what went through it goes elsewhere."""
        effects = self.members.fail(node)
        for hop in self.hops.through(node):
            effects += self._hop_again(hop.routed, now, 1)
        return effects + self._application.failed(node, now)

    def check(self) -> None:
        self.members.check()
        self.hops.check()
        assert self.members.is_active == self._is_active, "I2"
