"""Attachments: which clients are attached to the durable subscriptions of one broker.

Theory of operation
    A client that gives its subscription a name is attached to it, from its token on; a session
    says at which pubends it is level with the stream and at which it catches up. A subscription
    that does not exist yet waits like any other until everything it wants gets here; then it is
    made, and its client attached when that is durable. What it wants from before (it starts in
    the past) is asked for as a whole and filtered here.
    What was learnt in one step is delivered at its end, in one go.

Invariants (checked by `check`): those of the sessions, and
    I1  a session's client is connected, and its subscription lives

Source: DSN 2003, sec. 4; PROTOCOLS C1, C2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.broker_messages import Purpose
from gapless.core.client_messages import Done, Ended, Refused, Subscribed
from gapless.core.effects import Effect, Send, Tell
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, Instant, PubendName, SubscriptionName
from gapless.core.messages import Message
from gapless.core.ticks import PUBEND_BITS, TICK_MAX
from gapless.core.token import Token
from gapless.durable.subscriptions import Definition
from gapless.node.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.core.broker_messages import Knowledge, Nack
    from gapless.core.client_messages import Acknowledge, Forget, Subscribe
    from gapless.core.events import Attributes
    from gapless.core.identity import BrokerName
    from gapless.durable.catch_up import CatchUp
    from gapless.durable.subscriptions import Subscription
    from gapless.node.config import Config
    from gapless.node.durables import Durables
    from gapless.node.parts import Parts
    from gapless.node.subscribers import Subscribers


ENDED_MAX = 10_000
"""Names that are remembered after they were ended, in case a copy of theirs was on its way to
another broker just then; the oldest is forgotten beyond it, and such a copy stays there."""


class Created(Message, frozen=True):
    """To ourselves: a new subscription is durable (or, not `ok`, there was no room for it)."""

    name: SubscriptionName
    ok: bool = True


class Attachments:
    """All sessions of one broker. See the module docstring."""

    def __init__(
        self,
        name: BrokerName,
        config: Config,
        subscribers: Subscribers,
        durables: Durables,
        parts: Parts,
        attributes_of: Callable[[EventBatch], list[Attributes]],
    ) -> None:
        self.name = name
        self.config = config
        self.subscribers = subscribers
        self.durables = durables
        self.parts = parts
        self.attributes_of = attributes_of
        self.sessions: dict[SubscriptionName, Session] = {}
        self.asks: list[Nack] = []  # to be put to the relays
        self._creating: dict[SubscriptionName, tuple[ClientName, Subscribe]] = {}  # who attaches
        self.ending: dict[SubscriptionName, list[Effect]] = {}  # what to say when it has ended
        self.ended: dict[SubscriptionName, int] = {}  # by name: its moves, when it was ended here
        self.returned: dict[SubscriptionName, Subscribe] = {}  # before we were told to forget it
        self.arrived: dict[SubscriptionName, None] = {}  # came from another broker
        self._stirred: dict[tuple[SubscriptionName, PubendName], None] = {}  # may have news

    # --- those that are behind --------------------------------------------------------------------

    def stir(self, pubend: PubendName) -> None:
        """The stream has moved: those that are behind there may go on."""
        for name, session in self.sessions.items():
            if pubend in session.behind:
                self._stirred[name, pubend] = None

    def settle(self, now: Instant) -> list[Effect]:
        """At the end of a step: deliver what can be delivered now."""
        stirred, self._stirred = self._stirred, {}
        effects: list[Effect] = []
        for name, pubend in stirred:
            session = self.sessions.get(name)
            if session is not None and pubend in session.behind:
                more, nacks = session.pump(pubend, self.durables.streams[pubend], now)
                effects += more
                self._ask(nacks)
                if session.found:
                    self._stirred.update(((name, other), None) for other in session.behind)
                    start, session.found = Token(session.found), {}
                    effects += self.durables.subscriptions.acknowledge(name, start, now)
        return effects

    def _ask(self, nacks: Sequence[Nack]) -> None:
        for nack in nacks:
            purpose = Purpose.CATCH_UP if nack.minimum is None else Purpose.WHOLE
            room = self.config.catch_up_window if purpose == Purpose.WHOLE else 0
            self.asks.append(replace(nack, minimum=None, purpose=purpose, events_max=room))

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> None:
        """An answer for those that are behind."""
        pubend, span = knowledge.pubend, knowledge.span
        for name, session in self.sessions.items():
            catch_up = session.behind.get(pubend)
            if catch_up is not None and catch_up.position < span.end and span.start < catch_up.told:
                self._ask(catch_up.receive_knowledge(knowledge, now))
                self._stirred[name, pubend] = None

    def has_behind(self, client: ClientName) -> bool:
        return any(each.behind for each in self.sessions.values() if each.name == client)

    def consumed(self, client: ClientName) -> None:
        """A client has room again."""
        for name, session in self.sessions.items():
            if session.name == client:
                self._stirred.update(((name, pubend), None) for pubend in session.behind)

    def fall_behind(
        self, numbers: Sequence[int], pubend: PubendName, position: int
    ) -> list[Effect]:
        """Their client is too slow for what is to be delivered from `position` on."""
        effects: list[Effect] = []
        for session in self.sessions.values():
            if session.subscription.number in numbers and pubend in session.level:
                start = max(position, session.level[pubend])
                effects += session.fall_behind(pubend, self._catch_up(session, pubend, start))
                self._stirred[session.subscription.definition.name, pubend] = None
        return effects

    def _catch_up(self, session: Session, pubend: PubendName, start: int) -> CatchUp:
        subscription = session.subscription
        since = subscription.since[pubend]
        condition = self.durables.filters[subscription.number]

        def matches(events: Sequence[bytes]) -> list[int]:
            attributes = self.attributes_of(EventBatch.join(events))
            return [index for index, each in enumerate(attributes) if condition.matches(each)]

        return self.parts.catch_up(
            subscription.number,
            start,
            self.durables.streams[pubend].log,
            self.config,
            since=since,
            matches=matches,
            minimum={} if start < since else None,
        )

    # --- what clients ask for ---------------------------------------------------------------------

    def attach(self, client: ClientName, message: Subscribe) -> list[Effect] | None:
        """Attach a client to a subscription that exists; None if there is none of that name."""
        assert message.name is not None
        subscription = self.durables.subscriptions.get(message.name)
        if subscription is None:
            return None
        definition = subscription.definition
        if definition.owner not in ("", self.subscribers.clients[client].owner):
            problem = f"not allowed to use the subscription name {message.name!r}"
            return [Send(client, Refused(message.request, problem, "Use another name."))]
        if (definition.topic, definition.condition) != (message.topic, message.condition):
            problem = (
                f"subscription {message.name!r} is on topic {definition.topic!r} with condition "
                f"{definition.condition!r}"
            )
            remedy = "Use the same topic and condition, another name, or unsubscribe it first."
            return [Send(client, Refused(message.request, problem, remedy))]
        if message.name in self._creating:  # it is not durable yet
            return self._wait_for_it(client, message)
        start = subscription.acknowledged
        if message.token is not None:
            start = self.known(subscription, message.token)
        if message.previous not in (None, self.name) and message.moves > definition.moves:
            self.returned[message.name] = message
        return self._open(subscription, client, message.request, message.subscription, start)

    def _wait_for_it(self, client: ClientName, message: Subscribe) -> list[Effect]:
        """Attach this client, and no other, when the subscription is durable."""
        assert message.name is not None
        before = self._creating.get(message.name)
        self._creating[message.name] = client, message
        if before is None or before[0] not in self.subscribers.clients:
            return []
        problem = f"{message.name!r} was taken over by another connection"
        remedy = "Connect once only under one name."
        return [Send(before[0], Refused(before[1].request, problem, remedy))]

    def known(self, subscription: Subscription, token: Mapping[str, int]) -> Token:
        """What a client's token says of the pubends that there are."""
        given = {pubend: token.get(pubend, 0) for pubend in subscription.since}
        return Token({pubend: min(max(tick, 0), TICK_MAX) for pubend, tick in given.items()})

    def _open(
        self,
        subscription: Subscription,
        client: ClientName,
        request: int,
        number: int,
        start: Token,
    ) -> list[Effect]:
        """Begin a session; one that was there ends."""
        name = subscription.definition.name
        effects: list[Effect] = []
        if name in self.sessions:
            problem = f"{name!r} was taken over by another connection"
            effects += self._close(name, problem, "Connect once only under one name.")
        session = self.sessions[name] = Session(
            subscription,
            client,
            number,
            self.subscribers.clients[client],
            self.config,
        )
        self.subscribers.attach(session)
        for text in subscription.since:
            pubend = PubendName(text)
            position = start.get(pubend)
            since = subscription.since[text]  # before it, the stream does not know it
            is_level = position >= max(self.durables.streams[pubend].delivered, since)
            if is_level and all(start.get(each) for each in subscription.since):
                session.level[pubend] = position
            else:
                session.behind[pubend] = self._catch_up(session, pubend, position)
        told = {pubend: start.get(pubend) for pubend in subscription.since}
        moves = subscription.definition.moves
        behind = tuple(sorted(session.behind))
        effects += session.open(Subscribed(request, number, told, behind, moves))
        self._stirred.update(((name, pubend), None) for pubend in session.behind)
        return effects

    def _close(self, name: SubscriptionName, problem: str = "", remedy: str = "") -> list[Effect]:
        session = self.sessions.pop(name)
        self.subscribers.detach(session)
        return [Send(session.name, Ended(session.number, problem, remedy))]

    def create(
        self,
        client: ClientName,
        message: Subscribe,
        since: dict[PubendName, int],
        taken: dict[PubendName, int],
        now: Instant,
    ) -> tuple[int | None, list[Effect]]:
        """A new subscription, which counts from the ticks `since` on, while everything below
        `taken` is delivered: its number, and effects."""
        assert message.name is not None
        attached = self.attach(client, message)
        if attached is not None:  # it was made meanwhile, by someone else
            return None, attached
        previous, moves = self._origin(message)
        definition = Definition(
            name=message.name,
            topic=message.topic,
            condition=message.condition,
            order=message.order,
            owner=self.subscribers.clients[client].owner,
            tokens=message.tokens,
            moves=moves,
            previous=previous,
        )
        start = self._start(message, since)
        then = (Tell(Created(message.name)),)
        otherwise = (Tell(Created(message.name, ok=False)),)
        try:
            effects = self.durables.create(definition, start, since, taken, then, otherwise, now)
        except UsageError as error:
            return None, [Send(client, Refused(message.request, error.problem, error.remedy))]
        subscription = self.durables.subscriptions.get(message.name)
        assert subscription is not None
        return subscription.number, effects + self._wait_for_it(client, message)

    def _origin(self, message: Subscribe) -> tuple[BrokerName | None, int]:
        """Where it was before, as its client knows or as we remember, and its count of moves."""
        assert message.name is not None
        moved = self.durables.moved(message.name)
        if moved is not None and (message.previous is None or moved.moves > message.moves):
            return moved.broker, moved.moves + 1
        if message.previous is None or message.previous == self.name:
            ended = self.ended.get(message.name)  # a copy on its way elsewhere must count as older
            return None, message.moves if ended is None else max(message.moves, ended + 2)
        return message.previous, message.moves + 1

    def _start(self, message: Subscribe, since: Mapping[PubendName, int]) -> Token:
        if message.token is not None:
            return Token({pubend: message.token.get(pubend, 0) for pubend in since})
        if message.earliest:
            return Token({})
        if message.instant is not None:
            tick = min(max(message.instant, 0) << PUBEND_BITS, TICK_MAX)
            return Token({pubend: min(tick, first) for pubend, first in since.items()})
        return Token(since)

    def created(self, message: Created) -> list[Effect]:
        """Attach whoever waits for it, if he is still there."""
        client, wish = self._creating.pop(message.name)
        subscription = self.durables.subscriptions.get(message.name)
        if not message.ok or subscription is None:
            problem, remedy = "the broker's disk is full", "Try again later."
            refused = Refused(wish.request, problem, remedy, retry=True)
            return [Send(client, refused)] if client in self.subscribers.clients else []
        self.durables.reports.update(dict.fromkeys(map(PubendName, subscription.since)))
        if subscription.definition.previous is not None:
            self.arrived[message.name] = None
        if client not in self.subscribers.clients:
            return []  # it will come back
        start = subscription.acknowledged
        return self._open(subscription, client, wish.request, wish.subscription, start)

    def acknowledge(self, client: ClientName, message: Acknowledge, now: Instant) -> list[Effect]:
        """Everything below a token is consumed. The client may be ahead of us: a crash sets this
        broker back to what is durable, but not what its clients have got."""
        session = self._session(client, message.subscription)
        if session is None:
            return []
        token = self.known(session.subscription, message.token)
        then = (Send(client, Done(message.request)),) if message.request else ()
        name = session.subscription.definition.name
        return self.durables.subscriptions.acknowledge(name, token, now, then=then)

    def _session(self, client: ClientName, number: int) -> Session | None:
        for session in self.sessions.values():
            if (session.name, session.number) == (client, number):
                return session
        return None

    def has_session(self, client: ClientName, number: int) -> bool:
        return self._session(client, number) is not None

    def detach(self, client: ClientName, number: int) -> bool:
        """The client leaves a subscription, which goes on."""
        session = self._session(client, number)
        if session is not None:
            self._close(session.subscription.definition.name)
        return session is not None

    def disconnect(self, client: ClientName) -> None:
        for name in [n for n, session in self.sessions.items() if session.name == client]:
            self._close(name)

    def forget(self, client: ClientName, message: Forget) -> list[Effect]:
        """End a subscription for good."""
        known = self.durables.subscriptions.get(message.name)
        if known is None:
            problem = f"there is no subscription {message.name!r} at this broker"
            return [Send(client, Refused(message.request, problem, "Check the name."))]
        done = (Send(client, Done(message.request)),)
        if known.definition.previous is not None:  # else it would live on where it was
            self.ending.setdefault(message.name, []).extend(done)
            return []
        return self.end(message.name, f"{message.name!r} was ended", done)

    def end(self, name: SubscriptionName, problem: str, then: tuple[Effect, ...]) -> list[Effect]:
        """A subscription is over at this broker; `then` when that is durable."""
        subscription = self.durables.subscriptions.get(name)
        assert subscription is not None
        self.ended.pop(name, None)
        self.ended[name] = subscription.definition.moves
        if len(self.ended) > ENDED_MAX:
            del self.ended[next(iter(self.ended))]
        effects = self._close(name, problem) if name in self.sessions else []
        return effects + self.durables.end(name, then)

    # --- time, invariants -----------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        due = (each.deadline for s in self.sessions.values() for each in s.behind.values())
        return min((each for each in due if each is not None), default=None)

    def fire(self, now: Instant) -> None:
        for name, session in self.sessions.items():
            for pubend, catch_up in session.behind.items():
                if catch_up.deadline is not None and catch_up.deadline <= now:
                    self._ask(catch_up.fire(now))
                    self._stirred[name, pubend] = None

    def check(self) -> None:
        for name, session in self.sessions.items():
            session.check()
            assert self.subscribers.clients.get(session.name) is session.client, "I1"
            assert self.durables.subscriptions.get(name) is session.subscription, "I1"
