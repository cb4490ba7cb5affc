"""Subscribers: the subscriptions at one broker, matched against settled batches.

Theory of operation
    A settled batch is matched once against all subscriptions of its topic and order. Each
    connection then gets one message with every event that any of its subscriptions wants, each
    event once. Connections that want the same events get the same message, which is encoded once
    for all. A subscription counts from a tick of each stream on. While that tick lies ahead of what
    is settled, the subscription is *young*: earlier events do not count for it.
    A client tells how much it has consumed. A client that lets more than `client_queue_max` events
    pile up loses the subscriptions that would add to them, with an error, and slows nobody else.

Invariants (checked by `check`)
    I1  a subscription is in the audience of its topic and order, and nowhere else
    I2  no client has more than `client_queue_max` events outstanding, or one batch if that is more
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.client_messages import Deliveries, Ended, Lost
from gapless.core.effects import Effect, Send
from gapless.core.events import EventBatch
from gapless.core.portion import WHOLE, Portion
from gapless.node.delivery.audience import DURABLE, Audience
from gapless.node.delivery.match_meter import MatchMeter
from gapless.node.delivery.packing import Packing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.core.client_messages import Order
    from gapless.core.events import Attributes
    from gapless.core.identity import ClientName, PubendName, TopicName
    from gapless.filters.filter import Filter
    from gapless.knowledge.subend import Settled
    from gapless.node.config import Config
    from gapless.node.delivery.audience import ConditionGroup, Key, MatchedBatch
    from gapless.node.delivery.connections import ClientConnection, ClientConnections
    from gapless.node.delivery.packing import Share
    from gapless.node.delivery.session import Session

BATCH_SIZES = 32

NOBODY: list[int] = []
"""The takers of an event that no durable subscription wants; nothing is ever added to it."""


class Delivered(NamedTuple):
    """What came of a settled batch."""

    effects: list[Effect]
    takers: list[list[int]]  # for each event, the durable subscriptions that want it
    slow: list[Session]  # at durable subscriptions, whose clients cannot take it


class Subscribers:
    """All subscriptions at one broker."""

    def __init__(
        self,
        config: Config,
        attributes_of: Callable[[EventBatch], Sequence[Attributes]],
        connections: ClientConnections,
    ) -> None:
        self.config = config
        self.attributes_of = attributes_of
        self.clients = connections
        self.audiences: dict[tuple[TopicName, Order], Audience] = {}
        self.meter = MatchMeter(config)
        self._owners: dict[Key, str] = {}  # of those subscriptions whose owner is known
        self.sessions: dict[int, Session] = {}  # by number: durable ones with a client
        self.sessions_of: dict[ClientName, dict[int, Session]] = {}  # by client, then its number
        self._sessions_at: dict[TopicName, dict[int, Session]] = {}  # by topic, then number
        self.durable_count = 0
        self.subscription_count = 0
        self._young: dict[TopicName, dict[PubendName | None, dict[Key, int]]] = {}
        self.dropped: list[tuple[TopicName, Key]] = []  # removed since `take_dropped`
        self.ended_slow = 0
        self.batch_sizes = [0] * BATCH_SIZES  # how many batches had less than 2^i events
        self._batch_longest = 0

    def disconnect(self, name: ClientName) -> None:
        """A client is gone: remove its anonymous subscriptions and its connection."""
        for number in list(self.clients[name].subscriptions) if name in self.clients else ():
            self.remove(name, number)
        self.clients.disconnect(name)

    def add(
        self,
        name: ClientName,
        number: int,
        topic: TopicName,
        order: Order,
        condition: Filter,
        young: Mapping[PubendName | None, int] = MappingProxyType({}),
    ) -> None:
        """`young`: streams of which something before the start is not settled yet, and the start;
        None stands for all of them merged."""
        client = self.clients[name]
        client.subscriptions[number] = (topic, order)
        self._add((topic, order), (name, number), condition, young, client.owner)

    def add_durable(
        self,
        key: Key,
        topic: TopicName,
        condition: Filter,
        young: Mapping[PubendName | None, int],
        owner: str = "",
    ) -> None:
        """A durable subscription, whether a client is attached to it or not."""
        self.durable_count += 1
        self._add((topic, "publisher"), key, condition, young, owner)

    def _add(
        self,
        place: tuple[TopicName, Order],
        key: Key,
        condition: Filter,
        young: Mapping[PubendName | None, int],
        owner: str,
    ) -> None:
        self.meter.add(place, owner, condition)
        if owner:
            self._owners[key] = owner
        if place not in self.audiences:
            self.audiences[place] = Audience()
        self.audiences[place].add(key, condition)
        self.subscription_count += 1
        for pubend, start in young.items():
            self._young.setdefault(place[0], {}).setdefault(pubend, {})[key] = start

    def remove_durable(self, key: Key, topic: TopicName) -> None:
        place: tuple[TopicName, Order] = (topic, "publisher")
        if place in self.audiences and key in self.audiences[place]:
            self.durable_count -= 1
            self._remove(place, key)

    def alter_durable(self, key: Key, topic: TopicName, condition: Filter) -> None:
        """A durable subscription has another condition from now on."""
        place: tuple[TopicName, Order] = (topic, "publisher")
        audience, owner = self.audiences[place], self._owners.get(key, "")
        self.meter.remove(place, owner, audience.condition_of(key))
        self.meter.add(place, owner, condition)
        audience.remove(key)
        audience.add(key, condition)
        if key[1] in self.sessions:
            audience.attach(key[1])

    def attach(self, session: Session) -> None:
        """A client is attached to a durable subscription."""
        number, topic = session.subscription.number, session.subscription.definition.topic
        self.sessions[number] = session
        self.sessions_of.setdefault(session.name, {})[session.number] = session
        self._sessions_at.setdefault(topic, {})[number] = session
        self.audiences[topic, "publisher"].attach(number)

    def detach(self, session: Session) -> None:
        """The client left; the subscription goes on, unless it has ended."""
        number, topic = session.subscription.number, session.subscription.definition.topic
        del self.sessions[number], self.sessions_of[session.name][session.number]
        if not self.sessions_of[session.name]:
            del self.sessions_of[session.name]
        del self._sessions_at[topic][number]
        if not self._sessions_at[topic]:
            del self._sessions_at[topic]
        if (audience := self.audiences.get((topic, "publisher"))) is not None:
            audience.detach(number)

    def attached_to(self, topic: TopicName) -> list[Session]:
        """Clients at durable subscriptions of a topic."""
        return list(self._sessions_at.get(topic, {}).values())

    def remove(self, name: ClientName, number: int) -> bool:
        place = self.clients[name].subscriptions.pop(number, None)
        if place is not None:
            self._remove(place, (name, number))
        return place is not None

    def _remove(self, place: tuple[TopicName, Order], key: Key) -> None:
        self.dropped.append((place[0], key))
        for starts in self._young.get(place[0], {}).values():
            starts.pop(key, None)
        self.subscription_count -= 1
        condition = self.audiences[place].condition_of(key)
        self.meter.remove(place, self._owners.pop(key, ""), condition)
        self.audiences[place].remove(key)
        if not len(self.audiences[place]):
            del self.audiences[place]

    def take_dropped(self) -> list[tuple[TopicName, Key]]:
        """The subscriptions that were removed since this was last asked for."""
        dropped, self.dropped = self.dropped, []
        return dropped

    def of_topic(self, topic: TopicName) -> list[Key]:
        """The anonymous subscriptions of a topic."""
        return [
            (name, number)
            for name, client in self.clients.items()
            for number, place in client.subscriptions.items()
            if place[0] == topic
        ]

    def wants(self, topic: TopicName, order: Order) -> bool:
        return (topic, order) in self.audiences

    def consumed(self, name: ClientName, count: int) -> bool:
        """Note what a client has consumed. May any of its named subscriptions go on by that?"""
        self.clients[name].consume(count)
        some = self.sessions_of.get(name, {}).values()
        return any(session.behind or session.total_order is not None for session in some)

    def deliver(
        self, topic: TopicName, pubend: PubendName | None, settled: Settled, through: int
    ) -> Delivered:
        """One message for each connection that wants something of a settled batch."""
        audience = self.audiences.get((topic, order_of(pubend)))
        if audience is None:
            return Delivered([], [NOBODY] * len(settled.ticks), [])
        effects = self._tell_lost(topic, pubend, settled)
        young = self._grow_up(topic, pubend, through)
        if not settled.ticks:
            return Delivered(effects, [], [])
        batch = EventBatch.join(settled.events)
        size = sum(map(len, settled.events))
        self.meter.spend((topic, order_of(pubend)), len(batch), size)
        self._batch_longest = max(self._batch_longest, len(batch))
        shares: dict[ClientName, list[Share]] = {}
        self.batch_sizes[len(batch).bit_length()] += 1
        groups, singles = self._match(audience, batch, apart=not young)
        recorded = [NOBODY] * len(batch)
        slow: list[Session] = []
        for group, indices in groups:
            self._record(group, indices, recorded, settled.ticks, young)
            slow += self._share_out(group, indices, shares, settled, pubend, young)
        limits = self.config.batch_events_max, self.config.batch_bytes_max
        packing, place = Packing(topic, pubend, settled, through, limits), (topic, pubend)
        for name in sorted(shares.keys() | singles.keys()):
            wanted, single = shares.get(name, []), singles.get(name)
            parcel = packing.pack(wanted, single)
            client = self.clients[name]
            if self.is_too_slow(client, parcel.count, parcel.size):
                numbers = sorted({*(n for n, _ in wanted), *(single[1] if single else ())})
                attached = self.sessions_of.get(name, {})
                slow += [attached[n] for n in numbers if n in attached]
                effects += self._end_slow(name, numbers)
                continue
            client.send(parcel.count, parcel.size)
            client.through[place] = through
            for message in parcel.messages:
                effects.append(Send(name, message))
        return Delivered(effects, recorded, slow)

    def _match(self, audience: Audience, batch: EventBatch, *, apart: bool) -> MatchedBatch:
        return audience.match(self.attributes_of(batch), apart=apart)

    def _record(
        self,
        group: ConditionGroup,
        indices: list[int],
        recorded: list[list[int]],
        ticks: Sequence[int],
        young: dict[Key, int],
    ) -> None:
        """Which durable subscriptions want which event, connected or not: events that the same want
        have the very same list."""
        if not group.durable:
            return
        numbers = list(group.durable)
        if young:
            late = {n: young[DURABLE, n] for n in numbers if (DURABLE, n) in young}
            numbers = [n for n in numbers if n not in late]
            for number, start in late.items():
                for index in indices:
                    if ticks[index] >= start:
                        recorded[index] = [*recorded[index], number]
        for index in indices if numbers else ():
            recorded[index] = [*recorded[index], *numbers] if recorded[index] else numbers

    def _share_out(
        self,
        group: ConditionGroup,
        indices: list[int],
        shares: dict[ClientName, list[Share]],
        settled: Settled,
        pubend: PubendName | None,
        young: dict[Key, int],
    ) -> list[Session]:
        """Give each connected client the events that it gets. Sessions in total order hold them;
        the answer is those that have no room."""
        slow: list[Session] = []
        ticks, first = settled.ticks, settled.ticks[indices[0]]
        for key in group.connected:
            start = young.get(key, 0) if young else 0
            wanted = indices if start <= first else [i for i in indices if ticks[i] >= start]
            if wanted:
                shares.setdefault(key[0], []).append((key[1], wanted))
        for number in group.attached if pubend is not None else ():
            session = self.sessions[number]
            sent = session.level.get(pubend)  # type: ignore[arg-type]
            if sent is None:
                continue  # it is behind, and gets it later
            start = max(sent, young.get((DURABLE, number), 0)) if young else sent
            wanted = indices if start <= first else [i for i in indices if ticks[i] >= start]
            if wanted and session.total_order is not None and pubend is not None:
                events = [settled.events[i] for i in wanted]
                if not session.total_order.add(pubend, [ticks[i] for i in wanted], events):
                    slow.append(session)
            elif wanted:
                shares.setdefault(session.name, []).append((session.number, wanted))
        return slow

    def _grow_up(self, topic: TopicName, pubend: PubendName | None, through: int) -> dict[Key, int]:
        """The subscriptions that were young up to now. A subscription that starts below `through`
        is not young from here on."""
        starts = self._young.get(topic)
        young = starts.get(pubend) if starts is not None else None
        if starts is None or young is None:
            return {}
        starts[pubend] = {key: tick for key, tick in young.items() if tick > through}
        if not starts[pubend]:
            del starts[pubend]
            if not starts:
                del self._young[topic]
        return young

    def is_too_slow(self, client: ClientConnection, count: int, size: int) -> bool:
        """Would more pile up than may? A client that has consumed everything is never too slow."""
        if not client.outstanding:
            return False
        config, size = self.config, size + client.outstanding_bytes
        count += client.outstanding
        return count > config.client_queue_max or size > config.client_queue_bytes_max

    def tell_position(
        self, topic: TopicName, pubend: PubendName | None, through: int
    ) -> list[Effect]:
        """Tell the clients that got nothing for a while that nothing matched."""
        effects: list[Effect] = []
        for name in sorted(self._names(topic, order_of(pubend))):
            client = self.clients[name]
            if client.through.get((topic, pubend), 0) < through:
                client.through[topic, pubend] = through
                effects.append(Send(name, Deliveries(topic, through, pubend)))
        return effects

    def _names(self, topic: TopicName, order: Order) -> set[ClientName]:
        """The clients that take part in a topic and order."""
        audience = self.audiences.get((topic, order))
        names = set(audience.clients) if audience is not None else set()
        for session in self._sessions_at.get(topic, {}).values() if order == "publisher" else ():
            names.add(session.name)
        return names

    def _takers(self, topic: TopicName, order: Order) -> dict[ClientName, tuple[int, ...]]:
        """The subscriptions of a topic and order, by client."""
        audience = self.audiences.get((topic, order))
        clients = audience.clients if audience is not None else {}
        return {
            name: tuple(sorted(clients.get(name, ()))) for name in sorted(self._names(topic, order))
        }

    def _tell_lost(
        self, topic: TopicName, pubend: PubendName | None, settled: Settled
    ) -> list[Effect]:
        if not settled.lost:
            return []
        return [
            Send(name, Lost(numbers, source, span))
            for name, numbers in self._takers(topic, order_of(pubend)).items()
            if numbers
            for source, span in settled.lost
        ]

    def _end_slow(self, name: ClientName, numbers: list[int]) -> list[Effect]:
        effects: list[Effect] = []
        for number in numbers:
            if not self.remove(name, number):
                continue  # a durable one: it falls behind
            self.ended_slow += 1
            problem = "too many events were sent and not consumed in time"
            remedy = "Consume faster, or narrow the condition; then subscribe again."
            effects.append(Send(name, Ended(number, problem, remedy)))
        return effects

    def check(self, portion: Portion = WHOLE) -> None:
        for name, client in portion.of(self.clients.items()):
            for number, place in client.subscriptions.items():
                assert (name, number) in self.audiences[place], "I1"
        anonymous = sum(len(client.subscriptions) for client in self.clients.values())
        assert anonymous + self.durable_count == self.subscription_count, "I1"
        assert self.subscription_count == sum(map(len, self.audiences.values())), "I1"
        if portion.is_whole:
            attached = [one for some in self._sessions_at.values() for one in some.values()]
            assert {id(one) for one in attached} == {id(one) for one in self.sessions.values()}
        for audience in self.audiences.values():
            audience.check(portion)
        self.meter.check()
        limit = max(self.config.client_queue_max, self._batch_longest)
        assert all(client.outstanding <= limit for client in self.clients.values()), "I2"


def order_of(pubend: PubendName | None) -> Order:
    return "total" if pubend is None else "publisher"
