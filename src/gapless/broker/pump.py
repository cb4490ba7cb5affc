"""The pump: inputs into the node, its effects out, one call at a time.

Theory of operation
    Whatever comes (a message, a link, a durable write, a deadline) becomes one call of the node,
    and what it returns is carried out in order. Sending only queues; at the end of the loop's turn
    all queues are flushed, with one write for each peer, and the wake-up is set. So one turn that
    brings a thousand messages costs a thousand calls of the node but one write for each peer.
    Receipts do not wait for that: they leave when the write is durable, before the node is told
    and matches what was written.
    Nobody else is served during a call, nor during a turn: how long both take is measured.
    The node's invariants are checked a portion at a time (`core.portion`), so that a broker with
    100,000 named subscriptions does not stop for a second every minute.

Invariants
    I1  effects of one call are carried out before those of the next; a `Tell` is a call of its own
    I2  at most one wake-up is armed, not later than the node's deadline or `WAKE_LONGEST_S`; none
        once we are about to stop
    I3  a `ProtocolError` leaves the node as it was and reaches the caller, who drops the link; so
        does a `RequestError`, after which the node knows that client no more, and which is logged;
        any other exception stops the broker

Source: `testing/process.py` is the same with everything that can go wrong.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

from gapless.broker import clock
from gapless.broker.clock import DurationMeter
from gapless.broker.logs import logger
from gapless.core.effects import Persist, Send
from gapless.core.errors import ProtocolError, RequestError
from gapless.core.portion import Portion
from gapless.node.delivery.connections import nowhere

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, Instant, PeerName
    from gapless.core.messages import Message
    from gapless.node.node import Node

WAKE_LONGEST_S = 1.0
"""The node is woken at least this often: so it notices when the clock was set back."""


CHECKED_MAX = 1_000
"""Items whose invariants are checked in one turn: that takes about 10 ms."""


class Surroundings(Protocol):
    """Where a node's effects go."""

    def send(self, to: PeerName, message: Message) -> None: ...
    def persist(self, effect: Persist) -> None: ...
    def flush(self) -> None: ...
    def hurry(self, peers: Sequence[PeerName]) -> None:
        """Flush what is queued for these."""


class Pump:
    """Drives one node."""

    def __init__(
        self,
        node: Node,
        surroundings: Surroundings,
        fail: Callable[[BaseException], None],
        check_every_s: float,
    ) -> None:
        self.node = node
        self.steps = 0
        self.failed_requests = 0
        self.step_times = DurationMeter()
        self.turn_times = DurationMeter()
        self._turn_began = 0  # by its first call, in nanoseconds
        self._surroundings = surroundings
        self._fail = fail
        self._loop = asyncio.get_running_loop()
        self._is_settling = False
        self._timer: asyncio.TimerHandle | None = None
        self._armed_s = 0.0  # on the loop's clock
        self._check_every_s = check_every_s
        self._check_due_s = self._loop.time()
        self._checked = 0  # portions so far
        self.is_stopped = False
        self._is_leaving = False

    # --- inputs ----------------------------------------------------------------------------------

    def start(self) -> None:
        self._step(self.node.start)

    def receive(self, sender: PeerName, message: Message) -> None:
        """A message of a peer; a `ProtocolError` is for the caller: drop the peer's link."""
        self._step(self.node.receive, sender, message)

    def link_up(
        self,
        peer: PeerName,
        owner: str = "",
        administers: Callable[[str], bool] = nowhere,
        who: str = "",
    ) -> None:
        up = partial(self.node.link_up, owner=owner, administers=administers, who=who)
        self._step(up, peer)

    def link_down(self, peer: PeerName) -> None:
        self._step(self.node.link_down, peer)

    def welcome(self, newcomer: BrokerName) -> None:
        """A broker that is in no network file is linked to us."""
        self._step(self.node.welcome, newcomer)

    def join(self, at: BrokerName) -> None:
        """We are such a broker, and this is one of the network."""
        self._step(self.node.join, at)

    def drain(self) -> None:
        """Give all named subscriptions to other brokers."""
        self._step(self.node.drain)

    def leave(self) -> None:
        """We are about to stop. From now on nothing happens because time has passed: what idle
        pubends write then has no end, where there are many of them."""
        self._step(self.node.leave)
        self._is_leaving = True
        self._disarm()

    def _step(self, call: Callable[..., list[Effect]], *arguments: object) -> None:
        if not self.is_stopped:
            began = perf_counter_ns()
            effects = self._call(call, *arguments)
            if effects or not self.node.is_deadline_known:
                self.carry_out(effects, began)

    def _timed(self, call: Callable[..., list[Effect]], *arguments: object) -> list[Effect]:
        began = perf_counter_ns()
        try:
            return call(*arguments, clock.read())
        finally:
            self.step_times.add(perf_counter_ns() - began)

    def _call(self, call: Callable[..., list[Effect]], *arguments: object) -> list[Effect]:
        self.steps += 1
        try:
            return self._timed(call, *arguments)
        except RequestError as error:
            self.failed_requests += 1
            logger.error(error.problem, exc_info=error.__cause__)
            raise
        except ProtocolError:
            raise
        except Exception as error:  # a broken invariant: our state is not to be trusted
            self.stop()
            self._fail(error)
            return []

    # --- effects ---------------------------------------------------------------------------------

    def carry_out(self, effects: Sequence[Effect], began: int = 0) -> None:
        """Do what the node wants, in order, with what follows from it. `began`: the call that
        wanted it, if that was in this turn."""
        began = began or perf_counter_ns()
        rest, send = list(effects), self._surroundings.send
        answered: list[PeerName] | None = []  # before the first call of the node
        for effect in rest:  # which grows on the way
            if self.is_stopped:
                break
            if isinstance(effect, Send):
                send(effect.to, effect.message)
                if answered is not None:
                    answered.append(effect.to)
            elif isinstance(effect, Persist):
                self._surroundings.persist(effect)
            else:
                if answered:
                    self._surroundings.hurry(answered)
                answered = None
                rest += self._call(self.node.receive, self.node.name, effect.message)
        if not self._is_settling:
            self._is_settling = True
            self._turn_began = began
            self._loop.call_soon(self._settle)

    # --- the end of a turn, and time -------------------------------------------------------------

    def _settle(self) -> None:
        self._is_settling = False
        self._surroundings.flush()
        if not (self.is_stopped or self._is_leaving):
            self._arm()
        self.turn_times.add(perf_counter_ns() - self._turn_began)

    def _arm(self) -> None:
        deadline = self.node.deadline
        wait_s = WAKE_LONGEST_S
        if deadline is not None:
            wait_s = min(wait_s, max(0.0, (deadline - clock.read()) / 1e6))
        due_s = self._loop.time() + wait_s
        if self._timer is not None:
            if self._armed_s <= due_s:
                return
            self._timer.cancel()
        self._armed_s = due_s
        self._timer = self._loop.call_at(due_s, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._loop.time() >= self._check_due_s:
            self._step(self._check)
        self._step(self.node.fire)

    def _check(self, _: Instant) -> list[Effect]:
        """Check the next portion; all of them once in `check_every_s`."""
        step = 1 + self.node.size // CHECKED_MAX
        portion = Portion(self._checked % step, step)
        self._checked += 1
        self._check_due_s = self._loop.time() + self._check_every_s / step
        self.node.check(portion)
        return []

    def stop(self) -> None:
        """Take no more inputs."""
        self.is_stopped = True
        self._disarm()

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
