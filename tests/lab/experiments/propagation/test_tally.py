"""The tally: everything a broker handles is charged once, and a wire only where there is one."""

from __future__ import annotations

from gapless.core.broker_messages import Ack, Knowledge
from gapless.core.client_messages import Consumed, Deliveries, Publish
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, PubendName, TopicName
from gapless.core.ticks import Span
from gapless.node.config import Config
from gapless.testing.record import Record
from gapless_lab.experiments.propagation.load import load_network, machine_of
from gapless_lab.experiments.propagation.setting import PROPAGATION, Setting
from gapless_lab.experiments.propagation.tally import Tallies, Tally, event_count

EVENTS = EventBatch.join([b"a", b"b"])
KNOWLEDGE = Knowledge(PubendName("t/0"), Span(0, 9), (1, 2), EVENTS)


def test_events_are_counted_in_every_message_that_has_them() -> None:
    topic = TopicName("t")
    assert event_count(KNOWLEDGE) == 2
    assert event_count(Publish(topic, 1, EVENTS)) == 2
    assert event_count(Deliveries(topic, 9, None, (1, 2), EVENTS, ((0,), (0,)))) == 2
    assert event_count(Ack(PubendName("t/0"), CellName("sb"), 5)) == 0


def test_brokers_on_one_machine_neither_encode_nor_decode_for_each_other() -> None:
    brokers = Setting(load_network(), PROPAGATION, seed=1).world.processes
    network = load_network()
    tallies = Tallies(Record(network), Config(), machine_of())
    source, relay = BrokerName("pb1"), BrokerName("n1")
    tallies.sent(brokers[source], relay, KNOWLEDGE)
    tallies.received(brokers[relay], source, KNOWLEDGE)
    assert tallies.of(source) == Tally()
    assert tallies.of(relay) == Tally(relayed=1, events_in=2)
    tallies.sent(brokers[relay], BrokerName("sb"), KNOWLEDGE)
    tallies.received(brokers[BrokerName("sb")], relay, KNOWLEDGE)
    assert tallies.of(relay) == Tally(relayed=1, events_in=2, passed=1, encoded=1, events_encoded=2)
    assert tallies.of(BrokerName("sb")) == Tally(hosted=1, events_in=2, decoded=1, events_decoded=2)


def test_writes_publications_and_the_rest_are_told_apart() -> None:
    brokers = Setting(load_network(), PROPAGATION, seed=1).world.processes
    source = BrokerName("pb1")
    tallies = Tallies(Record(load_network()), Config(), {})
    tallies.received(brokers[source], source, Consumed(1))
    tallies.received(brokers[source], BrokerName("client"), Publish(TopicName("t"), 1, EVENTS))
    tallies.received(brokers[source], BrokerName("client"), Consumed(1))
    assert tallies.of(source) == Tally(
        writes=1, publications=1, others_in=1, decoded=2, events_decoded=2
    )
    tallies.reset()
    assert tallies.of(source) == Tally()


def test_knowledge_of_one_broker_is_weighed_with_its_frame() -> None:
    brokers = Setting(load_network(), PROPAGATION, seed=1).world.processes
    tallies = Tallies(Record(load_network()), Config(), {})
    tallies.weighs = BrokerName("n1")
    for sender in ("n1", "n2"):
        tallies.sent(brokers[BrokerName(sender)], BrokerName("sb"), KNOWLEDGE)
    assert tallies.weighed == 1
    assert 20 < tallies.weighed_bytes < 100
