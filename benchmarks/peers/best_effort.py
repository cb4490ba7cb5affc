"""A broker process that forwards and forgets: `python -m benchmarks.peers.best_effort LISTEN DATA`.

The same process, links and matcher as `gapless serve` around the best-effort node of the
experiments, so that the difference is what exactly once costs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from gapless.broker import broker, process
from gapless.broker.event_reader import EventReader
from gapless.broker.networks import SINGLE, single_network
from gapless.broker.settings import Settings
from gapless.core.client_messages import Unsubscribe
from gapless.core.portion import WHOLE, Portion
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.reads.look_ahead import Outlook
from gapless.node.reads.search import LogSearch
from gapless.testing.processes import brokers
from gapless_lab.best_effort import BestEffort

if TYPE_CHECKING:
    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, Instant, PeerName
    from gapless.core.messages import Message
    from gapless.node.network import Network


QUEUE_MAX = 1_000_000
"""Deliveries that a subscriber may be behind."""


class Forgetful(BestEffort):
    """Made with the arguments of a `Node`, most of which it has no use for."""

    def __init__(
        self, name: BrokerName, network: Network, volume: object, now: Instant, **_: Any
    ) -> None:
        reader = EventReader()
        super().__init__(
            name,
            network,
            now,
            attributes_of=reader.attributes_of,
            check_events=reader.check,
            # Who forgets has nothing to hold a fast publisher back with: nobody is cut off for it.
            config=Config(client_queue_max=QUEUE_MAX),
        )
        search = LogSearch(Config(), EventEncoding(reader.attributes_of))
        self.durable = SimpleNamespace(
            ranges=SimpleNamespace(outlook=Outlook(search, {})),  # there is no log to look at
            subscriptions=SimpleNamespace(all=list),  # there is no named subscription
            pending_count=lambda _: 0,
            streams=SimpleNamespace(config=Config(), losses=()),  # it knows of none
        )
        self.connections = self.subscribers.clients
        self.name = name

    @property
    def size(self) -> int:
        """About how many items there are to check."""
        return self.subscribers.subscription_count

    def check(self, portion: Portion = WHOLE) -> None:
        self.subscribers.check(portion)

    def link_up(self, peer: PeerName, now: Instant, **_: object) -> list[Effect]:
        return super().link_up(peer, now)

    def leave(self, now: Instant) -> list[Effect]:
        return []

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        if isinstance(message, Unsubscribe):  # the connection ends next
            return []
        return super().receive(sender, message, now)


def run_broker(options: str) -> None:
    """One of a network: as `Processes` runs them, but forgetful."""
    vars(broker)["Node"] = Forgetful
    brokers.run_broker(options)


def main(listen: str, data: str) -> None:
    vars(broker)["Node"] = Forgetful
    settings = Settings(data=Path(data), listen=listen, admin=None)
    process.run(SINGLE, single_network(["events"]), settings, log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
