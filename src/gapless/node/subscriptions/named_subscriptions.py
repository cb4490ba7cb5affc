"""The named subscriptions of one broker, and the consolidated streams that feed them.

Theory of operation
    Where a topic has named subscriptions, each of its pubends has a consolidated stream. A settled
    batch is matched once for all of them and written into the filtered log. It is acknowledged
    upstream when that write is durable, not before. A subscription counts whether a client is
    attached to it (`attachments`) or not.

Invariants (checked by `check`): those of the machines and of the table, and
    I1  every named subscription is in the matcher of its topic, and has a stream at each pubend

Source: DSN 2003, sec. 4; docs/protocols/durable-subscriptions.md, 3.2, 3.5, 3.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.core.effects import Delete, Persist, Put
from gapless.core.identity import BrokerName, Instant, PubendName
from gapless.core.name_messages import NameEntry
from gapless.core.portion import WHOLE, Portion
from gapless.durable.consolidated import LOST
from gapless.filters.filter import Filter
from gapless.knowledge.subend import Settled
from gapless.node.deadlines import Machines, earliest
from gapless.node.delivery.audience import DURABLE
from gapless.node.recent import remember
from gapless.node.subscriptions.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.core.effects import Effect, Write
    from gapless.core.identity import SubscriptionName, TopicName
    from gapless.core.ticks import Span
    from gapless.core.token import Token
    from gapless.durable.consolidated import Consolidated, RecordsPersisted
    from gapless.durable.subscriptions import Definition, DurableSubscription, SubscriptionPersisted
    from gapless.node.context import Context
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.subscriptions.record import Happening


MOVED = "moved"
"""Table on disk: the broker to which each subscription went that was here, and its moves then."""


COPIES = "copied streams"
"""Table on disk: the pubends whose streams come from a copy of this disk, and begin anew."""


MOVING_MAX = 1_000
"""Moves that are kept in memory until they are surely durable; the oldest is forgotten first,
and is looked up on disk."""


class Moved(NamedTuple):
    """The broker to which a subscription went."""

    broker: BrokerName
    moves: int
    owner: str = ""


class NamedSubscriptions:
    """All named subscriptions of one broker. See the module docstring."""

    def __init__(self, context: Context, subscribers: Subscribers) -> None:
        self.name = context.name
        self.config = context.config
        self.store = context.store
        self.subscribers = subscribers
        self.parts = context.parts
        self.subscriptions = context.parts.durable_subscriptions(context.store, context.config)
        self.table = Table(self.subscriptions)
        self.streams: Machines[PubendName, Consolidated] = Machines()
        self.filters: dict[int, Filter] = {}
        self._former_filters: dict[int, list[Filter]] = {}  # of those whose condition has changed
        self.held: set[PubendName] = set()  # nothing is taken from these streams for a moment
        self.changing: set[SubscriptionName] = set()  # a change of the condition is being written
        self._moving: dict[SubscriptionName, Moved] = {}  # may not be durable yet
        self.reports: dict[PubendName, None] = {}  # pubends at which positions have moved
        for subscription in self.subscriptions.all():
            self._take_in(subscription)
        copied = self.streams if context.seal.is_copy else context.store.items(COPIES)
        self.copied_streams = {PubendName(each): None for each in copied if each in self.streams}

    def note_copies(self) -> list[Write]:
        """The writes that note which streams begin anew, as this disk is a copy."""
        return [Put(COPIES, pubend, b"") for pubend in self.copied_streams]

    def begin_anew(self, pubend: PubendName, tick: int, now: Instant) -> list[Effect]:
        """Begin a stream of a copied disk at `tick`. What the filtered log does not have since the
        copy was made, subscriptions ask the pubend for: to the log they are new."""
        del self.copied_streams[pubend]
        effects = self.streams[pubend].advance(Settled([], [], []), (), tick, now)
        writes = self.subscriptions.begin_anew(pubend, tick)
        return [Persist((*writes, Delete(COPIES, pubend))), *effects]

    def _take_in(self, subscription: DurableSubscription) -> None:
        definition = subscription.definition
        condition = self._read_conditions(subscription)
        starts = {PubendName(pubend): tick for pubend, tick in subscription.since.items()}
        for pubend in starts:
            if pubend not in self.streams:
                self.streams[pubend] = self.parts.consolidated(pubend, self.store, self.config)
        young: dict[PubendName | None, int] = {
            pubend: tick for pubend, tick in starts.items() if tick > self.streams[pubend].delivered
        }
        key = (DURABLE, subscription.number)
        owner = definition.owner
        self.subscribers.add_durable(key, definition.topic, condition, young, owner)

    def _read_conditions(self, subscription: DurableSubscription) -> Filter:
        number, definition = subscription.number, subscription.definition
        self.filters[number] = Filter.parse(definition.condition)
        self._former_filters.pop(number, None)
        if definition.former:
            former = [Filter.parse(each.condition) for each in definition.former]
            self._former_filters[number] = former
        return self.filters[number]

    def condition_at(
        self, subscription: DurableSubscription, pubend: PubendName, tick: int
    ) -> Filter:
        """The condition that decides about an event at this tick."""
        number = subscription.number
        former = subscription.definition.former
        for each, condition in zip(former, self._former_filters.get(number, ()), strict=True):
            if tick < each.until.get(pubend, 0):
                return condition
        return self.filters[number]

    def change(self, subscription: DurableSubscription) -> None:
        """From what is delivered now on, another condition decides."""
        condition = self._read_conditions(subscription)
        key = (DURABLE, subscription.number)
        self.subscribers.alter_durable(key, subscription.definition.topic, condition)

    def hold(self, pubends: set[PubendName]) -> None:
        """Take nothing more from these streams, and from all others again."""
        freed = sorted(self.held - pubends)
        self.held = pubends
        self.reports.update((pubend, None) for pubend in freed if pubend in self.streams)

    def begin_change(self, name: SubscriptionName) -> None:
        """A change of the condition is being written: no client is attached meanwhile."""
        self.changing.add(name)

    def end_change(self, name: SubscriptionName) -> None:
        self.changing.discard(name)

    def survivors(self, topic: TopicName) -> dict[tuple[str, int], Filter]:
        """The subscriptions of a topic that outlived a restart, for the leaf."""
        some = self.subscriptions.of_topic(topic)
        return {(DURABLE, each.number): self.filters[each.number] for each in some}

    # --- the consolidated streams -----------------------------------------------------------------

    def is_full(self, pubend: PubendName) -> bool:
        stream = self.streams.get(pubend)
        return stream is not None and (stream.is_full or pubend in self.held)

    def position(self, pubend: PubendName, taken: int) -> tuple[int, int]:
        """The ticks up to which a stream is delivered and released here; `taken` without named
        subscriptions."""
        stream = self.streams.get(pubend)
        if stream is None:
            return taken, taken
        released = self.subscriptions.released(pubend)
        latest = stream.latest
        return latest, latest if released is None else min(latest, released)

    def advance(
        self,
        pubend: PubendName,
        settled: Settled,
        takers: Sequence[Sequence[int]],
        through: int,
        now: Instant,
    ) -> list[Effect]:
        """Record which subscriptions take a batch that was delivered to the level sessions."""
        stream = self.streams.get(pubend)
        if stream is None:
            return []
        return stream.advance(settled, takers, through, now)

    def taken_as_lost(
        self, topic: TopicName, pubend: PubendName, lost: Span
    ) -> tuple[Settled, list[list[int]]]:
        """The record of a span that is lost: at its first and its last tick something that all
        subscriptions of the topic take. A session that catches up asks for both, and is told of the
        loss from the one to the other."""
        takers = [
            each.number
            for each in self.subscriptions.all()
            if each.definition.topic == topic and each.since[pubend] < lost.end
        ]
        ticks = sorted({lost.start, lost.end - 1})
        return Settled(ticks, [LOST] * len(ticks), []), [takers] * len(ticks)

    def take_reports(self) -> dict[PubendName, None]:
        """The pubends at which positions have moved since this was last asked for."""
        reports, self.reports = self.reports, {}
        return reports

    def remove(self, pubends: Iterable[PubendName]) -> None:
        """Forget pubends that were deleted with their topic, and their subscriptions."""
        for pubend in pubends:
            self.streams.pop(pubend, None)
            self.copied_streams.pop(pubend, None)
            self.reports.pop(pubend, None)

    def report(self, subscription: DurableSubscription) -> None:
        """Positions may have moved at every pubend of a subscription: report them upstream."""
        self.reports.update(dict.fromkeys(map(PubendName, subscription.since)))

    def recorded(self, message: RecordsPersisted, now: Instant) -> list[Effect]:
        """A record is durable: acknowledge it upstream."""
        if message.pubend not in self.streams:
            return []  # it was deleted meanwhile
        self.reports[message.pubend] = None
        return self.streams[message.pubend].persisted(message, now)

    def chop(self, pubend: PubendName, released: int, lost_below: int) -> list[Effect]:
        """Cut off the part of the filtered log that every subscription has released, or of which
        the pubend has no events any more."""
        stream = self.streams.get(pubend)
        return stream.chop(released, lost_below) if stream is not None else []

    # --- begin and end ----------------------------------------------------------------------------

    def create(
        self,
        definition: Definition,
        start: Token,
        since: dict[PubendName, int],
        taken: dict[PubendName, int],
        then: tuple[Effect, ...],
        otherwise: tuple[Effect, ...],
        now: Instant,
    ) -> list[Effect]:
        """Make a subscription that counts from the ticks `since` on; everything below `taken` is
        delivered. `UsageError` if it may not be made."""
        effects: list[Effect] = []
        for pubend, tick in taken.items():
            if pubend not in self.streams:
                effects += self._begin_stream(pubend, tick, now)
        named = {str(p): max(tick, self.streams[p].delivered) for p, tick in since.items()}
        effects += self.subscriptions.create(
            definition, start, named, then=then, otherwise=otherwise
        )
        self.table.create(definition.name)
        subscription = self.subscriptions.get(definition.name)
        assert subscription is not None
        self._take_in(subscription)
        return effects

    def _begin_stream(self, pubend: PubendName, tick: int, now: Instant) -> list[Effect]:
        stream = self.parts.consolidated(pubend, self.store, self.config)
        self.streams[pubend] = stream
        if stream.delivered == 0:
            return stream.begin(tick, now)
        through = max(tick, stream.delivered)  # it was here before, for others that are gone
        return stream.advance(Settled([], [], []), (), through, now)

    def end(
        self, name: SubscriptionName, happening: Happening, then: tuple[Effect, ...]
    ) -> list[Effect]:
        """Forget a subscription that is over or has moved on; `then` when that is durable."""
        subscription = self.subscriptions.get(name)
        assert subscription is not None
        self._let_go(subscription)
        self.table.end(subscription.definition, happening)
        return self.subscriptions.end(name, then=then)

    def entry(self, name: SubscriptionName) -> NameEntry | None:
        """The entry for the registrar of a subscription that is here."""
        known = self.subscriptions.get(name)
        if known is None:
            return None
        definition = known.definition
        return NameEntry(self.name, definition.moves, definition.owner, altered=definition.altered)

    def moved(self, name: SubscriptionName) -> Moved | None:
        """The broker to which a subscription went that was here, if it is known."""
        if name in self._moving:
            return self._moving[name]
        fact = self.store.get(MOVED, name)
        if fact is None:
            return None
        place, _, owner = fact.decode().partition("\n")  # which no name of a broker has
        moves, broker = place.split(" ", 1)
        return Moved(BrokerName(broker), int(moves), owner)

    def remember_move(self, name: SubscriptionName, moved: Moved) -> list[Effect]:
        """Remember where a subscription went. That counts at once: the client may come back
        before it is durable. If the disk has no room for it, a client without a token is not
        redirected."""
        remember(self._moving, name, moved, MOVING_MAX)
        fact = f"{moved.moves} {moved.broker}\n{moved.owner}".rstrip("\n")
        return [Persist((Put(MOVED, name, fact.encode()),))]

    def _let_go(self, subscription: DurableSubscription) -> None:
        key = (DURABLE, subscription.number)
        self.subscribers.remove_durable(key, subscription.definition.topic)
        self.filters.pop(subscription.number, None)
        self._former_filters.pop(subscription.number, None)

    # --- writes, time, invariants -----------------------------------------------------------------

    def kept(self, message: SubscriptionPersisted, now: Instant) -> list[Effect]:
        """A write of definitions or acknowledgements has ended."""
        if message.name is not None and not message.ok:
            refused = self.subscriptions.get(message.name)
            if refused is not None and refused.number == message.number:
                self._let_go(refused)
                self.table.fail(message.name)
        effects = self.subscriptions.persisted(message, now)
        moved = self.subscriptions.take_moved()
        self.reports.update((pubend, None) for pubend in moved if pubend in self.streams)
        return effects

    @property
    def deadline(self) -> Instant | None:
        return earliest((self.subscriptions.deadline, self.streams.deadline))

    def fire(self, now: Instant) -> list[Effect]:
        effects = self.subscriptions.fire(now)
        for stream in self.streams.ripe(now):
            effects += stream.fire(now)
        return effects

    def settle_move(self, name: SubscriptionName) -> list[Effect]:
        """The broker that a subscription came from has forgotten it."""
        self.table.settle(name)
        return self.subscriptions.settle_move(name)

    def check(self, portion: Portion = WHOLE) -> None:
        self.subscriptions.check(portion)
        self.table.check(portion)
        for stream in portion.of(self.streams.values()):
            stream.check()
        self.streams.check(portion)
        for subscription in portion.of(self.subscriptions.all()):
            assert subscription.since.keys() <= self.streams.keys(), "I1"
            assert subscription.number in self.filters, "I1"
