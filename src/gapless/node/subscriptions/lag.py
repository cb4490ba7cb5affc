"""Lag: what each named subscription has still to get, in events, bytes and time.

Theory of operation
    The filtered log says which events a subscription takes (`durable.chain_count`). Pending is what
    it took and its client has not: everything from the acknowledged position on, less what an
    attached client was sent and has consumed. The answer is exact where the broker knows it, else a
    bound that is marked:
    `at least`  the chain is longer than one look may walk (the next look goes on), the subscription
                wants events from before this broker knew it, or the log was damaged
    `at most`   a client that keeps its own token was sent events which it did not acknowledge; or
                it shares a connection with other subscriptions, whose events wait there too
    `about`     both
    A subscription is `live` or `catching up` while a client is attached, `reading` while a client
    that reads ranges acknowledges it by name, as Spark does, and `away` otherwise.

Cost: nothing for an event; a look walks at most `RECORDS_MAX` records, of all subscriptions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from gapless.core.identity import PubendName
from gapless.core.ticks import Tick, instant_of
from gapless.durable.chain_count import Budget, ChainCount
from gapless.knowledge.answers import fetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.core.identity import Instant
    from gapless.core.store import Store
    from gapless.durable.chain_count import Count
    from gapless.durable.consolidated import Consolidated
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.delivery.session import Session
    from gapless.node.subscriptions.catch_ups import CatchUps
    from gapless.node.subscriptions.named_subscriptions import NamedSubscriptions

RECORDS_MAX = 10_000
"""Records of filtered logs that one look at all subscriptions walks; the rest is a bound."""

READING_US = 60_000_000
"""How long after its last contact a client that reads ranges still counts as reading."""

State = Literal["live", "catching up", "reading", "away"]
Accuracy = Literal["exact", "at least", "at most", "about"]


class Lag(NamedTuple):
    """The lag of one subscription; see the module docstring."""

    state: State
    pending: int
    accuracy: Accuracy
    pending_bytes: int | None
    """None: nothing is known of the events' sizes."""
    is_size_exact: bool
    unacknowledged: int
    """Events that are kept for it: the pending ones, and those that its client did not confirm."""
    oldest: Instant | None
    """When the oldest pending event was published, or the oldest that is kept; None without any."""


class Lags:
    """The lags of all named subscriptions of one broker."""

    def __init__(self, named: NamedSubscriptions, catch_ups: CatchUps, store: Store) -> None:
        self._named = named
        self._catch_ups = catch_ups
        self._store = store
        self._chains: dict[tuple[int, PubendName], ChainCount] = {}

    def look(
        self, subscriptions: Iterable[DurableSubscription], now: Instant
    ) -> list[tuple[DurableSubscription, Lag]]:
        """The lag of each of these."""
        budget = Budget(RECORDS_MAX)
        return [(each, self._lag(each, now, budget)) for each in subscriptions]

    def forget(self) -> None:
        """Drop the counts of subscriptions that are gone."""
        numbers = {each.number for each in self._named.subscriptions.all()}
        gone = [key for key in self._chains if key[0] not in numbers]
        for key in gone:
            del self._chains[key]

    def _chain(self, number: int, pubend: PubendName) -> ChainCount:
        chain = self._chains.get((number, pubend))
        if chain is None:
            log = self._catch_ups.logs.get(pubend)
            sizes = None if log is None else partial(size_of_events, self._store, log)
            chain = ChainCount(self._named.streams[pubend].log, number, sizes)
            self._chains[number, pubend] = chain
        return chain

    def _lag(self, subscription: DurableSubscription, now: Instant, budget: Budget) -> Lag:
        session = self._named.table.session(subscription.definition.name)
        kept, unsent, parts = LagSum(), LagSum(), list[LagPart]()
        for text, since in subscription.since.items():
            pubend = PubendName(text)
            stream = self._named.streams[pubend]
            released = self._catch_ups.released_of(pubend)
            start = max(subscription.acknowledged.get(pubend), released)
            chain = self._chain(subscription.number, pubend)
            whole = chain.look(start, budget)
            kept.add(whole, stream, is_known=start >= min(since, stream.latest))
            sent = sent_below(session, subscription, pubend)
            if sent is not None:
                rest = chain.count_from(max(start, sent))
                unsent.add(rest, stream, is_known=True)
                parts.append(LagPart(chain, whole.events, rest.events))
        is_sized = all(PubendName(each) in self._catch_ups.logs for each in subscription.since)
        if session is not None:
            some = self._named.subscribers.sessions_of.get(session.name, {})
            is_alone = len(some) == 1 and not session.client.subscriptions
            waiting = min(kept.events - unsent.events, session.client.outstanding)
            if waiting:
                unsent.oldest = oldest_waiting(parts, waiting)
            is_alone = is_alone or not waiting
            return attached_lag(session, kept, unsent, waiting, is_alone, is_sized)
        contact = subscription.contact
        is_reading = contact.is_reader and now - contact.at <= READING_US
        may_have_more = subscription.definition.tokens == "client" and kept.events > 0
        if contact.sent is not None and unsent.events == kept.events:
            may_have_more = False
        return Lag(
            "reading" if is_reading else "away",
            kept.events,
            accuracy(is_least=not kept.is_exact, is_most=may_have_more),
            kept.size if is_sized else kept.about,
            is_sized and kept.is_exact and not may_have_more,
            kept.events,
            kept.oldest,
        )


