"""Catch-ups: the sessions of one broker that are behind, and what they ask for.

Theory of operation
    What was learnt in one step is delivered at its end, all at once. Sessions that got something,
    or whose clients have room again, go on from there. The events that all of them ask for together
    are bounded, and they take turns (`turns`). A session whose client has no room gives up what it
    asked for when others wait for their turn; it asks again later. Where the pubend is hosted here,
    sessions take events from its log themselves, a window each in turn, and their questions are
    answered at once. So the work of all of them has a budget, however far behind they are: events
    sent and asked for, their bytes, and records of filtered logs that are looked at. The budget is
    renewed when time has passed (`fire`), not with each message: a hundred clients that return in
    one turn of the driver's loop share one. The rest goes on later, so that the live stream is not
    held up. Sessions with one condition share what one of them took (`durable.catch_up_group`);
    that costs less, and counts less. What a subscription wants from before this broker knew it is
    asked for as a whole, and filtered here.

Invariants (checked by `check`)
    I1  the events that each session has open, and no more, are counted
    I2  no session that is behind is overlooked

Source: DSN 2003, sec. 4.1; docs/protocols/durable-subscriptions.md, 3.2, 3.8.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.broker_messages import Purpose
from gapless.core.effects import Tell
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, Instant, SubscriptionName
from gapless.core.messages import Message
from gapless.core.token import Token
from gapless.durable.catch_up import CatchUpSource, Taker
from gapless.durable.catch_up_group import BatchCache, CatchUpGroup
from gapless.knowledge.answers import fetch
from gapless.node.subscriptions.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gapless.core.broker_messages import Knowledge, Nack
    from gapless.core.effects import Effect
    from gapless.core.identity import PubendName
    from gapless.durable.catch_up import CatchUp
    from gapless.filters.filter import Filter
    from gapless.node.context import Context
    from gapless.node.delivery.session import Made, Session
    from gapless.node.subscriptions.named_subscriptions import NamedSubscriptions
    from gapless.node.subscriptions.turns import Key


SHARED_COST = 8
"""This many events that another session took from the log cost as much as one taken from it."""

ASK_COST = 2
"""An event that is asked for costs as much as this many that are sent."""

LOOK_COST = 1
"""This many records of a filtered log cost as much as one event that is sent: each may be a read of
the disk, where events were written one by one."""

BYTES_COST = 1 << 10
"""This many bytes of events cost as much as one event more."""


class Assured(Message, frozen=True):
    """To ourselves: the start of a session, which had to be looked for, is durable."""

    name: SubscriptionName
    client: ClientName
    number: int


class CatchUps:
    """The sessions that catch up at some pubend. See the module docstring."""

    def __init__(self, context: Context, named: NamedSubscriptions) -> None:
        self._session = named.table.session
        self.config = context.config
        self.named = named
        self.parts = context.parts
        self.attributes_of = context.encoding.attributes_of
        self.logs: dict[PubendName, str] = {}  # of the pubends that are here
        self.released_of: Callable[[PubendName], int] = lambda _: 0  # as far as is known here
        self.moved: Callable[[Session], None] = lambda _: None  # told of sessions that went on
        self._asks: deque[tuple[Key, Nack]] = deque()  # to be put to the relays
        self._some: dict[SubscriptionName, Session] = {}  # all that are behind, and perhaps others
        self.turns = Turns(context.config.catch_up_total_max)
        self._stirred: dict[Key, None] = {}  # may have news
        self._sent = 0  # events, of the budget
        self._spent = 0  # work, of the budget
        self._made: Made = {}  # messages, in this step
        self._batches = BatchCache(context.config.catch_up_shared_bytes_max)
        self._groups: dict[tuple[PubendName, Filter, int | None], CatchUpGroup] = {}
        """By condition, while any session is behind."""
        self._later: dict[Key, None] = {}  # to go on in the next step
        self._due: Instant | None = None  # when that is

    # --- who may have news ------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Is a session behind, or has its client more than a window still to consume?"""
        return bool(self._some)

    def _all(self) -> list[tuple[SubscriptionName, Session]]:
        """The sessions that are behind somewhere. Most sessions are not, and cost nothing here."""
        for name, session in list(self._some.items()):
            has_much = session.client.outstanding > self.config.catch_up_window
            if not (session.behind or has_much) or self._session(name) is not session:
                del self._some[name]
        if not self._some:
            self._groups.clear()
            self._batches.clear()
        return list(self._some.items())

    def add_log(self, pubend: PubendName, log: str) -> None:
        """The pubend is hosted here: its events are read from this log."""
        self.logs[pubend] = log

    def remove_log(self, pubend: PubendName) -> None:
        self.logs.pop(pubend, None)

    def stir(self, pubend: PubendName) -> None:
        """The stream has moved: sessions that are behind there may go on."""
        for name, session in self._all():
            if pubend in session.behind and not self.turns.is_busy((name, pubend)):
                self._stirred[name, pubend] = None

    def stir_session(self, name: SubscriptionName) -> None:
        """The session may have fallen behind, or have news."""
        session = self._session(name)
        assert session is not None
        self._some[name] = session
        self._stirred.update(((name, pubend), None) for pubend in session.behind)

    def consumed(self, sessions: Iterable[Session]) -> None:
        """The client of these sessions has room again."""
        for session in sessions:
            self.stir_session(session.subscription.definition.name)

    def go_on(self, name: SubscriptionName, now: Instant) -> None:
        """The session has room for more: go on soon, though nothing else happens."""
        self.stir_session(name)
        self._due = self._due or Instant(now + 1)

    def receive_knowledge(self, knowledge: Knowledge, now: Instant) -> None:
        """Hand an answer to the sessions that are behind."""
        pubend, span = knowledge.pubend, knowledge.span
        for name, session in self._all():
            catch_up = session.behind.get(pubend)
            if (
                catch_up is not None
                and catch_up.position < span.end
                and span.start < catch_up.window_end
            ):
                self._ask((name, pubend), catch_up.receive_knowledge(knowledge, now))
                self._stirred[name, pubend] = None

    def fall_behind(
        self, sessions: Sequence[Session], pubend: PubendName, position: int
    ) -> list[Effect]:
        """Let sessions fall behind from `position` on: their client is too slow for the stream."""
        effects: list[Effect] = []
        for session in sessions:
            if pubend in session.level:
                start = max(position, session.level[pubend])
                effects += session.fall_behind(pubend, self.catch_up(session, pubend, start))
                self.stir_session(session.subscription.definition.name)
        return effects

    def begin_again(self, name: SubscriptionName) -> None:
        """The condition has changed: what is behind reads on alone, from where it is."""
        session = self._session(name)
        assert session is not None
        for pubend, catch_up in list(session.behind.items()):
            session.behind[pubend] = self.catch_up(session, pubend, catch_up.position)
            self.turns.leave((name, pubend))
        self.stir_session(name)

    def assured(self, message: Assured) -> list[Effect]:
        """The start of a session is durable: its client may be told."""
        session = self._session(message.name)
        if session is None or (session.name, session.number) != (message.client, message.number):
            return []
        self.stir_session(message.name)
        return session.assured()

    def leave(self, name: SubscriptionName) -> None:
        """The session ends."""
        session = self._session(name)
        for pubend in session.behind if session is not None else ():
            self.turns.leave((name, pubend))

    # --- going on ---------------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        """Is there nothing to go on with?"""
        return not (self._stirred or self._later or self._asks or self.turns.has_line)

    @property
    def _is_spent(self) -> bool:
        """Is the budget used up?"""
        config = self.config
        return self._sent >= config.catch_up_total_max or self._spent >= config.catch_up_work_max

    def settle(self, now: Instant) -> list[Effect]:
        """At the end of a step: deliver what can be delivered now, and ask for more."""
        stirred, self._stirred = self._stirred, {}
        effects: list[Effect] = []
        self._made = {}
        for key in stirred:
            effects += self._go_on(key, now)
        while not self._is_spent and (first := self.turns.next()):
            before = self._sent
            effects += self._go_on(first, now)
            if self.turns.next() == first and self._sent == before:
                break  # it did not ask, or not for all it wants: others first
        if first_later := self.turns.next():
            self._later[first_later] = None
        self._give_up()
        if (self._later or self._asks or self._spent) and self._due is None:
            self._due = Instant(now + 1)
        return effects

    @property
    def has_asked(self) -> bool:
        """Is there nothing more to ask in this step?"""
        return not self._asks or self._is_spent

    def next_ask(self) -> Nack | None:
        """The next question for a relay in this step. The relay may have the answer at hand, and
        that answer serves all sessions that want the same."""
        while self._asks and not self._is_spent:
            (name, pubend), nack = self._asks.popleft()
            session = self._session(name)
            catch_up = session.behind.get(pubend) if session is not None else None
            spans = tuple(filter(catch_up.lacks, nack.spans)) if catch_up is not None else ()
            self._spent += max(1, len(spans) * ASK_COST, nack.events_max * ASK_COST)
            if spans:
                return replace(nack, spans=spans)
        return None

    def _go_on(self, key: Key, now: Instant) -> list[Effect]:
        name, pubend = key
        session = self._session(name)
        catch_up = session.behind.get(pubend) if session is not None else None
        if session is None or catch_up is None:
            self.turns.leave(key)
            return []
        if self._is_spent:
            self._later[key] = None
            if catch_up.fetch is not None:  # it would go on at once
                self.turns.update(key, catch_up.open_count, waits=True)
            return []
        client, stream = session.client, self.named.streams[pubend]
        before, size, looked = client.outstanding, client.outstanding_bytes, stream.log.reads
        found_count = len(session.found)
        effects, nacks = session.pump(pubend, stream, self.turns.room_of(key), self._made, now)
        self.moved(session)
        looked = stream.log.reads - looked
        if catch_up.is_done(stream.latest):
            looked += stream.pending_count  # for its tail
        self._spent += looked // LOOK_COST
        if (sent := client.outstanding - before) > 0:
            self._spent += max(0, client.outstanding_bytes - size) // BYTES_COST
            cost = -(-sent // SHARED_COST) if catch_up.is_shared else sent
            self._sent += cost
            self._spent += cost
            self.turns.leave(key)  # others first
        self._ask(key, nacks)
        if pubend in session.behind:
            self.turns.update(key, catch_up.open_count, waits=catch_up.is_waiting)
        else:
            self.turns.leave(key)
        if session.has_found_all:
            start, session.found = Token(session.found), {}
            told = (Tell(Assured(name, session.name, session.number)),)
            effects += self.named.subscriptions.acknowledge(name, start, now, then=told)
        elif len(session.found) > found_count:
            self.stir_session(name)  # its credit goes to the pubends that are left
        return effects

    def _give_up(self) -> None:
        """Give up what is open for clients without room, so that other sessions may ask."""
        for name, pubend in list(self.turns.in_the_way()):
            session = self._session(name)
            if session is not None and not session.credit:
                start = session.behind[pubend].position
                session.behind[pubend] = self.catch_up(session, pubend, start)
                self.turns.leave((name, pubend))

    def _ask(self, key: Key, nacks: Sequence[Nack]) -> None:
        for nack in nacks:
            purpose = Purpose.CATCH_UP if nack.minimum is None else Purpose.WHOLE
            room = self.config.catch_up_window if purpose == Purpose.WHOLE else 0
            ask = replace(nack, minimum=None, purpose=purpose, events_max=room)
            self._asks.append((key, ask))

    def catch_up(self, session: Session, pubend: PubendName, start: int) -> CatchUp:
        subscription = session.subscription
        condition = self.named.filters[subscription.number]

        def matches(ticks: Sequence[int], events: Sequence[bytes]) -> list[int]:
            attributes = self.attributes_of(EventBatch.join(events))
            condition_at = partial(self.named.condition_at, subscription, pubend)
            pairs = enumerate(zip(ticks, attributes, strict=True))
            return [index for index, (tick, each) in pairs if condition_at(tick).matches(each)]

        log = self.logs.get(pubend)
        # What it took under a former condition is its own.
        alone = subscription.number if subscription.definition.former else None
        source = CatchUpSource(
            self.named.streams[pubend].log,
            None if log is None else partial(self._fetch, log),
            self._groups.setdefault((pubend, condition, alone), CatchUpGroup(self._batches)),
            partial(self.released_of, pubend),
        )
        is_anew = subscription.definition.is_anew
        taker = Taker(subscription.number, subscription.since[pubend], matches, is_anew)
        return self.parts.catch_up(taker, start, source, self.config)

    def _fetch(self, log: str, ticks: Sequence[int]) -> list[bytes | None]:
        return fetch(self.named.store, log, ticks, self.config.answer_bytes_max)

    # --- time, invariants -----------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        if not self._some:
            return self._due
        due = [each.deadline for _, session in self._all() for each in session.behind.values()]
        return min((each for each in (self._due, *due) if each is not None), default=None)

    def fire(self, now: Instant) -> None:
        if self._due is not None and self._due <= now:
            self._stirred.update(self._later)
            self._later, self._due = {}, None
            self._sent = self._spent = 0
        for name, session in self._all():
            for pubend, catch_up in session.behind.items():
                if catch_up.deadline is not None and catch_up.deadline <= now:
                    self._ask((name, pubend), catch_up.fire(now))
                    self._stirred[name, pubend] = None

    def check(self) -> None:
        self.turns.check(self.config.catch_up_window)
        self._batches.check()
        sessions = dict(self.named.table.sessions())
        for name, session in sessions.items():
            assert not session.behind or self._some.get(name) is session, "I2"
            for pubend, catch_up in session.behind.items():
                counted = self.turns.open.get(pubend, {}).get(name, 0)
                assert counted == catch_up.open_count, "I1"
        for pubend, some in self.turns.open.items():
            assert all(pubend in sessions[name].behind for name in some), "I1"
