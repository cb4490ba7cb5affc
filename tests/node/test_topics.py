"""A topic that comes up works at once; one that goes takes all that is its own along."""

from __future__ import annotations

from gapless.core.client_messages import (
    Deliveries,
    Done,
    Ended,
    Publish,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
)
from gapless.core.effects import Persist
from gapless.core.events import EventBatch
from gapless.core.identity import ProducerName, SubscriptionName, TopicName
from gapless.core.topic_messages import CreateTopic, DeleteTopic
from gapless.core.transaction_messages import Commit, Stage
from gapless.durable.filtered_log import DELIVERED, HEADS
from gapless.durable.subscriptions import DEFINITIONS, RELEASED
from gapless.knowledge.pubend import PROMISES
from gapless.knowledge.receipts import PUBLISHERS
from gapless.knowledge.stages import TRANSACTIONS
from gapless.knowledge.transactions import PRODUCERS
from gapless.propagation.stamp import STAMPS
from tests.node.country import Country
from tests.node.town import ANN, Town, event, publish, subscribe

SPORT = TopicName("sport")
CREATE, DELETE = CreateTopic(7, SPORT), DeleteTopic(8, SPORT)
EMPTY = 'cell = [{name = "home", brokers = [{name = "h"}], subscribers = true}]'


def named(number: int = 1) -> Subscribe:
    return Subscribe(SPORT, number, number, name=SubscriptionName("desk"))


def durable_facts(town: Town) -> set[str]:
    """Tables and streams that have something in them."""
    tables = [DEFINITIONS, RELEASED, PROMISES, DELIVERED, HEADS, STAMPS]
    tables += [f"{table}/sport/0" for table in (PUBLISHERS, PRODUCERS, TRANSACTIONS)]
    found = {table for table in tables if town.volume.items(table)}
    for stream in town.volume.streams():
        start, end = town.volume.bounds(stream)
        found |= {stream} if town.volume.scan(stream, start, end)[0] else set()
    return found


def alone() -> Town:
    town = Town("h", EMPTY, propagates=True)
    town.connect()
    assert town.receive(ANN, CREATE)[-1] == (ANN, Done(7))
    town.wait(10_000)
    return town


def test_a_topic_that_was_created_takes_events_and_delivers_them_over_the_network() -> None:
    country = Country()
    country.decide(CREATE)
    country.ask("l", subscribe(1, topic="sport"))
    country.wait(3)
    assert isinstance(country.heard["ann@l"][-1], Subscribed | Deliveries)
    answer = country.ask(country.owner("sport"), publish("red", topic="sport"))
    assert isinstance(answer, Receipt)
    country.wait(2)
    got = [each for each in country.heard["ann@l"] if isinstance(each, Deliveries)]
    assert [tick for each in got for tick in each.ticks] == [*answer.ticks]


def test_deleting_ends_subscriptions_refuses_what_waits_and_gives_the_space_back() -> None:
    town = alone()
    town.receive(ANN, subscribe(1, topic="sport"))
    town.receive(ANN, subscribe(2, topic="sport", order="total"))
    town.receive(ANN, named(3))
    town.receive(ANN, publish("red", topic="sport", name="feed"))
    town.wait(1_000_000)
    assert {"log/sport/0", "filtered/sport/0", DEFINITIONS} <= durable_facts(town)
    waits = town.node.receive(ANN, publish("late", topic="sport"), town.now)
    assert [type(each) for each in waits] == [Persist]
    sent = town.receive(ANN, DELETE)
    ended = {each.subscription for _, each in sent if isinstance(each, Ended)}
    assert ended == {1, 2, 3}
    assert all("was deleted" in each.problem for _, each in sent if isinstance(each, Ended))
    [refused] = [each for _, each in sent if isinstance(each, Refused)]
    assert "was deleted" in refused.problem
    assert sent[-1] == (ANN, Done(8))
    town._do(waits)  # it becomes durable after all, and does no harm
    town.wait(2_000_000)
    assert durable_facts(town) <= {"log/sport/0"}
    streams = town.node.durable.streams
    assert not any((streams.relays, streams.pubends, streams.subends, streams.merges))
    [(_, answer)] = town.receive(ANN, subscribe(9, topic="sport"))
    assert isinstance(answer, Refused)


