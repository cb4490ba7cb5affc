"""SubscriptionRequests: subscriptions that clients ask for, from the request to the start.

Theory of operation
    A subscription waits until the broker knows where all pubends of the topic stand, and from which
    tick of each on everything that it wants gets here; then the client is told where it starts.
    A subscription with a name that is not known here first asks the registrar of the name
    (`subscriptions.homes`); once it can start, it is written down (`subscriptions.attachments`),
    and its client is told when that is durable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.client_messages import Refused, Subscribe, Subscribed
from gapless.core.effects import Effect, Send
from gapless.core.errors import FilterError, quoted
from gapless.core.lengths import NAME_BYTES_MAX
from gapless.durable.subscriptions import TOO_MUCH, Definition, is_name
from gapless.filters.filter import Filter
from gapless.node.delivery.audience import DURABLE
from gapless.node.redirect import refuse_elsewhere
from gapless.node.routing import score
from gapless.node.subscriptions.dead_letters import hosted_pubends
from gapless.node.subscriptions.drain import is_mover
from gapless.node.subscriptions.tokens import Tokens

if TYPE_CHECKING:
    from gapless.core.client_messages import Order
    from gapless.core.identity import (
        ClientName,
        Instant,
        PubendName,
        TopicName,
    )
    from gapless.node.context import Context
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.durable.interest_table import InterestTable
    from gapless.node.durable.streams import Streams
    from gapless.node.subscriptions.attachments import Attachments
    from gapless.node.subscriptions.homes import Homes


MOVES_BELIEVED = 1 << 32
"""A client that says where its subscription was, and that it has moved more often than this, is not
believed: the registrar of the name is asked, as if it had said nothing."""


class SubscriptionRequests:
    """The subscriptions that clients of one broker ask for, until they begin."""

    def __init__(
        self,
        context: Context,
        streams: Streams,
        subscribers: Subscribers,
        interests: InterestTable,
        attachments: Attachments,
        homes: Homes,
    ) -> None:
        self.network = context.network
        self.config = context.config
        self.streams = streams
        self.subscribers = subscribers
        self.interests = interests
        self.attachments = attachments
        self.catalogue = context.catalogue
        self.homes = homes
        self.tokens = attachments.tokens = Tokens(streams.pubends, streams.subends, context.config)
        self.pending: dict[tuple[ClientName, int], tuple[Subscribe, Filter]] = {}
        self._pending_by_topic: dict[
            TopicName, dict[tuple[ClientName, int], None]
        ] = {}  # their keys
        self._is_drained = False

    def subscribe(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        if message.topic not in self.network.topic:
            return self.catalogue.missing(client, message, message.topic, now)
        if not self.streams.cell.subscribers:
            return self._refuse_subscriber(client, message)
        if self._is_turned_away(message):
            freed = self.homes.free_if_not_here(message.name, now) if message.name else []
            return self._refuse_subscriber(client, message) + freed
        condition = self._read(client, message)
        if not isinstance(condition, Filter):
            return condition
        if message.name is not None:
            if refused := self._refuse_named(client, message, now):
                return refused
            name = message.name
            is_doubted = message.moves > MOVES_BELIEVED and message.previous != self.streams.name
            is_gone = message.previous is not None and message.previous not in self.network.cell_of
            is_doubted |= is_gone  # the broker where it was is removed: its registrar knows more
            if is_doubted:
                token = None if message.share is not None else message.token  # a group shows none
                message = replace(message, previous=None, moves=0, token=token)
            if self.homes.must_look(message, is_doubted=is_doubted):
                return self.homes.look(client, message, now)
            stale = self.attachments.drop_stale(message)
            attached = self.attachments.attach(client, message, now)
            if attached is not None:
                return stale + attached
            if message.previous in (None, self.streams.name):
                record = self.attachments.table.get(name)
                grant = record.grant if record is not None else None
                if grant is None:
                    refused = self._refuse_durable(client, message)
                    return stale + (refused or self.homes.claim(client, message, now))
                # The name is ours: one claim for one life.
                message = replace(message, previous=None, moves=grant.moves)
            self._await_start(client, message, condition, now)
            return stale
        self._await_start(client, message, condition, now)
        return []

    def turn_away(self) -> None:
        """Send new subscribers to other brokers, from now on: this one is drained."""
        self._is_drained = True

    def _is_turned_away(self, message: Subscribe) -> bool:
        """A subscription that is still here is served until it has left."""
        known = self.attachments.named.subscriptions
        return self._is_drained and (message.name is None or known.get(message.name) is None)

    def _read(self, client: ClientName, message: Subscribe) -> Filter | list[Effect]:
        """The condition of a subscription, or why it is refused."""
        try:
            condition = Filter.parse(message.condition)
        except FilterError as error:
            return refuse(client, message, error.problem, f"{error.remedy}\n{error.caret()}")
        return self._refuse_cost(client, message, condition) or condition

    def _refuse_cost(
        self, client: ClientName, message: Subscribe, condition: Filter
    ) -> list[Effect]:
        """Where matching would cost events too much; not of a subscription that exists."""
        durables = self.attachments.named.subscriptions
        if message.name is not None and durables.get(message.name) is not None:
            return []
        owner = self.subscribers.clients[client].owner
        # Named ones are matched in publisher order, whatever order their clients get.
        order: Order = "publisher" if message.name is not None else message.order
        refused = self.subscribers.meter.refusal((message.topic, order), owner, condition)
        return refuse(client, message, *refused) if refused is not None else []

    def _refuse_named(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        """Where a subscription cannot have that name, or cannot begin so."""
        assert message.name is not None
        existing = self.attachments.named.subscriptions.get(message.name)
        if existing is None and not is_name(message.name):  # earlier versions took longer ones
            problem = f"{quoted(message.name)} is no name of a subscription"
            return refuse(client, message, problem, f"Use 1 to {NAME_BYTES_MAX} printable bytes.")
        if message.previous is not None and message.token is None:
            problem = "a subscription that comes from another broker needs a token and its name"
            return refuse(client, message, problem, "Give the token, and where it was last.")
        if message.share is not None and message.token is not None and not is_mover(client):
            problem = "a group has no token that clients could show"
            return refuse(client, message, problem, "Leave the token out: its broker has it.")
        if existing is None and (refused := self._refuse_dead_letters(client, message)):
            return refused
        return self._refuse_former(client, message, now) or self._refuse_token(client, message, now)

    def _refuse_former(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        """Where former conditions are none, or ended at ticks that cannot be."""
        topic = self.network.topic[message.topic]
        for former in message.former:
            try:
                Filter.parse(former.condition)
            except FilterError as error:
                return refuse(client, message, error.problem, error.remedy)
            if refused := self.tokens.doubt(message.request, topic, former.until, now):
                return [Send(client, refused)]
        return []

    def _refuse_dead_letters(self, client: ClientName, message: Subscribe) -> list[Effect]:
        """Where a new group could not publish its dead letters: its broker has to host a pubend of
        their topic."""
        name = message.share.dead_letters if message.share is not None else None
        if name is None:
            return []
        topic = self.network.topic.get(name)
        if topic is None:
            problem = f"there is no topic {quoted(name)} for dead letters"
            return refuse(client, message, problem, f"Create it: gapless topic create {name}")
        if name == message.topic or topic.service != "durable":
            problem = f"topic {quoted(name)} cannot take the dead letters of this group"
            return refuse(client, message, problem, "Give another topic, of the durable service.")
        if hosted_pubends(topic, self.streams.pubends):
            return []
        hosts = [each.host for each in topic.pubends]
        able = [each for each in hosts if self.network.cell_of[each].subscribers]
        problem = f"no pubend of topic {quoted(name)} is at this broker"
        if not able:
            remedy = "Create that topic with a pubend at a broker that takes subscribers."
            return refuse(client, message, problem, remedy)
        return refuse_elsewhere(client, message, problem, able)

    def _refuse_durable(self, client: ClientName, message: Subscribe) -> list[Effect]:
        """Where there is no room for it, so that its name is not claimed for nothing."""
        assert message.name is not None
        owner = self.subscribers.clients[client].owner
        wanted = Definition(
            name=message.name,
            topic=message.topic,
            condition=message.condition,
            owner=owner,
            former=message.former,
            topics=message.topics,
        )
        since = {str(each.name): 0 for each in self.network.topic[message.topic].pubends}
        problem = self.attachments.named.subscriptions.refusal(wanted, since)
        return refuse(client, message, problem, TOO_MUCH) if problem else []

    def _refuse_token(self, client: ClientName, message: Subscribe, now: Instant) -> list[Effect]:
        topic = self.network.topic[message.topic]
        refused = self.tokens.doubt(message.request, topic, message.token or {}, now)
        return [Send(client, refused)] if refused is not None else []

    def _refuse_subscriber(self, client: ClientName, message: Subscribe) -> list[Effect]:
        """To a broker that takes subscribers; different clients to different ones."""
        own = self.streams.cell
        cells = [cell for cell in self.network.cells if cell.subscribers and cell is not own]
        if not cells:
            problem, remedy = "no broker takes subscribers", "Give a cell `subscribers = true`."
            return refuse(client, message, problem, remedy)
        brokers = [broker.name for cell in cells for broker in cell.brokers]
        brokers.sort(key=lambda each: score(client, each))
        problem = "this broker takes no subscribers"
        if message.name and (moved := self.attachments.named.moved(message.name)) is not None:
            brokers = [moved.broker, *brokers]
        return refuse_elsewhere(client, message, problem, brokers)

    def _await_start(
        self, client: ClientName, message: Subscribe, condition: Filter, now: Instant
    ) -> None:
        key = (client, message.subscription)
        self.pending[key] = (message, condition)
        self._pending_by_topic.setdefault(message.topic, {})[key] = None
        if message.name is not None:
            self.attachments.table.await_start(message.name, message)
        self.interests.subscribe(message.topic, key, condition, now)

    def end_wait(self, key: tuple[ClientName, int]) -> Subscribe:
        """For the start of a subscription: it has come, or nobody wants it any more."""
        message, _ = self.pending.pop(key)
        del self._pending_by_topic[message.topic][key]
        if not self._pending_by_topic[message.topic]:
            del self._pending_by_topic[message.topic]
        if message.name is not None:
            self.attachments.table.end_start(message.name, message)
        return message

    def resume(self, now: Instant) -> list[Effect]:
        """Go on with the subscriptions whose names are free, or come from another broker."""
        effects: list[Effect] = []
        for client, message in self.homes.take_ready():
            effects += self.attachments.drop_stale(message)
            attached = self.attachments.attach(client, message, now)  # it may have come meanwhile
            if attached is not None:
                effects += attached
            elif message.topic not in self.network.topic:
                effects += self.catalogue.missing(client, message, message.topic, now)
            elif refused := self._refuse_token(client, message, now):
                effects += refused  # the topic is not the one that it was
            else:
                self._await_start(client, message, Filter.parse(message.condition), now)
        return effects

    @property
    def is_quiet(self) -> bool:
        """Has this step left nothing to `resume` or to `begin`?"""
        return not (self.pending or self.homes.ready)

    def begin(self, now: Instant) -> list[Effect]:
        """Begin the subscriptions whose starts are known now."""
        effects: list[Effect] = []
        for topic in [topic for topic in self._pending_by_topic if self._has_news(topic)]:
            for key in list(self._pending_by_topic[topic]):
                start = self._start_of(topic, key)
                if start is not None:
                    message, condition = self.pending[key]
                    effects += self._begin(key[0], message, condition, start, now)
                    self.end_wait(key)
        return effects

    def _has_news(self, topic: TopicName) -> bool:
        if not self.streams.is_started(topic):
            return False
        interest = self.interests.by_topic.get(topic)
        if interest is None:
            return True
        news, interest.has_news = interest.has_news, False
        return news or interest.leaf is None

    def _start_of(
        self, topic: TopicName, key: tuple[ClientName, int]
    ) -> dict[PubendName, int] | None:
        interest = self.interests.by_topic.get(topic)
        if interest is None:
            return dict.fromkeys((each.name for each in self.network.topic[topic].pubends), 0)
        return interest.start_of(key)

    def _begin(
        self,
        client: ClientName,
        message: Subscribe,
        condition: Filter,
        first: dict[PubendName, int],
        now: Instant,
    ) -> list[Effect]:
        """Start a subscription, not before the ticks `first` and not before what is settled."""
        streams, topic = self.streams, message.topic
        if refused := self._refuse_cost(client, message, condition):
            # Others have begun since it was asked for.
            self.interests.unsubscribe(topic, (client, message.subscription), now)
            return refused
        if message.name is not None:
            return self._create(client, message, first, now)
        young: dict[PubendName | None, int] = {}
        if message.order == "publisher":
            start = {name: max(streams.subends[name].taken, tick) for name, tick in first.items()}
            young.update((n, t) for n, t in start.items() if t > streams.subends[n].taken)
        else:
            position = streams.merge_position(topic)
            latest = max(position, *first.values())
            start = dict.fromkeys(first, latest)
            if latest > position:
                young[None] = latest
        if young and topic in self.interests.by_topic:
            self.interests.by_topic[topic].started_ahead += 1
        number = message.subscription
        self.subscribers.add(client, number, topic, message.order, condition, young)
        starts = {str(name): tick for name, tick in start.items()}
        effects: list[Effect] = [Send(client, Subscribed(message.request, number, starts))]
        if message.order == "total" and topic not in streams.merges:
            effects += streams.start_merge(topic, now)  # it may deliver at once
        return effects

    def _create(
        self, client: ClientName, message: Subscribe, first: dict[PubendName, int], now: Instant
    ) -> list[Effect]:
        """A durable subscription can start: make it, and its client is told when it is durable. If
        the life that its name was claimed for is over, the name is claimed anew."""
        assert message.name is not None
        ended = self.attachments.table.ended(message.name)
        is_over = ended is not None and ended >= message.moves
        is_here = self.attachments.named.subscriptions.get(message.name) is not None
        if message.previous is None and is_over and not is_here:
            self.interests.unsubscribe(message.topic, (client, message.subscription), now)
            return self.homes.claim(client, message, now)
        taken = {name: self.streams.subends[name].taken for name in first}
        since = {name: max(taken[name], tick) for name, tick in first.items()}
        for former in message.former:  # what lies before its end is asked for as a whole
            since = {name: max(tick, former.until.get(name, 0)) for name, tick in since.items()}
        number, effects = self.attachments.create(client, message, since, taken, now)
        key = (client, message.subscription)
        if number is None:
            self.interests.unsubscribe(message.topic, key, now)
        elif message.topic in self.interests.by_topic:
            self.interests.by_topic[message.topic].rename(key, (DURABLE, number))
        return effects

    def has(self, client: ClientName, number: int) -> bool:
        """Does a subscription of this number wait, for its start or for its name?"""
        return (client, number) in self.pending or (client, number) in self.homes.waiting

    @property
    def count(self) -> int:
        """How many subscriptions wait, for their start or for their names."""
        return len(self.pending) + len(self.homes.waiting)

    def refuse_topic(self, topic: TopicName, problem: str, remedy: str) -> list[Effect]:
        """Refuse all subscriptions that wait for their start on a topic, which was deleted."""
        effects: list[Effect] = []
        for key, (message, _) in list(self.pending.items()):
            if message.topic == topic:
                self.end_wait(key)
                effects += refuse(key[0], message, problem, remedy)
        return effects

    def give_up(self, client: ClientName, number: int, now: Instant) -> None:
        """The client no longer wants a subscription that may wait."""
        self._give_up_start((client, number), now)
        self.homes.give_up((client, number))

    def _give_up_start(self, key: tuple[ClientName, int], now: Instant) -> None:
        if key in self.pending:
            message = self.end_wait(key)
            self.interests.unsubscribe(message.topic, key, now)

    def disconnect(self, client: ClientName, now: Instant) -> None:
        for key in [key for key in self.pending if key[0] == client]:
            self._give_up_start(key, now)
        self.homes.disconnect(client)


def refuse(client: ClientName, message: Subscribe, problem: str, remedy: str) -> list[Effect]:
    return [Send(client, Refused(message.request, problem, remedy))]
