"""Partitions: which brokers this one cannot reach, by name, and which sources that closes.

Theory of operation
    For every failed broker of the frontier there is one partition: the path from here to it. A
    subscription that spreads while a partition stands does not reach what is on it, and perhaps
    not what is beyond it, so it carries the partition's name as a tag. At the subscriber's broker a
    publication whose source is on the partition, or beyond its last broker, is not safe, and not
    delivered. Beyond its last broker the way of a publication leads through that broker, bypassed
    or not; so its hops tell.
    A name stays while the broker is failed, or a subscription still has it as a tag.

Invariants
    I1  the failed brokers with a name are closed: all before one on its path have a name too

Source: SRDS 2011, sec. III to VI. Deviation: no broker floods the names of partitions; they travel
in the tags of subscriptions, and leave them in order with the publications
(docs/protocols/reliable-tree.md, 3.2). `literal` tags close all beyond a partition, `scoped` ones
not what was reached over it."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gapless.tree.messages import PartitionId, PublicationRun

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Set

    from gapless.core.identity import BrokerName
    from gapless.tree.frontier import Frontier
    from gapless.tree.messages import PartitionKey
    from gapless.tree.neighbourhood import Neighbourhood


def is_closed(tag: PartitionId, run: PublicationRun) -> bool:
    """Is its source on the partition, or beyond it and not behind a broker that is open?"""
    if run.source in tag.nodes:
        return True
    way = [hop.broker for hop in run.hops]
    if tag.nodes[-1] not in way:
        return False
    return way[way.index(tag.nodes[-1]) + 1] not in tag.open  # there is one: it is not the source


def joined(*tags: Iterable[PartitionId]) -> set[PartitionId]:
    """All of them, each partition once, open to each broker that any of its tags is open to."""
    found: dict[PartitionKey, PartitionId] = {}
    for tag in chain.from_iterable(tags):
        other = found.setdefault(tag.key, tag)
        if other.open != tag.open:
            found[tag.key] = tag._replace(open=tuple(sorted({*tag.open, *other.open})))
    return set(found.values())


class Partitions:
    """The partitions that this broker has detected."""

    def __init__(self, neighbourhood: Neighbourhood, epoch: int) -> None:
        self._neighbourhood = neighbourhood
        self._epoch = epoch
        self._number = 0
        self._own: dict[BrokerName, PartitionId] = {}

    def update(self, frontier: Frontier, tags_in_use: Collection[PartitionKey]) -> None:
        """Name what has failed; forget what is reached again and closes nothing."""
        for broker in frontier.failed:
            if broker not in self._own:
                self._number += 1
                path = self._neighbourhood.path(broker)
                here = self._neighbourhood.broker
                self._own[broker] = PartitionId(here, self._epoch, self._number, path)
        for broker, partition in list(self._own.items()):
            if broker not in frontier.failed and partition.key not in tags_in_use:
                del self._own[broker]
            elif broker in frontier.retired:
                del self._own[broker]  # it closes nothing any more, though tags may still name it

    def away_from(self, towards: BrokerName | None, reached: Set[BrokerName]) -> set[PartitionId]:
        """What a subscription cannot cross: partitions that do not lie towards its source, and on
        which no broker has been reached."""
        return {
            partition
            for partition in self._own.values()
            if partition.nodes[0] != towards and reached.isdisjoint(partition.nodes)
        }

    @property
    def all(self) -> tuple[PartitionId, ...]:
        return tuple(self._own.values())

    def check(self) -> None:
        for broker, partition in self._own.items():
            assert partition.nodes[-1] == broker, "I1"
