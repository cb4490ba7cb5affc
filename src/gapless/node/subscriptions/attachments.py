"""Attachments: clients attach to named subscriptions, acknowledge, leave, and end them.

Theory of operation
    A client that names its subscription is attached to it, from its token on. A session says at
    which pubends the client is level with the stream, and at which it catches up. A subscription
    that does not exist yet waits, like any other, until everything that it wants gets here. Then
    this broker writes it, and attaches the client when that is durable.
    After a move the old broker may still hold a copy. As long as a client could find that copy,
    acknowledgements count here but are not confirmed: a client that lost its token would get events
    again that it had finished.

Invariants (checked by `check`): those of the sessions, and
    I1  the client of a session is connected, and its subscription lives
    I2  a number on a connection is attached, or waits to be attached, and not both

Source: DSN 2003, sec. 4; docs/protocols/durable-subscriptions.md, 3.1, 3.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msgspec import structs

from gapless.core.client_messages import Done, Refused, Sharing, Subscribed
from gapless.core.effects import NO_ROOM, Effect, Send, Tell
from gapless.core.errors import UsageError, quoted
from gapless.core.identity import ClientName, Instant, PubendName, SubscriptionName
from gapless.core.messages import Message
from gapless.core.portion import WHOLE, Portion
from gapless.core.ticks import PUBEND_BITS, TICK_MAX
from gapless.core.token import Token
from gapless.durable.subscriptions import Definition
from gapless.filters.filter import Filter
from gapless.node.delivery.session import Session
from gapless.node.directory.registry import registrar_of
from gapless.node.recent import remember
from gapless.node.redirect import refuse_until_told
from gapless.node.subscriptions.catch_ups import Assured, CatchUps
from gapless.node.subscriptions.leases import check_run, grant, refuse_other
from gapless.node.subscriptions.record import Attacher, Ender, Happening, Phase, Unconfirmed
from gapless.node.subscriptions.table import Work
from gapless.node.subscriptions.total_orders import TotalOrders

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.core.client_messages import Acknowledge, Forget, Subscribe
    from gapless.core.identity import BrokerName
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.node.context import Context
    from gapless.node.delivery.subscribers import Subscribers
    from gapless.node.subscriptions.named_subscriptions import NamedSubscriptions
    from gapless.node.subscriptions.tokens import Tokens


UNCONFIRMED_MAX = 1_000
"""Acknowledgements of one subscription that wait until its move is known; more are refused."""

LOST_MAX = 10_000
"""Names that are known to be lost, and begin anew as soon as their clients' requests have come so
far."""

FIRST_TICK = 1
"""Who is there has a position: 0 would be the oldest event."""


class Created(Message, frozen=True):
    """To ourselves: a new subscription is durable; not `ok`: the disk had no room for it."""

    name: SubscriptionName
    number: int
    ok: bool = True


class Left(Message, frozen=True):
    """To ourselves: the end of a subscription is durable. `moves`: its count of moves."""

    name: SubscriptionName
    moves: int


class Groups(Protocol):
    """What attaches clients to groups; see `named_groups`."""

    def join(
        self, subscription: DurableSubscription, client: ClientName, message: Subscribe
    ) -> list[Effect]: ...
    def ended(self, subscription: DurableSubscription) -> list[Effect]: ...


def mean_the_same(before: str, now: str) -> bool:
    """Do two conditions that were accepted want the same events? `x<3` and `(x < 3)` do."""
    return before == now or Filter.parse(before).means(Filter.parse(now))


class Attachments:
    """The clients at the named subscriptions of one broker. See the module docstring.

    `tokens`, `groups` and `silent_below` are set as soon as the broker has streams.
    """

    tokens: Tokens
    groups: Groups
    silent_below: Callable[[PubendName], int]

    def __init__(
        self, context: Context, subscribers: Subscribers, named: NamedSubscriptions
    ) -> None:
        self.name = context.name
        self.network = context.network
        self.config = context.config
        self.subscribers = subscribers
        self.named = named
        self.parts = context.parts
        self.table = named.table
        self.catch_ups = CatchUps(context, named)
        self.total_orders = TotalOrders(context, named, self.catch_ups)
        self.catch_ups.moved = self.total_orders.stir_session
        self._lost: dict[SubscriptionName, bool] = {}

    # --- what clients ask for ---------------------------------------------------------------------

    def attach(
        self, client: ClientName, message: Subscribe, now: Instant | None = None
    ) -> list[Effect] | None:
        """Attach a client to a subscription that exists; None if there is none of that name.
        `now` is left out where it was made just now: nobody has a lease of it."""
        assert message.name is not None
        subscription = self.named.subscriptions.get(message.name)
        if subscription is None:
            return None
        definition = subscription.definition
        if not self.subscribers.clients[client].may_use(definition.owner, definition.topic):
            problem = f"not allowed to use the subscription name {quoted(message.name)}"
            return [Send(client, Refused(message.request, problem, "Use another name."))]
        if now is not None and (
            refused := refuse_other(subscription, message.request, now, self.subscribers.clients)
        ):
            return [Send(client, refused)]
        if message.name in self.named.changing or message.altered > definition.altered:
            problem = f"the condition of {quoted(message.name)} changes just now"
            refused = Refused(message.request, problem, "Try again.", retry=True)
            return [Send(client, refused)]
        is_behind = 0 <= message.altered < definition.altered  # it was attached before the change
        if definition.topic != message.topic or not (
            is_behind or mean_the_same(definition.condition, message.condition)
        ):
            problem = (
                f"subscription {quoted(message.name)} is on topic {quoted(definition.topic)} with "
                f"condition {quoted(definition.condition)}"
            )
            remedy = "Use the same topic and condition, another name, or unsubscribe it first."
            return [Send(client, Refused(message.request, problem, remedy))]
        if contradicts := contradiction(definition, message):
            return [Send(client, Refused(message.request, *contradicts))]
        if message.token is None and definition.previous is not None:
            return refuse_until_told(client, message, definition.name, definition.previous)
        if not self.named.copied_streams.keys().isdisjoint(map(PubendName, subscription.since)):
            problem = "the broker runs on a copy of its disk, and asks where its pubends stand"
            return [Send(client, Refused(message.request, problem, "Try again.", retry=True))]
        record = self.table.get(message.name)
        if record is not None and record.phase is Phase.CREATING:  # it is not durable yet
            return self._wait_for_it(subscription.number, client, message)
        if definition.share_by:
            return self.groups.join(subscription, client, message)
        start = subscription.start
        if message.token is not None:
            start = self.known(subscription, message.token)
        if message.previous not in (None, self.name) and message.moves > definition.moves:
            self.table.come_back(message.name, message)
        return self._open(subscription, client, message.request, message.subscription, start)

    def drop_stale(self, message: Subscribe) -> list[Effect]:
        """Let go of a copy whose client comes back from another broker, where the condition has
        changed: what is written here after the change is of the old condition."""
        assert message.name is not None
        known, record = self.named.subscriptions.get(message.name), self.table.get(message.name)
        if known is None or record is None or message.previous in (None, self.name):
            return []
        definition = known.definition
        is_same = (message.altered, message.condition) == (definition.altered, definition.condition)
        if is_same or message.altered < definition.altered or record.phase is not Phase.LIVE:
            return []
        is_older = message.moves > definition.moves and message.name not in self.named.changing
        return self.move_out(message.name, ()) if is_older else []

    def _wait_for_it(self, created: int, client: ClientName, message: Subscribe) -> list[Effect]:
        """Attach this client, and no other, when the subscription is durable. Its number on that
        connection is taken until then."""
        assert message.name is not None
        before = self.table.attach_later(message.name, created, Attacher(client, message))
        if before is None:
            return []
        problem = f"{quoted(message.name)} was taken over by another connection"
        # Perhaps by an older connection of its own client, heard late: it may come again.
        remedy = "Connect once only under one name."
        return [Send(before.client, Refused(before.message.request, problem, remedy, retry=True))]

    def known(self, subscription: DurableSubscription, token: Mapping[str, int]) -> Token:
        """The position of a token at each pubend of the subscription; 0 where it has none."""
        return Token({pubend: token.get(pubend, 0) for pubend in subscription.since})

    def _open(
        self,
        subscription: DurableSubscription,
        client: ClientName,
        request: int,
        number: int,
        start: Token,
    ) -> list[Effect]:
        """Begin a session. A session that the subscription already has ends."""
        name = subscription.definition.name
        effects: list[Effect] = []
        if self.table.session(name) is not None:
            problem = f"{quoted(name)} was taken over by another connection"
            effects += self._close(name, problem, "Connect once only under one name.")
        connection = self.subscribers.clients[client]
        session = Session(subscription, client, number, connection, self.config)
        self.table.open_session(name, session)
        subscription.contact.is_reader = False
        self.subscribers.attach(session)
        for text in subscription.since:
            pubend = PubendName(text)
            position = start.get(pubend)
            since = subscription.since[text]  # before it, the stream does not know it
            is_level = position >= max(self.named.streams[pubend].delivered, since)
            if is_level and all(start.get(each) for each in subscription.since):
                session.level[pubend] = position
            else:
                session.behind[pubend] = self.catch_ups.catch_up(session, pubend, position)
        told = {pubend: start.get(pubend) for pubend in subscription.since}
        moves = subscription.definition.moves
        behind = tuple(sorted(session.behind))
        if subscription.definition.order == "total":
            starts = {PubendName(each): tick for each, tick in told.items()}
            session.begin_order(self.parts.total_order(starts, self.config))
            self.total_orders.add(session)
            behind = tuple(sorted(map(PubendName, told)))  # all its messages are its own
        definition = subscription.definition
        changes = (
            (definition.altered, definition.condition, definition.former)
            if definition.altered
            else ()
        )
        effects += session.open(Subscribed(request, number, told, behind, moves, *changes))
        self.catch_ups.stir_session(name)
        return effects

    def open_feed(
        self, subscription: DurableSubscription, feed: ClientName, start: Token
    ) -> list[Effect]:
        """Attach a group to its subscription, as if it were a client."""
        return self._open(subscription, feed, 0, subscription.number, start)

    def stir_feed(self, name: SubscriptionName) -> None:
        """The group has room again."""
        session = self.table.session(name)
        if session is not None and session.behind:
            self.catch_ups.consumed([session])

    def close_feed(self, name: SubscriptionName) -> None:
        """Detach a group: it has no member left."""
        self._close(name)

    def _close(
        self,
        name: SubscriptionName,
        problem: str = "",
        remedy: str = "",
        *,
        elsewhere: bool = False,
    ) -> list[Effect]:
        self.catch_ups.leave(name)
        session = self.table.close_session(name)
        self.total_orders.remove(session)
        self.subscribers.detach(session)
        sent = {
            pubend: min(
                session.sent_below(PubendName(pubend)),
                self.named.streams[PubendName(pubend)].delivered,
            )
            for pubend in session.subscription.since
        }
        session.subscription.contact.sent = Token(sent)
        return [session.end(problem, remedy, elsewhere=elsewhere)]

    def create(
        self,
        client: ClientName,
        message: Subscribe,
        since: dict[PubendName, int],
        taken: dict[PubendName, int],
        now: Instant,
    ) -> tuple[int | None, list[Effect]]:
        """Make a subscription that counts from the ticks `since` on; everything below `taken` is
        delivered. The answer is its number, or None if it was refused or exists, and effects."""
        assert message.name is not None
        attached = self.attach(client, message, now)
        if attached is not None:  # another client has made it meanwhile
            return None, attached
        previous, moves = self._origin(message)
        definition = Definition(
            name=message.name,
            topic=message.topic,
            condition=message.condition,
            order=message.order,
            owner=self.subscribers.clients[client].owner,
            tokens="broker" if message.share is not None else message.tokens,
            moves=moves,
            first=moves,
            previous=previous,
            registrar=registrar_of(self.network, message.name) if previous is None else None,
            altered=max(message.altered, 0),
            former=message.former,
            topics=message.topics,
            is_anew=message.token is None and message.name in self._lost,
            **(structs.asdict(message.share) if message.share is not None else {}),
        )
        start = self._start(message, since)
        if definition.is_anew:
            start = Token(dict.fromkeys(since, FIRST_TICK))
        number = self.named.subscriptions.next_number
        then = (Tell(Created(message.name, number)),)
        otherwise = (Tell(Created(message.name, number, ok=False)),)
        try:
            effects = self.named.create(definition, start, since, taken, then, otherwise, now)
        except UsageError as error:
            return None, [Send(client, Refused(message.request, error.problem, error.remedy))]
        return number, effects + self._wait_for_it(number, client, message)

    def remember_lost(self, name: SubscriptionName) -> None:
        """The registrar knows of a life of this name that an earlier disk had. Where it was, nobody
        knows: it begins anew, and is told that all before is lost."""
        remember(self._lost, name, True, LOST_MAX)

    def _origin(self, message: Subscribe) -> tuple[BrokerName | None, int]:
        """The broker that the subscription comes from, if any, and its count of moves."""
        assert message.name is not None
        moved = self.named.moved(message.name)
        if moved is not None and moved.moves > message.moves:
            return moved.broker, moved.moves + 1
        if message.previous is None or message.previous == self.name:
            # A copy of a life that ended may be on its way to another broker: it must be older.
            ended = self.table.ended(message.name)
            return None, message.moves if ended is None else max(message.moves, ended + 2)
        return message.previous, message.moves + 1

    def _start(self, message: Subscribe, since: Mapping[PubendName, int]) -> Token:
        if message.token is not None:
            return Token({pubend: message.token.get(pubend, 0) for pubend in since})
        if message.earliest:
            return Token({})
        if message.instant is not None:
            tick = min(max(message.instant, 0) << PUBEND_BITS, TICK_MAX)
            wanted = {pubend: max(tick, self.silent_below(pubend)) for pubend in since}
            return Token({pubend: min(wanted[pubend], since[pubend]) for pubend in since})
        return Token(since)

    def persisted(self, message: Created | Assured) -> list[Effect]:
        """A write of ours has ended."""
        if isinstance(message, Assured):
            return self.catch_ups.assured(message)
        return self.created(message)

    def created(self, message: Created) -> list[Effect]:
        """Attach the client that waits for the subscription, if it is still connected."""
        attacher = self.table.end_creation(message.name, message.number)
        subscription = self.named.subscriptions.get(message.name)
        if subscription is None or subscription.number != message.number:
            if attacher is None:
                return []
            problem = (
                f"{quoted(message.name)} has ended or moved meanwhile" if message.ok else NO_ROOM
            )
            refused = Refused(attacher.message.request, problem, "Try again later.", retry=True)
            return [Send(attacher.client, refused)]
        self.named.report(subscription)
        self.table.written(message.name)
        self._lost.pop(message.name, None)
        if subscription.definition.previous is not None:
            self.table.arrive(message.name)
        if attacher is None:
            return []  # its client will come back
        return self.attach(*attacher) or []

    def acknowledge(self, client: ClientName, message: Acknowledge, now: Instant) -> list[Effect]:
        """Release everything below a token. The client may be ahead of this broker: a crash sets
        the broker back to what was durable, but not the client."""
        if message.name is not None:
            subscription = self.named.subscriptions.get(message.name)
            assert subscription is not None
            if not (message.token or message.run):  # it only asks
                return [Send(client, Done(message.request, subscription.definition.topics))]
            if message.query:
                return self._lease(subscription, client, message, now)
            is_attached = self.table.session(message.name) is not None
            if message.run and (
                refused := check_run(subscription, client, message, now, is_attached=is_attached)
            ):
                return [Send(client, refused)]
            subscription.contact.is_reader = True
        else:
            session = self._session(client, message.subscription)
            if session is None:  # another connection may just have taken it over
                problem = f"subscription {message.subscription} is not attached any more"
                refused = Refused(message.request, problem, "Try again, attached.", retry=True)
                return [Send(client, refused)] if message.request else []
            subscription = session.subscription
            if message.awaited:
                self.total_orders.expect(session, message.awaited, now)
        subscription.contact.at = now
        shown = Unconfirmed(client, message.request, message.token)
        return self._acknowledge(subscription, shown, now)

    def _lease(
        self,
        subscription: DurableSubscription,
        client: ClientName,
        message: Acknowledge,
        now: Instant,
    ) -> list[Effect]:
        """Lease the subscription to a run, unless another query or a client has it."""
        definition, request = subscription.definition, message.request
        record = self.table.get(definition.name)
        is_new = record is not None and record.phase is Phase.CREATING
        is_open = is_new or definition.name in self.named.changing
        if is_open or self.table.session(definition.name) is not None:
            what = "changes just now" if is_open else "has a client attached"
            problem = f"subscription {quoted(definition.name)} {what}"
            return [Send(client, Refused(request, problem, "Try again.", retry=True))]
        if definition.share_by:
            problem = f"{quoted(definition.name)} is a group, which no single reader has"
            return [Send(client, Refused(request, problem, "Use another name."))]
        if definition.query != message.query and (
            refused := refuse_other(subscription, request, now, self.subscribers.clients)
        ):
            return [Send(client, refused)]
        return grant(self.named.subscriptions, subscription, client, message, now)

    def _acknowledge(
        self, subscription: DurableSubscription, shown: Unconfirmed, now: Instant
    ) -> list[Effect]:
        client, request, _ = shown
        name = subscription.definition.name
        if subscription.definition.share_by:
            problem = f"{quoted(name)} is a group, which has no token to acknowledge"
            remedy = "Join it with share_by, and finish its events."
            return [Send(client, Refused(request, problem, remedy))] if request else []
        topic = self.network.topic.get(subscription.definition.topic)
        if topic and (refused := self.tokens.doubt(request, topic, shown.token, now)):
            if request:
                return [Send(client, refused)]
            return self._close(name, refused.problem, refused.remedy)
        token = self.known(subscription, shown.token)
        if request and not subscription.definition.is_found:
            record = self.table.get(name)
            count = len(record.unconfirmed) if record is not None else 0
            if count >= UNCONFIRMED_MAX:
                problem = (
                    f"{count} acknowledgements of {quoted(name)} wait for its move to be known"
                )
                return [Send(client, Refused(request, problem, "Try again.", retry=True))]
            self.table.hold(name, shown)  # its session may end meanwhile
            request = 0
        then = (Send(client, Done(request)),) if request else ()
        return self.named.subscriptions.acknowledge(name, token, now, then=then)

    def confirm(self, now: Instant) -> list[Effect]:
        """At the end of a step: answer acknowledgements that waited for a move to be known."""
        effects: list[Effect] = []
        for name in self.table.names(Work.CONFIRM):
            known = self.named.subscriptions.get(name)
            if known is not None and not known.definition.is_found:
                continue
            for shown in self.table.take_unconfirmed(name):
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
        """Is the number on this connection attached, or about to be?"""
        return self.table.attaching(client, number) or self._session(client, number) is not None

    def detach(self, client: ClientName, number: int) -> bool:
        """Detach the client; the subscription goes on. False if it was not attached."""
        if self.table.detach_later(client, number):
            return True
        session = self._session(client, number)
        if session is not None:
            self._close(session.subscription.definition.name)
        return session is not None

    def disconnect(self, client: ClientName) -> None:
        for number in self.table.numbers_attaching(client):
            self.detach(client, number)
        for session in list(self.subscribers.sessions_of.get(client, {}).values()):
            self._close(session.subscription.definition.name)

    def forget(self, client: ClientName, message: Forget) -> list[Effect]:
        """End a subscription that is here; the client is answered when its name is free."""
        known = self.named.subscriptions.get(message.name)
        assert known is not None
        self.table.end_later(message.name, Ender(client, message))
        if known.definition.previous is not None:  # the copy at the old broker must go first
            return []
        return self.finish(message.name, f"{quoted(message.name)} was ended")

    def finish(self, name: SubscriptionName, problem: str, remedy: str = "") -> list[Effect]:
        """End a subscription everywhere. Its name becomes free when that is durable, and the
        clients that wanted it ended are answered then."""
        known = self.named.subscriptions.get(name)
        assert known is not None
        self.table.depart(known.definition)
        effects: list[Effect] = []
        if self.table.session(name) is not None:
            effects += self._close(name, problem, remedy)
        then = (Tell(Left(name, known.definition.moves)),)
        return effects + self._end(known, Happening.END, then)

    def _end(
        self, known: DurableSubscription, happening: Happening, then: tuple[Effect, ...]
    ) -> list[Effect]:
        effects = self.named.end(known.definition.name, happening, then)
        return effects + (self.groups.ended(known) if known.definition.share_by else [])

    def move_out(self, name: SubscriptionName, then: tuple[Effect, ...]) -> list[Effect]:
        """Let a subscription go on at another broker; `then` when that is durable here."""
        known = self.named.subscriptions.get(name)
        assert known is not None
        effects: list[Effect] = []
        if self.table.session(name) is not None:
            problem = f"{quoted(name)} goes on at another broker"
            effects += self._close(name, problem, elsewhere=True)
        return effects + self._end(known, Happening.MOVE_OUT, then)

    # --- invariants -----------------------------------------------------------------------------

    def check(self, portion: Portion = WHOLE) -> None:
        if portion.is_whole:
            self.catch_ups.check()
            self.total_orders.check()
            assert len(list(self.table.sessions())) == len(self.subscribers.sessions), "I1"
        for client in self.subscribers.clients:
            for number in self.table.numbers_attaching(client):
                assert self._session(client, number) is None, "I2"
        for session in portion.of(self.subscribers.sessions.values()):
            name = session.subscription.definition.name
            session.check()
            assert self.table.session(name) is session, "I1"
            assert self.subscribers.clients.get(session.name) is session.client, "I1"
            assert self.named.subscriptions.get(name) is session.subscription, "I1"


def contradiction(definition: Definition, message: Subscribe) -> tuple[str, str] | None:
    """The problem and the remedy of a request that is not about such a subscription: a group has
    members, and any other subscription has one client."""
    name, share = f"subscription {quoted(definition.name)}", message.share
    if definition.order != message.order:
        problem = f"{name} has {definition.order} order"
        return problem, f'Give order="{definition.order}", use another name, or unsubscribe it.'
    if definition.topics != message.topics:
        topics = ", ".join(definition.topics) or definition.topic
        problem = f"{name} is on {'topics' if definition.topics else 'topic'} {quoted(topics)}"
        return problem, "Give the same topics, use another name, or unsubscribe it first."
    if definition.share_by and share is None:
        problem = f"{name} is a group that shares by {quoted(definition.share_by)}"
        return problem, f"Give share_by={quoted(definition.share_by)}, or use another name."
    if share is None:
        return None
    if not definition.share_by:
        problem = f"{name} is no group"
        return problem, "Leave share_by out, use another name, or unsubscribe it first."
    if share == Sharing(definition.share_by, definition.attempts_max, definition.dead_letters):
        return None
    problem = f"{name} has share_by={quoted(definition.share_by)}"
    if definition.dead_letters is not None:
        problem += f", attempts_max={definition.attempts_max}"
        problem += f" and dead_letters={quoted(definition.dead_letters)}"
    else:
        problem += " and no attempts_max"
    return problem, "Give the same, use another name, or unsubscribe it first."