class LagPart(NamedTuple):
    """What a subscription has still to consume, and to be sent, of one pubend."""

    chain: ChainCount
    kept: int
    unsent: int


def oldest_waiting(parts: Sequence[LagPart], waiting: int) -> Instant | None:
    """When the oldest event was published that a client has not consumed, of which `waiting` were
    sent to it. A client consumes in order: of one pubend those are the newest that were sent. Of
    several pubends each may have all of them, so the answer may be too old, and never too new."""
    counts = ((each, each.unsent + min(waiting, each.kept - each.unsent)) for each in parts)
    ticks = [part.chain.newest(count) for part, count in counts]
    return min((instant_of(Tick(tick)) for tick in ticks if tick is not None), default=None)


def attached_lag(
    session: Session, kept: LagSum, unsent: LagSum, waiting: int, is_alone: bool, is_sized: bool
) -> Lag:
    """The lag of a subscription whose client is here, and was sent `waiting` events that it has not
    consumed. `is_alone`: on its connection. `is_sized`: the sizes of all events are known."""
    size = unsent.size if is_sized else unsent.about
    waiting_bytes = session.client.outstanding_bytes if waiting else 0
    return Lag(
        "catching up" if session.behind else "live",
        unsent.events + waiting,
        accuracy(is_least=not (unsent.is_exact and kept.is_exact), is_most=not is_alone),
        None if size is None else size + waiting_bytes,
        (is_sized or not unsent.events) and is_alone and unsent.is_exact,
        kept.events,
        unsent.oldest,
    )


class LagSum:
    """Counts at several pubends, added up."""

    def __init__(self) -> None:
        self.events = 0
        self.size = 0
        self.about: int | None = 0  # by the mean size of events
        self.oldest: Instant | None = None
        self.is_exact = True

    def add(self, count: Count, stream: Consolidated, *, is_known: bool) -> None:
        self.events += count.events
        self.size += count.size
        self.is_exact = self.is_exact and count.is_exact and is_known
        if count.events and self.about is not None:
            mean = stream.mean_size
            self.about = None if mean is None else self.about + round(mean * count.events)
        if count.oldest is not None:
            oldest = instant_of(Tick(count.oldest))
            self.oldest = oldest if self.oldest is None else min(self.oldest, oldest)


def sent_below(
    session: Session | None, subscription: DurableSubscription, pubend: PubendName
) -> int | None:
    """The tick below which the client was sent everything; None if that is not known."""
    if session is not None:
        return session.sent_below(pubend)
    sent = subscription.contact.sent
    return None if sent is None else sent.get(pubend)


def accuracy(*, is_least: bool, is_most: bool) -> Accuracy:
    if is_least:
        return "about" if is_most else "at least"
    return "at most" if is_most else "exact"


def size_of_events(store: Store, log: str, ticks: Sequence[int]) -> int:
    """The bytes of the events at these ticks of a log that is here."""
    return sum(len(event) for event in fetch(store, log, sorted(ticks)) if event is not None)
