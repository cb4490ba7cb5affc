"""A partition has one name while it lasts, and closes what is on it or beyond it."""

from __future__ import annotations

from gapless.core.identity import BrokerName
from gapless.tree.frontier import Frontier
from gapless.tree.messages import Hop, PartitionId, PublicationRun
from gapless.tree.neighbourhood import Neighbourhood
from gapless.tree.partitions import Partitions, is_closed, joined

A, B, C, D = (BrokerName(name) for name in "ABCD")


def partitions() -> Partitions:
    return Partitions(Neighbourhood(A, 3, [(A, B), (B, C), (A, D)]), epoch=1)


def test_a_name_lasts_as_long_as_the_failure_or_a_tag() -> None:
    own = partitions()
    own.update(Frontier(failed=(B, C)), set())
    first, second = own.all
    assert (first.nodes, second.nodes) == ((B,), (B, C))
    own.update(Frontier(active=(B,)), {second.key})
    assert list(own.all) == [second]
    own.update(Frontier(active=(B,)), set())
    assert list(own.all) == []
    own.update(Frontier(failed=(B,)), set())
    assert own.all[0].number > second.number


def test_a_subscription_is_not_closed_by_what_lies_towards_its_source_or_was_reached() -> None:
    own = partitions()
    own.update(Frontier(failed=(B, C, D)), set())
    assert {p.nodes for p in own.away_from(B, set())} == {(D,)}
    assert {p.nodes for p in own.away_from(None, {C})} == {(B,), (D,)}


def test_a_source_is_closed_if_it_is_on_the_partition_or_its_way_leads_over_the_end() -> None:
    partition = PartitionId(A, 1, 1, (B, C))

    def published(source: BrokerName, *way: BrokerName) -> PublicationRun:
        return PublicationRun(source, 1, (1,), tuple(Hop(b, None) for b in way))

    assert is_closed(partition, published(B, B))
    assert is_closed(partition, published(D, B, C, D))
    assert not is_closed(partition, published(D, B, D))


def test_a_tag_closes_nothing_behind_those_that_it_leaves_open() -> None:
    tag = PartitionId(A, 1, 1, (B, C), open=(D,))

    def came(*way: str) -> PublicationRun:
        return PublicationRun(
            BrokerName("E"), 1, (1,), tuple(Hop(BrokerName(b), None) for b in way)
        )

    assert not is_closed(tag, came("A", "B", "C", "D", "E"))
    assert is_closed(tag, came("A", "B", "C", "X", "E"))
    assert not is_closed(tag, came("A", "B", "E"))
    assert is_closed(tag, PublicationRun(B, 1, (1,), (Hop(B, None),)))


def test_tags_of_one_partition_become_one_that_is_open_to_all() -> None:
    tag, other = PartitionId(A, 1, 1, (B,), open=(D,)), PartitionId(A, 1, 2, (C,))
    assert joined([tag, other], [tag._replace(open=(C,))]) == {tag._replace(open=(C, D)), other}
