"""A broker that never returns is retired: its place goes to its neighbours, its wishes end."""

from __future__ import annotations

import pytest

from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName
from gapless.tree.neighbourhood import Neighbourhood
from gapless.wire.events import encode_event
from tests.tree.scene import Scene

B, C = BrokerName("B"), BrokerName("C")
ONE = EventBatch((encode_event({"k": 1}, b""),))


def retire(scene: Scene, name: str, at: str) -> None:
    scene.world.processes[BrokerName(at)].retire(BrokerName(name))
    scene.wait()


def test_distances_do_not_count_a_retired_broker() -> None:
    chain = tuple((BrokerName(f"b{i}"), BrokerName(f"b{i + 1}")) for i in range(5))
    near = Neighbourhood(BrokerName("b0"), 2, chain)
    assert len(near) == 2
    assert near.retire([BrokerName("b1")]) == ("b1",)
    assert near.path(BrokerName("b3")) == ("b1", "b2", "b3"), "the path is what it was"
    assert near.steps(BrokerName("b3")) == 2
    assert len(near) == 3
    assert near.retire([BrokerName("b1")]) == ()
    again = Neighbourhood(BrokerName("b0"), 2, chain)
    again.retire([BrokerName("b1")])
    assert again.edges == near.edges


def test_its_subscriptions_end_everywhere_and_nothing_is_kept_for_it() -> None:
    scene = Scene("A-B B-C C-D", failures_tolerated=1, tags="scoped")
    scene.subscribe("B")
    other = scene.subscribe("D")
    scene.crash("B")
    published = [scene.publish("A") for _ in range(3)]
    assert scene.machine("A").statistics()["queued_publications"] == 3
    retire(scene, "B", at="D")
    for name in "ACD":
        assert set(scene.machine(name).tags()) == {other}
        assert scene.machine(name).partitions == ()
    assert scene.got(other) == published
    assert scene.world.restlessness() == []


def test_as_many_further_brokers_may_fail_as_before() -> None:
    scene = Scene("A-B B-C C-D D-E", failures_tolerated=1, tags="scoped")
    subscription = scene.subscribe("E")
    scene.crash("B")
    retire(scene, "B", at="A")
    scene.crash("C")
    assert scene.machine("A").active == ("D",)
    published = scene.publish("A")
    assert scene.got(subscription) == [published]


def test_what_was_queued_when_it_was_retired_reaches_further_too() -> None:
    scene = Scene("A-B B-C C-D D-E", failures_tolerated=1, tags="scoped")
    subscription = scene.subscribe("E")
    scene.crash("B")
    scene.crash("C")
    published = scene.publish("A")
    retire(scene, "B", at="A")
    assert scene.got(subscription) == [], "the other side has not heard of it"
    retire(scene, "B", at="E")
    assert scene.got(subscription) == [published]


def test_a_subscription_made_while_it_was_down_is_whole_once_it_is_retired() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1, tags="scoped")
    scene.crash("B")
    subscription = scene.subscribe("A")
    assert scene.machine("A").unreached(subscription) == (B,)
    retire(scene, "B", at="C")
    assert scene.machine("A").unreached(subscription) == ()
    assert scene.machine("A").tags()[subscription] == ()
    assert scene.machine("A").unreached(scene.subscribe("A")) == ()


def test_a_broker_of_a_retired_name_is_heard_by_no_other_and_takes_nothing() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1, tags="scoped")
    scene.crash("B")
    retire(scene, "B", at="A")
    scene.restart("B")
    assert scene.machine("A").active == (C,)
    assert scene.machine("B").active == ()
    assert scene.world.processes[B].publish({"k": 1}) is None


def test_a_broker_that_lives_is_told_that_it_is_retired() -> None:
    scene = Scene("A-B B-C C-D", failures_tolerated=1, tags="scoped")
    retire(scene, "B", at="D")  # which cannot see that it is up
    with pytest.raises(UsageError, match="B is retired"):
        scene.machine("B").publish("", ONE, scene.run.stage.now)


def test_a_neighbour_that_is_up_is_not_retired() -> None:
    scene = Scene("A-B", failures_tolerated=0)
    with pytest.raises(UsageError, match="B is up"):
        scene.machine("A").retire(B, scene.run.stage.now)
    with pytest.raises(UsageError, match="A is up"):
        scene.machine("A").retire(BrokerName("A"), scene.run.stage.now)


def test_a_restart_and_a_newcomer_know_who_is_retired() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1, tags="scoped")
    scene.crash("B")
    retire(scene, "B", at="A")
    scene.crash("A")
    scene.restart("A")
    scene.world.join(BrokerName("N"), C)
    scene.wait()
    for name in "ACN":
        assert scene.machine(name).retired == (B,)


def test_a_broker_that_was_away_hears_of_it_with_its_next_session() -> None:
    scene = Scene("A-B B-C C-D", failures_tolerated=1, tags="scoped")
    subscription = scene.subscribe("B")
    scene.crash("D")
    scene.crash("B")
    retire(scene, "B", at="A")
    scene.restart("D")
    assert scene.machine("D").retired == (B,)
    assert subscription not in scene.machine("D").tags()
