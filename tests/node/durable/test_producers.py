"""Transactions through a whole node: bound to one pubend, checked, delivered like all else."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Deliveries, Done, Refused
from gapless.core.events import EventBatch
from gapless.core.identity import ProducerName, TopicName
from gapless.core.transaction_messages import (
    Abort,
    Commit,
    Committed,
    ProducerPosition,
    ProducerQuery,
    Stage,
)
from gapless.node.redirect import bound_pubend
from tests.node.town import ALONE, ANN, CONFIG, NEWS, Town, colours, event, subscribe

JOB = ProducerName("job")


def stage(
    *which: str, part: str = "p", position: int = 0, request: int = 1, producer: str = JOB
) -> Stage:
    batch = EventBatch.join(map(event, which))
    return Stage(NEWS, request, ProducerName(producer), 1, part, position, batch)


def answer(
    town: Town, message: Stage | Commit | Abort | ProducerQuery, client: str = ANN
) -> object:
    [reply] = [each for to, each in town.receive(client, message) if to == client]
    return reply


def test_many_connections_stage_and_another_commits() -> None:
    town = Town("h", ALONE)
    for client in ("ann", "bob", "cid"):
        town.connect(client)
    assert answer(town, stage("red", part="a"), "ann") == Done(1)
    assert answer(town, stage("blue", part="b"), "bob") == Done(1)
    town.leave("ann")
    assert answer(town, ProducerQuery(NEWS, 2, JOB), "bob") == ProducerPosition(2)
    reply = answer(town, Commit(NEWS, 3, JOB, 1, ("b", "a")), "cid")
    assert isinstance(reply, Committed)
    assert reply.count == 2
    assert answer(town, ProducerQuery(NEWS, 4, JOB), "bob") == ProducerPosition(4, 1)
    assert answer(town, Abort(NEWS, 5, JOB, 1), "bob") == Done(5)


def test_a_subscriber_sees_nothing_of_it_before_the_commit_and_all_after() -> None:
    town = Town("h", ALONE)
    town.connect("ann")
    town.connect("bob")
    town.receive("bob", subscribe(1))
    town.wait(2_000_000)
    town.receive("ann", stage("red", "blue"))
    assert not [m for _, m in town.wait(2_000_000) if isinstance(m, Deliveries) and m.ticks]
    sent = town.receive("ann", Commit(NEWS, 2, JOB, 1, ("p",)))
    [delivered] = [m for to, m in sent if isinstance(m, Deliveries) and m.ticks]
    assert colours(delivered.events) == ["red", "blue"]


def test_a_producer_is_bound_to_one_pubend_of_all_wherever_it_is_hosted() -> None:
    two = ALONE.replace(
        "[[topic]]",
        '[[cell]]\nname = "far"\nbrokers = [{ name = "f" }]\nlinks = ["home"]\n[[topic]]',
    ).replace('["h", "h"]', '["h", "f"]')
    here, there = Town("h", two), Town("f", two)
    topic = here.network.topic[NEWS]
    for town in (here, there):
        town.wait(CONFIG.dead_after)  # in vain for what others know of its past
    for name in (f"job-{i}" for i in range(6)):
        host = bound_pubend(topic, ProducerName(name)).host
        for town in (here, there):
            town.connect()
            reply = answer(town, stage("red", producer=name))
            if town.node.name == host:
                assert reply == Done(1)
            else:
                assert isinstance(reply, Refused)
                assert host in reply.remedy
    assert {bound_pubend(topic, ProducerName(f"job-{i}")).name for i in range(20)} == {
        "news/0",
        "news/1",
    }


def test_what_nobody_could_read_is_refused_before_it_is_staged() -> None:
    town = Town("h", ALONE)
    town.connect()
    reply = answer(town, Stage(NEWS, 1, JOB, 1, "p", 0, EventBatch.join([b"\xc1"])))
    assert isinstance(reply, Refused)
    assert not reply.retry
    reply = answer(town, Commit(TopicName("sport"), 1, JOB, 1))
    assert isinstance(reply, Refused)


def test_the_figures_say_what_is_staged() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, stage("red"))
    pubends = town.node.statistics()["pubends"]
    assert isinstance(pubends, dict)
    bound = pubends[bound_pubend(town.network.topic[NEWS], JOB).name]
    assert bound["open_transactions"] == 1
    assert bound["staged_bytes"] > 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Stage(NEWS, 1, ProducerName(""), 1, "p", 0, EventBatch.join([b"x"])),
        lambda: Stage(NEWS, 1, ProducerName("ü" * 128), 1, "p", 0, EventBatch.join([b"x"])),
        lambda: Stage(NEWS, 1, JOB, 1, "", 0, EventBatch.join([b"x"])),
        lambda: Stage(NEWS, 1, JOB, -1, "p", 0, EventBatch.join([b"x"])),
        lambda: Stage(NEWS, 1, JOB, 1, "p", -1, EventBatch.join([b"x"])),
        lambda: Stage(NEWS, 1, JOB, 1, "p", 0, EventBatch.join([])),
        lambda: Commit(NEWS, 1, JOB, 1 << 63),
        lambda: Commit(NEWS, 1, JOB, 1, ("a", "a")),
        lambda: Commit(NEWS, 1, JOB, 1, ("a",), (1, 2)),
    ],
)
def test_a_message_that_cannot_be_is_never_made(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=r"name|numbered|event|once|count"):
        make()
