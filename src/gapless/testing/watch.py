"""The watch: sees everything that happens, adds it to the record, shows it to the checkers.

The world calls it; it calls no broker. A checker is asked only where it defines the method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    CaughtUp,
    Consumed,
    Deliveries,
    Ended,
    FellBehind,
    Lost,
    Publish,
    Receipt,
    Refused,
    Subscribed,
    SubscriptionAltered,
)
from gapless.core.effects import Append, Chop
from gapless.core.identity import ClientName, PubendName
from gapless.testing.checkers.checker import Checker
from gapless.testing.record import Record, Subscription, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gapless.core.effects import Write
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.core.ticks import Span
    from gapless.testing.checkers.checker import Broker

LOG = "log/"

ANNOUNCED = "behind or level, as announced"
"""What a subscription gets, its own deliveries or everybody's, is as it was told before."""


class Watch:
    """One run's record and the checkers that read it."""

    def __init__(self, record: Record, checkers: Sequence[Checker]) -> None:
        self.record = record
        self.checkers = checkers
        self._asked: dict[tuple[ClientName, int], tuple[bytes, ...]] = {}
        self._written = [c.written for c in self._with("written")]
        self._committed = [c.committed for c in self._with("committed")]
        self._acknowledged = [c.acknowledged for c in self._with("acknowledged")]
        self._restarted = [c.restarted for c in self._with("restarted")]
        self._stepped = [c.stepped for c in self._with("stepped")]
        self._sent = [c.sent for c in self._with("sent")]
        self._received = [c.received for c in self._with("received")]
        self._delivered = [c.delivered for c in self._with("delivered")]
        self._advanced = [c.advanced for c in self._with("advanced")]

    def _with(self, method: str) -> list[Checker]:
        plain: Callable[..., None] = getattr(Checker, method)
        return [each for each in self.checkers if getattr(type(each), method) is not plain]

    # --- what brokers and disks do ---------------------------------------------------------------

    def committed(self, broker: Broker, writes: Iterable[Write]) -> None:
        """These writes are durable from now on."""
        for write in writes:
            for see in self._written:
                see(broker, write)
            if isinstance(write, Append) and write.stream.startswith(LOG):
                pubend = PubendName(write.stream.removeprefix(LOG))
                for tick, encoded in zip(write.indices, write.records, strict=True):
                    for check in self._committed:
                        check(pubend, tick, encoded)
                    log = self.record.logs[pubend]
                    log.ticks.append(tick)
                    log.events[tick] = encoded
                    self.record.places.setdefault(encoded, (pubend, tick))
                    self.record.committed_at[pubend, tick] = broker.incarnation
            elif isinstance(write, Chop) and write.stream.startswith(LOG):
                chopped = self.record.logs.get(PubendName(write.stream.removeprefix(LOG)))
                if chopped is not None:  # else of a topic without events, which was deleted
                    chopped.chopped = max(chopped.chopped, write.index)

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        for check in self._sent:
            check(broker, to, message)
        if isinstance(message, Receipt):
            asked = self._asked.get((ClientName(to), message.request))
            if asked is None:
                raise Violation("answers fit questions", f"{to} never made {message.request}")
            for acknowledge in self._acknowledged:
                acknowledge(broker, message, asked)
        elif isinstance(message, Deliveries):
            queued = self.record.queued
            queued[ClientName(to)] = queued.get(ClientName(to), 0) + len(message.ticks)
        elif isinstance(message, Subscribed):
            self._hold(self.record.subscriptions.get((ClientName(to), message.subscription)))
        elif isinstance(message, Ended):
            subscription = self.record.subscriptions[ClientName(to), message.subscription]
            for checker in self._with("ended"):
                checker.ended(subscription, message)

    def _hold(self, subscription: Subscription | None) -> None:
        """The subscription exists; what is logged from now on is logged for it too."""
        if subscription and (named := subscription.named) and not named.held_from:
            for pubend in self.record.pubends_of(subscription.topic):
                ticks = self.record.logs[pubend].ticks
                named.held_from[pubend] = ticks[-1] + 1 if ticks else 0

    def received(self, broker: Broker, sender: PeerName, message: Message) -> None:
        if isinstance(message, Consumed):
            self.record.queued[ClientName(sender)] -= message.count
        for check in self._received:
            check(broker, sender, message)

    def stepped(self, broker: Broker, effort: int) -> None:
        """A step of a broker is over; so much it did (`sim.effort`)."""
        for check in self._stepped:
            check(broker, effort)

    def restarted(self, broker: Broker) -> None:
        for check in self._restarted:
            check(broker)

    def replaced(self, broker: Broker) -> None:
        """A broker that is down has another disk: note which events went with the old one."""
        self.record.lost_disks.add(broker.name)
        for pubend, host in self.record.hosts.items():
            log = self.record.logs[pubend]
            if host == broker.name:
                found = set(broker.store.scan(f"{LOG}{pubend}", 0, 1 << 63, bytes_max=1 << 40)[0])
                log.lost |= {t for t in log.ticks if t >= log.chopped and t not in found}
        for checker in self._with("replaced"):
            checker.replaced(broker)

    # --- what clients do and see -----------------------------------------------------------------

    def asked(self, client: ClientName, message: Publish) -> None:
        """A client sends a request, perhaps again."""
        self._asked[client, message.request] = tuple(message.events)
        self.record.largest_request = max(self.record.largest_request, len(message.events))

    def told(self, client: ClientName, message: Message) -> None:
        """A client gets a message about its subscriptions or requests."""
        match message:
            case Deliveries():
                self._deliver(client, message)
            case Subscribed():
                self._begin(self.record.subscriptions[client, message.subscription], message)
            case SubscriptionAltered(request=0, altered=altered):
                changed = self.record.subscriptions[client, message.subscription]
                changed.conditions.note(altered, message.condition, message.former)
            case CaughtUp(number, pubend) | FellBehind(number, pubend):
                self._switch(self.record.subscriptions[client, number], pubend, message)
            case Ended():
                self.record.subscriptions[client, message.subscription].over = True
            case Lost():
                self._lose(
                    [self.record.subscriptions[client, n] for n in message.subscriptions], message
                )
            case Refused(request) if not self.record.is_superseded(client, request):
                for checker in self._with("refused"):
                    checker.refused(message)
            case _:
                pass

    def _begin(self, subscription: Subscription, message: Subscribed) -> None:
        start = {PubendName(pubend): tick for pubend, tick in message.start.items()}
        if sorted(start) != sorted(self.record.pubends_of(subscription.topic)):
            raise Violation("a start for each pubend", f"{subscription}: {message.start}")
        for checker in self._with("begun"):
            checker.begun(subscription, message)
        if message.altered:
            conditions = subscription.conditions
            conditions.note(message.altered, message.condition, message.former)
        subscription.start, subscription.position = start, dict(start)
        subscription.behind = {PubendName(pubend) for pubend in message.behind}
        subscription.live = True
        if subscription.named and not self.record.is_outlived(subscription):
            subscription.named.begin(start)

    def _switch(self, subscription: Subscription, pubend: PubendName, message: Message) -> None:
        was_behind = pubend in subscription.behind
        if was_behind != isinstance(message, CaughtUp):
            how = "behind" if was_behind else "level"
            raise Violation(ANNOUNCED, f"{subscription} is {how} at {pubend} already")
        if was_behind:
            subscription.behind.remove(pubend)
            for checker in self._with("caught_up"):
                checker.caught_up(subscription, pubend)
        else:
            subscription.behind.add(pubend)

    def _lose(self, losers: list[Subscription], message: Lost) -> None:
        for subscription in losers:
            self._advance(subscription, message.pubend, message.span.start)
        for checker in self._with("lost"):
            checker.lost(losers, message)
        for subscription in losers:
            before = subscription.position[message.pubend]
            subscription.position[message.pubend] = max(before, message.span.end)

    def gone(self, client: ClientName) -> None:
        """The connection is over, and with it all its subscriptions."""
        for subscription in self.record.subscriptions.values():
            if subscription.client == client:
                subscription.over = True

    def _deliver(self, client: ClientName, message: Deliveries) -> None:
        record = self.record
        for tick, encoded, takers in zip(
            message.ticks, message.events, message.takers, strict=True
        ):
            pubend = message.pubend or record.pubend_of(message.topic, tick)
            for number in takers:
                subscription = record.subscriptions.get((client, number))
                if subscription is None or not subscription.live or subscription.over:
                    raise Violation("delivered to the living", f"{client}#{number} gets {pubend}")
                if (number == message.only) != (pubend in subscription.behind):
                    raise Violation(ANNOUNCED, f"{subscription} gets {pubend} as the other kind")
                for check in self._delivered:
                    check(subscription, pubend, tick, encoded)
                subscription.delivered.append((pubend, tick))
                record.deliveries += 1
        pubends = [message.pubend] if message.pubend else record.pubends_of(message.topic)
        for subscription in self._addressed(client, message):
            for pubend in pubends:
                self._advance(subscription, pubend, message.through)

    def _addressed(self, client: ClientName, message: Deliveries) -> list[Subscription]:
        """Those of a client that a message is about."""
        if message.only is not None:
            only = self.record.subscriptions[client, message.only]
            if message.pubend not in only.behind:
                raise Violation(ANNOUNCED, f"{only} is level at {message.pubend}")
            return [only]
        order = "total" if message.pubend is None else "publisher"
        return [
            each
            for each in self._of(client)
            if (each.topic, each.order) == (message.topic, order)
            and message.pubend not in each.behind
        ]

    def _of(self, client: ClientName) -> list[Subscription]:
        return [each for each in self.record.live() if each.client == client]

    def _advance(self, subscription: Subscription, pubend: PubendName, through: int) -> None:
        before = subscription.position[pubend]
        if through > before:
            for check in self._advanced:
                check(subscription, pubend, before, through)
            subscription.position[pubend] = through

    # --- what clients of named subscriptions do -------------------------------------------------

    def consume(
        self, subscription: Subscription, pubend: PubendName, ticks: list[int], through: int
    ) -> None:
        """A client takes events off its queue; its token moves to `through`."""
        assert subscription.named
        for checker in self._with("consumed"):
            checker.consumed(subscription, pubend, ticks, through)
        subscription.named.consume(pubend, ticks, through)

    def skip(self, subscription: Subscription, pubend: PubendName, span: Span) -> None:
        """A client takes note of a loss; its token moves behind it."""
        assert subscription.named
        for checker in self._with("skipped"):
            checker.skipped(subscription, pubend, span)
        subscription.named.skip(pubend, span)

    # --- now and then ----------------------------------------------------------------------------

    def sample(self, broker: Broker) -> None:
        for checker in self._with("sampled"):
            checker.sampled(broker)

    def finish(self) -> None:
        for checker in self._with("finished"):
            checker.finished()
