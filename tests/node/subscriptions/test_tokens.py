"""A token that cannot be true is refused, before anything is lost by it."""

from __future__ import annotations

import pytest

from gapless.core.broker_messages import Knowledge, StartQuery, StartReply
from gapless.core.client_messages import (
    Acknowledge,
    Deliveries,
    Done,
    Ended,
    Refused,
    Subscribe,
    Subscribed,
)
from gapless.core.identity import BrokerName, PubendName, SubscriptionName, TopicName
from gapless.core.ticks import AHEAD_MAX, PUBEND_BITS, TICK_MAX, Span
from gapless.core.topic_messages import CreateTopic, DeleteTopic
from gapless.node.network import Topic
from gapless.node.subscriptions.tokens import incarnation_of
from tests.node.delivery.test_session import SlowDisk
from tests.node.town import ALONE, ANN, CHAIN, CONFIG, NEWS, Town, publish

HOME = ALONE.replace('["h", "h"]', '["h"]')
DESK, ZERO = SubscriptionName("desk"), PubendName("news/0")


def wish(token: dict[str, int], topic: str = NEWS, name: str = DESK) -> Subscribe:
    return Subscribe(TopicName(topic), 1, 1, name=SubscriptionName(name), token=token)


def answers(town: Town, message: Subscribe | Acknowledge) -> list[object]:
    return [each for to, each in town.receive(ANN, message) if to == ANN]


def refused(town: Town, message: Subscribe | Acknowledge) -> Refused:
    [answer] = answers(town, message)
    assert isinstance(answer, Refused)
    assert "earliest" in answer.remedy
    assert town.node.durable.subscriptions.get(DESK) is None or isinstance(message, Acknowledge)
    return answer


@pytest.mark.parametrize(
    "pubend", ["sport/0", "new/0", "news/1", "news", "", "news@x/0", "n" * 9999]
)
def test_a_pubend_that_the_topic_does_not_have_is_named_with_those_that_it_has(pubend: str) -> None:
    town = Town("h", HOME)
    town.connect()
    answer = refused(town, wish({"news/0": 1, pubend: 1}))
    assert f"names '{pubend[:70]}" in answer.problem
    assert "'news' does not have: it has news/0" in answer.problem
    assert len(answer.problem) < 200
    assert not answer.retry


def test_a_token_of_a_topic_that_was_deleted_is_told_from_one_that_is_to_come() -> None:
    town = Town("h", HOME)
    town.connect()
    town.receive(ANN, CreateTopic(1, TopicName("sport")))
    town.receive(ANN, DeleteTopic(2, TopicName("sport")))
    town.receive(ANN, CreateTopic(3, TopicName("sport")))
    answer = refused(town, wish({"sport/0": 1}, "sport"))
    assert "'sport/0', of a topic 'sport' that was deleted: it has sport@3/0" in answer.problem
    assert not answer.retry
    later = refused(town, wish({"sport@5/0": 1}, "sport"))
    assert "created later" in later.problem
    assert later.retry, "the news of it may be on their way"
    assert answers(town, wish({"sport@3/0": 1}, "sport")) == []
    assert any(isinstance(each, Subscribed) for _, each in town.wait(CONFIG.start_repeat))


def test_of_a_label_only_the_incarnations_of_its_topic_count() -> None:
    topic = Topic(TopicName("sport"), (BrokerName("h"),), incarnation=3)
    labels = {"sport": 1, "sport@3": 3, "sport@05": 5, "sport@": 0, "sport@²": 0, "news@2": 0}
    assert {label: incarnation_of(label, topic) for label in labels} == labels
    assert incarnation_of(f"sport@{'9' * 5_000}", topic) == 0


@pytest.mark.parametrize("ahead", [AHEAD_MAX + 1, CONFIG.clock_skew_max << PUBEND_BITS, TICK_MAX])
def test_where_the_pubend_is_nothing_is_passed_over_that_is_yet_to_come(ahead: int) -> None:
    town = Town("h", HOME)
    town.connect()
    town.receive(ANN, publish("red"))
    end = town.node.durable.streams.pubends[ZERO].end
    answer = refused(town, wish({"news/0": min(end + ahead, TICK_MAX)}))
    assert f"for 'news/0', which is at {end}: that is yet to come" in answer.problem
    assert not answer.retry
    [subscribed] = answers(town, wish({"news/0": end}))
    assert isinstance(subscribed, Subscribed)


def test_a_pubend_that_has_not_spoken_yet_is_where_its_clock_is() -> None:
    town = SlowDisk("h", HOME, now=1_000_000_000)  # how far it may promise is not durable yet
    town.connect()
    now = town.now << PUBEND_BITS
    assert town.node.durable.streams.pubends[ZERO].end == now
    sent = town.receive(ANN, wish({"news/0": now})) + town.write_all()
    assert any(isinstance(each, Subscribed) for _, each in sent)
    assert not any(isinstance(each, Refused) for _, each in sent)


def test_what_a_broker_far_from_the_pubend_cannot_know_yet_it_is_asked_again() -> None:
    town = Town("f", CHAIN, now=1_000_000)
    [query] = [each for _, each in town.flush() if isinstance(each, StartQuery)]
    town.receive("h", StartReply(ZERO, query.cell, query.number, 1 << 20))
    town.connect()
    now = town.now << PUBEND_BITS
    skew = CONFIG.clock_skew_max << PUBEND_BITS
    far = now + AHEAD_MAX + 1
    assert not refused(town, wish({"news/0": now + skew + 1})).retry, "no clock is so wrong"
    assert refused(town, wish({"news/0": far})).retry, "its clock may be"
    town.receive("h", Knowledge(ZERO, Span(1 << 20, far)))
    town.receive(ANN, wish({"news/0": far}))
    assert not [each for to, each in town.wait(10) if isinstance(each, Refused)]
    assert town.node.durable.requests.pending or town.node.durable.homes.waiting, "it is believed"


def test_a_token_that_lacks_a_pubend_has_consumed_nothing_of_it() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.connect("bob")
    town.receive("bob", Subscribe(NEWS, 1, 1, name=SubscriptionName("keeper"), earliest=True))
    for number in range(9):  # to both pubends
        town.receive(ANN, publish("red", name=f"publisher {number}"))
    end = town.node.durable.streams.pubends[ZERO].end
    sent = answers(town, wish({"news/0": end}))
    sent += [each for _, each in town.wait(CONFIG.idle_silence)]
    got = [each for each in sent if isinstance(each, Deliveries) and len(each.events)]
    assert {each.pubend for each in got if each.only == 1} == {"news/1"}


def test_an_acknowledgement_that_cannot_be_true_releases_nothing() -> None:
    town = Town("h", HOME)
    town.connect()
    town.receive(ANN, wish({}))
    known = town.node.durable.subscriptions.get(DESK)
    assert known is not None
    before, end = known.acknowledged, town.node.durable.streams.pubends[ZERO].end
    for token in ({"sport/0": 1}, {"news/0": end + AHEAD_MAX + 1}):
        assert refused(town, Acknowledge(1, token, 5)).request == 5
        assert refused(town, Acknowledge(0, token, 6, DESK)).request == 6
        assert known.acknowledged == before
    town.receive(ANN, publish("red"))
    end = town.node.durable.streams.pubends[ZERO].end
    assert Done(7) in answers(town, Acknowledge(1, {"news/0": end}, 7))
    [ended] = answers(town, Acknowledge(1, {"news/0": end + AHEAD_MAX + 1}))
    assert isinstance(ended, Ended), "nobody waits for an answer"
    assert "yet to come" in ended.problem
    assert known.acknowledged.get("news/0") == end
