"""The processor: a machine that does one thing at a time, each of which takes time.

Theory of operation
    The simulator's brokers decide at once. Here what arrives waits in line; handling it takes as
    long as the cost model says, from what came in and what it led to; what it leads to leaves when
    that is over. Timers that are due go first. So a broker can be busy, fall behind and catch up,
    and its free time can be measured.
    The costs are frozen, so that the same seed gives the same figures. They were fitted to what the
    nodes of this package took on one machine in 27 phases of play, with the codec's share, and
    rounded; sockets and disks are not in them. The experiment says how far they are off. Rates are
    a tenth of the paper's; the processor is a twentieth as fast as it was measured, so that about
    as many subscribers as in the paper fill it.

Invariants
    I1  messages are handled in the order in which they came
    I2  nothing leaves before what led to it has been handled
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, Sideways
from gapless.core.client_messages import Deliveries, Publish
from gapless.core.effects import Persist, Send
from gapless.core.identity import Instant
from gapless.testing.clock import START
from gapless_lab.experiments.meter import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gapless.core.effects import Effect
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.testing.process import Machine


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Microseconds of a processor."""

    step: int = 35
    """To handle a message, a timer or the end of a write."""
    event_in: int = 85
    """Each event in a message that is handled."""
    message_out: int = 3
    event_out: int = 3
    """Each event in a message that is sent."""
    event_alone: int = 75
    """On top of it, where the event goes to subscribers that catch up; once for all that are sent
    the very same message."""

    def times(self, factor: int) -> Costs:
        return Costs(**{each.name: factor * getattr(self, each.name) for each in fields(self)})

    def shown(self) -> str:
        return ", ".join(f"{each.name} {getattr(self, each.name)}" for each in fields(self))


REAL = Costs()
SLOWNESS = 20
SLOW = REAL.times(SLOWNESS)
"""Of a slow processor, for rates that are a tenth of the paper's."""


class Processor:
    """One broker's machine on its processor. See the module docstring."""

    def __init__(self, machine: Machine, costs: Costs) -> None:
        self._machine = machine
        self._costs = costs
        self._line: deque[tuple[Callable[[Instant], list[Effect]], Message | None]] = deque()
        self._until: Instant | None = None  # when what is being handled is done
        self._held: list[Effect] = []  # what it leads to
        self.busy_us: Counter[int] = Counter()
        """By second of the world: how long the processor was busy with what began in it."""

    @property
    def deadline(self) -> Instant | None:
        return self._machine.deadline if self._until is None else self._until

    def start(self, now: Instant) -> list[Effect]:
        return self._machine.start(now)

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        return self._queue(partial(self._machine.receive, sender, message), message, now)

    def link_up(self, peer: PeerName, now: Instant) -> list[Effect]:
        return self._queue(partial(self._machine.link_up, peer), None, now)

    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]:
        return self._queue(partial(self._machine.link_down, peer), None, now)

    def _queue(
        self, action: Callable[[Instant], list[Effect]], message: Message | None, now: Instant
    ) -> list[Effect]:
        self._line.append((action, message))
        return self.fire(now)

    def fire(self, now: Instant) -> list[Effect]:
        """Let go of what is done, and take up the next thing if there is one."""
        if self._until is not None and now < self._until:
            return []
        done, self._held, self._until = self._held, [], None
        due = self._machine.deadline
        if due is not None and due <= now:
            self._handle(self._machine.fire, None, now)
        elif self._line:
            self._handle(*self._line.popleft(), now)
        return done

    def _handle(
        self, action: Callable[[Instant], list[Effect]], message: Message | None, now: Instant
    ) -> None:
        self._held = action(now)
        took = self.cost(message, self._held)
        self._until = Instant(now + took)
        self.busy_us[(now - START) // SECOND] += took

    def cost(self, message: Message | None, effects: Iterable[Effect]) -> int:
        costs = self._costs
        total = costs.step
        if message is not None:
            total += costs.event_in * event_count(message)
        made: set[int] = set()
        for effect in effects:
            for each in effect.then if isinstance(effect, Persist) else (effect,):
                if isinstance(each, Send):
                    total += self._cost_out(each.message, is_new=id(each.message) not in made)
                    made.add(id(each.message))
        return total

    def _cost_out(self, message: Message, *, is_new: bool) -> int:
        costs, count = self._costs, event_count(message)
        is_alone = is_new and isinstance(message, Deliveries) and message.only is not None
        each = costs.event_out + is_alone * costs.event_alone
        return costs.message_out + count * each

    def check(self) -> None:
        self._machine.check()

    def statistics(self) -> Mapping[str, object]:
        return self._machine.statistics()


def event_count(message: Message) -> int:
    """How many events a message carries."""
    match message:
        case Sideways(message=Knowledge(ticks=ticks)) | Knowledge(ticks=ticks):
            return len(ticks)
        case Deliveries(ticks=ticks):
            return len(ticks)
        case Publish(events=events):
            return len(events)
        case _:
            return 0
