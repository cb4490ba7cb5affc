"""One broker among others: joining, limits, restarts, and what ends."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Tell
from gapless.core.errors import UsageError
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, Instant
from gapless.testing.record import Violation
from gapless.testing.tree.planted import PLANTED_PARTS
from gapless.tree.broker import TreeBroker
from gapless.tree.messages import Confirmed, TreeDelivery
from gapless.tree.settings import TreeSettings
from gapless.wire.events import decode_attributes, encode_event
from tests.tree.scene import Scene

if TYPE_CHECKING:
    from gapless.tree.broker import TreeParts

ONE = EventBatch((encode_event({"k": 1}, b""),))


def test_a_newcomer_gets_its_neighbourhood_and_all_subscriptions() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1)
    subscription = scene.subscribe("A")
    scene.world.join(BrokerName("N"), BrokerName("C"))
    scene.wait()
    assert scene.machine("N").active == ("C",)
    assert set(scene.machine("N").edges) == {("N", "C"), ("C", "B")}
    assert ("C", "N") in scene.machine("B").edges
    published = scene.publish("N")
    assert scene.got(subscription) == [published]


def test_a_newcomer_is_bypassed_to_like_anybody() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1)
    scene.world.join(BrokerName("N"), BrokerName("C"))
    scene.wait()
    subscription = scene.subscribe("N")
    scene.crash("C")
    assert scene.machine("B").active == ("A", "N")
    published = scene.publish("A")
    assert scene.got(subscription) == [published]


def test_a_lone_broker_serves_its_own() -> None:
    broker = TreeBroker(BrokerName("A"), 1, TreeSettings(), attributes_of=decode_attributes)
    broker.fire(Instant(1))
    name, [accepted] = broker.subscribe("t", "k = 1", Instant(1))
    assert accepted.message.id == name  # type: ignore[union-attr]
    events = EventBatch(tuple(encode_event({"k": k}, b"") for k in (1, 2, 1)))
    numbers, [delivered, confirmed] = broker.publish("t", events, Instant(1))
    assert list(numbers) == [1, 2, 3]
    assert delivered == Tell(TreeDelivery(delivered.message.run, ((name, 0b101),)))  # type: ignore[union-attr]
    assert confirmed == Tell(Confirmed((1, 2, 3)))


def test_a_restarted_broker_takes_no_publication_before_it_knows_what_is_subscribed() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1)
    scene.crash("A")
    process = scene.world.processes[BrokerName("A")]
    process.start()
    with pytest.raises(UsageError, match="still learns"):
        scene.machine("A").publish("", ONE, scene.run.stage.now)
    scene.wait()
    scene.publish("A")


def test_a_full_queue_refuses_publications_and_takes_them_again_later() -> None:
    scene = Scene("A-B", failures_tolerated=0)
    subscription = scene.subscribe("B")
    scene.world.links.stall(BrokerName("A"), BrokerName("B"), swallows=False)  # B is slow, not away
    machine, limit = scene.machine("A"), scene.run.options.settings.queue_max
    process = scene.world.processes[BrokerName("A")]
    for _ in range(limit):
        assert process.publish({"k": 1}) is not None
    with pytest.raises(UsageError, match="wait to be confirmed"):
        machine.publish("", ONE, scene.run.stage.now)
    scene.mend()
    assert len(scene.got(subscription)) == limit
    scene.publish("A")
    assert len(scene.got(subscription)) == limit + 1


def test_no_more_than_the_window_is_under_way_on_a_session() -> None:
    scene = Scene("A-B", failures_tolerated=0)
    scene.subscribe("B")
    process, window = scene.world.processes[BrokerName("A")], scene.run.options.settings.window_max
    scene.lose("A", "B", 10_000)
    for _ in range(window + 20):
        process.publish({"k": 1})
    [sent] = [
        each.count
        for each in process.machine._publications._windows.values()  # type: ignore[union-attr]
    ]
    assert sent == window


def test_the_window_counts_what_the_neighbour_has_taken_not_who_is_away_behind_it() -> None:
    scene = Scene("A-B B-C C-D", failures_tolerated=1, window_max=3)
    near, other = scene.subscribe("B"), scene.subscribe("C", "k = 2")
    scene.subscribe("D", "k = 1")
    scene.crash("D")
    published = [scene.publish("A", k) for k in (1, 1, 2) * 10]
    assert scene.got(near) == published
    assert scene.got(other) == published[2::3]


def kept_and_lost(edges: str, publisher: str, away: str) -> None:
    """`away` is cut off while more is published than is kept for it."""
    scene = Scene(edges, failures_tolerated=1)
    subscription, other = scene.subscribe(away, "k = 1"), scene.subscribe(publisher)
    first = scene.publish(publisher)
    scene.cut(away, *(name for name in scene.world.processes if name != away))
    process, limit = scene.world.processes[BrokerName(publisher)], scene.run.options.settings
    published = []
    for _ in range(2 * limit.queue_max):
        published.append(process.publish({"k": 1}))
        scene.wait(1)
    assert None not in published, "the publisher goes on"
    for name in scene.world.processes:
        waiting = scene.machine(name).statistics()["queued_publications"]
        assert limit.held_max // 2 <= waiting <= limit.held_max or name == away
    scene.mend()
    got = scene.got(subscription)
    assert got[0] == first
    assert got[1:] == published[-len(got[1:]) :]
    assert len(got[1:]) >= limit.held_max // 2, "the newest are kept"
    assert scene.run.ledger.losses == 1, "it is told once, in one piece"
    assert scene.run.ledger.owed() == []
    assert scene.got(other) == [first, *published]
    assert scene.world.restlessness() == []


def test_what_is_kept_for_a_broker_out_of_reach_has_a_bound_and_it_is_told_what_it_lost() -> None:
    kept_and_lost("A-B", "A", "B")


def test_a_broker_in_between_gives_up_what_the_source_asks_to_be_given_up() -> None:
    kept_and_lost("A-B B-C", "A", "C")


def test_who_has_too_much_of_many_sources_gives_it_up_by_himself() -> None:
    scene = Scene("A-C B-C C-D", failures_tolerated=0, queue_max=20)
    subscription = scene.subscribe("D")
    scene.cut("C", "D")
    for _ in range(10):
        for name in "ABC":
            scene.publish(name)
    waiting = scene.machine("C").statistics()["queued_publications"]
    assert waiting <= 20 + 20 // 4
    scene.mend()
    assert 5 <= len(scene.got(subscription)) < 30
    assert scene.run.ledger.losses >= 3
    assert scene.run.ledger.owed() == []


def test_one_topic_that_waits_for_somebody_costs_others_nothing() -> None:
    scene = Scene("A-B", failures_tolerated=0, queue_max=20)
    subscription = scene.subscribe("B", topic="calm")
    scene.subscribe("B", topic="busy")
    scene.cut("A", "B")
    process = scene.world.processes[BrokerName("A")]
    calm = [process.publish({"k": 1}, "calm") for _ in range(8)]
    for _ in range(100):
        assert process.publish({"k": 1}, "busy") is not None
    assert process.publish({"k": 1}, "calm") is not None
    scene.mend()
    assert scene.got(subscription)[:8] == calm
    assert scene.run.ledger.losses == 1


def ended(scene: Scene, at: str) -> int:
    """How often a broker was told that a source has ended without a word."""
    return sum(f"{at} tells SourceEnded" in line for line in scene.run._trace.last)


def test_that_a_source_crashed_is_told_once_it_is_back_and_not_if_it_stopped_in_order() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1)
    subscription = scene.subscribe("C")
    scene.subscribe("B", "k = 7")  # has heard nothing of A
    scene.publish("A")
    scene.crash("A")
    assert ended(scene, "C") == 0, "it may just be away"
    scene.restart("A")
    assert ended(scene, "C") == 1
    scene.publish("A")
    process = scene.world.processes[BrokerName("A")]
    process._carry_out(scene.machine("A").leave(scene.run.stage.now))
    scene.wait(50)
    scene.crash("A")
    scene.restart("A")
    scene.publish("A")
    assert ended(scene, "C") == 1
    assert len(scene.got(subscription)) == 3


def test_losses_of_a_life_that_is_over_are_forgotten() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1, queue_max=20)
    scene.subscribe("C")
    scene.crash("C")
    for _ in range(50):
        scene.publish("A")
    assert any(loss.target for loss in scene.machine("A")._forwarding._losses.all())
    scene.restart("C")
    for name in "ABC":
        assert not any(loss.target for loss in scene.machine(name)._forwarding._losses.all())
    assert scene.world.restlessness() == []


def test_who_subscribes_behind_a_dead_broker_does_not_wait_for_its_return() -> None:
    scene = Scene("A-B B-C C-D", failures_tolerated=1, tags="scoped")
    scene.subscribe("C")
    scene.crash("C")
    scene.publish("A")
    subscription = scene.subscribe("D")
    assert subscription in scene.world.processes[BrokerName("D")].in_force
    published = scene.publish("A")
    assert scene.got(subscription) == [published]


def test_who_joins_at_one_that_has_not_been_let_in_waits_with_it() -> None:
    scene = Scene("A-B", failures_tolerated=1)
    subscription = scene.subscribe("A")
    scene.crash("B")
    scene.world.join(BrokerName("N"), BrokerName("B"))
    scene.world.join(BrokerName("M"), BrokerName("N"))
    scene.wait()
    for name in ("N", "M"):
        assert not scene.machine(name).is_ready
        assert scene.machine(name).edges == ()
        with pytest.raises(UsageError, match="still learns"):
            scene.machine(name).publish("", ONE, scene.run.stage.now)
    scene.restart("B")
    scene.wait()
    published = [scene.publish(name) for name in ("N", "M")]
    assert scene.got(subscription) == published


def test_a_withdrawn_subscription_is_forgotten_everywhere_even_by_who_was_away() -> None:
    scene = Scene("A-B B-C C-D", failures_tolerated=1)
    subscription = scene.subscribe("A")
    scene.cut("D", "A", "B", "C")
    scene.world.processes[BrokerName("A")].withdraw(subscription)
    scene.wait()
    assert subscription in scene.machine("D").tags()
    scene.mend()
    assert all(not scene.machine(name).tags() for name in "ABCD")


def test_what_got_lost_with_an_old_link_is_sent_again_when_there_is_a_new_one() -> None:
    scene = Scene("A-B", failures_tolerated=0, beat_every=5_000_000, patience=60_000_000)
    scene.wait(6_000)
    subscription, process = scene.subscribe("B"), scene.world.processes[BrokerName("A")]
    scene.lose("A", "B", 1)
    published = scene.publish("A")
    assert scene.got(subscription) == []
    process._carry_out(scene.machine("A").link_up(BrokerName("B"), scene.run.stage.now))
    scene.wait(100)  # no beat is due yet
    assert scene.got(subscription) == [published]


def test_the_subscriptions_of_a_crashed_broker_go_when_it_returns() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1)
    scene.subscribe("A")
    scene.crash("A")
    assert len(scene.machine("C").tags()) == 1
    scene.restart("A")
    assert all(not scene.machine(name).tags() for name in "ABC")


def test_publications_for_an_unreachable_subscriber_wait_for_it() -> None:
    scene = Scene("A-B B-C", failures_tolerated=0)
    subscription = scene.subscribe("C")
    scene.cut("B", "C")
    published = [scene.publish("A") for _ in range(3)]
    assert scene.got(subscription) == []
    assert scene.machine("A").statistics()["queued_publications"] == 3
    scene.mend()
    assert scene.got(subscription) == published
    assert scene.world.restlessness() == []


def test_a_subscription_of_an_unreadable_condition_changes_nothing() -> None:
    scene = Scene("A-B", failures_tolerated=0)
    with pytest.raises(ValueError, match="condition"):
        scene.machine("A").subscribe("", "k =", scene.run.stage.now)
    assert scene.machine("A").statistics()["subscriptions"] == 0


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_as_many_neighbours_as_tolerated_may_be_dead_and_nothing_is_lost_or_stalls(
    failures: int,
) -> None:
    names = [f"b{i}" for i in range(failures + 4)]
    edges = " ".join(f"{a}-{b}" for a, b in pairwise(names))
    scene = Scene(edges, failures)
    first, last = scene.subscribe(names[0]), scene.subscribe(names[-1])
    under_way = [scene.publish(names[0]), scene.publish(names[-1])]
    for dead in names[2 : 2 + failures]:
        scene.world.processes[BrokerName(dead)].crash()
    alive = (names[0], names[1], names[-2], names[-1])
    under_way += [scene.publish(name) for name in alive]
    scene.wait()
    assert {*scene.got(first)} == {*scene.got(last)} == {*under_way}
    assert scene.machine(names[0]).statistics()["queued_publications"] == 0


def test_one_dead_neighbour_more_than_tolerated_stalls_until_it_returns() -> None:
    scene = Scene("A-B B-C C-D", failures_tolerated=1)
    subscription = scene.subscribe("D")
    scene.crash("B")
    scene.crash("C")
    published = scene.publish("A")
    scene.wait()
    assert scene.got(subscription) == []
    scene.restart("C")
    assert scene.got(subscription) == [published]


def test_whoever_sent_a_copy_gets_a_confirmation() -> None:
    """C holds what D cannot have yet; its copy came from B, which dies, and again from A."""
    scene = Scene("A-B B-C C-D", failures_tolerated=1)
    subscription = scene.subscribe("D")
    scene.cut("D", "B", "C")
    published = scene.publish("A")
    scene.crash("B")
    assert scene.machine("A").active == ("C",)
    scene.mend()
    assert scene.got(subscription) == [published]
    assert scene.machine("A").statistics()["queued_publications"] == 0


def test_a_restarted_broker_learns_of_a_neighbour_it_cannot_reach_from_those_behind_it() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1)
    subscription = scene.subscribe("B")
    scene.crash("A")
    scene.world.links.cut(BrokerName("A"), BrokerName("B"))
    scene.restart("A")
    assert scene.machine("A").active == ("C",)
    published = scene.publish("A")
    assert scene.got(subscription) == []
    scene.mend()
    assert scene.got(subscription) == [published]


def queued_before(parts: TreeParts | None) -> None:
    """C was sent a publication for D, who is away; A subscribes; C crashes and is sent it again."""
    scene = Scene("A-C B-C C-D", failures_tolerated=0, parts=parts)
    first = scene.subscribe("D", "k = 1")
    scene.crash("D")
    queued = scene.publish("B", 1)
    missed = scene.publish("B", 2)  # nobody wants it yet
    second = scene.subscribe("A")
    scene.crash("C")
    scene.restart("C")
    after = [scene.publish("B", 2), scene.publish("B", 1)]
    assert scene.machine("B").statistics()["queued_publications"] > 0
    assert scene.got(second) == after
    assert missed not in after
    assert queued not in after
    assert scene.got(first) == []


def test_a_subscription_does_not_begin_with_what_was_queued_before_it_was_known() -> None:
    queued_before(None)


def test_if_nobody_looked_at_that_there_would_be_a_gap() -> None:
    with pytest.raises(Violation, match="contiguous"):
        queued_before(PLANTED_PARTS["no-looking"])


def test_far_beyond_what_is_tolerated_publications_still_pass_where_sessions_do() -> None:
    """Every other broker of a chain is dead: three of seven in a row, and one may be."""
    names = [f"b{i}" for i in range(9)]
    scene = Scene(" ".join(f"{a}-{b}" for a, b in pairwise(names)), failures_tolerated=1)
    subscription = scene.subscribe("b8")
    for dead in ("b1", "b3", "b5", "b7"):
        scene.crash(dead)
    published = scene.publish("b0")
    assert scene.got(subscription) == [published]


def test_a_batch_that_does_not_fit_is_refused_whole() -> None:
    scene = Scene("A-B", failures_tolerated=0)
    machine, limit = scene.machine("A"), scene.run.options.settings.queue_max
    with pytest.raises(UsageError, match="wait to be confirmed"):
        machine.publish("", EventBatch(ONE.events * (limit + 1)), scene.run.stage.now)
    assert machine.statistics()["queued_publications"] == 0


def test_a_broker_without_room_refuses_and_the_subscription_ends_where_it_began() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1, remote_subscriptions_max=2)
    kept = [scene.subscribe("A"), scene.subscribe("B")]
    refused = scene.subscribe("A")  # B has room for it, C has not
    told = [line for line in scene.run._trace.last if "NoRoom" in line]
    assert any(line.startswith("A tells", line.index(" ") + 1) for line in told)
    for name in "ABC":
        assert set(scene.machine(name).tags()) == {*kept}
    scene.world.processes[BrokerName("B")].withdraw(kept[1])
    scene.wait()
    again = scene.subscribe("A")
    published = scene.publish("C")
    assert scene.got(again) == [published]
    assert scene.got(refused) == []


def test_a_newcomer_takes_no_publication_before_it_has_joined() -> None:
    scene = Scene("A-B", failures_tolerated=1)
    subscription = scene.subscribe("A")
    scene.crash("B")
    scene.world.join(BrokerName("N"), BrokerName("B"))
    scene.wait()
    assert not scene.machine("N").is_ready
    own = scene.subscribe("N")
    assert own not in scene.world.processes[BrokerName("N")].in_force
    with pytest.raises(UsageError, match="still learns"):
        scene.machine("N").publish("", ONE, scene.run.stage.now)
    scene.restart("B")
    published = scene.publish("N")
    assert scene.got(subscription) == [published]
    assert scene.got(own) == [published, scene.publish("A")]


def test_of_two_that_restart_together_the_outer_one_waits_for_what_the_inner_one_learns() -> None:
    scene = Scene("A-B B-C C-D", failures_tolerated=2)
    subscription = scene.subscribe("A")
    scene.crash("C")
    scene.crash("D")
    for name in ("A", "B"):  # C comes up, and nobody tells it anything yet
        scene.world.links.stall(BrokerName(name), BrokerName("C"), swallows=False)
        scene.world.links.stall(BrokerName(name), BrokerName("D"), swallows=False)
    for name in ("C", "D"):
        scene.world.processes[BrokerName(name)].start()
    scene.wait(60)
    assert scene.machine("D").statistics()["live_sessions"] == 1
    assert not scene.machine("D").is_ready
    scene.mend()
    scene.wait()
    published = scene.publish("D")
    assert scene.got(subscription) == [published]
