"""Operators: clients that change the conditions of others' named subscriptions.

An operator picks a subscription whose client was attached once, connects to some broker, asks for
another condition, and follows redirects. It asks again when it is told "later" or loses its
connection, as the shipped client does. Its dice are its own, so that other runs stay as they were.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import AlterSubscription, Refused, SubscriptionAltered
from gapless.core.identity import BrokerName, ClientName
from gapless.testing.actors.clients import MILLISECOND
from gapless.testing.actors.durable_plans import Phase

if TYPE_CHECKING:
    from gapless.core.messages import Message
    from gapless.testing.actors.durable_clients import DurableSubscriber
    from gapless.testing.actors.durable_plans import Slot
    from gapless.testing.links import Connection
    from gapless.testing.named import Named
    from gapless.testing.world import World


@dataclass(frozen=True, kw_only=True)
class OperatorPlan:
    """How one operator behaves; times in microseconds."""

    name: str
    seed: int
    conditions: tuple[str, ...]
    pause: int


@dataclass(slots=True)
class Request:
    """A change that is asked for until there is an answer."""

    named: Named
    slot: Slot
    broker: BrokerName
    condition: str
    asked_at: int


class Operator:
    """Changes conditions, whatever happens."""

    def __init__(self, world: World, plan: OperatorPlan, durables: list[DurableSubscriber]) -> None:
        self._world = world
        self.plan = plan
        self.is_quick = False
        self._durables = durables
        self._dice = random.Random(f"operator {plan.name} of {plan.seed}")
        self._connection: Connection | None = None
        self._number = 0
        self._open: Request | None = None
        world.after(1 + self._dice.randrange(2 * plan.pause), self._begin)

    def waiting(self) -> list[str]:
        asked = self._open
        return [f"{self.plan.name} waits for a change of {asked.named}"] if asked else []

    def _begin(self) -> None:
        if self.is_quick:
            return
        slots = [
            (slot, durable)
            for durable in self._durables
            for slot in durable.slots
            if slot.named and slot.home and slot.phase is not Phase.FORGETTING
        ]
        if self._open is None and slots:
            slot, durable = self._dice.choice(slots)
            assert slot.named
            assert slot.home
            broker = slot.home if self._dice.random() < 0.6 else durable.plan.brokers[-1]
            condition = self._dice.choice(self.plan.conditions)
            self._open = Request(slot.named, slot, broker, condition, self._world.now)
            self._ask()
        self._world.after(1 + self._dice.randrange(2 * self.plan.pause), self._begin)

    def _ask(self) -> None:
        asked = self._open
        if asked is None:
            return
        if asked.named.is_over or asked.slot.named is not asked.named:
            self._end()
            return
        if self._connection is None or not self._connection.is_open:
            self._number += 1
            name = ClientName(f"{self.plan.name}.{self._number}")
            self._connection = self._world.connect(name, self, asked.broker)
        if self._connection is None:
            self._world.after(20 * MILLISECOND, self._ask)
            return
        self._number += 1
        self._world.watch.record.repeats.add((self._connection.name, self._number))
        self._connection.send(AlterSubscription(self._number, asked.named.name, asked.condition))

    def _end(self) -> None:
        self._open = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def tell(self, message: Message) -> None:
        asked = self._open
        if asked is None or getattr(message, "request", None) != self._number:
            return
        match message:
            case SubscriptionAltered(altered=altered, former=former):
                self._world.reached["a condition was changed"] += 1
                if altered and asked.slot.named is asked.named:
                    ticks = dict(former[-1].until)
                    record = self._world.watch.record
                    record.alterations.append((asked.named, altered, ticks, asked.asked_at))
                self._end()
            case Refused(elsewhere=places) if places:
                self._world.reached["an operator was sent to the subscription"] += 1
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                asked.broker = BrokerName(places[0])
                self._world.after(5 * MILLISECOND, self._ask)
            case Refused(retry=True):
                self._world.reached["a change was refused for a while"] += 1
                self._world.after(10 * MILLISECOND, self._ask)
            case Refused():
                self._end()
            case _:
                pass

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self.cut_off()

    def cut_off(self) -> None:
        self._connection = None
        if self._open is not None:
            self._world.after(20 * MILLISECOND, self._ask)


def draw_operators(
    seed: int, conditions: dict[BrokerName, tuple[str, ...]]
) -> tuple[OperatorPlan, ...]:
    """Operators, in a third of all runs."""
    own = random.Random(f"operators of {seed}")
    if own.random() >= 0.33:
        return ()
    pool = tuple(dict.fromkeys(text for texts in conditions.values() for text in texts))
    pause = own.choice((20, 60, 200)) * MILLISECOND
    return (
        OperatorPlan(name="O1", seed=seed, conditions=(*pool, "price / 2 > 20.5"), pause=pause),
    )
