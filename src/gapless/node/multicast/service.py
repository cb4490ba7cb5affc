"""The multicast service at one broker: a member of the ring, and the clients of its topics here.

Theory of operation
    Brokers form a ring as soon as there is a multicast topic (`scribe.member`). All that the
    network file names ask to be let in; where nobody answers, the first of them founds the ring
    after a while, the next one a while later, and so on. Rings that were founded apart meet later.
    A broker that is in no file joins by the one that it is linked to.
    However many clients want a topic, the broker subscribes once. A batch that comes is matched
    here against all their conditions, as one of a durable topic is (`subscribers`).
    Of an ordered topic the number of a batch gives the ticks of its events. Without order, the
    ticks are those of this broker's clock when the batch came.

Invariants (checked by `check`)
    I1  the member subscribes to just those topics that clients here want, once it is in the ring

Source: `scribe`. Decision: docs/decisions/0019.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gapless.core.client_messages import Ended, Publish, Refused, Subscribe, Subscribed
from gapless.core.effects import Send
from gapless.core.errors import ProtocolError, UsageError
from gapless.core.events import EventBatch
from gapless.core.identity import Instant, PubendName
from gapless.core.portion import WHOLE, Portion
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.knowledge.batch import cut
from gapless.knowledge.subend import Settled
from gapless.node.directory.owner import ranking
from gapless.node.multicast.body import bodies, pack, unpack
from gapless.node.multicast.creation import Creation
from gapless.node.multicast.name_book import SPACE, NameBook
from gapless.node.multicast.pending import PendingSubscriptions
from gapless.node.multicast.post import Post
from gapless.node.multicast.requests import EVENTS_MAX, TICK_BITS, PendingRequest, Requests
from gapless.node.multicast.ring import ask_for_row, figures, make_member, proximity, seeds_of
from gapless.node.multicast.survey import Survey
from gapless.node.service import Service
from gapless.scribe.effects import Begun, Deliver, MissedRange, RequestOutcome, ToNode
from gapless.scribe.messages import AccessDenied, Ringed, Seat

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, ClientName, NodeId, TopicId, TopicName
    from gapless.core.messages import Message
    from gapless.node.context import Context
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.network import Topic
    from gapless.scribe.effects import Effect as RingEffect
    from gapless.scribe.member import RingMember
    from gapless.scribe.messages import ScribeMessage

JOINING = "this broker has not found its place in the ring yet"


class Multicast(Service):
    """See the module docstring; `node.service.Service` says what each method is for."""

    name = "multicast"
    kinds: tuple[type[Message], ...] = (Ringed,)

    def __init__(self, context: Context, subscribers: Subscribers) -> None:
        here, network, config = context.name, context.network, context.config
        self.here = here
        self.network = network
        self.member: RingMember | None = None
        self.book = NameBook(network, config.multicast_names_max)
        self.post = Post(here, self.book)
        self._survey = Survey(proximity(here, network, self.book), config.multicast_names_max)
        self.published = 0
        self._config = config
        self._check_received = context.encoding.check_received
        self._epoch = context.epoch
        self._subscribers = subscribers
        self._topics: dict[TopicId, Topic] = {}
        self._ids: dict[TopicName, TopicId] = {}
        self._waiting = PendingSubscriptions()
        self._requests = Requests()
        self._creation = Creation(here, network, 2 * config.multicast_beat)
        self._found_due: Instant | None = None  # when to found a ring, if nobody lets us in
        self._was_active = False
        self._join_at: BrokerName | None = None
        self._ticks: dict[TopicId, int] = {}  # the last one given, of topics without order
        for topic in network.topic.values():
            self._enter(topic)

    # --- life ------------------------------------------------------------------------------------

    def start(self, now: Instant) -> list[Effect]:
        """Take part in the ring, once there is a topic and the number of this life is durable."""
        is_ready = self._epoch.is_durable and (not self.joins or self._join_at is not None)
        if self.member is not None or not is_ready or not self._topics:
            return []
        seat = Seat(self.book.id_of(self.here), self._epoch.number)
        self.member = make_member(seat, self._survey, self._config)
        if self._join_at is not None:
            return self._carry(self.member.join([self.book.id_of(self._join_at)], now), now)
        seeds, rank = seeds_of(self.here, self.network, self.book)
        if not seeds:
            return self._carry(self.member.found(now), now)
        self._found_due = Instant(now + (1 + rank) * self._config.multicast_beat)
        return self._carry(self.member.join(seeds, now), now)

    def join(self, at: BrokerName, now: Instant) -> list[Effect]:
        """The ring that this one is in is ours; with it, ask again whenever there is a link."""
        self.book.learn((at,))
        self._join_at = at
        if self.member is None:
            return self.start(now)
        return self._carry(self.member.join_too(self.book.id_of(at), now), now)

    def _enter(self, topic: Topic) -> None:
        if topic.service != self.name:
            return
        identifier = SPACE.topic_id(topic.label, "")
        self._topics[identifier] = topic
        self._ids[topic.name] = identifier
        if self.here in ranking(self.network, topic.name)[:1]:
            self._creation.add(identifier)

    def add(self, topic: Topic, now: Instant) -> list[Effect]:
        assert topic.name in self.network.topic
        self._enter(topic)
        return self.start(now) + self._create(now)

    def _create(self, now: Instant) -> list[Effect]:
        member = self.member
        if member is None or not member.is_active or self.joins:
            return []
        return self._carry(self._creation.fire(member, self._topics, now), now)

    def remove(self, topic: Topic, problem: str, remedy: str, now: Instant) -> list[Effect]:
        identifier = self._ids.pop(topic.name)
        effects: list[Effect] = []
        for (name, _), message in self._waiting.take(identifier).items():
            effects.append(Send(name, Refused(message.request, problem, remedy)))
        for name, number in self._subscribers.of_topic(topic.name):
            self._subscribers.remove(name, number)
            effects.append(Send(name, Ended(number, problem, remedy)))
        self._creation.drop(identifier)
        self._ticks.pop(identifier, None)
        del self._topics[identifier]
        if self.member is not None:
            effects += self._carry(self.member.forget(identifier, now), now)
        return effects

    @property
    def deadline(self) -> Instant | None:
        if self.member is None:
            return None
        other = self._found_due
        if self.member.is_active:
            other = None if self.joins else self._creation.deadline
        return self.member.deadline if other is None else min(self.member.deadline, other)

    def fire(self, now: Instant) -> list[Effect]:
        member = self.member
        if member is None:
            return []
        effects: list[Effect] = []
        if member.deadline <= now:
            effects = self._carry(member.fire(now) + ask_for_row(member, self._survey), now)
        if self._found_due is not None and now >= self._found_due:
            self._found_due = None
            if not member.is_active:
                effects += self._carry(member.found(now), now)
        return effects + self._create(now)

    def leave(self, now: Instant) -> list[Effect]:
        return [] if self.member is None else self._carry(self.member.leave(), now)

    # --- publishing ------------------------------------------------------------------------------

    def request(self, client: ClientName, message: Message, now: Instant) -> list[Effect]:
        if isinstance(message, Publish):
            return self._publish(client, message, now)
        assert isinstance(message, Subscribe)
        return self._subscribe(client, message, now)

    def _publish(self, client: ClientName, message: Publish, now: Instant) -> list[Effect]:
        member, topic = self.member, self.network.topic[message.topic]
        if member is None or not member.is_active:
            return later(client, message.request, JOINING)
        events = message.events.events
        count_max = min(EVENTS_MAX, self._config.batch_events_max)
        parts = cut(events, count_max, self._config.batch_bytes_max)
        if len(parts) > member.publish_room:
            problem = f"{len(self._requests)} publications wait to be confirmed by their roots"
            return later(client, message.request, problem)
        identifier = self._ids[message.topic]
        request = PendingRequest(client, message.request, pubend_of(topic), [-1] * len(events))
        effects: list[RingEffect] = []
        for low, high in parts:
            body = pack(events[low:high])
            try:
                number, more = member.publish(identifier, body, now, ordered=topic.ordered)
            except UsageError as error:  # of topics that were published to: only the first part
                return [Send(client, Refused(message.request, error.problem, error.remedy))]
            self._requests.add(identifier, number, request, low, high)
            effects += more
        self.published += len(events)
        return self._carry(effects, now)

    def _answer(self, answer: RequestOutcome) -> list[Effect]:
        if answer.number is not None:
            remedy = "Try again; if it lasts, look for brokers that are down: gapless status."
            return self._requests.answer(answer, remedy, retry=answer.topic in self._topics)
        if not answer.problem:
            self._creation.drop(answer.topic)
        return []

    # --- subscribing -----------------------------------------------------------------------------

    def _subscribe(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        if refused := self._refuse_cost(client, message):
            return refused
        identifier = self._ids[message.topic]
        self._waiting.add(identifier, (client, message.subscription), message)
        member = self.member
        if member is None or not member.is_active:
            return []
        topic = member.tree.topics.get(identifier)
        if topic is not None and topic.subscribed:
            if topic.position is not None or topic.has_begun:
                return self._let_in(identifier, topic.position, now)
            return []
        return self._carry(self._want(member, identifier, now), now)

    def _refuse_cost(self, client: ClientName, message: Subscribe) -> list[Effect]:
        """Where matching would cost events too much."""
        owner, place = self._subscribers.clients[client].owner, (message.topic, message.order)
        condition = Filter.parse(message.condition)
        refused = self._subscribers.meter.refusal(place, owner, condition)
        return [Send(client, Refused(message.request, *refused))] if refused is not None else []

    def _want(self, member: RingMember, identifier: TopicId, now: Instant) -> list[RingEffect]:
        return member.subscribe(identifier, now, ordered=self._topics[identifier].ordered)

    def _let_in(self, identifier: TopicId, position: int | None, now: Instant) -> list[Effect]:
        """Those who wait for the topic begin."""
        topic = self._topics[identifier]
        if topic.ordered:
            assert position is not None
            start = position << TICK_BITS
        else:
            start = self._tick(identifier, now)
        effects: list[Effect] = []
        for (client, number), message in self._waiting.take(identifier).items():
            if refused := self._refuse_cost(client, message):
                effects += refused  # others have begun since it was asked for
                continue
            condition = Filter.parse(message.condition)
            self._subscribers.add(client, number, topic.name, "publisher", condition)
            told = {str(pubend_of(topic)): start}
            effects.append(Send(client, Subscribed(message.request, number, told)))
        return effects

    def _tick(self, identifier: TopicId, now: Instant) -> int:
        """A tick for what comes now, of a topic without order."""
        return max(self._ticks.get(identifier, 0) + 1, now << TICK_BITS)

    def has(self, client: ClientName, number: int) -> bool:
        return self._place(client, number) is not None

    def _place(self, client: ClientName, number: int) -> TopicId | None:
        begun = self._subscribers.clients[client].subscriptions.get(number)
        if begun is not None:
            return self._ids.get(begun[0])
        return self._waiting.place((client, number))

    @property
    def unmatched_count(self) -> int:
        """Those that wait; all others are among the `subscribers`."""
        return len(self._waiting)

    def unsubscribe(self, client: ClientName, number: int, now: Instant) -> list[Effect]:
        return [*self._end(client, [number], now), Send(client, Ended(number))]

    def disconnect(self, client: ClientName, now: Instant) -> list[Effect]:
        self._requests.disconnect(client)
        numbers = self._waiting.of_client(client)
        known = self._subscribers.clients.get(client)
        if known is not None:
            numbers += [n for n, (topic, _) in known.subscriptions.items() if topic in self._ids]
        return self._end(client, numbers, now)

    def _end(self, client: ClientName, numbers: Iterable[int], now: Instant) -> list[Effect]:
        touched: dict[TopicId, None] = {}
        for number in numbers:
            place = self._place(client, number)
            assert place is not None
            touched[place] = None
            self._subscribers.remove(client, number)
            self._waiting.drop((client, number))
        return [effect for place in touched for effect in self._let_go(place, now)]

    def _is_wanted(self, identifier: TopicId) -> bool:
        topic = self._topics[identifier].name
        return identifier in self._waiting or self._subscribers.wants(topic, "publisher")

    def _let_go(self, identifier: TopicId, now: Instant) -> list[Effect]:
        """Of the topic, if nobody here wants it any more."""
        if self.member is None or self._is_wanted(identifier):
            return []
        return self._carry(self.member.unsubscribe(identifier, now), now)

    # --- delivering ------------------------------------------------------------------------------

    def _deliver(self, deliver: Deliver, now: Instant) -> list[Effect]:
        topic = self._topics[deliver.topic]
        events = unpack(deliver.body)
        if topic.ordered:
            start, through = deliver.number << TICK_BITS, deliver.number + 1 << TICK_BITS
        else:
            start = self._tick(deliver.topic, now)
            self._ticks[deliver.topic] = start + len(events) - 1
            through = start + len(events)
        settled = Settled(list(range(start, start + len(events))), events, [])
        done = self._subscribers.deliver(topic.name, pubend_of(topic), settled, through)
        return done.effects + self._let_go(deliver.topic, now)  # some may have been too slow

    def _miss(self, missed: MissedRange) -> list[Effect]:
        topic = self._topics[missed.topic]
        span = Span(missed.start << TICK_BITS, missed.end << TICK_BITS)
        lost = Settled([], [], [(pubend_of(topic), span)])
        return self._subscribers.deliver(topic.name, pubend_of(topic), lost, span.end).effects

    # --- brokers ---------------------------------------------------------------------------------

    def receive(self, sender: BrokerName, message: Message, now: Instant) -> list[Effect]:
        if not isinstance(message, Ringed):
            raise ProtocolError(f"{type(message).__name__} is not for a ring")
        if any(isinstance(each, AccessDenied) for each in message.messages):
            # Rights are checked where clients connect: a ring of brokers has no guard of its own.
            raise ProtocolError(f"{sender!r} denies a topic, which no broker of a ring does")
        for body in bodies(message.messages):
            self._check_received(EventBatch.join(unpack(body)))
        self.book.learn((*message.names, sender))
        if (member := self.member) is None:
            return []  # we know of no topic yet; whoever it is asks again
        node = self.book.id_of(sender)
        effects: list[RingEffect] = []
        for each in message.messages:
            effects += member.receive(node, each, now)
            if self._survey.heard(node, each, now):
                member.pastry.contacts.table.offer(node)
        return self._carry(effects, now)

    def link_down(self, broker: BrokerName, now: Instant) -> list[Effect]:
        if self.member is None:
            return []
        return self._carry(self.member.suspect(self.book.id_of(broker), now), now)

    def _carry(self, effects: Iterable[RingEffect], now: Instant) -> list[Effect]:
        """What the member wants done: messages to clients at once, those to brokers together."""
        member = self.member
        assert member is not None
        done: list[Effect] = []
        post: dict[NodeId, list[ScribeMessage]] = {}
        rest = deque(effects)
        if member.is_active and not self._was_active:
            self._found_due = None
            for identifier in [each for each in self._topics if self._is_wanted(each)]:
                rest += self._want(member, identifier, now)
        self._was_active = member.is_active
        while rest:
            match rest.popleft():
                case ToNode(node, message):
                    self._survey.sent(node, message, now)
                    post.setdefault(node, []).append(message)
                case Deliver() as deliver:
                    done += self._deliver(deliver, now) if deliver.topic in self._topics else []
                case Begun(topic, position):
                    done += self._let_in(topic, position, now) if topic in self._topics else []
                case MissedRange() as missed:
                    done += self._miss(missed) if missed.topic in self._topics else []
                case RequestOutcome() as answer:
                    done += self._answer(answer)
        return done + self.post.send(post)

    # --- figures ---------------------------------------------------------------------------------

    def statistics(self) -> dict[str, object]:
        if self.member is None:
            return {}
        return {
            **figures(self.member, self.book, self._topics),
            "published": self.published,
            "waiting_publications": len(self._requests),
            "waiting_subscriptions": self.unmatched_count,
            "unsent": self.post.unsent,
        }

    def check(self, portion: Portion = WHOLE) -> None:
        self.book.check()
        self._survey.check()
        self._requests.check()
        self._waiting.check()
        if (member := self.member) is None:
            return
        member.check()
        trees = {each for each, topic in member.tree.topics.items() if topic.subscribed}
        if member.is_active:
            assert trees == {each for each in self._topics if self._is_wanted(each)}, "I1"


def pubend_of(topic: Topic) -> PubendName:
    """Its one stream, as clients see it."""
    return PubendName(f"{topic.label}/0")


def later(client: ClientName, request: int, problem: str) -> list[Effect]:
    remedy = "Try again soon; if it lasts, look for brokers that are down: gapless status."
    return [Send(client, Refused(request, problem, remedy, retry=True))]
