"""The node: every message has its place, and one in the wrong place changes nothing."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    DigestNack,
    HandOver,
    Knowledge,
    Nack,
    Sideways,
    StartQuery,
    StartReply,
    SubscriptionState,
)
from gapless.core.client_messages import Consumed, Receipt, Unsubscribe
from gapless.core.errors import ProtocolError
from gapless.core.events import EventBatch
from gapless.core.identity import (
    BrokerName,
    CellName,
    ClientName,
    Instant,
    PubendName,
    SubscriptionName,
    TopicName,
)
from gapless.core.messages import Ping, Pong
from gapless.core.ticks import Span
from gapless.knowledge.neighbours import PUBLISHER_ORDER, TOTAL_ORDER
from gapless.knowledge.pubend import Persisted
from tests.node.town import ALONE, ANN, CHAIN, CONFIG, TOWN, Town, event, publish, subscribe

if TYPE_CHECKING:
    from gapless.core.messages import Message

NEWS = PubendName("news/0")
NOBODY = PubendName("sport/0")
SPAN = Span(0, 50)
KNOWLEDGE = Knowledge(NEWS, SPAN, (7,), EventBatch.join([event("red")]))
FAR = 1 << 60


def ack(cell: str, delivered: int = 5) -> Ack:
    return Ack(NEWS, CellName(cell), delivered, delivered)


def query(cell: str) -> StartQuery:
    return StartQuery(NEWS, CellName(cell), 1)


def reply(cell: str) -> StartReply:
    return StartReply(NEWS, CellName(cell), 1, 5)


WRONG: list[tuple[str, str, Message, str]] = [
    # a broker, who sends, what, and why it is wrong
    ("m1", "l", KNOWLEDGE, "Knowledge of 'news/0' came the wrong way, from 'l'"),
    ("s", "m1", KNOWLEDGE, "came the wrong way"),
    ("m1", "l", AckExpected(NEWS, 5), "AckExpected of 'news/0' came the wrong way"),
    ("s", "m1", AckExpected(NEWS, 5), "came the wrong way"),
    ("m1", "r", reply("left"), "StartReply of 'news/0' came the wrong way"),
    ("m1", "s", reply("nowhere"), "StartReply of 'news/0' came the wrong way"),
    ("l", "m1", reply("source"), "StartReply of 'news/0' came the wrong way"),
    ("m1", "s", Nack(NEWS, (SPAN,)), "Nack of 'news/0' came the wrong way"),
    ("l", "m1", Nack(NEWS, (SPAN,)), "came the wrong way"),
    ("m1", "s", query("left"), "StartQuery of 'news/0' came the wrong way"),
    ("m1", "l", query("nowhere"), "came the wrong way"),
    ("m1", "s", ack("source"), "Ack of 'news/0' came the wrong way"),
    ("m1", "l", ack("nowhere"), "came the wrong way"),
    ("m1", "l", ack("right"), "came the wrong way"),
    ("s", "m1", ack("middle", FAR), f"tick {FAR} was acknowledged before it was sent"),
    ("m1", "l", Sideways(CellName("right"), AckExpected(NEWS, 5)), "'l' may not send 'right'"),
    ("m1", "m2", Sideways(CellName("nowhere"), AckExpected(NEWS, 5)), "may not send 'nowhere'"),
    ("m1", "m2", Sideways(CellName("middle"), AckExpected(NEWS, 5)), "may not send 'middle'"),
    ("l", "s", Ping(), "'s' is no neighbour of 'l'"),
    ("l", "r", KNOWLEDGE, "'r' is no neighbour of 'l'"),
    ("m1", "m2", publish("red"), "Publish is not for brokers"),
    ("m1", "m2", Persisted(NEWS, 1), "Persisted is not for brokers"),
    ("m1", "l", HandOver(SubscriptionName("x")), "no broker is called ''"),
    ("l", "stranger", publish("red"), "'stranger' is not connected"),
    ("l", ANN, KNOWLEDGE, "Knowledge is not for clients"),
    ("l", ANN, Persisted(NEWS, 1), "Persisted is not for clients"),
    ("l", ANN, Pong(), "Pong is not for clients"),
]


@pytest.mark.parametrize(("broker", "sender", "message", "problem"), WRONG)
def test_a_message_in_the_wrong_place_is_refused_and_changes_nothing(
    broker: str, sender: str, message: Message, problem: str
) -> None:
    town = Town(broker)
    town.connect()
    town.flush()
    before = pickle.dumps(town.node)
    with pytest.raises(ProtocolError, match=problem):
        town.receive(sender, message)
    assert pickle.dumps(town.node) == before
    assert town.sent == []


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        ("s", Knowledge(NOBODY, SPAN)),
        ("l", Nack(NOBODY, (SPAN,))),
        ("l", DigestNack(NOBODY, 1)),
        ("l", SubscriptionState(CellName("left"), {"l": 1}, topic=TopicName("sport"))),
    ],
)
def test_what_is_said_of_an_unknown_topic_is_dropped_and_counted(
    sender: str, message: Message
) -> None:
    town = Town("m1")
    town.flush()
    assert town.receive(sender, message) == []
    assert town.node.statistics()["strays"] == 1


@pytest.mark.parametrize("cell", [PUBLISHER_ORDER, TOTAL_ORDER, "half", "top"])
def test_nobody_acknowledges_in_the_name_of_our_own_subscribers(cell: str) -> None:
    town = Town("h", CHAIN)
    town.receive("t", KNOWLEDGE)
    before = pickle.dumps(town.node)
    with pytest.raises(ProtocolError, match="came the wrong way"):
        town.receive("f", ack(cell))
    assert pickle.dumps(town.node) == before


def test_a_snapshot_does_see_a_change() -> None:
    """So that the test above can fail."""
    town = Town("m1")
    before = pickle.dumps(town.node)
    assert pickle.dumps(town.node) == before
    town.receive("s", KNOWLEDGE)
    assert pickle.dumps(town.node) != before


def test_contradicting_knowledge_is_refused_and_changes_nothing() -> None:
    town = Town("l")
    town.receive("m1", StartReply(NEWS, CellName("left"), 1, 0))
    town.receive("m1", Knowledge(NEWS, Span(5, 9), (7,), EventBatch.join([event("red")])))
    before = pickle.dumps(town.node)
    other = Knowledge(NEWS, SPAN, (7,), EventBatch.join([event("blue")]))
    with pytest.raises(ProtocolError, match="two different events at tick 7"):
        town.receive("m1", other)
    assert pickle.dumps(town.node) == before


def test_a_ping_is_answered_and_an_answer_proves_life() -> None:
    town = Town("m1")
    town.flush()
    assert town.receive("l", Ping(9)) == [("l", Pong(9))]
    town.wait(CONFIG.dead_after)
    assert not town.node.routing.is_live(BrokerName("l"), town.now)
    assert town.receive("l", Pong(9)) == []
    assert town.node.routing.is_live(BrokerName("l"), town.now)
    town.leave("l")
    assert not town.node.routing.is_live(BrokerName("l"), town.now)


def test_an_acknowledgement_is_shared_with_siblings_but_not_one_from_a_sibling() -> None:
    town = Town("m1")
    town.flush()
    assert town.receive("l", ack("left")) == [("m2", ack("left"))]
    assert town.receive("m2", ack("right")) == []
    assert town.node.durable.streams.relays[NEWS].acked == 5


def test_what_comes_sideways_is_passed_on() -> None:
    town = Town("m1")
    town.flush()
    message = AckExpected(NEWS, 5)
    assert town.receive("m2", Sideways(CellName("left"), message)) == [("l", message)]


def test_the_clock_may_jump_and_the_node_goes_on_from_where_it_was() -> None:
    town = Town("h", ALONE, now=1_000_000)
    town.connect()
    [(_, first)] = town.receive(ANN, publish("red"))
    assert isinstance(first, Receipt)
    town.now = Instant(10)
    [(_, second)] = town.receive(ANN, publish("red"))
    assert isinstance(second, Receipt)
    assert second.ticks > first.ticks
    deadline = town.node.deadline
    assert deadline is not None
    assert 10 <= deadline <= 10 + CONFIG.heartbeat
    town.wait(10 * CONFIG.idle_silence)
    assert town.node.horizon(first.pubend) is not None


@pytest.mark.parametrize("jump", [-3_600_000_000, -1, 0])
def test_a_clock_that_jumps_back_delays_nothing(jump: int) -> None:
    town = Town("m1", now=7_200_000_000)
    town.wait(10)
    town.receive("l", Ping())
    assert town.node.deadline is not None
    ahead = town.node.deadline - town.now
    town.now = Instant(town.now + jump)
    town.receive("l", Ping())
    assert town.node.deadline - town.now == ahead


def test_a_deadline_is_always_ahead_once_fire_was_called() -> None:
    for name in ("s", "m1", "l"):
        town = Town(name)
        for _ in range(50):
            deadline = town.node.deadline
            assert deadline is not None
            assert deadline > town.now
            town.wait(deadline - town.now)


def test_statistics_are_plain_figures() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, subscribe(1))
    town.receive(ANN, subscribe(2, order="total"))
    town.receive(ANN, publish("red", name="ann"))
    town.wait(2 * CONFIG.idle_silence)
    figures = town.node.statistics()
    assert (figures["clients"], figures["subscriptions"], figures["merges"]) == (1, 2, 1)
    assert figures["delivered"] == 2
    pubends = figures["pubends"]
    assert isinstance(pubends, dict)
    assert sum(each["publishers"] for each in pubends.values()) == 1
    assert {type(value) for each in pubends.values() for value in each.values()} == {int}


def test_unsubscribing_and_consuming_are_taken_from_clients() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, subscribe(1))
    town.receive(ANN, publish("red"))
    assert town.node.connections[ANN].outstanding == 1
    assert town.receive(ANN, Consumed(1)) == []
    assert town.node.connections[ANN].outstanding == 0
    town.receive(ANN, Unsubscribe(1))
    assert town.node.subscribers.subscription_count == 0
    town.leave(ANN)
    assert ClientName(ANN) not in town.node.connections


@pytest.mark.parametrize("name", ["s", "h"])
def test_what_is_remembered_of_deadlines_while_events_are_published_is_what_they_are(
    name: str,
) -> None:
    """Publications look at streams alone: pings, epochs and other services keep their time."""
    town = Town(name, ALONE if name == "h" else TOWN, propagates=True)
    town.connect()
    for number in range(40):
        assert town.node.deadline is not None  # known from here on
        if name == "h" and number % 9 == 3:
            town.receive(ANN, subscribe(number))
        town.receive(ANN, publish("red", "blue"))
        due = town.node.deadline
        town.node.touch()
        assert town.node.deadline == due
        if number % 5 == 4:
            town.wait(40_000)
        town.now = Instant(town.now + 700)


def test_a_publication_leaves_nothing_undone_that_an_earlier_step_left() -> None:
    """A subscription that waits for its start begins with the first step that makes it possible,
    be it a publication."""
    town = Town("h", ALONE)
    town.connect()
    assert town.node.deadline is not None
    sent = town.receive(ANN, publish("red")) + town.receive(ANN, subscribe(1))
    sent += town.receive(ANN, publish("blue"))
    kinds = [type(message).__name__ for _, message in sent]
    assert kinds == ["Receipt", "Subscribed", "Receipt", "Deliveries"]
