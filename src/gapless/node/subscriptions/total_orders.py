"""Total orders: the sessions of one broker whose clients get all pubends in one order.

Theory of operation
    A session holds what it has until it is in order (`delivery.total_order`). At the end of each
    step in which a stream, a catch-up or a client of such a session has moved, the session sends
    what is in order now. While it holds something because a pubend lags, such as one that is idle,
    that pubend is asked for silence after `merge_patience`, up to the last tick that is held.

Invariants (checked by `check`)
    I1  all sessions in total order that are attached, and no others, are here
    I2  while a session waits for a pubend, there is a deadline

Source: DSN 2002, sec. 2.4 (liveness of merge edges); decision 0054.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.core.ticks import CLOCK_MAX, PUBEND_BITS

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import PubendName
    from gapless.node.context import Context
    from gapless.node.delivery.session import Session
    from gapless.node.subscriptions.catch_ups import CatchUps
    from gapless.node.subscriptions.named_subscriptions import NamedSubscriptions


class TotalOrders:
    """Of one broker. See the module docstring."""

    def __init__(self, context: Context, named: NamedSubscriptions, catch_ups: CatchUps) -> None:
        self._patience = context.config.merge_patience
        self._named = named
        self._catch_ups = catch_ups
        self._sessions: dict[int, Session] = {}  # by number of the subscription
        self._at: dict[PubendName, dict[int, Session]] = {}
        self._stirred: dict[int, None] = {}
        self._waiting: dict[int, None] = {}  # hold something that is not in order yet
        self.deadline: Instant | None = None

    def add(self, session: Session) -> None:
        """A client is attached."""
        number = session.subscription.number
        self._sessions[number] = session
        for pubend in (*session.level, *session.behind):
            self._at.setdefault(pubend, {})[number] = session
        self._stirred[number] = None

    def remove(self, session: Session) -> None:
        """The client has left."""
        number = session.subscription.number
        if self._sessions.pop(number, None) is None:
            return
        for pubend in (*session.level, *session.behind):
            del self._at[pubend][number]
            if not self._at[pubend]:
                del self._at[pubend]
        self._stirred.pop(number, None)
        self._waiting.pop(number, None)

    def expect(self, session: Session, tick: int, now: Instant) -> None:
        """Its client waits until everything below this tick has come. A pubend is not asked for
        silence beyond the clock and what has been seen here: that would set its clock."""
        if session.total_order is None:
            return
        limit = min(now, CLOCK_MAX) << PUBEND_BITS
        if tick > limit:  # another host's clock is ahead of ours
            limit = max(limit, *(each.delivered for each in self._named.streams.values()))
        session.total_order.expect(min(tick, limit))
        self.stir_session(session)

    # --- who may have news ------------------------------------------------------------------------

    def stir(self, pubend: PubendName) -> None:
        """A stream has moved."""
        if pubend in self._at:
            self._stirred.update(dict.fromkeys(self._at[pubend]))

    def stir_session(self, session: Session) -> None:
        """A catch-up has moved, or the client has room again."""
        if session.total_order is not None:
            self._stirred[session.subscription.number] = None

    @property
    def is_idle(self) -> bool:
        return not self._stirred

    def settle(self, now: Instant) -> list[Effect]:
        """At the end of a step: send what is in order."""
        stirred, self._stirred = self._stirred, {}
        effects: list[Effect] = []
        for number in stirred:
            effects += self._flush(self._sessions[number], now)
        return effects

    def _flush(self, session: Session, now: Instant, *, silence: bool = False) -> list[Effect]:
        number, order = session.subscription.number, session.total_order
        assert order is not None
        silence = silence or order.is_expected
        effects = session.flush(self._delivered(session), silence=silence)
        if effects and session.behind:  # there is room again
            self._catch_ups.go_on(session.subscription.definition.name, now)
        if not order.latest:
            self._waiting.pop(number, None)
        elif session.credit:
            self._waiting[number] = None
            self.deadline = self.deadline or Instant(now + self._patience)
        return effects

    def _delivered(self, session: Session) -> dict[PubendName, int]:
        streams = self._named.streams
        return {pubend: streams[pubend].delivered for pubend in session.level}

    def tell(self, now: Instant) -> list[Effect]:
        """Tell clients how far all is silent, where nothing came lately."""
        effects: list[Effect] = []
        for session in list(self._sessions.values()):
            effects += self._flush(session, now, silence=True)
        return effects

    # --- waiting for pubends that lag -------------------------------------------------------------

    def fire(self, now: Instant) -> dict[PubendName, int]:
        """The pubends that sessions wait for, and up to which tick."""
        if self.deadline is None or now < self.deadline:
            return {}
        lagging: dict[PubendName, int] = {}
        for number in self._waiting:
            session = self._sessions[number]
            assert session.total_order is not None
            latest, delivered = session.total_order.latest, self._delivered(session)
            for pubend, start in session.level.items():
                if max(start, delivered[pubend]) <= latest:
                    lagging[pubend] = max(lagging.get(pubend, 0), latest + 1)
        self.deadline = Instant(now + self._patience) if self._waiting else None
        return lagging

    def check(self) -> None:
        attached = {
            each.subscription.number
            for _, each in self._named.table.sessions()
            if each.total_order is not None
        }
        assert attached == self._sessions.keys(), "I1"
        assert not self._waiting or self.deadline is not None, "I2"
