"""Dispatch: which service gets which request, and what services without a store cannot serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import Sideways
from gapless.core.client_messages import (
    Ended,
    Publish,
    PublisherQuery,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.errors import ProtocolError
from gapless.core.events import EventBatch
from gapless.core.identity import (
    ProducerName,
    PubendName,
    PublisherName,
    SubscriptionName,
    TopicName,
)
from gapless.core.range_messages import PositionsQuery, ReadRange
from gapless.core.ticks import Span
from gapless.core.topic_messages import TopicNews, TopicQuestion
from gapless.core.transaction_messages import ProducerQuery
from gapless.node.dispatch import KINDS
from gapless.tree.messages import Beat, Position
from gapless.wire.kinds import BROKERS, codec
from tests.node.town import ALONE, ANN, Town, event, publish, subscribe

if TYPE_CHECKING:
    from gapless.core.messages import Message

FEED = TopicName("feed")
TEXT = ALONE + '[[topic]]\nname = "feed"\nservice = "reliable"\n'
DESK, EVENTS = SubscriptionName("desk"), EventBatch.join([event("red")])


def answer(town: Town, message: Message) -> Message:
    town.connect()
    [(to, answered)] = town.receive(ANN, message)[:1]
    assert to == ANN
    return answered


@pytest.mark.parametrize(
    ("message", "problem", "remedy"),
    [
        (Subscribe(FEED, 1, 1, name=DESK), "no named subscriptions", "Leave name, start"),
        (Subscribe(FEED, 1, 1, order="total"), "no total order", "Leave the order out"),
        (Publish(FEED, 1, EVENTS, PublisherName("p")), "no names of publishers", "client.publish"),
        (PublisherQuery(1, FEED, PublisherName("p")), "no names of publishers", "client.publish"),
        (ProducerQuery(FEED, 1, ProducerName("p")), "no transactions", "client.publish"),
        (ReadRange(FEED, 1, PubendName("x"), Span(0, 1)), "nothing can be read", "Subscribe to it"),
        (PositionsQuery(FEED, 1), "nothing can be read", "Subscribe to it"),
        (Subscribe(FEED, 1, 1, "colour = "), "expected", "^"),
        (Publish(FEED, 1, EventBatch.join([b"\xff"])), "event", "Encode the events"),
    ],
)
def test_what_needs_a_store_is_refused_with_what_to_use_instead(
    message: Message, problem: str, remedy: str
) -> None:
    town = Town("h", TEXT)
    refused = answer(town, message)
    assert isinstance(refused, Refused)
    assert problem in refused.problem
    assert remedy in refused.remedy
    assert not refused.retry


def test_a_durable_topic_beside_it_is_served_as_ever() -> None:
    town = Town("h", TEXT)
    assert isinstance(answer(town, publish("red", name="p")), Receipt)
    assert isinstance(answer(town, Subscribe(TopicName("news"), 2, 2, name=DESK)), Subscribed)


@pytest.mark.parametrize(("first", "second"), [("feed", "news"), ("news", "feed")])
def test_no_number_is_used_twice_on_a_connection_whatever_the_services(
    first: str, second: str
) -> None:
    town = Town("h", TEXT)
    assert isinstance(answer(town, subscribe(1, topic=first)), Subscribed)
    refused = answer(town, subscribe(1, topic=second))
    assert isinstance(refused, Refused)
    assert "exists on this connection" in refused.problem


def test_the_limit_of_subscriptions_counts_those_of_all_services() -> None:
    town = Town("h", TEXT, subscriptions_max=2)
    assert isinstance(answer(town, subscribe(1, topic="news")), Subscribed)
    assert isinstance(answer(town, subscribe(2, topic="feed")), Subscribed)
    refused = answer(town, subscribe(3, topic="feed"))
    assert isinstance(refused, Refused)
    assert "which is its limit" in refused.problem


def test_a_subscription_is_ended_by_the_service_that_has_it() -> None:
    town = Town("h", TEXT)
    for number, topic in ((1, "feed"), (2, "news")):
        assert isinstance(answer(town, subscribe(number, topic=topic)), Subscribed)
    assert town.node.statistics()["subscriptions"] == 2
    for number in (1, 2):
        assert answer(town, Unsubscribe(number)) == Ended(number)
    assert town.node.statistics()["subscriptions"] == 0


def test_what_brokers_say_to_each_other_is_not_taken_from_a_client() -> None:
    town = Town("h", TEXT)
    town.connect()
    with pytest.raises(ProtocolError, match="not for clients"):
        town.receive(ANN, Beat(Position(1, 1)))


def test_all_that_services_say_to_each_other_crosses_a_link() -> None:
    both = codec(*KINDS)
    beat = Beat(Position(1, 2), Position(3, 4), 5)
    assert both.decode(both.encode(beat)) == beat


def test_every_message_between_brokers_has_one_place() -> None:
    services = Town("h", TEXT).node.services
    services.check()
    assert {*BROKERS, *KINDS} - {Sideways, TopicNews, TopicQuestion} == set(services.of_kind)
