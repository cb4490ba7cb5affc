"""The tally: what each broker handles, counted as the cost model charges for it.

A message between two brokers on one machine never is on a wire: it is handled, but neither encoded
nor decoded. An event is matched when a node asks for its attributes; `setting` counts that.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, Sideways
from gapless.core.client_messages import Deliveries, Publish
from gapless.core.identity import BrokerName
from gapless.testing.checkers.checker import Checker
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.node.config import Config
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.record import Record


@dataclass(slots=True)
class Tally:
    """Counts of one broker."""

    publications: int = 0
    """Requests of publishers, of one event each."""
    writes: int = 0
    """Of its disk, each for all that waited."""
    relayed: int = 0
    """Messages of knowledge, at a broker that hosts no one."""
    passed: int = 0
    """Messages of knowledge that it made of them."""
    hosted: int = 0
    """Messages of knowledge, at a broker that may host subscribers."""
    events_in: int = 0
    """In all of these."""
    decoded: int = 0
    """Messages that came over a wire, with events or without."""
    events_decoded: int = 0
    encoded: int = 0
    events_encoded: int = 0
    """Sent over a wire, to brokers and to clients."""
    others_in: int = 0
    """Handled messages without events: answers, acknowledgements, heartbeats."""
    matchings: int = 0
    """Batches of events matched against conditions."""
    matches: int = 0
    """Events in them."""

    def reset(self) -> None:
        for each in fields(self):
            setattr(self, each.name, 0)

    def __add__(self, other: Tally) -> Tally:
        return Tally(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


class Tallies(Checker):
    """Watches a run and violates nothing."""

    def __init__(self, record: Record, config: Config, machine_of: dict[BrokerName, str]) -> None:
        super().__init__(record, config)
        self._machine_of = machine_of
        self._codec = codec()
        self._by_broker: dict[BrokerName, Tally] = {}
        self.weighs: BrokerName | None = None
        """The broker whose knowledge to others is weighed, if any: that takes an encoding each."""
        self.weighed = 0
        self.weighed_bytes = 0

    def of(self, name: BrokerName) -> Tally:
        return self._by_broker.setdefault(name, Tally())

    def reset(self) -> None:
        self.weighed = self.weighed_bytes = 0
        for tally in self._by_broker.values():
            tally.reset()

    def _is_wire(self, one: str, other: str) -> bool:
        machines = {self._machine_of.get(BrokerName(name), name) for name in (one, other)}
        return len(machines) > 1

    def _is_host(self, name: BrokerName) -> bool:
        return self.record.network.cell_of[name].subscribers

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        tally = self.of(broker.name)
        if isinstance(message, Knowledge) and not self._is_host(broker.name):
            tally.passed += 1
        if not self._is_wire(broker.name, to):
            return
        tally.encoded += 1
        tally.events_encoded += event_count(message)
        if broker.name == self.weighs and isinstance(message, Knowledge):
            self.weighed += 1
            self.weighed_bytes += len(self._codec.frames([message]))

    def received(self, broker: Broker, sender: PeerName, message: Message) -> None:
        tally, count = self.of(broker.name), event_count(message)
        if sender == broker.name:
            tally.writes += 1
            return
        if self._is_wire(broker.name, sender):
            tally.decoded += 1
            tally.events_decoded += count
        if isinstance(message, Publish):
            tally.publications += 1
        elif isinstance(message, Knowledge):
            tally.hosted += self._is_host(broker.name)
            tally.relayed += not self._is_host(broker.name)
            tally.events_in += count
        else:
            tally.others_in += 1


def event_count(message: Message) -> int:
    match message:
        case Sideways(message=Knowledge(ticks=ticks)) | Knowledge(ticks=ticks):
            return len(ticks)
        case Deliveries(ticks=ticks):
            return len(ticks)
        case Publish(events=events):
            return len(events)
        case _:
            return 0
