"""Session: a client that is attached to a durable subscription, and what it still has to get.

Theory of operation
    At each pubend the subscription is either *level*: it gets what everyone gets, from the tick
    `sent` on; or *behind*: it has a catch-up of its own, which delivers as fast as the client
    consumes. One that has caught up, and whose client has room for what is not logged yet,
    becomes level in one step; without room it waits until that is logged, and catches up with it.
    One whose client is too slow for the stream falls behind again.
    One that begins with the earliest event that is kept does not know yet where that is: position 0
    stands for it. Its client is told where it starts, and anything else, when the first answer has
    shown it, and that is durable; from then on nothing may be lost in silence.
    In total order the session holds back what it would send (`total_order`). To its client such a
    session is always behind: all its messages are for it alone.

Invariants (checked by `check`)
    I1  at every pubend of its topic it is level or behind, and not both

Source: DSN 2003, sec. 4.1 (switchover); docs/protocols/durable-subscriptions.md, 3.2, 3.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.client_messages import (
    CaughtUp,
    Deliveries,
    Ended,
    FellBehind,
    Lost,
    Refused,
)
from gapless.core.effects import Effect, Send
from gapless.core.events import EventBatch
from gapless.core.ticks import TICK_MAX, Span
from gapless.durable.catch_up import LostSpan
from gapless.durable.consolidated import SubscriptionBatch
from gapless.knowledge.batch import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.broker_messages import Nack
    from gapless.core.client_messages import Subscribed
    from gapless.core.identity import ClientName, Instant, PubendName
    from gapless.durable.catch_up import CatchUp
    from gapless.durable.consolidated import Consolidated
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.config import Config
    from gapless.node.delivery.connections import ClientConnection
    from gapless.node.delivery.total_order import TotalOrder

    Made = dict[tuple[int, int], tuple[SubscriptionBatch, int, list[Deliveries]]]
    """By identity of a batch, which it keeps, and number of a subscription: bytes, messages."""


class Session:
    """One client at one durable subscription."""

    def __init__(
        self,
        subscription: DurableSubscription,
        name: ClientName,
        number: int,
        client: ClientConnection,
        config: Config,
    ) -> None:
        self.subscription = subscription
        self.name = name
        self.number = number
        self.client = client
        self.config = config
        self.level: dict[PubendName, int] = {}
        self.behind: dict[PubendName, CatchUp] = {}
        self.found: dict[str, int] = {}  # where it starts, at pubends where that was not known
        self._opening: Subscribed | None = None
        self._held: list[Effect] = []  # until its client is told where it starts
        self._unknown: set[PubendName] = set()
        self._is_assured = True  # is what was found durable?
        self._first: dict[PubendName, int] = {}  # the same for good
        self.total_order: TotalOrder | None = None  # until it begins, or in publisher order

    @property
    def credit(self) -> int:
        """How many more events the client may be sent; one that has consumed all gets some."""
        if self.client.outstanding_bytes >= self.config.client_queue_bytes_max:
            return 0
        return max(0, self.config.client_queue_max - self.client.outstanding)

    def begin_order(self, order: TotalOrder) -> None:
        """Its client wants all pubends in one order."""
        self.total_order = order

    def room(self, pubend: PubendName) -> int:
        """How many more events of this pubend there is room for."""
        return self.credit if self.total_order is None else self.total_order.room(pubend)

    def flush(self, delivered: Mapping[PubendName, int], *, silence: bool) -> list[Effect]:
        """Send what is in order now. `delivered`: how far each stream is. With `silence`, the
        client is also told positions that moved without an event."""
        order = self.total_order
        if order is None or self._opening is not None:
            return []
        reached = {pubend: max(tick, delivered[pubend]) for pubend, tick in self.level.items()}
        reached.update((pubend, each.position) for pubend, each in self.behind.items())
        effects: list[Effect] = []
        runs = order.take(reached, self.credit)
        for run in [*runs, *order.take_silence()] if silence else runs:
            if run.lost is not None:
                effects += self._lose(run.pubend, run.lost)
            effects += self._send(run.pubend, SubscriptionBatch(run.ticks, run.events, run.through))
        return effects

    def sent_below(self, pubend: PubendName) -> int:
        """The tick below which the client was sent everything that there is."""
        if self.total_order is not None:
            return self.total_order.sent[pubend]
        catch_up = self.behind.get(pubend)
        return TICK_MAX if catch_up is None else catch_up.position

    def open(self, subscribed: Subscribed) -> list[Effect]:
        """Tell the client where it starts, as soon as that is known."""
        self._unknown = {pubend for pubend, each in self.behind.items() if not each.position}
        if not self._unknown:
            return [Send(self.name, subscribed)]
        self._opening = subscribed
        self._is_assured = False
        return []

    def end(self, problem: str, remedy: str, *, elsewhere: bool) -> Send:
        """It is over. Who was not told where it starts still waits for an answer: it may ask again,
        since it may be the newest connection of its client, which was heard too early."""
        if self._opening is None:
            return Send(self.name, Ended(self.number, problem, remedy, elsewhere))
        return Send(self.name, Refused(self._opening.request, problem, remedy, retry=True))

    @property
    def has_found_all(self) -> bool:
        return bool(self.found) and not self._unknown

    def assured(self) -> list[Effect]:
        """Where it starts is durable: a crash cannot take back what its client is told now."""
        self._is_assured = True
        return self._let_go([])

    def _find(self, pubend: PubendName, start: int) -> None:
        """This is the first tick that is kept, or may be."""
        assert self._opening is not None
        self._unknown.discard(pubend)
        self.found[pubend] = self._first[pubend] = found = max(start, 1)
        self._opening = replace(self._opening, start={**self._opening.start, pubend: found})

    def _let_go(self, effects: list[Effect]) -> list[Effect]:
        """What may be sent now."""
        if self._opening is None:
            return effects
        self._held += effects
        if self._unknown or not self._is_assured:
            return []
        opening, self._opening = self._opening, None
        effects, self._held = self._held, []
        return [Send(self.name, opening), *effects]

    def fall_behind(self, pubend: PubendName, catch_up: CatchUp) -> list[Effect]:
        del self.level[pubend]
        self.behind[pubend] = catch_up
        if self.total_order is not None:
            return []
        return self._let_go([Send(self.name, FellBehind(self.number, pubend))])

    def pump(
        self, pubend: PubendName, stream: Consolidated, room: int, made: Made, now: Instant
    ) -> tuple[list[Effect], list[Nack]]:
        """Deliver what has become known to one that is behind; make it level if it can be. It may
        ask for `room` more events. `made`: messages of this step, for others who want the same."""
        catch_up = self.behind[pubend]
        is_found = self._opening is not None and not self._unknown  # and soon durable
        if is_found or (self._unknown and pubend not in self._unknown):
            catch_up.is_waiting = False  # for its turn: it waits for something else
            return [], []  # what is held back takes up credit, and others need it to begin
        room_here = self.room(pubend)
        credit = min(room_here, 1) if self._unknown else room_here
        pieces, nacks = catch_up.advance(stream.latest, credit, now, room)
        effects: list[Effect] = []
        for piece in pieces:
            if pubend in self._unknown:
                self._find(pubend, piece.span.end if isinstance(piece, LostSpan) else 0)
            elif isinstance(piece, LostSpan):
                effects += self._put_loss(pubend, piece.span)
            if isinstance(piece, LostSpan):
                effects += self._put(pubend, SubscriptionBatch([], [], piece.span.end), {})
            else:
                effects += self._put(pubend, piece, made)
        if catch_up.is_done(stream.latest) and self._unknown <= {pubend}:
            if pubend in self._unknown:
                self._find(pubend, 0)
            number, position = self.subscription.number, catch_up.position
            tail = stream.tail(number, position)
            has_room = len(tail.ticks) <= self.room(pubend)
            is_whole = not stream.has_lost(number, position)
            if self._opening is None and has_room and is_whole:
                effects += self._become_level(pubend, tail)
        return self._let_go(effects), nacks

    def _lose(self, pubend: PubendName, span: Span) -> list[Effect]:
        """Tell a loss, but for what lies before the start that was found."""
        start = max(span.start, self._first.get(pubend, 0))
        if start >= span.end:
            return []
        lost, contact = Span(start, span.end), self.subscription.contact
        contact.gaps += 1
        contact.last_gap = pubend, lost
        return [Send(self.name, Lost((self.number,), pubend, lost))]

    def _become_level(self, pubend: PubendName, tail: SubscriptionBatch) -> list[Effect]:
        effects = self._put(pubend, tail, {})
        del self.behind[pubend]
        self.level[pubend] = tail.through
        if self.total_order is not None:
            return effects
        return [*effects, Send(self.name, CaughtUp(self.number, pubend))]

    def _put(self, pubend: PubendName, batch: SubscriptionBatch, made: Made) -> list[Effect]:
        """Send a batch, or hold it until it is in order."""
        if self.total_order is None:
            return self._send(pubend, batch, made)
        self.total_order.hold(pubend, batch.ticks, batch.events)
        return []

    def _put_loss(self, pubend: PubendName, span: Span) -> list[Effect]:
        if self.total_order is None:
            return self._lose(pubend, span)
        self.total_order.lose(pubend, span)
        return []

    def _send(
        self, pubend: PubendName, batch: SubscriptionBatch, made: Made | None = None
    ) -> list[Effect]:
        """What is for this subscription alone; others of the same number may get the same."""
        made = {} if made is None else made
        key = id(batch), self.number
        if key not in made:
            made[key] = batch, sum(map(len, batch.events)), self._pack(pubend, batch)
        _, size, messages = made[key]
        self.client.send(len(batch.events), size)
        return [Send(self.name, message) for message in messages]

    def _pack(self, pubend: PubendName, batch: SubscriptionBatch) -> list[Deliveries]:
        topic, number = self.subscription.definition.topic, self.number
        ticks, events, through = batch
        limits = self.config.batch_events_max, self.config.batch_bytes_max
        return [
            Deliveries(
                topic,
                through if high >= len(ticks) else ticks[high],
                pubend,
                tuple(ticks[low:high]),
                EventBatch.join(events[low:high]),
                ((number,),) * (high - low),
                only=number,
            )
            for low, high in cut(events, *limits)
        ]

    def check(self) -> None:
        assert not self.level.keys() & self.behind.keys(), "I1"
        assert self.level.keys() | self.behind.keys() == set(self.subscription.since), "I1"
        for catch_up in self.behind.values():
            catch_up.check()
        if self.total_order is not None:
            self.total_order.check()
