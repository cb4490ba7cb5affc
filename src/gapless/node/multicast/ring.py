"""How a broker takes part in the ring of the multicast service: its member, its seeds, its figures.

Near in the ring's routing tables is what answers soon (`survey`); before anything was measured,
what is near in the network file: there proximity counts links between cells.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gapless.node.multicast.name_book import SPACE
from gapless.scribe.effects import ToNode
from gapless.scribe.member import RingMember
from gapless.scribe.messages import RowQuery
from gapless.scribe.settings import RingSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.core.identity import BrokerName, CellName, NodeId, TopicId
    from gapless.node.config import Config
    from gapless.node.multicast.name_book import NameBook
    from gapless.node.multicast.survey import Survey
    from gapless.node.network import Network, Topic
    from gapless.scribe.effects import Effect
    from gapless.scribe.messages import Seat

FAR = 1_000
"""How far a broker is that is not in the network file."""


def make_member(seat: Seat, survey: Survey, config: Config) -> RingMember:
    return RingMember(seat, survey.distance, settings=settings_of(config), space=SPACE)


def ask_for_row(member: RingMember, survey: Survey) -> list[Effect]:
    """Measure one more broker that others named, by a question that may be of use to both."""
    node = survey.take_unmeasured() if member.is_active else None
    if node is None or node == member.node:
        return []
    row = SPACE.prefix_length(member.node, node)
    return [ToNode(node, RowQuery(row, member.pastry.members.row(row)))]


def settings_of(config: Config) -> RingSettings:
    """`join_repeat` is as quick as brokers of a network file start together."""
    usual = RingSettings()
    return RingSettings(
        leaf_set_size=config.multicast_leaf_set_size,
        replicas=min(usual.replicas, config.multicast_leaf_set_size // 2 + 1),
        join_repeat=usual.heartbeat,
        children_max=config.multicast_children_max,
        topics_max=config.multicast_topics_max,
        records_max=config.multicast_topics_max,
        publish_topics_max=config.multicast_topics_max,
        publish_pending_max=config.multicast_pending_max,
        buffer_bytes_max=config.multicast_log_bytes_max,
    ).at_pace(config.multicast_beat)


def proximity(here: BrokerName, network: Network, book: NameBook) -> Callable[[NodeId], int]:
    """How many links of the network file lie between."""
    cell = network.cell_of[here].name
    found: dict[CellName, int] = {cell: 0}
    rest = [cell]
    for each in rest:
        for other in network.neighbours(each):
            if other not in found:
                found[other] = found[each] + 1
                rest.append(other)
    hops = {book.id_of(name): found[at.name] for name, at in network.cell_of.items()}
    return partial(distance_in, hops)


def distance_in(hops: dict[NodeId, int], node: NodeId) -> int:
    return hops.get(node, FAR)


def seeds_of(here: BrokerName, network: Network, book: NameBook) -> tuple[list[NodeId], int]:
    """Whom to ask to be let in, and how many others may found the ring before us."""
    names = sorted(network.cell_of)
    return [book.id_of(name) for name in names if name != here], names.index(here)


def is_most(member: RingMember, network: Network) -> bool:
    """Are more than half of the brokers of the network file in sight? Where there are more of them
    than a leaf set has, a full one has to do."""
    leaves = member.pastry.contacts.leaves
    others = {SPACE.node_id(name) for name in network.cell_of}
    in_sight = 1 + sum(node in others for node in leaves.members)
    is_large = leaves.is_full and len(others) > 1 + len(leaves.members)
    return is_large or 2 * in_sight > len(others)


def figures(
    member: RingMember, book: NameBook, topics: Mapping[TopicId, Topic]
) -> dict[str, object]:
    def show(node: NodeId) -> str:
        return book.find(node) or SPACE.show(node)

    contacts, trees = member.pastry.contacts, member.tree.topics.values()
    roots = member.roots
    return {
        "node": SPACE.show(member.node),
        "phase": member.pastry.phase.value,
        "leaf_set": [show(node) for node in contacts.leaves.members],
        "routing_table": len(contacts.table),
        "topics": len(topics),
        "trees": len(trees),
        "subscribed": sum(tree.subscribed for tree in trees),
        "root_of": sum(tree.is_root for tree in trees),
        "forwarding": sum(not tree.is_root and bool(tree.children) for tree in trees),
        "children": sum(len(tree.children) for tree in trees),
        "records": len(roots.records),
        "groups": len(roots.groups),
        "leading": sum(group.is_leader for group in roots.groups.values()),
    }
