"""Kazemzadeh and Jacobsen, SRDS 2011: the paper's figures, played.

Departures: tags are literal (every partition of the detector, island or barrier,
docs/protocols/reliable-tree.md, 3.2) or scoped (what was reached over an island is open), and
partitions become known by the tags of subscriptions, not by a flood of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.identity import BrokerName
from gapless.testing.record import Violation
from gapless.testing.tree.planted import PLANTED_PARTS
from gapless.tree.messages import Clearing, PartitionId
from tests.tree.scene import Scene

if TYPE_CHECKING:
    from gapless.tree.messages import SubscriptionId

FIGURE_1 = "B1-B2 B2-B3 B2-B4"
FIGURE_4 = "B0-B1 B1-B2 B2-B3 B3-B4 B4-B5 B5-B6 B6-B7 B4-C1 C1-C2 C2-C3 B3-D1 D1-D2 D2-D3"

INTEREST_1 = "k <> 2"  # s1 of the paper: p1 and p3 match, p2 does not
INTEREST_2 = ""  # s2: all match


def test_figure_1_a_subscriber_that_missed_a_publication_is_spared_those_around_it() -> None:
    scene = Scene(FIGURE_1, failures_tolerated=1)
    first = scene.subscribe("B3", INTEREST_1)
    scene.cut("B1", "B2", "B3", "B4")
    second = scene.subscribe("B4", INTEREST_2)
    [partition] = scene.machine("B2").partitions
    assert partition.nodes == ("B1",)
    assert partition in scene.machine("B4").tags()[second]
    p1, p2, p3 = (scene.publish("B1", k) for k in (1, 2, 3))
    scene.mend()
    assert scene.got(first) == [p1, p3]
    assert scene.got(second) == []
    p4, p5 = scene.publish("B1", 2), scene.publish("B1", 1)
    assert scene.got(first) == [p1, p3, p5]
    assert scene.got(second) == [p4, p5]
    assert p2 not in scene.got(second)


def test_figure_1_without_tags_there_is_the_gap_of_the_introduction() -> None:
    scene = Scene(FIGURE_1, failures_tolerated=1, parts=PLANTED_PARTS["no-tags"])
    scene.subscribe("B3", INTEREST_1)
    scene.cut("B1", "B2", "B3", "B4")
    scene.subscribe("B4", INTEREST_2)
    for k in (1, 2, 3):
        scene.publish("B1", k)
    with pytest.raises(Violation, match="contiguous"):
        scene.mend()


def test_figure_3_active_sessions_need_not_be_symmetric() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1)
    scene.cut("A", "B")
    assert scene.machine("A").active == ("C",)
    assert scene.machine("C").active == ("B",)


def losing_three(tags: str = "literal") -> Scene:
    """Section III: B2 loses B3, B4 and C1, in this order; all of them live on."""
    scene = Scene(FIGURE_4, failures_tolerated=2, tags=tags)
    for lost in ("B3", "B4", "C1"):
        scene.cut("B2", lost)
    return scene


def test_figure_4_a_detector_names_one_partition_for_each_session_that_failed() -> None:
    machine = losing_three().machine("B2")
    named = [(p.detector, p.number, p.nodes) for p in machine.partitions]
    assert named == [
        ("B2", 1, ("B3",)),
        ("B2", 2, ("B3", "B4")),
        ("B2", 3, ("B3", "B4", "C1")),
    ]


def test_figure_4_what_is_beyond_an_island_is_reached_and_beyond_a_barrier_is_not() -> None:
    scene = losing_three()
    assert set(scene.machine("B2").active) == {"B1", "D1", "B5"}
    subscription = scene.subscribe("B0")
    for beyond in ("B7", "D3", "B5"):
        assert subscription in scene.machine(beyond).tags()


def test_section_5_tags_close_what_is_on_or_beyond_and_recovery_opens_it() -> None:
    scene = losing_three()
    subscription = scene.subscribe("B0")
    brokers = list(scene.world.processes)
    for broker in brokers:
        scene.publish(broker)
    assert {p.source for p in scene.got(subscription)} == {"B0", "B1", "B2"}
    scene.mend()
    assert scene.machine("B0").tags()[subscription] == ()
    for broker in brokers:
        scene.publish(broker)
    assert {p.source for p in scene.got(subscription)} == set(brokers)
    assert scene.world.restlessness() == []


ISLAND = ("B3", "B4", "C1")


def heard_from(scene: Scene, subscription: SubscriptionId) -> set[str]:
    """Everybody publishes; whose publication comes?"""
    before = len(scene.got(subscription))
    for broker in list(scene.world.processes):
        scene.publish(broker)
    scene.wait()
    return {p.source for p in scene.got(subscription)[before:]}


def test_section_5_scoped_tags_leave_open_what_was_reached_over_the_island() -> None:
    """D1 and B5 are cut off from the island too, so what comes from there bypasses it."""
    scene = losing_three("scoped")
    scene.cut("D1", *ISLAND)
    scene.cut("B5", *ISLAND)
    subscription = scene.subscribe("B0")
    everybody = set(scene.world.processes)
    assert heard_from(scene, subscription) == everybody - {*ISLAND, "C2", "C3"}
    scene.mend()
    assert scene.machine("B0").tags()[subscription] == ()
    assert heard_from(scene, subscription) == everybody
    assert scene.world.restlessness() == []


def test_section_5_scoped_tags_close_what_would_come_over_a_broker_that_was_not_asked() -> None:
    """B5 still has the island for a neighbour: its confirmation is not clean."""
    scene = losing_three("scoped")
    scene.cut("D1", *ISLAND)
    subscription = scene.subscribe("B0")
    assert heard_from(scene, subscription) == {"B0", "B1", "B2", "D1", "D2", "D3"}
    scene.cut("B5", *ISLAND)
    assert heard_from(scene, subscription) >= {"B5", "B6", "B7"}, "clean now"


def test_section_7_a_copy_that_came_by_both_ways_is_delivered_once() -> None:
    """A sends to C by way of B; the session to B fails before B confirms, and A sends to C."""
    scene = Scene("A-B B-C", failures_tolerated=1)
    subscription = scene.subscribe("C")
    scene.lose("B", "A", 50)
    published = scene.publish("A")
    scene.wait()
    assert scene.got(subscription) == [published]
    assert scene.machine("C").statistics()["late_repeats"] == 0


def test_section_8_a_broker_that_restarts_gets_its_subscriptions_back() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1)
    before = scene.subscribe("C")
    scene.crash("B")
    during = scene.subscribe("C")
    bypassing = scene.publish("A")
    assert scene.got(before) == [bypassing]
    assert scene.got(during) == []  # literal: A is beyond the partition of C
    scene.restart("B")
    assert set(scene.machine("B").tags()) == {before, during}
    after = scene.publish("B")
    assert scene.got(before) == [bypassing, after]
    assert scene.got(during) == [after]
    assert scene.world.restlessness() == []


def test_section_5_an_answer_that_is_not_clean_does_not_wait_for_what_is_stuck() -> None:
    """As in figure 3: C sends by way of B, and B cannot reach A."""
    scene = Scene("A-B B-C", failures_tolerated=1, tags="scoped")
    first = scene.subscribe("A")
    scene.cut("A", "B")
    stuck = scene.publish("C")
    assert scene.machine("B").statistics()["queued_publications"] == 1
    second = scene.subscribe("A")
    assert second in scene.world.processes[BrokerName("A")].in_force
    scene.mend()
    assert scene.got(first) == [stuck]
    assert scene.got(second) == []
    after = scene.publish("C")
    assert scene.got(second) == [after]


def test_section_6_what_was_heard_of_once_is_not_closed_again() -> None:
    scene = losing_three("scoped")
    scene.cut("D1", *ISLAND)
    subscription = scene.subscribe("B0")
    first = scene.publish("D2")
    subscriptions = scene.machine("B0")._subscriptions
    routed = subscriptions.get(subscription)
    assert routed is not None
    [island] = [tag for tag in routed.tags if tag.nodes == ("B3",)]
    behind = PartitionId(BrokerName("D1"), 1, 1, (BrokerName("D2"),))
    subscriptions.clear(routed, Clearing(subscription, (island,), (island, behind)))
    again, other = scene.publish("D2"), scene.publish("D3")
    assert scene.got(subscription) == [first, again]
    assert other not in scene.got(subscription)
