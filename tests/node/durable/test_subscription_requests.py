"""What clients ask of a broker: carried out, or refused with what to do next."""

from __future__ import annotations

from collections import deque
from itertools import count
from operator import attrgetter

import pytest

from gapless.core.broker_messages import Knowledge, StartReply
from gapless.core.client_messages import (
    Deliveries,
    Ended,
    Publish,
    Receipt,
    Refused,
    Subscribed,
    Unsubscribe,
)
from gapless.core.events import EventBatch
from gapless.core.identity import (
    BrokerName,
    CellName,
    ClientName,
    PubendName,
    SubscriptionName,
    TopicName,
)
from gapless.core.ticks import Span
from gapless.node.subscriptions.table import Work
from tests.node.town import ALONE, ANN, CONFIG, NEWS, Town, colours, event, publish, subscribe

ZERO = PubendName("news/0")

CASES = {
    "publish to no topic": ("s", publish("red", topic="sport"), "there is no topic 'sport'"),
    "publish elsewhere": ("l", publish("red"), "topic 'news' is not published at this broker"),
    "subscribe to no topic": ("s", subscribe(1, topic="sport"), "there is no topic 'sport'"),
    "subscribe elsewhere": ("s", subscribe(1), "this broker takes no subscribers"),
    "a wrong condition": ("l", subscribe(1, "colour ="), "expected"),
}


@pytest.mark.parametrize(("broker", "message", "problem"), CASES.values(), ids=CASES.keys())
def test_a_request_that_cannot_be_is_refused_with_a_remedy(
    broker: str, message: Publish, problem: str
) -> None:
    town = Town(broker)
    town.connect()
    town.flush()
    [(to, answer)] = town.receive(ANN, message)
    assert isinstance(answer, Refused)
    assert (to, answer.request, answer.retry) == (ANN, message.request, False)
    assert problem in answer.problem.lower()
    assert answer.remedy


def test_who_subscribes_where_nobody_may_is_sent_to_where_it_may_and_not_all_to_one() -> None:
    town = Town("s")
    first = set()
    for number in range(20):
        town.connect(f"client-{number}")
        [answer] = [
            each
            for _, each in town.receive(f"client-{number}", subscribe(1))
            if isinstance(each, Refused)
        ]
        assert sorted(answer.elsewhere) == ["l", "r"]
        first.add(answer.elsewhere[0])
    assert first == {"l", "r"}


def test_an_event_that_nobody_could_read_is_refused_before_it_is_stored() -> None:
    town = Town("h", ALONE)
    town.connect()
    [(_, answer)] = town.receive(ANN, Publish(NEWS, 4, EventBatch.join([b"\xc1"])))
    assert isinstance(answer, Refused)
    assert answer.request == 4


def test_a_number_may_be_used_once_on_a_connection_even_while_it_waits() -> None:
    town = Town("l")
    town.connect()
    town.flush()
    assert town.receive(ANN, subscribe(1)) == []
    [(_, answer)] = town.receive(ANN, subscribe(1))
    assert isinstance(answer, Refused)
    assert "subscription 1 exists" in answer.problem
    town.connect("bob")
    assert town.receive("bob", subscribe(1)) == []


def test_a_broker_takes_a_bounded_number_of_subscriptions() -> None:
    town = Town("h", ALONE, subscriptions_max=2)
    town.connect()
    answers = [
        message for number in range(3) for _, message in town.receive(ANN, subscribe(number))
    ]
    assert [type(each) for each in answers] == [Subscribed, Subscribed, Refused]


def test_a_publisher_is_bound_to_one_pubend() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.connect("bob")
    used = dict[str, set[str]]()
    for number in range(20):
        name = f"publisher {number}"
        for sequence, client in zip(count(), (ANN, "bob", ANN), strict=False):
            message = publish("red", name=name, sequence=sequence)
            [(_, answer)] = town.receive(client, message)
            assert isinstance(answer, Receipt)
            used.setdefault(name, set()).add(answer.pubend)
    assert {len(each) for each in used.values()} == {1}
    assert set().union(*used.values()) == {"news/0", "news/1"}


