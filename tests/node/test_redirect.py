"""What only another broker can serve is refused with its name, and a name has one pubend."""

from __future__ import annotations

import pytest
from msgspec import structs

from gapless.core.client_messages import PublisherPosition, PublisherQuery, Receipt, Refused
from gapless.core.identity import BrokerName, PublisherName, TopicName
from gapless.node.network import Topic
from gapless.node.redirect import bound_pubend
from tests.node.town import ANN, NEWS, Town, publish

PAIR = """
cell = [
    {name = "one", brokers = [{name = "a"}], links = ["two"], subscribers = true},
    {name = "two", brokers = [{name = "b"}]},
]
topic = [{name = "news", pubends = ["a", "b", "b"]}]
"""
WITH_LEAF = """
cell = [
    {name = "one", brokers = [{name = "a"}], links = ["two", "leaf"]},
    {name = "two", brokers = [{name = "b"}]},
    {name = "leaf", brokers = [{name = "l"}], subscribers = true},
]
topic = [{name = "news", pubends = ["a", "b", "b"]}]
"""
NAMES = [f"feed {number}" for number in range(20)]


@pytest.fixture
def towns() -> dict[str, Town]:
    towns = {name: Town(name, PAIR) for name in "ab"}
    for town in towns.values():
        town.connect()
        town.flush()
    return towns


@pytest.mark.parametrize("name", NAMES)
def test_a_named_publisher_is_taken_by_one_broker_only_and_sent_there_by_the_other(
    towns: dict[str, Town], name: str
) -> None:
    host = bound_pubend(towns["a"].network.topic[NEWS], name).host
    (other,) = set(towns) - {host}
    [(_, refused)] = towns[other].receive(ANN, publish("red", name=name))
    assert isinstance(refused, Refused)
    assert (refused.elsewhere, refused.retry) == ((host,), False)
    [(_, refused)] = towns[other].receive(ANN, PublisherQuery(7, NEWS, PublisherName(name)))
    assert isinstance(refused, Refused)
    assert (refused.request, refused.elsewhere) == (7, (host,))
    answers = [message for _, message in towns[host].receive(ANN, publish("red", name=name))]
    assert any(isinstance(each, Receipt) for each in answers)
    [(_, position)] = towns[host].receive(ANN, PublisherQuery(8, NEWS, PublisherName(name)))
    assert isinstance(position, PublisherPosition)
    assert (position.request, position.sequence) == (8, 1)
    again = structs.replace(publish("blue", name=name, sequence=1), term=position.term)
    [(_, refused)] = towns[other].receive(ANN, again)
    assert isinstance(refused, Refused)
    assert refused.elsewhere == (host,), "whatever its term"
    answers = [message for _, message in towns[host].receive(ANN, again)]
    assert any(isinstance(each, Receipt) for each in answers)


def test_all_pubends_of_a_topic_get_publishers_and_each_name_always_the_same() -> None:
    topic = Topic(TopicName("news"), tuple(map(BrokerName, "abb")))
    bound = {name: bound_pubend(topic, name).name for name in NAMES}
    assert set(bound.values()) == {"news/0", "news/1", "news/2"}
    again = Topic(TopicName("news"), tuple(map(BrokerName, "abb")))
    assert bound == {name: bound_pubend(again, name).name for name in NAMES}


def test_one_without_a_name_publishes_where_it_is(towns: dict[str, Town]) -> None:
    for name, pubends in {"a": {"news/0"}, "b": {"news/1", "news/2"}}.items():
        used = set()
        for number in range(10):
            client = f"client {number}"
            towns[name].connect(client)
            sent = towns[name].receive(client, publish("red"))
            used |= {each.pubend for _, each in sent if isinstance(each, Receipt)}
        assert used == pubends


def test_one_without_a_name_is_sent_to_any_host_where_nothing_is_published() -> None:
    town = Town("l", WITH_LEAF)
    town.connect()
    town.flush()
    [(_, refused)] = town.receive(ANN, publish("red"))
    assert isinstance(refused, Refused)
    assert refused.elsewhere == ("a", "b")
