"""Routing tables: once quiet, every broker knows exactly what those behind each cell want.

Unlike other checkers this one looks into brokers, when nothing changes any more: it compares what
each has for every cell below with brute force over the subscriptions that clients hold.
A member of a cell that gets no messages, because another one does, need not have noticed that it
missed a change: it does with the first message it gets. Until then it counts as a stand-by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.propagation.condition import ConditionReader
from gapless.propagation.digest import KnownVector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.identity import CellName, TopicName
    from gapless.filters.normal import Conjunction
    from gapless.node.durable.topic_interest import TopicInterest
    from gapless.node.node import Node
    from gapless.propagation.branch import Branch
    from gapless.testing.record import Record


NOTHING = KnownVector(0, {})


class RoutingTables:
    """Compares tables and vectors with brute force."""

    promise = "tables are right once quiet"

    def __init__(self, record: Record, nodes: Iterable[Node]) -> None:
        self._record = record
        self._nodes = {str(node.name): node for node in nodes}
        self._reader = ConditionReader()
        self._roots: dict[tuple[TopicName, frozenset[str]], set[Conjunction]] = {}

    def wrong(self) -> list[str]:
        """What is not as it should be, in words."""
        return [
            f"{name}: {topic}: {found}"
            for name, node in self._nodes.items()
            for topic, interest in node.durable.interests.by_topic.items()
            for found in self._wrong(topic, interest)
        ]

    def _wrong(self, topic: TopicName, interest: TopicInterest) -> Iterable[str]:
        for direction, branch in interest.branches.items():
            if self._is_standby(topic, interest, direction):
                continue
            where = f"towards {direction}" if direction else "here"
            wanted = self._times(topic, branch)
            if branch.vector != wanted or not branch.is_exact:
                yield f"{where}: at {branch.vector}, not at {wanted}"
            for cell, child in branch.children.items():
                roots = self._brute_force(topic, child.leaves)
                if set(child.conditions) != roots:
                    yield f"{where}: {len(child.conditions)} conditions of {cell}, not {len(roots)}"
            if direction is None and interest.stamp and interest.stamp.vector != wanted:
                yield f"messages are at {interest.stamp.vector}, not at {wanted}"

    def _is_standby(
        self, topic: TopicName, interest: TopicInterest, direction: CellName | None
    ) -> bool:
        """Does it not know the vector of any source's newest messages?"""
        known = interest.vectors.sufficiency[direction].dictionary.known
        for node in self._nodes.values():
            stamp = node.durable.interests.by_topic[topic].stamp
            if stamp is not None and known.get(stamp.source, NOTHING).digest == stamp.digest:
                return False
        return True

    def _times(self, topic: TopicName, branch: Branch) -> dict[str, int]:
        """The times of all leaves below: each has been asked, if only by who began anew."""
        times: dict[str, int] = {}
        for leaf in branch.leaves:
            machine = self._nodes[leaf].durable.interests.by_topic[topic].leaf
            if machine is not None:
                times[leaf] = machine.clock - 1
        return times

    def _brute_force(self, topic: TopicName, leaves: frozenset[str]) -> set[Conjunction]:
        if (topic, leaves) not in self._roots:
            held = {
                self._reader.propagated(conjunction)
                for each in self._record.live()
                if each.topic == topic and each.broker in leaves
                for conjunction in each.filter.conjunctions
            }
            self._roots[topic, leaves] = {
                one for one in held if not any(a != one and a.covers(one) for a in held)
            }
        return self._roots[topic, leaves]