def test_a_subscription_that_waits_for_its_start_is_refused() -> None:
    country = Country()
    country.decide(CREATE)
    country.cut.add("l")
    leaf = country.towns["l"]
    leaf.connect()
    leaf.receive(ANN, subscribe(1, topic="sport"))
    assert len(leaf.node.durable.requests.pending) == 1
    country.decide(DELETE, country.owner("sport"))
    country.cut.clear()
    country.wait(3)
    assert isinstance(country.heard["ann@l"][-1], Refused)
    assert leaf.node.durable.requests.pending == {}


def test_what_a_crash_left_undone_of_a_deletion_is_done_at_the_next_start() -> None:
    country = Country(EMPTY)
    town = country.towns["h"]
    town.connect()
    for message in (CREATE, named(1), publish("red", topic="sport", name="feed")):
        town._do(town.node.receive(ANN, message, town.now))
        town.wait(500_000)
    assert {"log/sport/0", DEFINITIONS} <= durable_facts(town)
    [decided] = town.node.receive(ANN, DELETE, town.now)
    assert isinstance(decided, Persist)
    town.volume.commit(decided.writes)
    country.restart("h")
    assert durable_facts(town) == set()
    assert town.node.durable.subscriptions.all() == []


def test_a_topic_that_was_created_again_knows_nothing_of_the_one_before() -> None:
    town = alone()
    town.receive(ANN, publish("old", topic="sport", name="feed"))
    town.receive(ANN, DELETE)
    town.receive(ANN, CREATE)
    earliest = Subscribe(SPORT, 1, 1, name=SubscriptionName("desk"), earliest=True)
    town.receive(ANN, earliest)
    sent = town.receive(ANN, publish("new", topic="sport", name="feed"))
    sent += town.wait(2_000_000)
    [receipt] = [each for _, each in sent if isinstance(each, Receipt)]
    assert receipt.pubend == "sport@3/0"
    got = [tick for _, each in sent if isinstance(each, Deliveries) for tick in each.ticks]
    assert got == [*receipt.ticks], "its numbers begin anew, and nothing old is delivered"


def test_writes_under_way_for_a_topic_that_is_gone_end_without_harm() -> None:
    country = Country()
    country.decide(CREATE)
    town = country.towns[country.owner("sport")]
    town.connect()
    batch = EventBatch.join([event("red")])
    under_way = town.node.receive(ANN, Publish(SPORT, 5, batch), town.now)
    country.decide(DELETE)
    town._do(under_way)
    country.wait(2)
    assert SPORT not in town.node.network.topic


def test_a_topic_that_goes_takes_its_transactions_along_and_whoever_waits_is_told() -> None:
    town = Town("h", EMPTY, propagates=True, batch_events_max=1, copy_batches_max=1)
    town.connect()
    town.receive(ANN, CREATE)
    job, batch = ProducerName("job"), EventBatch.join(map(event, ("red", "blue")))
    for number in (1, 2, 3):
        town.receive(ANN, Stage(SPORT, number, job, number, "p", 0, batch))
    town.receive(ANN, Commit(SPORT, 4, job, 1, ("p",)))
    assert {"stage/1/sport/0", "producers/sport/0"} <= durable_facts(town)
    under_way = town.node.receive(ANN, DELETE, town.now)
    for message in (
        Commit(SPORT, 11, job, 2, ("p",)),  # is being written
        Commit(SPORT, 12, job, 3, ("p",)),  # waits for it
        Stage(SPORT, 13, job, 4, "p", 0, batch),
    ):
        under_way += town.node.receive(ANN, message, town.now)
    town._do(under_way)
    answers = {each.request: type(each) for to, each in town.flush() if to == ANN}  # type: ignore[attr-defined]
    assert answers == {8: Done, 11: Refused, 12: Refused, 13: Refused}
    assert durable_facts(town) == set()
