"""Durables: the durable subscriptions of one broker and their consolidated streams.

Theory of operation
    Where a topic has durable subscriptions, each of its pubends has a consolidated stream: what
    has become settled is matched once for all, written down in the filtered log, and acknowledged
    upstream when that is durable, not before. Clients are attached elsewhere (`attachments`);
    a subscription counts whether one is or not.

Invariants (checked by `check`): those of the machines, and
    I1  every durable subscription is in the matcher of its topic, and has a stream at each pubend

Source: DSN 2003, sec. 4; docs/protocols/durable-subscriptions.md, 3.2, 3.5, 3.7.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.core.effects import Persist, Put
from gapless.core.identity import BrokerName, Instant, PubendName
from gapless.core.name_messages import NameEntry
from gapless.core.portion import WHOLE, Portion
from gapless.durable.consolidated import LOST
from gapless.filters.filter import Filter
from gapless.knowledge.subend import Settled
from gapless.node.deadlines import Machines, earliest
from gapless.node.delivery.audience import DURABLE
from gapless.node.recent import remember

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.core.effects import Effect
    from gapless.core.identity import SubscriptionName, TopicName
    from gapless.core.store import Store
    from gapless.core.ticks import Span
    from gapless.core.token import Token
    from gapless.durable.consolidated import Consolidated, Recorded
    from gapless.durable.subscriptions import Definition, Kept, Subscription
    from gapless.node.config import Config
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.parts import Parts


MOVED = "moved"
"""Table: where subscriptions went that were here, and how often they had moved then."""


MOVING_MAX = 1_000
"""Moves that are remembered until they are surely durable; beyond it the oldest is looked up."""


class Moved(NamedTuple):
    """Where a subscription went."""

    broker: BrokerName
    moves: int
    owner: str = ""


class Durables:
    """All durable subscriptions of one broker. See the module docstring."""

    def __init__(
        self,
        name: BrokerName,
        config: Config,
        store: Store,
        subscribers: Subscribers,
        parts: Parts,
    ) -> None:
        self.name = name
        self.config = config
        self.store = store
        self.subscribers = subscribers
        self.parts = parts
        self.subscriptions = parts.durable_subscriptions(store, config)
        self.streams: Machines[PubendName, Consolidated] = Machines()
        self.filters: dict[int, Filter] = {}
        self._moving: dict[SubscriptionName, Moved] = {}  # may not be durable yet
        self.reports: dict[PubendName, None] = {}  # pubends at which positions have moved
        for subscription in self.subscriptions.all():
            self._take_in(subscription)

    def _take_in(self, subscription: Subscription) -> None:
        definition = subscription.definition
        condition = self.filters[subscription.number] = Filter.parse(definition.condition)
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

    def survivors(self, topic: TopicName) -> dict[tuple[str, int], Filter]:
        """The subscriptions of a topic that were here before, for the leaf."""
        some = self.subscriptions.of_topic(topic)
        return {(DURABLE, each.number): self.filters[each.number] for each in some}

    # --- the consolidated streams -----------------------------------------------------------------

    def is_full(self, pubend: PubendName) -> bool:
        stream = self.streams.get(pubend)
        return stream is not None and stream.is_full

    def position(self, pubend: PubendName, taken: int) -> tuple[int, int]:
        """What is delivered and what is released here, of a stream that was taken that far."""
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
        """A batch was delivered to those that are level: write down who takes it."""
        stream = self.streams.get(pubend)
        if stream is None:
            return []
        return stream.advance(settled, takers, through, now)

    def taken_as_lost(
        self, topic: TopicName, pubend: PubendName, lost: Span
    ) -> tuple[Settled, list[list[int]]]:
        """What is to be written down of a span that is lost: at its first tick something that all
        subscriptions of the topic take. Who catches up asks for it, and is told."""
        takers = [
            each.number
            for each in self.subscriptions.all()
            if each.definition.topic == topic and each.since[pubend] < lost.end
        ]
        return Settled([lost.start], [LOST], []), [takers]

    def remove(self, pubends: Iterable[PubendName]) -> None:
        """These are no more; nor are their subscriptions."""
        for pubend in pubends:
            self.streams.pop(pubend, None)
            self.reports.pop(pubend, None)

    def recorded(self, message: Recorded, now: Instant) -> list[Effect]:
        """What was written down is durable: it is to be acknowledged."""
        if message.pubend not in self.streams:
            return []  # it was deleted meanwhile
        self.reports[message.pubend] = None
        return self.streams[message.pubend].persisted(message, now)

    def chop(self, pubend: PubendName, released: int) -> list[Effect]:
        """What everyone has released is needed in the filtered log no more."""
        stream = self.streams.get(pubend)
        return stream.chop(released) if stream is not None else []

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
        """A new subscription, which counts from the ticks `since` on; everything below `taken` is
        delivered. `UsageError`: it may not be made."""
        effects: list[Effect] = []
        for pubend, tick in taken.items():
            if pubend not in self.streams:
                effects += self._begin_stream(pubend, tick, now)
        named = {str(p): max(tick, self.streams[p].delivered) for p, tick in since.items()}
        effects += self.subscriptions.create(
            definition, start, named, then=then, otherwise=otherwise
        )
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

    def end(self, name: SubscriptionName, then: tuple[Effect, ...]) -> list[Effect]:
        """Forget a subscription for good; `then` when that is durable."""
        subscription = self.subscriptions.get(name)
        assert subscription is not None
        self._let_go(subscription)
        return self.subscriptions.end(name, then=then)

    def entry(self, name: SubscriptionName) -> NameEntry | None:
        """What there is to say to a registrar of a subscription that is here."""
        known = self.subscriptions.get(name)
        if known is None:
            return None
        return NameEntry(self.name, known.definition.moves, known.definition.owner)

    def moved(self, name: SubscriptionName) -> Moved | None:
        """Where a subscription went that was here."""
        if name in self._moving:
            return self._moving[name]
        fact = self.store.get(MOVED, name)
        if fact is None:
            return None
        place, _, owner = fact.decode().partition("\n")  # which no name of a broker has
        moves, broker = place.split(" ", 1)
        return Moved(BrokerName(broker), int(moves), owner)

    def remember_move(self, name: SubscriptionName, moved: Moved) -> list[Effect]:
        """If there is no room for it, a client that does not know is led nowhere. It counts at
        once: the client may come back before it is durable."""
        remember(self._moving, name, moved, MOVING_MAX)
        fact = f"{moved.moves} {moved.broker}\n{moved.owner}".rstrip("\n")
        return [Persist((Put(MOVED, name, fact.encode()),))]

    def _let_go(self, subscription: Subscription) -> None:
        key = (DURABLE, subscription.number)
        self.subscribers.remove_durable(key, subscription.definition.topic)
        self.filters.pop(subscription.number, None)

    # --- writes, time, invariants -----------------------------------------------------------------

    def kept(self, message: Kept, now: Instant) -> list[Effect]:
        """A write of definitions or acknowledgements has ended."""
        if message.name is not None and not message.ok:
            refused = self.subscriptions.get(message.name)
            if refused is not None and refused.number == message.number:
                self._let_go(refused)
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

    def check(self, portion: Portion = WHOLE) -> None:
        self.subscriptions.check(portion)
        for stream in portion.of(self.streams.values()):
            stream.check()
        self.streams.check(portion)
        for subscription in portion.of(self.subscriptions.all()):
            assert subscription.since.keys() <= self.streams.keys(), "I1"
            assert subscription.number in self.filters, "I1"
