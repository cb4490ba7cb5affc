"""What a broker is started with, and what a reload may change of it.

Theory of operation
    A reload reads the network file and the settings file anew. If nothing in them has changed, the
    broker goes on. Otherwise each difference is named. Those that cannot be applied are refused,
    and then none is applied. If all can, the broker stops in order and begins anew with them, in
    the same process: clients and neighbours are told goodbye and connect again, as after a restart.
    A broker that cannot begin with the new files goes on with the old ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.broker.settings import Settings
    from gapless.core.identity import BrokerName
    from gapless.node.config import Config
    from gapless.node.network import Network
    from gapless.node.node import Node


@dataclass(frozen=True)
class Configuration:
    """The network, and the settings of one broker of it."""

    network: Network
    settings: Settings
    limits: Config


@dataclass(frozen=True)
class Reloading:
    """What a reload found."""

    differences: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why nothing is applied, by name."""

    @property
    def is_applied(self) -> bool:
        return bool(self.differences) and not self.refused

    def to_json(self) -> dict[str, object]:
        return {
            "differences": list(self.differences),
            "refused": list(self.refused),
            "applied": self.is_applied,
        }


def compare(name: BrokerName, node: Node, old: Configuration, new: Configuration) -> Reloading:
    """What is different, and what of it cannot be applied to this running broker."""
    lines = [*network_differences(old.network, new.network), *setting_differences(old, new)]
    refused = list(refusals(name, node, old.network, new.network))
    return Reloading(tuple(lines), tuple(refused))


def network_differences(old: Network, new: Network) -> Iterator[str]:
    entries = [
        {each.name: each for cell in network.cells for each in cell.brokers}
        for network in (old, new)
    ]
    for name in sorted(entries[1].keys() - entries[0].keys()):
        yield f"broker {name!r} comes, in cell {new.cell_of[name].name!r}"
    for name in sorted(entries[0].keys() - entries[1].keys()):
        yield f"broker {name!r} goes"
    for name in sorted(entries[0].keys() & entries[1].keys()):
        before, after = old.cell_of[name], new.cell_of[name]
        if entries[0][name] != entries[1][name]:
            yield f"broker {name!r} has other addresses"
        if (before.name, before.subscribers) != (after.name, after.subscribers):
            yield f"broker {name!r} is in another cell, or its cell has another role"
    for cell in sorted(old.cell.keys() & new.cell.keys()):
        if old.neighbours(cell) != new.neighbours(cell):
            yield f"cell {cell!r} links to {', '.join(new.neighbours(cell)) or 'no other cell'}"
    for topic in sorted(old.topic.keys() | new.topic.keys()):
        if old.topic.get(topic) != new.topic.get(topic):
            yield f"topic {topic!r} is {'changed' if topic in old.topic else 'new in the file'}"
    if old.security != new.security:
        yield "[security] is changed"
    if (old.name, old.moved) != (new.name, new.moved):
        yield "[network] is changed"


def setting_differences(old: Configuration, new: Configuration) -> Iterator[str]:
    for before, after in ((old.limits, new.limits), (old.settings, new.settings)):
        for each in fields(before):
            values = getattr(before, each.name), getattr(after, each.name)
            if values[0] != values[1]:
                yield f"{each.name} is {values[1]}, and was {values[0]}"


def refusals(name: BrokerName, node: Node, old: Network, new: Network) -> Iterator[str]:
    """By name: what a running broker cannot take over."""
    if name not in new.cell_of:  # without anything it simply ends
        if count := len(list(node.durable.subscriptions.all())):
            yield f"{name!r} goes, and has {count} named subscriptions: `gapless drain {name}`"
        if pubends := sorted(node.durable.streams.pubends):
            yield f"{name!r} goes, and hosts {pubends[0]!r}: stop it, and `gapless adopt`"
        return
    for topic in node.network.topic.values():
        missing = [host for host in new.placed(topic.hosts) if host not in new.cell_of]
        if missing:
            yield (
                f"topic {topic.name!r} has a pubend at {missing[0]!r}, which is not in the new "
                "file: move it with `gapless adopt`, or delete the topic"
            )
    for topic in old.topics:
        after = new.topic.get(topic.name)
        if after is None:
            yield f"topic {topic.name!r} is not in the new file: restart all brokers for that"
        elif (after.service, after.ordered) != (topic.service, topic.ordered):
            yield f"topic {topic.name!r} has another service in the new file: use another name"
        elif after.hosts != new.placed(topic.hosts):
            yield (
                f"topic {topic.name!r} has other pubends in the new file: move a pubend with "
                "`moved` in [network], or use another topic"
            )
    cell = new.cell_of[name]
    if not cell.subscribers and (count := len(list(node.durable.subscriptions.all()))):
        yield f"{name!r} would take no subscribers, and has {count} named subscriptions: drain it"
    if (
        len(cell.brokers) > 1
        and len(old.cell_of[name].brokers) == 1
        and node.durable.streams.pubends
    ):
        yield f"{name!r} hosts pubends, so it must be alone in its cell"
