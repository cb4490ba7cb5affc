"""Moves: named subscriptions that have come here from another broker.

Theory of operation
    A client may go on at another broker with its token. The subscription is new there, but the old
    broker still has it, and holds the events that the client has not consumed. The new broker first
    makes every pubend hold them for it, too (`durable.hand_over`). Then it tells the old one to
    forget its copy. Moves are counted, so that an old request never ends a newer copy.
    What was acknowledged at the old broker stays acknowledged, though the client came with an older
    token: a copy is forgotten only when the new broker knows, durably, how far it was acknowledged.
    If the new broker does not, it is told, and asks again.
    A client may end a subscription that is still arriving: that waits until the old broker has
    forgotten its copy. If a newer copy comes up elsewhere, ours goes there, and so must the client.
    Holds travel up the tree as acknowledgements do; echoes and hand-overs take the shortest way.

Source: docs/protocols/durable-subscriptions.md, 3.6.
"""

from __future__ import annotations

from dataclasses import replace as dataclass_replace
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.broker_messages import HandOver, ReleaseEcho, ReleaseHold
from gapless.core.client_messages import ALTERED_MAX, Refused
from gapless.core.effects import Send
from gapless.core.errors import FilterError, ProtocolError, quoted
from gapless.durable.hand_over import ForgetRequest, Step, may_forget
from gapless.filters.filter import Filter
from gapless.node.redirect import refuse_elsewhere
from gapless.node.subscriptions.named_subscriptions import Moved
from gapless.node.subscriptions.record import Phase
from gapless.node.subscriptions.table import Work

if TYPE_CHECKING:
    from gapless.core.client_messages import Subscribe
    from gapless.core.effects import Effect
    from gapless.core.identity import Instant, SubscriptionName
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.context import Context
    from gapless.node.subscriptions.alterations import Alterations
    from gapless.node.subscriptions.attachments import Attachments


