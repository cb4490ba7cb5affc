"""Leaf: the subscriptions of one broker, their virtual times, and how they go up the tree.

Theory of operation
    Requests come in batches. A batch that changes the roots of the conjunction graph is one step of
    the virtual clock: the change goes up under the clock's time, and the clock moves on. A
    conjunction that is covered when it comes starts with what covers it, any other starts now, and
    a subscription starts with the last of its conjunctions. Delivery may begin with the first
    message whose vector has come that far.
    The clock must never show a time twice. So a bound on it is persisted ahead of need, and nothing
    leaves under a time beyond the durable bound, not even under a first time, which depends on the
    broker's clock. A restart continues after the bound, sends the state of the subscriptions that
    survived, and moves on.
    If a change got lost, messages keep coming with an older vector; then the leaf sends its state.
    A broker may ask for a time that has not come: it has lost what it knew of this leaf (`stamp`),
    and brokers in between may know less than it knew. So the clock moves on to that time, and the
    state under it can be told from everything sent before.

Invariants (checked by `check`)
    I1  the clock never shows a time that it showed before, crashes or not
    I2  nothing has left under a time beyond the durable bound
    I3  every conjunction starts before the clock's time
    I4  a subscription starts with the last of its conjunctions

Source: Middleware 2004, sec. 3.3, 3.4, 4. Within a batch, subscriptions come before
unsubscriptions, so that what is exchanged for something that it covers starts early.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import SubscriptionChange, SubscriptionState
from gapless.core.effects import Persist, Put, Tell
from gapless.core.identity import Instant
from gapless.core.messages import Message
from gapless.core.outgoing import ToBroker, ToCell
from gapless.propagation.condition import ConditionReader, show_all, show_removed
from gapless.propagation.expectation import Expectation
from gapless.propagation.graph import ConjunctionGraph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.identity import BrokerName, CellName
    from gapless.core.store import Store
    from gapless.filters.filter import Filter
    from gapless.filters.normal import Conjunction
    from gapless.propagation.actions import Action, Outgoing
    from gapless.propagation.timing import PropagationTiming

VIRTUAL_TIMES = "virtual-times"


class ClockPersisted(Message, frozen=True):
    """To the leaf itself: its clock may go up to `bound` (or, if not `ok`, the disk had no
    room)."""

    key: str
    bound: int
    ok: bool = True


class Leaf:
    """The subscriptions of one broker. Sans-IO: see the module docstring."""

    def __init__(
        self,
        name: BrokerName,
        cell: CellName,
        upstream: tuple[CellName, ...],
        store: Store,
        timing: PropagationTiming,
        *,
        key: str | None = None,
        first: int = 1,
    ) -> None:
        """`key` is the key of its bound in the store; `first` is where the clock begins without
        one."""
        self.name = name
        self.key = key or name
        self.cell = cell
        self.upstream = upstream
        self.timing = timing
        known = store.get(VIRTUAL_TIMES, self.key)
        self.bound = int.from_bytes(known, "little") if known else 0
        self.clock = self.bound + 1 if known else first
        self._is_back = known is not None
        self.graph = ConjunctionGraph()
        self.starts: dict[str, int] = {}
        self.expectation = Expectation(timing)
        self.deadline: Instant | None = None  # when to try again to persist the bound
        self._first = self.clock
        self._held_messages: list[
            tuple[int, Outgoing]
        ] = []  # with the time that must be durable first
        self._bound_in_write = 0
        self._reader = ConditionReader()
        self._conjunctions: dict[str, tuple[Conjunction, ...]] = {}

    def begin(self, survivors: Mapping[str, Filter], now: Instant) -> list[Action]:
        """Start, with the subscriptions that survived a crash."""
        for key, condition in sorted(survivors.items()):
            self._subscribe(key, condition)
        self.graph.take_change()
        if self._is_back or survivors:
            self.clock += 1
            self._announce([ToCell(cell, self._state()) for cell in self.upstream], now)
        return self._flush(now)

    # --- subscriptions --------------------------------------------------------------------------

    def update(
        self, subscribe: Mapping[str, Filter], unsubscribe: Iterable[str], now: Instant
    ) -> list[Action]:
        """Apply one batch: at most one step of the clock, and one change for all of it."""
        for key, condition in subscribe.items():
            self._subscribe(key, condition)
        for key in unsubscribe:
            del self.starts[key]
            for conjunction in self._conjunctions.pop(key):
                self.graph.remove(conjunction)
        roots = self.graph.take_change()
        if not roots:
            return []
        change = SubscriptionChange(
            self.cell,
            {self.name: self.clock},
            {self.name: self.clock - 1},
            show_all(roots.added),
            show_removed(roots.removed),
        )
        self.clock += 1
        self._announce([ToCell(cell, change) for cell in self.upstream], now)
        return self._flush(now)

    def _subscribe(self, key: str, condition: Filter) -> None:
        assert key not in self.starts, f"{key} is subscribed already"
        conjunctions = tuple(dict.fromkeys(map(self._reader.propagated, condition.conjunctions)))
        starts = [self.graph.add(one, self.clock) for one in conjunctions]
        self.starts[key] = max(starts, default=0)
        self._conjunctions[key] = conjunctions

    def _state(self) -> SubscriptionState:
        roots = show_all(self.graph.roots())
        return SubscriptionState(self.cell, {self.name: self.clock - 1}, roots)

    # --- liveness -------------------------------------------------------------------------------

    def receive_nack(self, asker: BrokerName, now: Instant, wanted: int = 0) -> list[Action]:
        """Send the state to a broker above that lags, under the wanted time at least."""
        if wanted >= self.clock:
            self.clock = wanted + 1
            self._announce([ToCell(cell, self._state()) for cell in self.upstream], now)
        else:
            self._held_messages.append((self.clock - 1, ToBroker(asker, self._state())))
        return self._flush(now)

    def see(self, source: str, time: int, now: Instant) -> list[Action]:
        """Note a message of this source with the leaf's element at `time`; repeat what got lost."""
        if not self.expectation.see(source, time, now):
            return []
        state = self._state()
        self._held_messages += [(self.clock - 1, ToCell(cell, state)) for cell in self.upstream]
        return self._flush(now)

    # --- the clock ------------------------------------------------------------------------------

    def _announce(self, outgoing: list[Outgoing], now: Instant) -> None:
        self._held_messages += [(self.clock - 1, each) for each in outgoing]
        self.expectation.sent(self.clock - 1, now)

    def _flush(self, now: Instant) -> list[Action]:
        """Send what is under a durable time; persist a higher bound if the rest needs one."""
        ready: list[Action] = [each for time, each in self._held_messages if time <= self.bound]
        self._held_messages = self._held_messages[len(ready) :]
        used = self.clock - 1
        step = self.timing.virtual_time_step
        if self._bound_in_write or self.deadline is not None or used + step // 2 < self.bound:
            return ready
        self._bound_in_write = used + step
        value = self._bound_in_write.to_bytes(8, "little")
        done = ClockPersisted(self.key, self._bound_in_write)
        failed = ClockPersisted(self.key, self._bound_in_write, ok=False)
        put = Put(VIRTUAL_TIMES, self.key, value)
        return [*ready, Persist((put,), (Tell(done),), (Tell(failed),))]

    def persisted(self, message: ClockPersisted, now: Instant) -> list[Action]:
        """Handle the end of the write of the bound; without room it is tried again."""
        self._bound_in_write = 0
        if message.ok:
            self.bound = message.bound
        else:
            self.deadline = Instant(now + self.timing.change_wait)
        return self._flush(now)

    def fire(self, now: Instant) -> list[Action]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        return self._flush(now)

    def check(self) -> None:
        self.graph.check()
        self.expectation.check()
        assert self.clock >= self._first, "I1"
        assert all(time > self.bound for time, _ in self._held_messages), "I2"
        for key, conjunctions in self._conjunctions.items():
            starts = [self.graph.start_of(one) for one in conjunctions]
            assert all(start < self.clock for start in starts), "I3"
            assert self.starts[key] == max(starts, default=0), "I4"
