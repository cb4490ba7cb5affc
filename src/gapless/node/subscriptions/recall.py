"""Recall: how a registrar that begins with another disk learns which names exist.

Theory of operation
    A registrar that has lost its disk, was given a copy, or is new in its network would take names
    for free that are at home elsewhere. So it notes on its disk that it has heard of all names, and
    one that lacks the note asks each broker that hosts subscribers. So does one whose note is of
    other brokers: some have come or gone since, and names have other registrars now. The asked
    broker tells it every name anew, as it does after a move (`homes`), and answers when all of them
    are noted. Meanwhile the registrar takes in what it is told, and answers nobody whose name it
    is, however long that takes: a broker that is cut off cannot tell a new network, which has no
    names, from one that has many.

Invariants (checked by `check`)
    I1  while brokers have not answered there is a deadline
    I2  a registrar answers whose a name is if, and only if, it has heard all
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from gapless.core.effects import Delete, Persist, Put
from gapless.core.errors import ProtocolError
from gapless.core.identity import Instant
from gapless.core.name_messages import NamesQuestion, NamesTold
from gapless.node.directory.registry import FLOORS, registrar_of
from gapless.node.subscriptions.record import Phase
from gapless.node.subscriptions.table import Work

if TYPE_CHECKING:
    from gapless.core.effects import Effect, Write
    from gapless.core.identity import BrokerName, SubscriptionName
    from gapless.node.context import Context
    from gapless.node.directory.registry import Registry
    from gapless.node.network import Network
    from gapless.node.subscriptions.table import Table

HEARD = "heard"
"""In the table of floors: this registrar has heard of all names, from which brokers."""


def subscriber_hosts(network: Network) -> list[BrokerName]:
    """Those that have names, and are registrars."""
    return [cell.brokers[0].name for cell in network.cells if cell.subscribers]


def heard_of_all(network: Network) -> Put:
    """The note of a registrar that all brokers of this network have told it their names."""
    hosts = "\n".join(sorted(subscriber_hosts(network)))
    return Put(FLOORS, HEARD, blake2b(hosts.encode(), digest_size=8).digest())


class Recall:
    """One broker: as the registrar that asks, and as one that is asked."""

    def __init__(self, context: Context, registry: Registry, table: Table) -> None:
        self.name = context.name
        self.network = context.network
        self.config = context.config
        self.routing = context.routing
        self.epoch = context.epoch
        self.registry = registry
        self.table = table
        self.deadline: Instant | None = None
        self._silent: dict[BrokerName, None] = {}
        self.late: dict[SubscriptionName, None] = {}
        self._untold: dict[BrokerName, tuple[int, dict[SubscriptionName, None]]] = {}
        hosts, self._note = subscriber_hosts(self.network), heard_of_all(self.network)
        has_heard = context.store.get(FLOORS, HEARD) == self._note.value
        if self.name in hosts and (context.seal.is_copy or not has_heard):
            self._silent = dict.fromkeys(host for host in hosts if host != self.name)
        if self._silent:
            registry.begin_recall()
            self.deadline = context.started

    @property
    def awaited(self) -> list[BrokerName]:
        """The brokers that have not told their names yet."""
        return list(self._silent)

    def forget(self) -> tuple[Write, ...]:
        """The disk is a copy: what it says of having heard all is not true of it."""
        return (Delete(FLOORS, HEARD),)

    # --- at the registrar -------------------------------------------------------------------------

    def fire(self, now: Instant) -> list[Effect]:
        """Ask those that have not answered."""
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = Instant(now + self.config.name_repeat)
        if not self.epoch.is_durable:
            return []
        run = self.epoch.number
        effects: list[Effect] = []
        for host in self._silent:
            effects += self.routing.send_on(NamesQuestion(self.name, host, run), now)
        return effects

    def receive_told(self, told: NamesTold) -> list[Effect]:
        """A broker has told all its names."""
        if told.run != self.epoch.number or told.sender not in self._silent:
            return []
        del self._silent[told.sender]
        self.registry.raise_floor(told.moves)
        if self._silent:
            return []
        self.registry.end_recall()
        self.deadline = None
        return [Persist((self._note,))]

    # --- at a broker that is asked ----------------------------------------------------------------

    def receive_question(
        self, question: NamesQuestion, asked: set[SubscriptionName], now: Instant
    ) -> list[Effect]:
        """Tell each name, and answer when all are noted. `asked`: what is being told already."""
        registrar, run = question.sender, question.run
        if self._untold.get(registrar, (-1, {}))[0] != run:
            names = [name for name in self.table if self._is_of(name, registrar)]
            self._untold[registrar] = run, {n: None for n in names if self._is_here(n)}
            self.late.update({n: None for n in names if self._is_starting(n)})
        untold, subscriptions = self._untold[registrar][1], self.table.subscriptions
        waiting = {*asked, *self.table.names(Work.TELL_HOME)}
        for name in list(untold):
            if not self._is_here(name):
                del untold[name]
            elif subscriptions.get(name) is not None and name not in waiting:
                self.table.tell_home(name)
        if untold:
            return []
        moves = max((each.definition.moves for each in subscriptions.all()), default=0)
        return self.routing.send_on(NamesTold(self.name, registrar, run, moves), now)

    def told(self, name: SubscriptionName, registrar: BrokerName) -> None:
        """A registrar has noted a name."""
        if registrar in self._untold:
            self._untold[registrar][1].pop(name, None)

    def settle(self) -> None:
        """At the end of a step: what was about to start when it was asked for is told when it is
        here."""
        for name in list(self.late):
            if self.table.subscriptions.get(name) is not None:
                self.table.tell_home(name)
            if not self._is_starting(name):
                self.late.pop(name)

    def _is_here(self, name: SubscriptionName) -> bool:
        record = self.table.get(name)
        return record is not None and record.phase.is_here

    def _is_starting(self, name: SubscriptionName) -> bool:
        record = self.table.get(name)
        return record is not None and record.phase is Phase.STARTING

    def _is_of(self, name: SubscriptionName, registrar: BrokerName) -> bool:
        return registrar_of(self.network, name) == registrar

    # --- messages, invariants ---------------------------------------------------------------------

    def receive(
        self, message: NamesQuestion | NamesTold, asked: set[SubscriptionName], now: Instant
    ) -> list[Effect]:
        for broker in (message.sender, message.receiver):
            if broker not in self.network.cell_of:
                raise ProtocolError(f"no broker is called {broker[:99]!r}")
        if message.receiver != self.name:
            return self.routing.send_on(message, now)
        if isinstance(message, NamesTold):
            return self.receive_told(message)
        return self.receive_question(message, asked, now)

    def check(self) -> None:
        assert self.deadline is not None or not self._silent, "I1"
        assert bool(self._silent) is self.registry.is_recalling, "I2"
