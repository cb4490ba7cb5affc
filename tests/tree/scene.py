"""A small tree of brokers on a stage, for tests that tell a story."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName
from gapless.testing.tree.options import MILLISECOND, TreeOptions, settings_for
from gapless.testing.tree.run import TreeRun

if TYPE_CHECKING:
    from gapless.testing.tree.ledger import PublicationId
    from gapless.tree.broker import TreeBroker, TreeParts
    from gapless.tree.messages import SubscriptionId


class Scene:
    """Brokers that have found each other; names are those of the edges."""

    def __init__(
        self,
        edges: str,
        failures_tolerated: int,
        parts: TreeParts | None = None,
        **settings: object,
    ) -> None:
        pairs = [edge.split("-") for edge in edges.split()]
        named = tuple((BrokerName(a), BrokerName(b)) for a, b in pairs)
        brokers = tuple(dict.fromkeys(broker for pair in named for broker in pair))
        given = replace(settings_for(failures_tolerated), **settings)  # type: ignore[arg-type]
        options = TreeOptions(brokers=brokers, edges=named, settings=given)
        self.run = TreeRun(0, options, parts)
        self.world = self.run.world
        self.run.start()
        self.wait()

    def machine(self, name: str) -> TreeBroker:
        machine = self.world.processes[BrokerName(name)].machine
        assert machine is not None, f"{name} is down"
        return machine

    def wait(self, milliseconds: int = 400) -> None:
        self.run.stage.run(milliseconds * MILLISECOND)

    def cut(self, one: str, *others: str) -> None:
        """No message passes between them; all have noticed when this returns."""
        for other in others:
            self.world.links.cut(BrokerName(one), BrokerName(other))
            self.world.links.cut(BrokerName(other), BrokerName(one))
        self.wait()

    def lose(self, sender: str, receiver: str, count: int) -> None:
        """The next messages on this way do not arrive."""
        self.world.links.lose_next(BrokerName(sender), BrokerName(receiver), count)

    def mend(self) -> None:
        self.world.links.heal()
        self.wait()

    def crash(self, name: str) -> None:
        self.world.processes[BrokerName(name)].crash()
        self.wait()

    def restart(self, name: str) -> None:
        self.world.processes[BrokerName(name)].start()
        self.wait()

    def subscribe(self, at: str, condition: str = "", topic: str = "") -> SubscriptionId:
        name = self.world.processes[BrokerName(at)].subscribe(condition, topic)
        assert name is not None
        self.wait()
        return name

    def publish(self, at: str, k: int = 1) -> PublicationId:
        name = self.world.processes[BrokerName(at)].publish({"k": k})
        assert name is not None, f"{at} takes no publication"
        self.wait(50)
        return name

    def got(self, subscription: SubscriptionId) -> list[PublicationId]:
        return self.run.ledger.delivered_to.get(subscription, [])