def test_a_subscription_starts_where_it_is_told_and_misses_nothing_from_there() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, publish("early"))
    [(_, started)] = town.receive(ANN, subscribe(1))
    assert isinstance(started, Subscribed)
    assert set(started.start) == {"news/0", "news/1"}
    sent = town.receive(ANN, publish("late"))
    [got] = [message for _, message in sent if isinstance(message, Deliveries)]
    assert colours(got.events) == ["late"]
    assert got.pubend is not None
    assert got.ticks[0] >= started.start[got.pubend]


def test_a_subscription_in_total_order_gets_both_pubends_in_one_order() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, subscribe(1, order="total"))
    sent = []
    for number in range(9):
        town.connect(f"client {number}")
        sent += town.receive(f"client {number}", publish(str(number)))
        sent += town.wait(5)
    sent += town.wait(2 * CONFIG.idle_silence)
    got = [message for to, message in sent if isinstance(message, Deliveries) and to == ANN]
    ticks = [tick for each in got for tick in each.ticks]
    assert ticks == sorted(ticks)
    assert [colour for each in got for colour in colours(each.events)] == list("012345678")


def test_unsubscribing_is_answered_whether_or_not_there_was_anything() -> None:
    town = Town("l")
    town.connect()
    town.flush()
    town.receive(ANN, subscribe(1))
    for number in (1, 7):
        assert town.receive(ANN, Unsubscribe(number)) == [(ANN, Ended(number))]
    assert town.node.durable.requests.pending == {}


def test_a_client_that_leaves_waits_no_more_and_a_merge_without_takers_ends() -> None:
    town = Town("l")
    town.connect()
    town.receive(ANN, subscribe(1))
    town.leave(ANN)
    assert town.node.durable.requests.pending == {}
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, subscribe(1, order="total"))
    assert list(town.node.durable.streams.merges) == ["news"]
    town.leave(ANN)
    assert town.node.durable.streams.merges == {}


def test_the_remedy_of_a_wrong_broker_names_the_right_one() -> None:
    town = Town("l")
    town.connect()
    town.flush()
    [(_, answer)] = town.receive(ANN, publish("red"))
    assert isinstance(answer, Refused)
    assert answer.remedy == "Connect to one of: s."
    assert BrokerName("s") in town.network.cell_of
    assert TopicName("news") in town.network.topic
    assert ClientName(ANN) in town.node.connections


def test_a_total_order_that_begins_with_what_is_cached_gives_it_to_the_one_that_began_it() -> None:
    left = Town("l")
    left.connect()
    left.receive("m1", StartReply(ZERO, CellName("left"), 1, 0))
    left.receive("m1", Knowledge(ZERO, Span(0, 10)))
    left.receive("m1", Knowledge(ZERO, Span(20, 30), (25,), EventBatch.join([event("red")])))
    left.receive(ANN, subscribe(1, order="total"))
    hole = Knowledge(ZERO, Span(10, 20), (15,), EventBatch.join([event("blue")]), requested=True)
    left.receive("m1", hole)
    left.receive(ANN, Unsubscribe(1))
    sent = left.receive(ANN, subscribe(2, order="total"))
    told = [message for to, message in sent if to == ANN]
    assert isinstance(told[0], Subscribed)
    assert told[0].start == {"news/0": 10}
    ticks = [t for m in told[1:] if isinstance(m, Deliveries) for t in m.ticks]
    assert ticks == [15, 25]


@pytest.mark.parametrize(
    "left",
    [
        "requests.pending",
        "subscribers.dropped",
        "homes.ready",
        "interests._touched",
        "moves.holds",
        "named.reports",
        "attachments.catch_ups._asks",
        "attachments.catch_ups._stirred",
        "attachments.catch_ups._later",
        "attachments.catch_ups.turns._line",
    ],
)
def test_a_step_that_leaves_anything_to_be_done_at_its_end_is_not_quiet(left: str) -> None:
    town = Town("h", ALONE)
    assert town.node.durable.is_quiet
    what = attrgetter(left)(town.node.durable)
    if isinstance(what, list | deque):
        what.append(None)
    else:
        what[None] = None
    assert not town.node.durable.is_quiet


@pytest.mark.parametrize("work", Work)
def test_a_step_that_leaves_work_about_a_named_subscription_is_not_quiet(work: Work) -> None:
    town = Town("h", ALONE)
    assert town.node.durable.is_quiet
    town.node.durable.named.table._work[work][SubscriptionName("desk")] = None
    assert not town.node.durable.is_quiet
