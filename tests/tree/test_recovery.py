"""What goes to one broker in one step goes in batches, and none is larger than the limits allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.effects import Send
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName
from gapless.tree.messages import (
    Carried,
    CarriedMessage,
    PublicationRun,
    RunConfirmed,
)
from gapless.tree.publications import cut_runs, join_runs
from gapless.tree.recovery import batches
from gapless.tree.settings import TreeSettings
from gapless.wire.events import encode_event
from tests.tree.scene import Scene

if TYPE_CHECKING:
    from gapless.core.events import Attributes

SETTINGS = TreeSettings(batch_max=3, batch_bytes_max=10)
A = BrokerName("A")


def run(number: int, *sizes: int, topic: str = "") -> PublicationRun:
    numbers = tuple(range(number, number + len(sizes)))
    return PublicationRun(A, 1, numbers, (), topic, EventBatch(tuple(map(bytes, sizes))))


def test_batches_keep_the_order_and_hold_no_more_than_the_limits() -> None:
    few = [RunConfirmed(A, 1, (i,)) for i in range(7)]
    small: list[CarriedMessage] = [*few]
    assert [len(batch) for batch in batches(small, SETTINGS)] == [3, 3, 1]
    assert [each for batch in batches(small, SETTINGS) for each in batch] == small
    large: list[CarriedMessage] = [run(i, size) for i, size in enumerate((4, 7, 50, 1))]
    assert [len(batch) for batch in batches(large, SETTINGS)] == [2, 1, 1]
    runs: list[CarriedMessage] = [run(1, 1, 1), run(3, 1), run(4, 1)]
    assert [len(batch) for batch in batches(runs, SETTINGS)] == [2, 1]
    assert list(batches([], SETTINGS)) == []


def test_runs_that_follow_each_other_join_within_the_limits_of_a_batch() -> None:
    assert list(join_runs([run(1, 1), run(2, 1, 1), run(4, 1)], SETTINGS)) == [
        run(1, 1, 1, 1),
        run(4, 1),
    ]
    assert len(list(join_runs([run(1, 6), run(2, 6)], SETTINGS))) == 2, "too many bytes"
    assert len(list(join_runs([run(1, 1), run(2, 1, topic="t")], SETTINGS))) == 2
    assert len(list(join_runs([run(2, 1), run(1, 1)], SETTINGS))) == 2, "out of order"


def test_a_batch_of_publications_becomes_runs_within_the_limits() -> None:
    assert cut_runs([b"a"] * 7, SETTINGS) == [(0, 3), (3, 6), (6, 7)]
    assert cut_runs([bytes(9), bytes(2), bytes(50), b""], SETTINGS) == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
    ]
    assert cut_runs([], SETTINGS) == []
    trail = TreeSettings(repeats="trail", tags="literal")
    assert cut_runs([b"a", b"b"], trail) == [(0, 1), (1, 2)], "each has numbers of its own"


def carried(effects: list[object]) -> list[CarriedMessage]:
    """What goes to other brokers."""
    found = [each.message for each in effects if isinstance(each, Send)]
    return [one for each in found if isinstance(each, Carried) for one in each.messages]


def test_a_batch_of_publications_crosses_a_link_as_one_run() -> None:
    scene = Scene("A-B", failures_tolerated=0)
    subscription = scene.subscribe("B")
    some: list[Attributes] = [{"k": k} for k in range(4)]
    names = scene.world.processes[A].publish_many(some)
    scene.wait()
    assert scene.got(subscription) == names
    events = EventBatch(tuple(encode_event(each, b"") for each in some))
    _, effects = scene.machine("A").publish("", events, scene.run.stage.now)
    [sent] = carried([*effects])
    assert isinstance(sent, PublicationRun)
    assert sent.events == events


def test_a_neighbour_gets_the_part_of_a_run_that_its_subscribers_want() -> None:
    scene = Scene("A-B A-C C-D", failures_tolerated=1)
    even, odd = scene.subscribe("B", "k IN (0, 2)"), scene.subscribe("D", "k IN (1, 3)")
    names = scene.world.processes[A].publish_many([{"k": k} for k in (0, 1, 2, 3, 1)])
    scene.wait()
    assert scene.got(even) == [names[0], names[2]]
    assert scene.got(odd) == [names[1], names[3], names[4]]
    assert scene.world.restlessness() == []


def test_what_is_settled_of_a_run_is_confirmed_though_the_rest_waits_for_a_dead_broker() -> None:
    scene = Scene("A-B B-C", failures_tolerated=0)
    near, far = scene.subscribe("B"), scene.subscribe("C", "k = 1")
    scene.cut("B", "C")
    names = scene.world.processes[A].publish_many([{"k": k} for k in (0, 1, 0, 1)])
    scene.wait()
    assert scene.got(near) == names
    assert scene.machine("A").statistics()["queued_publications"] == 2
    assert scene.run.ledger.settled == {names[0], names[2]}
    scene.mend()
    assert scene.got(far) == [names[1], names[3]]
    assert scene.world.restlessness() == []


def test_a_run_that_came_half_before_is_taken_from_where_it_is_new() -> None:
    scene = Scene("A-B B-C", failures_tolerated=1, batch_max=10)
    subscription = scene.subscribe("C")
    scene.lose("B", "A", 50)  # no confirmation comes back
    process = scene.world.processes[A]
    names = process.publish_many([{"k": 1}] * 3)
    scene.wait(20)
    scene.lose("A", "B", 50)
    names += process.publish_many([{"k": 1}] * 3)
    scene.wait()
    assert scene.got(subscription) == names
    assert scene.machine("A").statistics()["queued_publications"] == 0
