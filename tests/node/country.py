"""Several nodes of one network, with links between them that can be cut, for tests."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from gapless.core.client_messages import Refused
from gapless.core.identity import BrokerName, Instant
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.network import parse_network
from gapless.node.node import Node
from gapless.node.parts import Parts
from gapless.testing.lattice import strict
from gapless.wire.events import decode_attributes
from tests.bounds import so_long_as
from tests.node.town import ANN, Town

if TYPE_CHECKING:
    from gapless.core.messages import Message
    from gapless.core.topic_messages import CreateTopic, DeleteTopic

WIDE = """
cell = [
    {name = "hosts", brokers = [{name = "a"}], links = ["relays"]},
    {name = "more", brokers = [{name = "b"}], links = ["relays"]},
    {name = "relays", brokers = [{name = "m1"}, {name = "m2"}]},
    {name = "leaf", brokers = [{name = "l"}], links = ["relays"], subscribers = true},
]
topic = [{name = "fixed", pubends = ["a"]}]
"""
"""Two hosts, two relays that back each other up, and a broker with subscribers."""

HEARTBEAT = Config().heartbeat


class Country:
    """Nodes that hear each other at once."""

    def __init__(self, text: str = WIDE, **limits: Any) -> None:
        self.text, self.limits = text, limits
        self.towns = {
            str(name): Town(str(name), text, propagates=True, **limits)
            for name in parse_network(text).cell_of
        }
        self.cut: set[str] = set()
        self.heard: dict[str, list[Message]] = {}  # by client
        self.run()

    def run(self) -> None:
        """Until nobody has anything to say."""
        rest: deque[tuple[str, str, Message]] = deque()
        for _ in so_long_as(lambda: True):
            for name, town in self.towns.items():
                rest.extend((name, to, message) for to, message in town.flush())
            if not rest:
                return
            sender, to, message = rest.popleft()
            if to not in self.towns:
                self.heard.setdefault(f"{to}@{sender}", []).append(message)
            elif sender not in self.cut and to not in self.cut:
                town = self.towns[to]
                town._do(town.node.receive(BrokerName(sender), message, town.now))

    def wait(self, beats: int = 1) -> None:
        for _ in range(beats * 4):
            for town in self.towns.values():
                sent = town.wait(HEARTBEAT // 4)
                town.sent += sent
            self.run()

    def ask(self, broker: str, message: Message, client: str = ANN) -> Message:
        """A client's request at a broker: the answer that came last."""
        town = self.towns[broker]
        town.connect(client)
        town._do(town.node.receive(BrokerName(client), message, town.now))
        self.run()
        return self.heard[f"{client}@{broker}"][-1]

    def owner(self, topic: str) -> str:
        owner = self.towns["l"].node.catalogue.owner(topic)  # type: ignore[arg-type]
        assert owner is not None
        return owner

    def decide(self, message: CreateTopic | DeleteTopic, broker: str = "l") -> Message:
        """The same, following to where it is decided."""
        answer = self.ask(broker, message)
        for _ in range(len(self.towns)):
            if not (isinstance(answer, Refused) and answer.elsewhere):
                break
            answer = self.ask(answer.elsewhere[0], message)
        return answer

    def restart(self, name: str) -> None:
        """After a crash, from what is durable."""
        old = self.towns[name]
        old.node = Node(
            BrokerName(name),
            old.network,
            old.volume,
            old.now,
            encoding=EventEncoding(decode_attributes),
            config=old.node.config,
            parts=strict(self.limits.get("parts") or Parts()),
        )
        old.sent.clear()
        old._do(old.node.start(Instant(old.now)))
        self.run()

    def catalogues(self) -> list[dict[str, tuple[int, bool]]]:
        return [
            {
                str(e.name): (e.incarnation, e.is_deleted)
                for e in each.node.catalogue.entries.values()
            }
            for each in self.towns.values()
        ]
