"""One broker process in the world: its machine, disk and clock, up or down.

Theory of operation
    The same few lines as the real broker's loop: an input comes, the machine decides, its effects
    are carried out. A crash drops the machine and what was not durable; a restart makes a new one
    from the volume. The incarnation tells messages to the old one from messages to the new one.

Invariants
    I1  at most one wake-up is armed, never later than the machine's deadline
    I2  the machine's `check` holds after every step (or every n-th, if so set)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gapless.core.effects import Persist, Send, Tell
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, ClientName, Instant
from gapless.node.node import Node
from gapless.testing.disk import Disk
from gapless.testing.effort import CountedStore, effort
from gapless.testing.record import Violation
from gapless.testing.trace import show

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gapless.core.effects import Effect
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.clock import Clock
    from gapless.testing.memory_volume import MemoryVolume
    from gapless.testing.stage import Stage

BUSY_MAX = 200
"""How often a machine may want to be woken at one instant, or in a row soon and for nothing, before
we call it a busy loop: a deadline that stays in the past."""

SOON = 100
"""µs after the last time: a machine's own time goes on by 1 with each step."""


class Machine(Protocol):
    """What drives and is driven: `node.Node`, or a stand-in."""

    @property
    def deadline(self) -> Instant | None: ...

    def start(self, now: Instant) -> list[Effect]: ...
    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]: ...
    def fire(self, now: Instant) -> list[Effect]: ...
    def link_up(self, peer: PeerName, now: Instant) -> list[Effect]: ...
    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]: ...
    def check(self) -> None: ...
    def statistics(self) -> Mapping[str, object]: ...


class Surroundings(Protocol):
    """What a broker asks of the world around it."""

    check_every: int

    def send(self, sender: BrokerName, to: PeerName, message: Message) -> None: ...
    def crashed(self, name: BrokerName, down_for: int | None) -> None: ...
    def restart_delay(self) -> int: ...


class Process:
    """A broker of the world."""

    def __init__(
        self,
        stage: Stage,
        world: Surroundings,
        name: BrokerName,
        clock: Clock,
        volume: MemoryVolume,
    ) -> None:
        self._stage = stage
        self._world = world
        self.name = name
        self.clock = clock
        self.disk = Disk(stage, self, volume, self.carry_out, self._stop)
        self._counted = CountedStore(volume)
        self.node: Machine | None = None
        self.incarnation = 0
        self.clock_jumps = 0
        self.steps = 0
        self._armed: Instant | None = None
        self._busy = (Instant(0), 0)  # when it was woken last; how often in a row
        self._woke_for_nothing = False

    @property
    def is_up(self) -> bool:
        return self.node is not None

    @property
    def now(self) -> Instant:
        return self.clock.read(self._stage.now)

    @property
    def store(self) -> Store:
        return self.disk.volume

    def statistics(self) -> Mapping[str, object]:
        return self.node.statistics() if self.node is not None else {}

    # --- life ------------------------------------------------------------------------------------

    def start(self, make: Callable[[BrokerName, Store, Instant], Machine]) -> None:
        assert self.node is None, f"{self.name} is up"
        self.incarnation += 1
        self._armed = None
        self._stage.say(f"{self.name} up")
        if self.incarnation > 1:
            self.disk.reopen()
        self._counted = CountedStore(self.store)
        self.node = make(self.name, self._counted, self.now)
        self._counted.take()  # nobody waits for a broker that has not started
        if self.incarnation > 1:
            self._stage.watch.restarted(self)
        self._done(self.node.start(self.now))

    def crash(self, down_for: int | None = None) -> None:
        """Stop at once. It comes back after `down_for`; never by itself if that is None."""
        if self.node is None:
            return
        self.node = None
        self.incarnation += 1
        self._stage.say(f"{self.name} crash")
        self.disk.crash()
        self._world.crashed(self.name, down_for)

    def _stop(self) -> None:
        """The disk failed: nothing to do but to start again."""
        self.crash(self._world.restart_delay())

    # --- steps -----------------------------------------------------------------------------------

    def receive(self, sender: PeerName, message: Message) -> None:
        self._stage.say(f"{self.name} <- {sender} {show(message)}")
        assert self.node is not None
        try:
            effects = self.node.receive(sender, message, self.now)
        except ProtocolError as error:
            raise Violation(
                "nobody here breaks the protocol",
                f"{self.name} refused a message of {sender}: {error}",
            ) from error
        self._stage.watch.received(self, sender, message)
        self._done(effects)

    def link_up(self, client: ClientName) -> None:
        self._stage.say(f"{self.name} has client {client}")
        assert self.node is not None
        self._done(self.node.link_up(client, self.now))

    def link_down(self, client: ClientName) -> None:
        if self.node is not None:
            self._done(self.node.link_down(client, self.now))

    def drive(self, call: Callable[[Node, Instant], list[Effect]]) -> None:
        """Do something to the machine that no message does."""
        if isinstance(self.node, Node):
            self._done(call(self.node, self.now))

    def jump(self, by: int) -> None:
        """The clock jumps; the deadline is where it was on it, so the wake-up moves."""
        self._stage.say(f"{self.name} clock {by:+}")
        self.clock.jump(by)
        self.clock_jumps += 1
        if self.node is not None:
            self._arm()

    def _wake(self, incarnation: int, armed: Instant) -> None:
        if self.node is None or incarnation != self.incarnation or armed != self._armed:
            return
        self._armed = None
        if self.node.deadline is None or self.node.deadline > self.now:
            self._arm()
            return
        self._count_busy()
        self._stage.say(f"{self.name} fire")
        effects = self.node.fire(self.now)
        self._woke_for_nothing = not effects
        self._done(effects)

    def _count_busy(self) -> None:
        instant, count = self._busy
        since = self._stage.now - instant
        is_busy = since == 0 or (since <= SOON and self._woke_for_nothing)
        self._busy = (self._stage.now, count + 1 if is_busy else 1)
        if self._busy[1] > BUSY_MAX:
            raise Violation("time goes on", f"{self.name} fires again and again for nothing")

    def _done(self, effects: Sequence[Effect]) -> None:
        """A step is over: check the machine, do what it wants, see when it wants to be woken."""
        assert self.node is not None
        self._stage.watch.stepped(self, self._counted.take() + effort(effects))
        self.steps += 1
        if self.steps % self._world.check_every == 0:
            self.node.check()
        self.carry_out(effects)
        if self.node is not None:
            self._arm()

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    self._stage.watch.sent(self, to, message)
                    self._world.send(self.name, to, message)
                case Tell(message):
                    self._stage.after(0, self._tell, self.incarnation, message)
                case Persist():
                    self.disk.write(effect)

    def _tell(self, incarnation: int, message: Message) -> None:
        if self.incarnation == incarnation:
            self.receive(self.name, message)

    def _arm(self) -> None:
        assert self.node is not None
        deadline = self.node.deadline
        if deadline is None:
            return
        instant = max(self._stage.now, self.clock.world_instant(deadline))
        if self._armed is None or instant < self._armed:
            self._armed = instant
            self._stage.at(instant, self._wake, self.incarnation, instant)
