"""The reliable service in whole nodes: who gets what, and what becomes of it when brokers fall."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from gapless.core.client_messages import (
    Consumed,
    Deliveries,
    Done,
    Ended,
    Lost,
    Publish,
    Receipt,
    Refused,
    RetireBroker,
    Subscribed,
    Unreached,
    Unsubscribe,
)
from gapless.core.effects import Tell
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ProducerName, TopicName
from gapless.core.range_messages import PositionsQuery
from gapless.core.ticks import TICK_MAX, Span
from gapless.core.topic_messages import CreateTopic, DeleteTopic, TopicEntry, TopicNews
from gapless.core.transaction_messages import ProducerQuery
from gapless.node.config import Config
from gapless.node.network import parse_network
from gapless.node.reliable.broker_tree import KeptTree, broker_tree
from gapless.node.reliable.service import Reliable
from gapless.testing.memory_volume import MemoryVolume
from gapless.tree.messages import PublicationRun, TreeDelivery, TreeJoin, TreeWelcome
from gapless.wire.events import encode_event
from tests.node.country import WIDE, Country
from tests.node.town import ALONE, ANN, Town, colours, publish, subscribe

if TYPE_CHECKING:
    from typing import Any

    from gapless.core.messages import Message

FEED = TopicName("feed")
TEXT = WIDE.replace("topic = [", 'topic = [{name = "feed", service = "reliable"}, ')
ONE = ALONE + '[[topic]]\nname = "feed"\nservice = "reliable"\n'
PATIENCE = Config().tree_patience // Config().heartbeat + 3
"""Heartbeats until a broker that is silent has been stepped over."""


def feed(country: Country, client: str = "ann@l") -> list[str]:
    return [
        colour
        for message in country.heard.get(client, [])
        if isinstance(message, Deliveries)
        for colour in colours(message.events)
    ]


def service(country: Country, broker: str) -> Reliable:
    found = country.towns[broker].node.services.by_name["reliable"]
    assert isinstance(found, Reliable)
    return found


def figures(country: Country, broker: str) -> dict[str, Any]:
    return service(country, broker).statistics()


def started(**limits: int) -> Country:
    country = Country(TEXT, **limits)
    country.wait(2)
    return country


def test_every_broker_takes_publishers_and_subscribers_and_delivers_once_and_in_order() -> None:
    country = started()
    for broker in country.towns:
        assert isinstance(country.ask(broker, subscribe(1, topic="feed")), Subscribed)
    for broker in country.towns:
        told = country.ask(broker, publish(broker, broker.upper(), topic="feed"), "pat")
        assert isinstance(told, Receipt)
        assert told.pubend.startswith(f"feed/{broker}/")
        assert told.ticks[0] < told.ticks[1]
    for broker in country.towns:
        wanted = [each for name in country.towns for each in (name, name.upper())]
        assert feed(country, f"ann@{broker}") == wanted
    country.wait()
    assert all(figures(country, each)["queued_publications"] == 0 for each in country.towns)


def test_only_what_matches_of_its_own_topic_is_delivered() -> None:
    country = started()
    country.decide(CreateTopic(1, TopicName("other"), "reliable"))
    country.ask("l", subscribe(1, "colour <> 'blue'", topic="feed"))
    country.ask("a", publish("red", topic="other"), "pat")
    country.ask("a", publish("blue", "green", topic="feed"), "pat")
    assert feed(country) == ["green"]


def test_equal_conditions_share_one_subscription_until_the_last_one_leaves() -> None:
    country = started()
    for client in ("ann", "bob"):
        assert isinstance(country.ask("l", subscribe(1, topic="feed"), client), Subscribed)
    assert figures(country, "a")["subscriptions"] == 1
    assert figures(country, "l")["client_subscriptions"] == 2
    country.ask("a", publish("red", topic="feed"), "pat")
    country.ask("l", Unsubscribe(1), "ann")
    country.ask("a", publish("green", topic="feed"), "pat")
    assert (feed(country), feed(country, "bob@l")) == (["red"], ["red", "green"])
    country.towns["l"].leave("bob")
    country.run()
    assert figures(country, "a")["subscriptions"] == 0


def test_one_event_goes_once_to_a_connection_with_the_numbers_of_all_that_want_it() -> None:
    country = started()
    country.ask("l", subscribe(1, topic="feed"))
    country.ask("l", subscribe(2, "colour = 'red'", topic="feed"))
    country.ask("a", publish("red", "blue", topic="feed"), "pat")
    got = [each for each in country.heard["ann@l"] if isinstance(each, Deliveries)]
    assert [taker for each in got for taker in each.takers] == [(1, 2), (1,)]


def test_a_client_that_does_not_consume_loses_its_subscription_and_slows_nobody() -> None:
    country = started(client_queue_max=2)
    for client in ("ann", "bob"):
        country.ask("l", subscribe(1, topic="feed"), client)
    bob = country.towns["l"].node
    for colour in ("1", "2", "3", "4"):
        country.ask("a", publish(colour, topic="feed"), "pat")
        bob.receive(BrokerName("bob"), Consumed(1), country.towns["l"].now)
    assert feed(country, "bob@l") == ["1", "2", "3", "4"]
    assert feed(country) == ["1", "2"]
    ended = country.heard["ann@l"][-1]
    assert isinstance(ended, Ended)
    assert "not consumed in time" in ended.problem
    assert figures(country, "l")["client_subscriptions"] == 1


def test_events_of_one_step_go_together_and_to_nobody_who_was_found_too_slow_in_it() -> None:
    country = started(client_queue_max=2)
    town, reliable = country.towns["l"], service(country, "l")
    event = EventBatch((encode_event({"colour": "late"}),))
    runs = [
        PublicationRun(BrokerName(name), 1, (number,), (), "feed", event)
        for name in "xy"
        for number in (1, 2)
    ]

    def heard(client: str) -> list[Message]:
        """What a client hears that subscribes just before all these come in one step."""
        country.ask("l", subscribe(1, topic="feed"), client)
        [group] = reliable._groups
        told = [Tell(TreeDelivery(run, ((group.name, 1),))) for run in runs]
        town._do(reliable._carry(told, town.now))
        country.run()
        return country.heard[f"{client}@l"][1:]

    first, ended = heard("ann")
    assert isinstance(first, Deliveries)
    assert (first.ticks, first.through) == ((1, 2), 3)
    assert isinstance(ended, Ended)
    assert [type(each) for each in heard("bob")] == [Deliveries, Ended]
    town.connect("bob")
    country.heard.clear()
    assert [type(each) for each in heard("bob")] == [Ended]  # of both sources, told once


def test_a_dead_broker_is_stepped_over_and_those_who_are_connected_miss_nothing() -> None:
    country = started()
    country.ask("l", subscribe(1, topic="feed"))
    country.ask("a", publish("before", topic="feed"), "pat")
    country.cut.add("m1")  # all paths lead through it
    country.ask("a", publish("during", topic="feed"), "pat")
    assert feed(country) == ["before"]
    country.wait(PATIENCE)
    country.ask("a", publish("after", topic="feed"), "pat")
    assert feed(country) == ["before", "during", "after"]
    assert ["m1"] in figures(country, "a")["unreachable"]
    country.cut.clear()
    country.wait(PATIENCE)
    country.ask("a", publish("last", topic="feed"), "pat")
    assert feed(country) == ["before", "during", "after", "last"]
    assert figures(country, "a")["active"] == ["m1"]
    assert figures(country, "a")["unreachable"] == []


def test_where_a_link_broke_nobody_waits_for_silence() -> None:
    country = started()
    country.ask("l", subscribe(1, topic="feed"))
    country.cut.add("m1")
    for broker in ("a", "b", "l", "m2"):
        country.towns[broker].leave("m1")
    country.run()
    country.ask("a", publish("red", topic="feed"), "pat")
    assert feed(country) == ["red"]


def test_who_subscribes_while_brokers_are_not_reached_is_told_which_and_when_they_are() -> None:
    country = started()
    country.cut.add("a")
    country.restart("l")
    country.wait(PATIENCE)
    for client in ("ann", "bob"):  # the second finds it in force
        assert isinstance(country.ask("l", subscribe(1, topic="feed"), client), Subscribed)
        assert country.heard[f"{client}@l"][-2] == Unreached(1, (BrokerName("a"),))
    country.ask("a", publish("missed", topic="feed"), "pat")
    country.ask("b", publish("red", topic="feed"), "pat")
    country.cut.clear()
    country.wait(PATIENCE)
    country.ask("a", publish("green", topic="feed"), "pat")
    for client in ("ann", "bob"):
        heard = country.heard[f"{client}@l"]
        assert [each for each in heard if isinstance(each, Unreached)][1:] == [Unreached(1)]
        assert feed(country, f"{client}@l") == ["red", "green"]
    assert isinstance(country.ask("l", subscribe(1, topic="feed"), "eve"), Subscribed)
    assert not any(isinstance(each, Unreached) for each in country.heard["eve@l"])


def test_a_broker_that_restarts_is_another_source_and_publishes_once_it_knows_who_wants() -> None:
    country = started()
    country.ask("l", subscribe(1, topic="feed"))
    before = country.ask("a", publish("red", topic="feed"), "pat")
    country.restart("a")
    country.wait(PATIENCE)
    after = country.ask("a", publish("green", topic="feed"), "pat")
    assert isinstance(before, Receipt)
    assert isinstance(after, Receipt)
    assert before.pubend != after.pubend
    assert feed(country) == ["red", "green"]
    told = [each for each in country.heard["ann@l"] if isinstance(each, Deliveries | Lost)]
    assert [type(each) for each in told] == [Deliveries, Lost, Deliveries]
    lost = told[1]
    assert isinstance(lost, Lost)
    assert lost.pubend == before.pubend
    assert lost.span == Span(before.ticks[0] + 1, TICK_MAX), "nothing follows on the last"


def test_of_a_broker_that_stopped_in_order_nothing_is_lost() -> None:
    country = started()
    country.ask("l", subscribe(1, topic="feed"))
    country.ask("a", publish("red", topic="feed"), "pat")
    town = country.towns["a"]
    town._do(town.node.leave(town.now))
    country.run()
    country.restart("a")
    country.wait(PATIENCE)
    country.ask("a", publish("green", topic="feed"), "pat")
    assert feed(country) == ["red", "green"]
    assert not any(isinstance(each, Lost) for each in country.heard["ann@l"])


def test_a_broker_that_has_just_started_says_that_it_may_be_tried_again() -> None:
    town = Town("a", TEXT)
    town.connect()
    refused = dict(town.receive(ANN, publish("red", topic="feed")))[ANN]
    assert isinstance(refused, Refused)
    assert refused.retry
    assert "still learns what is subscribed" in refused.problem


def test_where_too_much_waits_a_publication_is_refused_as_a_whole() -> None:
    country = started(tree_queue_max=3)
    country.ask("l", subscribe(1, topic="feed"))
    country.cut.add("l")
    country.ask("a", publish("1", "2", topic="feed"), "pat")
    refused = country.ask("a", publish("3", "4", topic="feed"), "pat")
    assert isinstance(refused, Refused)
    assert refused.retry
    assert isinstance(country.ask("a", publish("5", topic="feed"), "pat"), Receipt)
    too_many = country.ask("a", publish("1", "2", "3", "4", topic="feed"), "pat")
    assert isinstance(too_many, Refused)
    assert not too_many.retry
    country.cut.clear()
    country.wait(PATIENCE)
    assert feed(country) == ["1", "2", "5"]


def test_a_dead_subscriber_costs_others_nothing_and_one_that_is_back_is_told_what_it_lost() -> None:
    country = started(tree_queue_max=8)
    country.decide(CreateTopic(1, TopicName("other"), "reliable"))
    country.ask("l", subscribe(1, topic="feed"))
    country.ask("b", subscribe(1, topic="feed"))
    country.ask("b", subscribe(2, topic="other"), "bob")
    country.ask("a", publish("first", topic="feed"), "pat")
    country.cut.add("l")
    country.wait(PATIENCE)
    sent = [f"{i}" for i in range(40)]
    for colour in sent:
        assert isinstance(country.ask("a", publish(colour, topic="feed"), "pat"), Receipt)
    assert isinstance(country.ask("a", publish("other", topic="other"), "pat"), Receipt)
    assert feed(country, "ann@b") == ["first", *sent]
    assert feed(country, "bob@b") == ["other"]
    assert figures(country, "a")["queued_publications"] <= 8
    country.cut.clear()
    country.wait(PATIENCE)
    [lost] = [each for each in country.heard["ann@l"] if isinstance(each, Lost)]
    got = feed(country)
    assert got == ["first", *sent[1 - len(got) :]]
    assert len(got) > 2
    assert lost.subscriptions == (1,)
    assert lost.pubend.startswith("feed/a/")
    ticks = [
        t for each in country.heard["ann@l"] if isinstance(each, Deliveries) for t in each.ticks
    ]
    assert (lost.span.start, lost.span.end) == (ticks[0] + 1, ticks[1])
    assert figures(country, "l")["told_losses"] == 1
    country.wait()
    assert figures(country, "a")["queued_publications"] == 0


def awaiting(*which: str) -> Publish:
    return replace(publish(*which, topic="feed"), confirmed=True)


def test_a_receipt_that_is_to_confirm_comes_when_every_broker_within_reach_has_the_events() -> None:
    country = started()
    assert isinstance(country.ask("a", awaiting("nobody wants it"), "pat"), Receipt)
    for broker in ("l", "b"):
        country.ask(broker, subscribe(1, topic="feed"))
    assert isinstance(country.ask("a", awaiting("1", "2"), "pat"), Receipt)
    country.heard["pat@a"].clear()
    country.cut.add("l")
    country.towns["a"].sent += country.towns["a"].receive("pat", awaiting("3"))
    country.run()
    assert feed(country, "ann@b") == ["1", "2", "3"]
    assert country.heard["pat@a"] == [], "it may be that l is within reach"
    country.wait(PATIENCE)
    assert [type(each) for each in country.heard["pat@a"]] == [Receipt]
    assert isinstance(country.ask("a", awaiting("4"), "pat"), Receipt)
    country.cut.clear()
    country.wait(PATIENCE)
    assert feed(country) == ["1", "2", "3", "4"]
    assert len(country.heard["pat@a"]) == 2, "it is told once"


def test_who_has_left_is_sent_no_receipt() -> None:
    country = started()
    country.ask("l", subscribe(1, topic="feed"))
    country.cut.add("l")
    country.towns["a"].connect("pat")
    country.towns["a"].sent += country.towns["a"].receive("pat", awaiting("1"))
    country.towns["a"].leave("pat")
    country.heard["pat@a"] = []
    country.cut.clear()
    country.wait(PATIENCE)
    assert feed(country) == ["1"]
    assert country.heard["pat@a"] == []


def test_a_broker_that_stops_in_order_leaves_nothing_for_others_to_keep() -> None:
    country = started()
    country.ask("l", subscribe(1, topic="feed"))
    town = country.towns["l"]
    town._do(town.node.leave(town.now))
    country.run()
    country.cut.add("l")
    country.ask("a", publish("red", topic="feed"), "pat")
    assert figures(country, "a")["queued_publications"] == 0


def test_a_deleted_topic_ends_its_subscriptions_and_one_of_the_same_name_is_another() -> None:
    country = Country()
    sport = TopicName("sport")
    country.decide(CreateTopic(1, sport, "reliable"))
    country.wait(2)
    assert isinstance(country.ask("l", subscribe(1, topic="sport")), Subscribed)
    country.decide(DeleteTopic(1, sport), "a")
    ended = country.heard["ann@l"][-1]
    assert isinstance(ended, Ended)
    assert "was deleted" in ended.problem
    country.decide(CreateTopic(1, sport, "reliable"), "a")
    country.wait(2)
    country.ask("a", publish("red", topic="sport"), "pat")
    assert feed(country) == []
    assert figures(country, "a")["subscriptions"] == 0


def test_the_tree_waits_for_a_topic_and_is_there_again_after_a_restart() -> None:
    country = Country()
    assert figures(country, "a") == {}
    country.decide(CreateTopic(1, TopicName("sport"), "reliable"))
    assert all(figures(country, each) for each in country.towns)
    country.restart("a")
    assert figures(country, "a")["neighbours"] == len(country.towns) - 1


def test_the_first_of_a_cell_stands_for_it_and_the_others_hang_on_it() -> None:
    edges = {frozenset(edge) for edge in broker_tree(parse_network(WIDE))}
    assert edges == {
        frozenset(pair) for pair in (("a", "m1"), ("b", "m1"), ("l", "m1"), ("m1", "m2"))
    }


def test_a_broker_that_joined_is_remembered_over_a_restart() -> None:
    town = Town("h", ONE)
    town.wait(1)
    town.receive("new", TreeJoin())
    town.wait(Config().tree_beat)
    kept = KeptTree(town.network, town.volume).edges
    assert [set(edge) for edge in kept] == [{"h", "new"}]
    assert KeptTree(town.network, MemoryVolume()).edges == ()


def test_a_condition_for_which_another_broker_has_no_room_is_refused_and_leaves_nothing() -> None:
    country = started(tree_subscriptions_max=1)
    assert isinstance(country.ask("l", subscribe(1, "colour = 'red'", topic="feed")), Subscribed)
    told = country.ask("l", subscribe(2, "colour = 'blue'", topic="feed"))
    assert isinstance(told, Refused)
    assert "as many subscriptions as it may have" in told.problem
    country.wait()
    assert figures(country, "l")["client_subscriptions"] == 1
    assert isinstance(country.ask("l", subscribe(2, "colour = 'red'", topic="feed")), Subscribed)


def test_a_broker_that_joins_serves_topics_of_others_and_nobody_before_it_is_a_part() -> None:
    town = Town("h", ALONE, joins=True)
    town._do(town.node.join(BrokerName("x"), town.now))
    assert ("x", TreeJoin()) in town.flush()
    town.receive("x", TopicNews((TopicEntry(FEED, 1, (), "reliable"),)))
    town.connect()
    for asked in (publish("red", topic="feed"), subscribe(1, topic="feed")):
        refused = dict(town.receive(ANN, asked))[ANN]
        assert isinstance(refused, Refused)
        assert refused.retry
    town.receive("x", TreeWelcome(((BrokerName("x"), BrokerName("h")),)))
    assert ANN not in dict(town.receive(ANN, subscribe(1, topic="feed")))  # it waits for x
    refused = dict(town.receive(ANN, CreateTopic(2, TopicName("sport"), "reliable")))[ANN]
    assert isinstance(refused, Refused)
    assert "decides about no topics" in refused.problem
    assert refused.elsewhere == ("x",)


@pytest.mark.parametrize(
    "request_of_it",
    [
        publish("red", topic="trades"),
        subscribe(1, topic="trades"),
        PositionsQuery(TopicName("trades"), 1),
        ProducerQuery(TopicName("trades"), 1, ProducerName("p")),
    ],
    ids=lambda each: type(each).__name__,
)
def test_who_asks_one_that_joined_for_a_topic_that_it_cannot_know_is_not_told_to_create_it_there(
    request_of_it: Message,
) -> None:
    town = Town("h", ALONE, joins=True)
    town.connect()
    refused = dict(town.receive(ANN, request_of_it))[ANN]
    assert isinstance(refused, Refused)
    assert "this broker joined a network" in refused.problem
    assert refused.remedy.startswith("Ask a broker that is in the network file")


def test_topics_without_a_host_are_told_to_who_joined_and_no_others() -> None:
    country = Country(TEXT)
    town = country.towns["a"]
    town._do(town.node.welcome(BrokerName("new"), town.now))
    [(to, news)] = [each for each in town.flush() if isinstance(each[1], TopicNews)]
    assert isinstance(news, TopicNews)
    assert (to, [each.name for each in news.entries]) == ("new", ["feed"])
    country.decide(CreateTopic(1, TopicName("kept")))
    country.decide(CreateTopic(2, TopicName("sport"), "reliable"))
    later = [each for each in country.heard["new@a"] if isinstance(each, TopicNews)]
    assert [entry.name for each in later for entry in each.entries] == ["sport"]


def test_a_broker_that_never_returns_is_retired_by_request_and_stays_so() -> None:
    country = started()
    country.ask("m2", subscribe(1, topic="feed"))
    country.cut.add("m2")
    country.wait(PATIENCE)
    assert isinstance(country.ask("a", RetireBroker(7, BrokerName("nobody")), "pat"), Refused)
    assert isinstance(country.ask("a", RetireBroker(8, BrokerName("m1")), "pat"), Refused)
    assert country.ask("a", RetireBroker(9, BrokerName("m2")), "pat") == Done(9)
    country.wait()
    for broker in ("a", "b", "l", "m1"):
        assert figures(country, broker)["subscriptions"] == 0
        assert figures(country, broker)["unreachable"] == []
        assert figures(country, broker)["retired"] == ["m2"]
    country.restart("a")
    assert figures(country, "a")["retired"] == ["m2"]