class Moves:
    """The subscriptions that arrived at one broker and that their old broker has not forgotten
    yet."""

    def __init__(
        self, context: Context, attachments: Attachments, alterations: Alterations
    ) -> None:
        self.name = context.name
        self.network = context.network
        self.config = context.config
        self.routing = context.routing
        self.attachments = attachments
        self.alterations = alterations
        self.named = attachments.named
        self.table = attachments.table
        self.holds: list[ReleaseHold] = []  # for our own relays, which pass them up
        self._number = int(context.started)  # echoes to a life before this one do not count

    @property
    def is_quiet(self) -> bool:
        """Has this step left nothing to `settle`, nor to ask for?"""
        return not (self.holds or self.table.has_work(Work.TAKE_BACK, Work.HAND_OVER, Work.END))

    def settle(self, now: Instant) -> list[Effect]:
        """At the end of a step: begin to hand over the subscriptions that arrived in it."""
        effects: list[Effect] = []
        for name in self.table.take(Work.TAKE_BACK):
            if (message := self.table.take_return(name)) is not None:
                effects += self._take_back(name, message, now)
        for name in self.table.take(Work.HAND_OVER):
            subscription = self.named.subscriptions.get(name)
            if subscription is None or subscription.definition.previous is None:
                continue
            definition = subscription.definition
            if definition.previous not in self.network.cell_of:
                # It is removed, and may have given the subscription to a third broker before.
                self.table.seek_home(name)
                continue
            self.table.tell_home(name)
            self._number += 1
            arrival = self.attachments.parts.arrival(
                subscription, self.routing.cell, self._number, self.config, now
            )
            self.table.hand_over(name, arrival)
            effects += self._carry_out(arrival.fire(now), now)
        return effects + self._end_those_that_may()

    def _end_those_that_may(self) -> list[Effect]:
        """End the subscriptions that are to end and are nowhere else any more."""
        effects: list[Effect] = []
        for name in self.table.names(Work.END):
            record = self.table.get(name)
            assert record is not None
            if not record.phase.is_here:
                effects += self._send_enders_on(name)
            elif record.phase is Phase.LIVE and record.next_return is None:
                effects += self.attachments.finish(name, f"{quoted(name)} was ended")
        return effects

    def _send_enders_on(self, name: SubscriptionName) -> list[Effect]:
        """The subscription has left this broker alive: its clients are to end it where it is."""
        enders, moved = self.table.take_enders(name), self.named.moved(name)
        effects: list[Effect] = []
        for client, asked in enders:
            if moved is not None:
                problem = f"subscription {quoted(name)} has moved to broker {moved.broker!r}"
                effects += refuse_elsewhere(client, asked, problem, [moved.broker])
            else:
                problem = f"this broker has no room to take {quoted(name)} over and end it"
                refused = Refused(asked.request, problem, "Try again later.", retry=True)
                effects.append(Send(client, refused))
        return effects

    def _take_back(self, name: SubscriptionName, message: Subscribe, now: Instant) -> list[Effect]:
        """Take a subscription back that was elsewhere, before that broker told us to forget it. The
        token of its client counts. The broker where it was must forget it; if it is still arriving
        from a third broker, that one comes first."""
        known = self.named.subscriptions.get(name)
        if known is None or message.moves <= known.definition.moves:
            return []
        token = self.attachments.known(known, message.token or {})
        effects = self.named.subscriptions.acknowledge(name, token, now)
        if known.definition.previous not in (None, message.previous):
            self.table.come_back_later(name, message)
            return effects
        self.table.arrive(name)
        definition = dataclass_replace(
            known.definition,
            moves=message.moves + 1,
            previous=message.previous,
            registrar=None,
        )
        return effects + self.named.subscriptions.redefine(definition)

    def _carry_out(self, wanted: list[ReleaseHold | ForgetRequest], now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for each in wanted:
            if isinstance(each, ReleaseHold):
                self.holds.append(each)
                continue
            known = self.named.subscriptions.get(each.subscription)
            message = HandOver(
                each.subscription,
                sender=self.name,
                receiver=each.broker,
                moves=each.moves,
                owner=known.definition.owner if known is not None else "",
                released=positions(known) if known is not None else None,
                altered=known.definition.altered if known is not None else 0,
            )
            effects += self.send(message, now)
        return effects

    def send(self, message: HandOver, now: Instant) -> list[Effect]:
        """Send a message to its receiver, or one hop nearer to it."""
        if message.receiver == self.name:
            return self.receive(message, now)
        return self.routing.send_on(message, now)

    def receive(self, message: HandOver, now: Instant) -> list[Effect]:
        """At the old broker: forget the copy, and say so. At the new one: the hand-over is done."""
        self._check(message)
        if message.receiver != self.name:
            return self.send(message, now)
        name = message.subscription
        if message.done:
            return self._forgotten(message)
        if message.elsewhere is not None:
            return self._follow(message)
        if message.ahead:
            return self._learn(message, now)
        known, moved = self.named.subscriptions.get(name), self.named.moved(name)
        answer = replace(
            message, sender=self.name, receiver=message.sender, over=False, released=None
        )
        if known is None and message.over:
            return []  # it is over here too
        if known is None and (ended := self.table.ended(name)) is not None:
            moves = max(message.moves, ended) + 1
            return self.send(replace(answer, moves=moves, over=True), now)
        if known is None and (moved is None or moved.broker == message.sender):
            return self.send(replace(answer, done=True), now)
        if known is None and moved is not None:
            return self.send(replace(answer, moves=moved.moves, elsewhere=moved.broker), now)
        assert known is not None
        return self._compare(message, known, answer, now)

    def _check(self, message: HandOver) -> None:
        """`ProtocolError` if no broker of this network can have said so."""
        for broker in (message.sender, message.receiver):
            if broker not in self.network.cell_of:
                raise ProtocolError(f"no broker is called {quoted(broker)}")
        if message.receiver in (message.sender, message.elsewhere):
            name = quoted(message.subscription)
            raise ProtocolError(f"{name} has not moved from {message.receiver!r} to itself")
        if message.altered > ALTERED_MAX:
            raise ProtocolError(f"no condition changes more than {ALTERED_MAX} times")
        if message.ahead and message.altered:
            try:
                Filter.parse(message.condition)
            except FilterError as error:
                raise ProtocolError(f"{quoted(message.condition)} is no condition") from error

    def _compare(
        self, message: HandOver, known: DurableSubscription, answer: HandOver, now: Instant
    ) -> list[Effect]:
        """The subscription is at the sender and here: decide which of the two copies goes."""
        name = message.subscription
        if known.definition.owner != message.owner:
            return self.send(replace(answer, done=True), now)  # only the name is the same
        own, other = (known.definition.moves, self.name), (message.moves, message.sender)
        if not may_forget(own, other):  # the sender must forget its copy
            released = positions(known) if self._is_kin(message, known) else None
            return self.send(replace(answer, moves=own[0], released=released), now)
        arrival = self.table.arrivals.get(name)
        if message.over and (arrival is None or arrival.previous == message.sender):
            self.forget(name)
            return self.attachments.finish(name, f"{quoted(name)} was ended")
        if arrival is not None and arrival.previous != message.sender:
            return []  # the broker where it was before comes first; the sender asks again
        acknowledged = known.acknowledged
        if name in self.named.changing:
            return []  # the sender asks again
        own_altered = known.definition.altered
        shown = (message.released or {}).items()
        if own_altered > message.altered or any(t < acknowledged.get(each) for each, t in shown):
            ahead = replace(answer, released=dict(acknowledged), ahead=True, altered=own_altered)
            return self.send(replace(ahead, condition=known.definition.condition), now)
        self.forget(name)
        then = tuple(self.send(replace(answer, done=True), now))
        moved = Moved(message.sender, message.moves, known.definition.owner)
        effects = self.named.remember_move(name, moved)
        return effects + self.attachments.move_out(name, then)

    def _is_kin(self, message: HandOver, known: DurableSubscription) -> bool:
        """Did our copy come from the sender's, or the sender's from ours? Otherwise the sender's
        may be of an earlier life of the name, and its acknowledgements mean nothing here."""
        arrival = self.table.arrivals.get(message.subscription)
        came_from_there = arrival is not None and arrival.previous == message.sender
        return came_from_there or message.moves > known.definition.first

    def _learn(self, message: HandOver, now: Instant) -> list[Effect]:
        """The copy that is to be forgotten was acknowledged further than ours: take that over. When
        it is durable, the next request to forget the copy says so."""
        known = self.named.subscriptions.get(message.subscription)
        if known is None or message.moves < known.definition.first:
            return []  # the message is about an earlier life
        if message.altered > known.definition.altered and not known.definition.share_by:
            self.alterations.adopt(message.subscription, message.condition, message.altered, now)
        token = self.attachments.known(known, message.released or {})
        return self.named.subscriptions.acknowledge(message.subscription, token, now)

    def _follow(self, message: HandOver) -> list[Effect]:
        """The subscription had moved on before it came here: take it over from that broker."""
        name, arrival = message.subscription, self.table.arrivals.get(message.subscription)
        known = self.named.subscriptions.get(name)
        if known is None or arrival is None or arrival.previous != message.sender:
            return []
        self.table.arrive(name)
        moves = max(known.definition.moves, message.moves + 1)
        definition = dataclass_replace(
            known.definition, moves=moves, previous=message.elsewhere, registrar=None
        )
        return self.named.subscriptions.redefine(definition)

    def _forgotten(self, message: HandOver) -> list[Effect]:
        arrival = self.table.arrivals.get(message.subscription)
        if arrival is None:
            return []
        arrival.receive_forgotten(message.sender, message.moves)
        if arrival.step is not Step.DONE:
            return []
        return self.named.settle_move(message.subscription)

    def take_holds(self) -> list[ReleaseHold]:
        """The holds that our own relays are to pass up; they are the caller's from now on."""
        holds, self.holds = self.holds, []
        return holds

    def forget(self, name: SubscriptionName) -> None:
        """The subscription has ended: nothing is to be handed over."""
        self.table.end_hand_over(name)

    def receive_echo(self, echo: ReleaseEcho, now: Instant) -> list[Effect]:
        if echo.cell != self.routing.cell:
            hop = self.network.next_hop(self.routing.cell, echo.cell)
            return self.routing.send(hop, echo.pubend, echo, now)
        effects: list[Effect] = []
        for arrival in self.table.arrivals.values():
            effects += self._carry_out(arrival.receive_echo(echo, now), now)
        return effects

    @property
    def deadline(self) -> Instant | None:
        if not self.table.arrivals:
            return None
        due = (each.deadline for each in self.table.arrivals.values())
        return min((each for each in due if each is not None), default=None)

    def fire(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for arrival in self.table.arrivals.values():
            effects += self._carry_out(arrival.fire(now), now)
        return effects

    def check(self) -> None:
        for arrival in self.table.arrivals.values():
            arrival.check()


def positions(subscription: DurableSubscription) -> dict[str, int]:
    """The position up to which each pubend is acknowledged, durably."""
    return {pubend: subscription.released.get(pubend) for pubend in subscription.since}
