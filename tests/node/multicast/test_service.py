"""The multicast service at a few brokers: clients, conditions, repair, what is refused."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Ended, Receipt, Refused, Subscribed
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName
from gapless.core.messages import Ping
from gapless.scribe.messages import AccessDenied, Appended, LogAppend, Published, Ringed
from tests.node.ring import CLIENT, Ring, root_of, told, topic

orders = pytest.mark.parametrize("ordered", [False, True])


@orders
def test_subscribers_at_every_broker_get_what_matches_their_conditions(ordered: bool) -> None:
    ring = Ring(5, topic(ordered=ordered))
    for name in ring.places:
        ring.subscribe(name, 1)
        ring.subscribe(name, 2, "colour = 'red'")
    ring.run(1)
    ring.publish("b3", "red", "blue")
    ring.publish("b4", "green")
    for name in ring.places:
        assert ring.got(name, 1) == ["red", "blue", "green"]
        assert ring.got(name, 2) == ["red"]


def test_every_subscriber_of_an_ordered_topic_sees_the_same_ticks_as_the_receipts_say() -> None:
    ring = Ring(5, topic(ordered=True))
    for name in ring.places:
        ring.subscribe(name)
    ring.publish("b1", "red", "blue")
    ring.publish("b2", "green")
    streams = [ring.stream(name) for name in ring.places]
    assert all(each == streams[0] for each in streams)
    [first] = ring.answers("b1")
    [second] = ring.answers("b2")
    assert isinstance(first, Receipt)
    assert isinstance(second, Receipt)
    assert [tick for tick, _ in streams[0]] == [*first.ticks, *second.ticks]
    assert first.pubend == "news/0"


def test_ticks_ascend_where_there_is_no_order_too() -> None:
    ring = Ring(2, topic())
    ring.subscribe("b0")
    for _ in range(3):
        ring.publish("b1", "red", "blue")
    ticks = [tick for tick, _ in ring.stream("b0")]
    assert ticks == sorted(set(ticks))
    [start] = told(ring, "b0", Subscribed)
    assert isinstance(start, Subscribed)
    assert start.start["news/0"] <= ticks[0]


@orders
def test_a_subscription_begins_when_the_tree_reaches_the_root_and_not_before(ordered: bool) -> None:
    ring = Ring(4, topic(ordered=ordered))
    far = next(name for name in ring.places if name != root_of(ring))
    ring.is_lost = lambda *_: True
    ring.subscribe(far)
    assert told(ring, far, Subscribed) == []
    ring.is_lost = lambda *_: False
    ring.run(5)
    assert len(told(ring, far, Subscribed)) == 1
    ring.subscribe(far, 2)
    assert len(told(ring, far, Subscribed)) == 2


def test_a_broker_that_is_alone_serves_at_once() -> None:
    ring = Ring(1, topic(ordered=True))
    ring.subscribe("b0")
    ring.publish("b0", "red")
    assert ring.got("b0") == ["red"]


@orders
def test_a_topic_that_is_deleted_ends_its_subscriptions_and_publications(ordered: bool) -> None:
    ring = Ring(3, topic(ordered=ordered))
    ring.subscribe("b0")
    ring.run(1)
    kinds = (Published, Appended)
    ring.is_lost = lambda _, __, message: (
        isinstance(message, Ringed) and any(isinstance(each, kinds) for each in message.messages)
    )
    source = next(name for name in ring.places if name != root_of(ring))
    ring.publish(source, "red")
    ring.is_lost = lambda *_: False
    for name, place in ring.places.items():
        news = place.network.topic.pop(topic().name)
        ring.do(name, place.service.remove(news, "it was deleted", "Use another.", ring.now))
        place.service.check()
    assert told(ring, "b0", Ended) == [Ended(1, "it was deleted", "Use another.")]
    [answer] = ring.answers(source)
    assert isinstance(answer, Refused)
    ring.run(3)
    assert all(not place.service.member.tree.topics for place in ring.places.values())  # type: ignore[union-attr]


def test_the_last_subscriber_takes_the_broker_out_of_the_tree() -> None:
    ring = Ring(3, topic())
    far = next(name for name in ring.places if name != root_of(ring))
    ring.subscribe(far, 1)
    ring.subscribe(far, 2)
    service = ring[far]
    assert service.member is not None
    ring.do(far, service.unsubscribe(CLIENT, 1, ring.now))
    assert len(service.member.tree.topics) == 1
    assert not service.has(CLIENT, 1)
    assert service.has(CLIENT, 2)
    ring.do(far, service.disconnect(CLIENT, ring.now))
    assert len(service.member.tree.topics) == 0
    service.check()


def test_one_that_waits_may_leave() -> None:
    ring = Ring(3, topic(), is_started=False)
    place = ring.start("b1")
    ring.subscribe("b1")
    assert place.service.has(CLIENT, 1)
    assert place.service.unmatched_count == 1
    ring.do("b1", place.service.unsubscribe(CLIENT, 1, ring.now))
    assert place.service.unmatched_count == 0
    assert told(ring, "b1", Ended) == [Ended(1)]


def test_before_it_is_in_the_ring_a_broker_asks_publishers_to_try_again() -> None:
    ring = Ring(3, topic(), is_started=False)
    ring.start("b1")
    ring.publish("b1", "red")
    [answer] = ring.answers("b1")
    assert isinstance(answer, Refused)
    assert answer.retry


def test_too_many_unconfirmed_publications_are_to_be_tried_again() -> None:
    ring = Ring(3, topic(), multicast_pending_max=2)
    source = next(name for name in ring.places if name != root_of(ring))
    ring.is_lost = lambda *_: True
    for _ in range(3):
        ring.publish(source, "red")
    [answer] = ring.answers(source)
    assert isinstance(answer, Refused)
    assert answer.retry
    assert answer.request == 3


def test_a_large_request_goes_in_parts_and_is_confirmed_once() -> None:
    ring = Ring(3, topic(ordered=True), batch_events_max=10)
    ring.subscribe("b0")
    ring.publish("b1", *(str(n) for n in range(25)))
    assert ring.got("b0") == [str(n) for n in range(25)]
    [receipt] = ring.answers("b1")
    assert isinstance(receipt, Receipt)
    assert [tick for tick, _ in ring.stream("b0")] == list(receipt.ticks)


def test_what_nobody_keeps_any_more_is_a_gap_of_exactly_that() -> None:
    ring = Ring(5, topic(ordered=True), multicast_log_bytes_max=200)
    for name in ring.places:
        ring.subscribe(name)
    source = root_of(ring)
    far = next(name for name in ring.places if name != source)
    ring.publish(source, "first")
    ring.is_lost = lambda _, to, message: (
        to == far
        and not any(isinstance(each, LogAppend) for each in getattr(message, "messages", ()))
    )
    sent = [str(n) for n in range(30)]
    for each in sent:
        ring.publish(source, each)
    ring.is_lost = lambda *_: False
    ring.run(5)
    ring.publish(source, "last")
    ring.run(5)
    stream = ring.stream(far)
    gaps = [(index, tick) for index, (tick, colour) in enumerate(stream) if not colour]
    assert len(gaps) == 1
    [(index, end)] = gaps
    assert stream[index + 1][0] == end
    everything = dict(ring.stream(source))
    missed = [tick for tick in everything if stream[index - 1][0] < tick < end]
    assert missed
    assert {tick for tick, colour in stream if colour} == set(everything) - set(missed)


def test_a_slow_client_loses_its_subscription_and_the_tree_its_broker() -> None:
    ring = Ring(3, topic(), client_queue_max=3)
    far = next(name for name in ring.places if name != root_of(ring))
    ring.subscribe(far)
    for _ in range(5):
        ring.publish(far, "red")
    [ended] = told(ring, far, Ended)
    assert isinstance(ended, Ended)
    assert "consumed" in ended.problem
    assert ring.got(far) == ["red"] * 3
    ring[far].check()


def test_figures_name_the_leaf_set_and_count_trees() -> None:
    ring = Ring(3, topic(), topic("sport", ordered=True))
    for name in ring.places:
        ring.subscribe(name)
    ring.run(2)
    figures = ring["b0"].statistics()
    assert sorted(figures["leaf_set"]) == ["b1", "b2"]  # type: ignore[call-overload]
    assert figures["phase"] == "active"
    assert sum(ring[name].statistics()["root_of"] for name in ring.places) == 1  # type: ignore[misc]
    assert sum(ring[name].statistics()["leading"] for name in ring.places) == 1  # type: ignore[misc]


def test_other_messages_are_not_for_it() -> None:
    ring = Ring(1, topic())
    with pytest.raises(ProtocolError):
        ring["b0"].receive(BrokerName("b1"), Ping(), ring.now)


def test_a_broker_that_denies_a_topic_is_not_believed_and_nothing_changes() -> None:
    ring = Ring(2, topic())
    ring.subscribe("b0")
    ring.run(2)
    [identifier] = ring["b0"]._topics
    with pytest.raises(ProtocolError, match="denies a topic"):
        ring["b0"].receive(BrokerName("b1"), Ringed((AccessDenied(identifier, "x"),)), ring.now)
    ring["b0"].check()
