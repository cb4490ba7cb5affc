"""Attachments: which clients are attached to the durable subscriptions of one broker.

Theory of operation
    A client that gives its subscription a name is attached to it, from its token on; a session
    says at which pubends it is level with the stream and at which it catches up. A subscription
    that does not exist yet waits like any other until everything it wants gets here; then it is
    made, and its client attached when that is durable.
    One that came from another broker is confirmed nothing until nobody can find the old copy any
    more that is left there: else its client, if it lost its token, would get again what it has
    finished here.

Invariants (checked by `check`): those of the sessions, and
    I1  a session's client is connected, and its subscription lives
    I2  whoever waits for a subscription to be durable is connected, and has its number to itself

Source: DSN 2003, sec. 4; docs/protocols/durable-subscriptions.md, 3.1, 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.client_messages import Done, Refused, Subscribed
from gapless.core.effects import NO_ROOM, Effect, Send, Tell
from gapless.core.errors import UsageError, quoted
from gapless.core.identity import ClientName, Instant, PubendName, SubscriptionName
from gapless.core.messages import Message
from gapless.core.portion import WHOLE, Portion
from gapless.core.ticks import PUBEND_BITS, TICK_MAX
from gapless.core.token import Token
from gapless.durable.subscriptions import Definition
from gapless.node.delivery.session import Session
from gapless.node.directory.registry import registrar_of
from gapless.node.recent import remember
from gapless.node.redirect import refuse_until_told
from gapless.node.subscriptions.catch_ups import Assured, Behind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.core.client_messages import Acknowledge, Forget, Subscribe
    from gapless.core.events import Attributes, EventBatch
    from gapless.core.identity import BrokerName, TopicName
    from gapless.durable.subscriptions import Subscription
    from gapless.node.config import Config
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.network import Network
    from gapless.node.parts import Parts
    from gapless.node.subscriptions.durables import Durables
    from gapless.node.subscriptions.tokens import Tokens


ENDED_MAX = 10_000
"""Names that are remembered after they were ended, in case a copy of theirs was on its way to
another broker just then; the oldest is forgotten beyond it, and such a copy stays there."""


UNCONFIRMED_MAX = 1_000
"""Acknowledgements of one subscription that wait for its move to be known; more are refused."""


class Created(Message, frozen=True):
    """To ourselves: a new subscription is durable (or, not `ok`, there was no room for it)."""

    name: SubscriptionName
    number: int
    ok: bool = True


class Left(Message, frozen=True):
    """To ourselves: a subscription is over, after so many moves, and that is durable."""

    name: SubscriptionName
    moves: int


class Unconfirmed(NamedTuple):
    """An acknowledgement that is answered when it is known that nobody finds an older copy."""

    client: ClientName
    request: int
    token: Mapping[str, int]


@dataclass(slots=True)
class Leaving:
    """A subscription that is over, which is not durable yet; whose it was, and who asked."""

    owner: str
    topic: TopicName
    askers: list[tuple[ClientName, Forget]]


class Attachments:
    """All sessions of one broker. See the module docstring. `tokens` is set once there are
    streams."""

    tokens: Tokens

    def __init__(
        self,
        name: BrokerName,
        network: Network,
        config: Config,
        subscribers: Subscribers,
        durables: Durables,
        parts: Parts,
        attributes_of: Callable[[EventBatch], Sequence[Attributes]],
    ) -> None:
        self.name = name
        self.network = network
        self.config = config
        self.subscribers = subscribers
        self.durables = durables
        self.parts = parts
        self.attributes_of = attributes_of
        self.sessions: dict[SubscriptionName, Session] = {}
        self.behind = Behind(self.sessions, config, durables, parts, attributes_of)
        self._creating: dict[int, tuple[ClientName, Subscribe] | None] = {}  # who attaches, if any
        self._attaching: dict[tuple[ClientName, int], int] = {}  # the same, by its number there
        self.ending: dict[SubscriptionName, list[tuple[ClientName, Forget]]] = {}  # for whom
        self.leaving: dict[SubscriptionName, Leaving] = {}
        self.untold: dict[SubscriptionName, None] = {}  # their registrars may not know of them
        self.ended: dict[SubscriptionName, int] = {}  # by name: its moves, when it was ended here
        self.returned: dict[SubscriptionName, Subscribe] = {}  # before we were told to forget it
        self.arrived: dict[SubscriptionName, None] = {}  # came from another broker
        self.unconfirmed: dict[SubscriptionName, list[Unconfirmed]] = {}

    # --- what clients ask for ---------------------------------------------------------------------

    def attach(self, client: ClientName, message: Subscribe) -> list[Effect] | None:
        """Attach a client to a subscription that exists; None if there is none of that name."""
        assert message.name is not None
        subscription = self.durables.subscriptions.get(message.name)
        if subscription is None:
            return None
        definition = subscription.definition
        if not self.subscribers.clients[client].may_use(definition.owner, definition.topic):
            problem = f"not allowed to use the subscription name {quoted(message.name)}"
            return [Send(client, Refused(message.request, problem, "Use another name."))]
        if (definition.topic, definition.condition) != (message.topic, message.condition):
            problem = (
                f"subscription {quoted(message.name)} is on topic {quoted(definition.topic)} with "
                f"condition {quoted(definition.condition)}"
            )
            remedy = "Use the same topic and condition, another name, or unsubscribe it first."
            return [Send(client, Refused(message.request, problem, remedy))]
        if message.token is None and definition.previous is not None:
            return refuse_until_told(client, message, definition.name, definition.previous)
        if subscription.number in self._creating:  # it is not durable yet
            return self._wait_for_it(subscription.number, client, message)
        start = subscription.start
        if message.token is not None:
            start = self.known(subscription, message.token)
        if message.previous not in (None, self.name) and message.moves > definition.moves:
            self.returned[message.name] = message
        return self._open(subscription, client, message.request, message.subscription, start)

    def _wait_for_it(self, created: int, client: ClientName, message: Subscribe) -> list[Effect]:
        """Attach this client, and no other, when the subscription is durable. Its number on that
        connection is taken until then."""
        before = self._creating.get(created)
        self._creating[created] = client, message
        if before is not None:
            del self._attaching[before[0], before[1].subscription]
        self._attaching[client, message.subscription] = created
        if before is None:
            return []
        problem = f"{quoted(message.name)} was taken over by another connection"
        # Perhaps by an older connection of its own client, heard late: it may come again.
        remedy = "Connect once only under one name."
        return [Send(before[0], Refused(before[1].request, problem, remedy, retry=True))]

    def known(self, subscription: Subscription, token: Mapping[str, int]) -> Token:
        """What a client's token says of the pubends that there are."""
        return Token({pubend: token.get(pubend, 0) for pubend in subscription.since})

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
            problem = f"{quoted(name)} was taken over by another connection"
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
                session.behind[pubend] = self.behind.catch_up(session, pubend, position)
        told = {pubend: start.get(pubend) for pubend in subscription.since}
        moves = subscription.definition.moves
        behind = tuple(sorted(session.behind))
        effects += session.open(Subscribed(request, number, told, behind, moves))
        self.behind.stir_session(name)
        return effects

    def _close(
        self,
        name: SubscriptionName,
        problem: str = "",
        remedy: str = "",
        *,
        elsewhere: bool = False,
    ) -> list[Effect]:
        self.behind.leave(name)
        session = self.sessions.pop(name)
        self.subscribers.detach(session)
        return [session.end(problem, remedy, elsewhere=elsewhere)]

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
            first=moves,
            previous=previous,
            registrar=registrar_of(self.network, message.name) if previous is None else None,
        )
        start = self._start(message, since)
        number = self.durables.subscriptions.next_number
        then = (Tell(Created(message.name, number)),)
        otherwise = (Tell(Created(message.name, number, ok=False)),)
        try:
            effects = self.durables.create(definition, start, since, taken, then, otherwise, now)
        except UsageError as error:
            return None, [Send(client, Refused(message.request, error.problem, error.remedy))]
        return number, effects + self._wait_for_it(number, client, message)

    def _origin(self, message: Subscribe) -> tuple[BrokerName | None, int]:
        """Where it was before, as its client knows or as we remember, and its count of moves."""
        assert message.name is not None
        moved = self.durables.moved(message.name)
        if moved is not None and moved.moves > message.moves:
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

    def persisted(self, message: Created | Assured) -> list[Effect]:
        """A write of ours has ended."""
        if isinstance(message, Assured):
            return self.behind.assured(message)
        return self.created(message)

    def created(self, message: Created) -> list[Effect]:
        """Attach whoever waits for it, if he is still there."""
        waiting = self._creating.pop(message.number)
        if waiting is not None:
            del self._attaching[waiting[0], waiting[1].subscription]
        subscription = self.durables.subscriptions.get(message.name)
        if subscription is None or subscription.number != message.number:
            if waiting is None:
                return []
            problem = (
                f"{quoted(message.name)} has ended or moved meanwhile" if message.ok else NO_ROOM
            )
            client, wish = waiting
            return [Send(client, Refused(wish.request, problem, "Try again later.", retry=True))]
        self.durables.reports.update(dict.fromkeys(map(PubendName, subscription.since)))
        if subscription.definition.previous is not None:
            self.arrived[message.name] = None
        if waiting is None:
            return []  # it will come back
        return self.attach(*waiting) or []

    def acknowledge(self, client: ClientName, message: Acknowledge, now: Instant) -> list[Effect]:
        """Everything below a token is consumed. The client may be ahead of us: a crash sets this
        broker back to what is durable, but not what its clients have got."""
        if message.name is not None:
            subscription = self.durables.subscriptions.get(message.name)
            assert subscription is not None
        else:
            session = self._session(client, message.subscription)
            if session is None:
                return []
            subscription = session.subscription
        shown = Unconfirmed(client, message.request, message.token)
        return self._acknowledge(subscription, shown, now)

    def _acknowledge(
        self, subscription: Subscription, shown: Unconfirmed, now: Instant
    ) -> list[Effect]:
        client, request, _ = shown
        name = subscription.definition.name
        topic = self.network.topic.get(subscription.definition.topic)
        if topic and (refused := self.tokens.doubt(request, topic, shown.token, now)):
            if request:
                return [Send(client, refused)]
            return self._close(name, refused.problem, refused.remedy)
        token = self.known(subscription, shown.token)
        if request and not subscription.definition.is_found:
            held = self.unconfirmed.setdefault(name, [])
            if len(held) >= UNCONFIRMED_MAX:
                problem = (
                    f"{len(held)} acknowledgements of {quoted(name)} wait for its move to be known"
                )
                return [Send(client, Refused(request, problem, "Try again.", retry=True))]
            held.append(shown)  # its session may end meanwhile
            request = 0
        then = (Send(client, Done(request)),) if request else ()
        return self.durables.subscriptions.acknowledge(name, token, now, then=then)

    def confirm(self, now: Instant) -> list[Effect]:
        """At the end of a step: what was acknowledged while a move was not known."""
        effects: list[Effect] = []
        for name in list(self.unconfirmed):
            known = self.durables.subscriptions.get(name)
            if known is not None and not known.definition.is_found:
                continue
            for shown in self.unconfirmed.pop(name):
                if shown.client not in self.subscribers.clients:
                    continue
                if known is not None:
                    effects += self._acknowledge(known, shown, now)
                else:
                    problem, remedy = f"{quoted(name)} has left or ended meanwhile", "Try again."
                    refused = Refused(shown.request, problem, remedy, retry=True)
                    effects.append(Send(shown.client, refused))
        return effects

    def _session(self, client: ClientName, number: int) -> Session | None:
        return self.subscribers.sessions_of.get(client, {}).get(number)

    def has(self, client: ClientName, number: int) -> bool:
        """Is the number taken on the connection, by a session or by one that is about to be?"""
        return (client, number) in self._attaching or self._session(client, number) is not None

    def detach(self, client: ClientName, number: int) -> bool:
        """The client leaves a subscription, which goes on."""
        created = self._attaching.pop((client, number), None)
        if created is not None:
            self._creating[created] = None
            return True
        session = self._session(client, number)
        if session is not None:
            self._close(session.subscription.definition.name)
        return session is not None

    def disconnect(self, client: ClientName) -> None:
        for _, number in [key for key in self._attaching if key[0] == client]:
            self.detach(client, number)
        for session in list(self.subscribers.sessions_of.get(client, {}).values()):
            self._close(session.subscription.definition.name)

    def forget(self, client: ClientName, message: Forget) -> list[Effect]:
        """End a subscription for good that is here; that is answered when its name is free."""
        known = self.durables.subscriptions.get(message.name)
        assert known is not None
        if known.definition.previous is not None:  # else it would live on where it was
            self.ending.setdefault(message.name, []).append((client, message))
            return []
        return self.finish(message.name, f"{quoted(message.name)} was ended", [(client, message)])

    def finish(
        self,
        name: SubscriptionName,
        problem: str,
        askers: list[tuple[ClientName, Forget]],
        remedy: str = "",
    ) -> list[Effect]:
        """A subscription is over, everywhere; when that is durable, its name is to be freed."""
        known = self.durables.subscriptions.get(name)
        assert known is not None
        definition = known.definition
        left = self.leaving.setdefault(name, Leaving(definition.owner, definition.topic, []))
        left.askers.extend(askers)
        then = (Tell(Left(name, known.definition.moves)),)
        return self.end(name, problem, then, remedy)

    def end(
        self,
        name: SubscriptionName,
        problem: str,
        then: tuple[Effect, ...],
        remedy: str = "",
        *,
        elsewhere: bool = False,
    ) -> list[Effect]:
        """A subscription is over at this broker; `then` when that is durable."""
        subscription = self.durables.subscriptions.get(name)
        assert subscription is not None
        remember(self.ended, name, subscription.definition.moves, ENDED_MAX)
        effects: list[Effect] = []
        if name in self.sessions:
            effects += self._close(name, problem, remedy, elsewhere=elsewhere)
        return effects + self.durables.end(name, then)

    # --- invariants -----------------------------------------------------------------------------

    def _expected(self) -> list[tuple[int, tuple[ClientName, Subscribe]]]:
        return [(number, each) for number, each in self._creating.items() if each is not None]

    def check(self, portion: Portion = WHOLE) -> None:
        self.behind.check()
        waiting = {(c, m.subscription): n for n, (c, m) in self._expected()}
        assert waiting == self._attaching, "I2"
        assert all(client in self.subscribers.clients for client, _ in waiting), "I2"
        assert not any(self._session(*key) for key in waiting), "I2"
        assert len(self.sessions) == len(self.subscribers.sessions), "I1"
        for name, session in portion.of(self.sessions.items()):
            session.check()
            assert self.subscribers.clients.get(session.name) is session.client, "I1"
            assert self.durables.subscriptions.get(name) is session.subscription, "I1"
