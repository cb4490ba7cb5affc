"""The world of a tree: brokers that crash and come back, and links between all of them.

Theory of operation
    `sim.links` carries the messages, with its faults; `sim.stage` decides when. A crash drops the
    machine. A restart makes a new one, with the next epoch and the edges that the old one knew.

Invariants
    I1  the machine's `check` holds after every step, where the options say so
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Send, Tell
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.testing.links import Links
from gapless.testing.tree.ledger import PublicationId
from gapless.tree.broker import TreeBroker, TreeParts
from gapless.tree.messages import (
    Accepted,
    Confirmed,
    Held,
    Missed,
    NoRoom,
    SourceEnded,
    SubscriptionId,
    TreeDelivery,
)
from gapless.wire.events import decode_attributes, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.effects import Effect
    from gapless.core.events import Attributes
    from gapless.core.identity import BrokerName, ClientName, Instant, PeerName
    from gapless.core.messages import Message
    from gapless.testing.stage import Stage
    from gapless.testing.tree.ledger import Ledger, Source
    from gapless.testing.tree.options import TreeOptions
    from gapless.tree.messages import Edge


class TreeProcess:
    """One broker, up or down."""

    def __init__(self, world: TreeWorld, name: BrokerName, edges: tuple[Edge, ...]) -> None:
        self._world = world
        self._stage = world.stage
        self.name = name
        self.edges = edges
        self.retired: tuple[BrokerName, ...] = ()  # as it is kept on disk
        self.joins_at: BrokerName | None = None
        self.incarnation = 0
        self.machine: TreeBroker | None = None
        self._wake_at: Instant | None = None
        self.in_force: set[SubscriptionId] = set()

    @property
    def is_up(self) -> bool:
        return self.machine is not None

    def start(self, join: BrokerName | None = None) -> None:
        assert self.machine is None
        self.joins_at = join or self.joins_at
        self.incarnation += 1
        options = self._world.options
        parts = self._world.parts
        self.machine = TreeBroker(
            self.name,
            self.incarnation,
            options.settings,
            self.edges,
            attributes_of=decode_attributes,
            retired=self.retired,
            parts=parts,
        )
        if self.joins_at is not None and not self.edges:
            self.machine.join(self.joins_at)
        self._stage.say(f"{self.name} starts, epoch {self.incarnation}")
        self._arm()

    def crash(self) -> None:
        if self.machine is not None:
            self._stage.say(f"{self.name} crashes")
            self.edges, self.retired = self.machine.edges, self.machine.retired
            self.machine = None
            self.in_force.clear()
            self._world.ledger.crashed(self.name)

    def receive(self, sender: PeerName, message: Message) -> None:
        assert self.machine is not None
        if self._world.show is not None:  # beside the trace, whose hash is the same without it
            self._world.show(f"{self._stage.now} {self.name} <- {sender} {message}")
        self._carry_out(self.machine.receive(sender, message, self._stage.now))  # type: ignore[arg-type]

    def link_up(self, client: ClientName) -> None:
        raise AssertionError("a tree has no clients here")

    link_down = link_up

    # --- verbs -----------------------------------------------------------------------------------

    def publish(
        self, attributes: Attributes, topic: str = "", *, is_awaited: bool = False
    ) -> PublicationId | None:
        """None where the broker is down or takes none now."""
        names = self.publish_many([attributes], topic, is_awaited=is_awaited)
        return names[0] if names else None

    def publish_many(
        self, some: list[Attributes], topic: str = "", *, is_awaited: bool = False
    ) -> list[PublicationId]:
        """All in one step; none where the broker is down or takes none now."""
        if self.machine is None:
            return []
        in_force = self._owed_to(self.machine) if self._world.options.is_checked else []
        events = EventBatch(tuple(encode_event(each, b"") for each in some))
        try:
            numbers, effects = self.machine.publish(
                topic, events, self._stage.now, is_awaited=is_awaited
            )
        except UsageError:
            return []
        names = [PublicationId(self.name, self.incarnation, number) for number in numbers]
        for name, attributes in zip(names, some, strict=True):
            self._stage.say(f"{self.name} publishes {name.number} {attributes}")
            self._world.ledger.published(name, topic, attributes, in_force)
        self._carry_out(effects)
        return names

    def _owed_to(self, machine: TreeBroker) -> list[SubscriptionId]:
        # Beyond δ a broker may have restarted where it can learn of nothing: then it owes nothing.
        known, is_within = machine.tags(), self._world.options.is_within
        owed = self._world.in_force((machine.name, machine.epoch))
        return [s for s in owed if is_within or s in known]

    def subscribe(self, condition: str, topic: str = "") -> SubscriptionId | None:
        if self.machine is None:
            return None
        name, effects = self.machine.subscribe(topic, condition, self._stage.now)
        self._stage.say(f"{self.name} subscribes {name.number} {topic!r} {condition!r}")
        self._world.ledger.subscribed(name, topic, condition)
        self._carry_out(effects)
        return name

    def withdraw(self, name: SubscriptionId) -> None:
        if self.machine is not None:
            self._stage.say(f"{self.name} withdraws {name.number}")
            self.in_force.discard(name)
            self._world.ledger.withdrawn(name)
            self._carry_out(self.machine.withdraw(name, self._stage.now))

    def retire(self, name: BrokerName) -> None:
        """An operator says here that another broker never returns."""
        assert self.machine is not None
        self._stage.say(f"{self.name} retires {name}")
        self._world.retired.add(name)
        self._carry_out(self.machine.retire(name, self._stage.now))

    # --- the loop --------------------------------------------------------------------------------

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._world.links.send(self.name, effect.to, effect.message)  # type: ignore[arg-type]
                case Tell():
                    self._told(effect.message)
                case _:
                    raise AssertionError("a tree stores nothing")
        assert self.machine is not None
        if self._world.options.is_checked:
            self.machine.check()
        self._arm()

    def _told(self, message: Message) -> None:
        self._stage.say(f"{self.name} tells {message}")
        match message:
            case TreeDelivery():
                self._world.ledger.delivered(self.name, message)
            case Accepted():
                self.in_force.add(message.id)
            case NoRoom():
                self.in_force.discard(message.id)
                self._world.ledger.withdrawn(message.id)
            case Confirmed():
                self._world.ledger.confirmed(self._names(message.numbers), message.lost_to)
            case Held():
                self._world.ledger.confirmed(self._names(message.numbers), message.away)
            case SourceEnded():
                self._world.ledger.source_ended(message)
            case Missed():
                self._world.ledger.missed(self.name, message)
            case _:
                raise AssertionError(f"a tree does not tell {message}")

    def _names(self, numbers: tuple[int, ...]) -> list[PublicationId]:
        return [PublicationId(self.name, self.incarnation, number) for number in numbers]

    def _arm(self) -> None:
        assert self.machine is not None
        deadline = max(self.machine.deadline, self._stage.now)
        if self._wake_at is None or deadline < self._wake_at or self._wake_at < self._stage.now:
            self._wake_at = deadline
            self._stage.at(deadline, self._wake, self.incarnation, deadline)

    def _wake(self, incarnation: int, armed_for: Instant) -> None:
        if self.machine is None or incarnation != self.incarnation or armed_for != self._wake_at:
            return
        self._wake_at = None
        self._carry_out(self.machine.fire(self._stage.now))


class TreeWorld:
    """All brokers and links."""

    def __init__(
        self,
        stage: Stage,
        options: TreeOptions,
        ledger: Ledger,
        parts: TreeParts,
        show: Callable[[str], object] | None,
    ) -> None:
        self.stage = stage
        self.options = options
        self.ledger = ledger
        self.parts = parts
        self.show = show
        self.retired: set[BrokerName] = set()
        self.processes = {b: TreeProcess(self, b, options.edges) for b in options.brokers}
        self.links = Links(stage, self.processes, options.links)

    def join(self, name: BrokerName, at: BrokerName) -> None:
        """A newcomer comes up and asks to be the neighbour of another."""
        self.stage.say(f"{name} joins at {at}")
        self.processes[name] = TreeProcess(self, name, ())
        self.processes[name].start(join=at)

    @property
    def members(self) -> list[TreeProcess]:
        """Those that may return."""
        return [each for name, each in self.processes.items() if name not in self.retired]

    def up(self) -> list[TreeProcess]:
        return [process for process in self.processes.values() if process.is_up]

    def in_force(self, source: Source) -> list[SubscriptionId]:
        """Accepted subscriptions that nothing closes, or that have begun to hear this source."""
        found: list[SubscriptionId] = []
        for process in self.up():
            assert process.machine is not None
            tags = process.machine.tags()
            found += sorted(
                s for s in process.in_force if not tags[s] or self.ledger.has_begun(s, source)
            )
        return found

    def restlessness(self) -> list[str]:
        """What is not yet as it should be at rest, with everybody up and connected."""
        found: list[str] = []
        for process in self.members:
            assert process.machine is not None
            statistics = process.machine.statistics()
            found += [] if process.machine.is_ready else [f"{process.name} still learns"]
            found += [
                f"{process.name} has {count} {what}"
                for what, count in statistics.items()
                if count and what.startswith(("part", "tagged", "asking", "queued", "held"))
            ]
        return found
