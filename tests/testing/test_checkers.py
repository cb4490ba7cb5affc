"""Each checker finds a hand-made violation, and has nothing against a good record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import Knowledge, Nack
from gapless.core.client_messages import (
    Consumed,
    Deliveries,
    Ended,
    Lost,
    Publish,
    Receipt,
    Refused,
    Subscribed,
)
from gapless.core.effects import Append, Chop
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, Instant, PubendName, TopicName
from gapless.core.ticks import Span
from gapless.node.config import Config
from gapless.node.network import Network, Topic
from gapless.testing.checkers.liveness import EverythingArrives
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.record import Publication, Record, Subscription, Violation
from gapless.testing.run import CHECKERS
from gapless.testing.shapes import cell
from gapless.testing.watch import Watch
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from gapless.core.client_messages import Order

TOPIC, CLIENT, HOST = TopicName("t"), ClientName("c"), BrokerName("a")
ZERO, ONE = PubendName("t/0"), PubendName("t/1")
CONFIG = Config(client_queue_max=3, cache_events_max=5)


def at(number: int) -> int:
    """A tick: of pubend 0 for even numbers, of pubend 1 for odd ones, in the order of numbers."""
    return number << 10 | number & 1


class Host:
    """A broker as checkers see it, with figures set by hand."""

    def __init__(self) -> None:
        self.name = HOST
        self.incarnation = 1
        self.clock_jumps = 0
        self.now = Instant(1_000_000)
        self.store = MemoryVolume()
        self.figures: dict[str, object] = {}

    def statistics(self) -> dict[str, object]:
        return self.figures


class Facts:
    """A short way to make facts; ticks are given as small numbers, see `at`."""

    def __init__(self) -> None:
        network = Network((cell("a", 1, subscribers=True),), (Topic(TOPIC, (HOST, HOST)),))
        self.record = Record(network)
        self.watch = Watch(self.record, [each(self.record, CONFIG) for each in CHECKERS])
        self.host = Host()

    def event(self, price: int) -> bytes:
        encoded = encode_event({"price": price}, str(price).encode())
        if encoded not in self.record.publications:
            self.record.publish(Publication(encoded, {"price": price}, TOPIC))
        return encoded

    def log(self, tick: int, price: int) -> bytes:
        encoded = self.event(price)
        pubend = ONE if tick & 1 else ZERO
        append = Append(f"log/{pubend}", (at(tick),), (encoded,))
        self.watch.committed(self.host, [append])
        self.host.store.commit([append])
        return encoded

    def subscribe(
        self, number: int = 1, condition: str = "", order: Order = "publisher", start: int = 0
    ) -> Subscription:
        subscription = Subscription(
            client=CLIENT, number=number, topic=TOPIC, condition=condition, order=order
        )
        self.record.subscribe(subscription)
        self.watch.told(CLIENT, Subscribed(number, number, {ZERO: at(start), ONE: at(start)}))
        return subscription

    def deliver(
        self, through: int, *events: tuple[int, int], to: int = 1, total: bool = False
    ) -> None:
        self.watch.told(
            CLIENT,
            Deliveries(
                TOPIC,
                at(through),
                None if total else ZERO,
                tuple(at(tick) for tick, _ in events),
                EventBatch.join([self.event(price) for _, price in events]),
                tuple((to,) for _ in events),
            ),
        )

    def ask(self, request: int, *prices: int) -> None:
        batch = EventBatch.join([self.event(price) for price in prices])
        self.watch.asked(CLIENT, Publish(TOPIC, request, batch))


@pytest.fixture
def facts() -> Facts:
    return Facts()


def test_a_good_record_has_nothing_against_it(facts: Facts) -> None:
    facts.subscribe(1, "price > 50")
    facts.subscribe(2, "", "total")
    facts.subscribe(3, "price < 90", "total", start=5)
    facts.ask(1, 10, 60)
    facts.log(4, 10)
    facts.log(6, 60)
    facts.log(7, 80)
    facts.watch.sent(facts.host, CLIENT, Receipt(1, ZERO, (at(4), at(6))))
    facts.deliver(10, (6, 60))
    batch = EventBatch.join([facts.event(price) for price in (10, 60, 80)])
    ticks, takers = (at(4), at(6), at(7)), ((2,), (2, 3), (2, 3))
    facts.watch.told(CLIENT, Deliveries(TOPIC, at(8), None, ticks, batch, takers))
    facts.watch.told(CLIENT, Ended(1))
    facts.watch.restarted(facts.host)
    facts.watch.finish()


def test_a_good_total_order_is_the_same_for_two_with_other_starts(facts: Facts) -> None:
    facts.subscribe(1, "", "total")
    facts.subscribe(2, "price > 50", "total", start=5)
    for tick, price in ((4, 90), (7, 80), (8, 60)):
        facts.log(tick, price)
    facts.watch.told(CLIENT, both(facts))
    facts.watch.finish()


def both(facts: Facts) -> Deliveries:
    ticks, prices = (at(4), at(7), at(8)), (90, 80, 60)
    batch = EventBatch.join([facts.event(price) for price in prices])
    return Deliveries(TOPIC, at(9), None, ticks, batch, ((1,), (1, 2), (1, 2)))


def test_an_event_delivered_twice_is_found(facts: Facts) -> None:
    facts.subscribe()
    facts.log(4, 10)
    facts.log(6, 20)
    with pytest.raises(Violation, match="exactly once"):
        facts.deliver(8, (4, 10), (6, 20), (4, 10))


def test_events_out_of_order_are_found(facts: Facts) -> None:
    facts.subscribe()
    facts.log(4, 10)
    facts.log(6, 20)
    with pytest.raises(Violation, match="in order"):
        facts.deliver(8, (6, 20), (4, 10))


def test_an_event_before_the_start_is_found(facts: Facts) -> None:
    facts.subscribe(start=5)
    facts.log(4, 10)
    with pytest.raises(Violation, match=r"in order.*before its start"):
        facts.deliver(8, (4, 10))


def test_an_event_below_a_settled_position_is_found(facts: Facts) -> None:
    facts.subscribe()
    facts.deliver(5)
    with pytest.raises(Violation, match="was settled"):
        facts.deliver(8, (4, 10))


def test_total_order_holds_over_all_pubends(facts: Facts) -> None:
    facts.subscribe(order="total")
    facts.log(6, 10)
    facts.log(5, 20)
    with pytest.raises(Violation, match="in order"):
        facts.deliver(8, (6, 10), (5, 20), total=True)


def test_a_matching_event_that_is_passed_over_is_found(facts: Facts) -> None:
    facts.subscribe(condition="price > 50")
    facts.log(4, 10)
    facts.log(6, 60)
    facts.deliver(6)
    with pytest.raises(Violation, match=r"no gap: .* never got t/0 6144"):
        facts.deliver(7)


def test_an_event_logged_where_silence_was_told_is_found(facts: Facts) -> None:
    facts.subscribe()
    facts.deliver(8)
    facts.log(8, 10)
    with pytest.raises(Violation, match="no gap"):
        facts.watch.committed(facts.host, [Append("log/t/0", (at(6),), (facts.event(20),))])


def test_an_event_that_does_not_match_is_found(facts: Facts) -> None:
    facts.subscribe(condition="price > 50")
    facts.log(4, 10)
    with pytest.raises(Violation, match=r"only matching.*does not match"):
        facts.deliver(8, (4, 10))


def test_an_event_that_is_not_what_was_published_is_found(facts: Facts) -> None:
    facts.subscribe()
    facts.log(4, 10)
    with pytest.raises(Violation, match=r"only matching.*not what was published"):
        facts.deliver(8, (4, 11))


def test_an_event_that_is_not_durable_is_found(facts: Facts) -> None:
    facts.subscribe()
    with pytest.raises(Violation, match=r"only matching.*nothing durable"):
        facts.deliver(8, (4, 10))


def test_a_receipt_before_the_event_is_durable_is_found(facts: Facts) -> None:
    facts.ask(1, 10)
    with pytest.raises(Violation, match="durable before acknowledged"):
        facts.watch.sent(facts.host, CLIENT, Receipt(1, ZERO, (at(4),)))


@pytest.mark.parametrize("ticks", [(6,), (4, 6)])
def test_a_receipt_for_other_ticks_is_found(facts: Facts, ticks: tuple[int, ...]) -> None:
    facts.ask(1, 10)
    facts.log(4, 10)
    with pytest.raises(Violation, match="durable before acknowledged"):
        facts.watch.sent(facts.host, CLIENT, Receipt(1, ZERO, tuple(map(at, ticks))))


def test_a_receipt_may_have_forgotten_the_tick_of_a_repeat(facts: Facts) -> None:
    facts.ask(1, 10)
    facts.log(4, 10)
    facts.watch.sent(facts.host, CLIENT, Receipt(1, ZERO, (-1,)))


def test_an_event_lost_by_a_restart_is_found_unless_it_was_chopped(facts: Facts) -> None:
    facts.log(4, 10)
    facts.host.store = MemoryVolume()
    with pytest.raises(Violation, match="durable before acknowledged"):
        facts.watch.restarted(facts.host)
    facts.watch.committed(facts.host, [Chop("log/t/0", at(5))])
    facts.watch.restarted(facts.host)


def test_an_event_logged_twice_is_found(facts: Facts) -> None:
    facts.log(4, 10)
    with pytest.raises(Violation, match="once published"):
        facts.log(6, 10)


def test_an_event_that_nobody_published_is_found(facts: Facts) -> None:
    with pytest.raises(Violation, match="once published"):
        facts.watch.committed(facts.host, [Append("log/t/0", (4,), (b"?",))])


def test_two_total_orders_that_differ_are_found(facts: Facts) -> None:
    first, second = facts.subscribe(1, "", "total"), facts.subscribe(2, "", "total")
    facts.log(4, 10)
    facts.log(7, 20)
    first.delivered += [(ZERO, at(4)), (ONE, at(7))]
    second.delivered += [(ZERO, at(4))]
    facts.watch.finish()
    second.delivered[:] = [(ONE, at(7)), (ZERO, at(4))]
    with pytest.raises(Violation, match="one total order"):
        facts.watch.finish()


def test_a_figure_beyond_its_limit_is_found_however_deep(facts: Facts) -> None:
    facts.host.figures = {"pubends": {"t/0": {"cached_events": 5}}}
    facts.watch.sample(facts.host)
    facts.host.figures = {"pubends": {"t/0": {"cached_events": 6}}}
    with pytest.raises(Violation, match="bounded memory"):
        facts.watch.sample(facts.host)


def test_a_step_that_does_too_much_is_found_and_each_subscriber_may_be_served(facts: Facts) -> None:
    config = CONFIG
    behind = 8 * config.catch_up_work_max + config.filtered_walk_max + config.catch_up_window
    alone = behind + config.batch_events_max
    facts.watch.stepped(facts.host, alone)
    with pytest.raises(Violation, match=f"bounded steps: one step of {HOST} .* {alone + 1}"):
        facts.watch.stepped(facts.host, alone + 1)
    facts.subscribe()
    each = config.waiting_events_max + config.catch_up_window
    facts.watch.stepped(facts.host, alone + each)
    with pytest.raises(Violation, match="bounded steps"):
        facts.watch.stepped(facts.host, alone + each + 1)


def test_a_queue_beyond_its_limit_is_found(facts: Facts) -> None:
    batch = EventBatch.join([b"", b""])
    sent = Deliveries(TOPIC, at(7), ZERO, (at(2), at(4)), batch, ((1,), (1,)))
    facts.watch.sent(facts.host, CLIENT, sent)
    facts.watch.sent(facts.host, CLIENT, sent)  # of one batch, which found the queue empty
    facts.host.now = Instant(facts.host.now + 1)
    with pytest.raises(Violation, match="bounded memory"):
        facts.watch.sent(facts.host, CLIENT, sent)


def test_a_question_asked_again_while_it_is_out_is_found(facts: Facts) -> None:
    above = BrokerName("above")
    facts.watch.sent(facts.host, above, Nack(ZERO, (Span(10, 20),)))
    facts.watch.sent(facts.host, above, Nack(ZERO, (Span(20, 30),)))
    facts.watch.sent(facts.host, above, Nack(ONE, (Span(10, 20),)))
    with pytest.raises(Violation, match="one nack for one loss"):
        facts.watch.sent(facts.host, above, Nack(ZERO, (Span(19, 21),)))


def test_a_question_may_be_asked_again_when_answered_or_forgotten(facts: Facts) -> None:
    above, question = BrokerName("above"), Nack(ZERO, (Span(10, 20),))
    facts.watch.sent(facts.host, above, question)
    facts.watch.received(facts.host, above, Knowledge(ZERO, Span(0, 20)))
    facts.watch.sent(facts.host, above, question)
    facts.host.now = Instant(facts.host.now + CONFIG.nack_forget)
    facts.watch.sent(facts.host, above, question)


def test_a_loss_told_to_a_connected_client_is_found(facts: Facts) -> None:
    facts.subscribe()
    with pytest.raises(Violation, match="no unjust gap"):
        facts.watch.told(CLIENT, Lost((1,), ZERO, Span(1, 5)))


def test_an_end_without_a_reason_is_found_and_a_slow_client_is_one(facts: Facts) -> None:
    facts.subscribe()
    for tick in (2, 4, 6):
        facts.log(tick, tick)
    facts.deliver(7, (2, 2), (4, 4), (6, 6))
    assert facts.record.deliveries == 3
    with pytest.raises(Violation, match="no unjust gap"):
        facts.watch.sent(facts.host, CLIENT, Ended(1, "too slow"))
    sent = Deliveries(TOPIC, 7, ZERO, (2, 4, 6), EventBatch.join([b"", b"", b""]), ((1,),) * 3)
    facts.watch.sent(facts.host, CLIENT, sent)
    facts.log(8, 8)
    facts.watch.sent(facts.host, CLIENT, Ended(1, "too slow"))
    facts.watch.received(facts.host, CLIENT, Consumed(3))
    assert facts.record.queued[CLIENT] == 0


def test_a_refusal_for_good_is_found_and_one_for_a_while_is_fine(facts: Facts) -> None:
    facts.watch.told(CLIENT, Refused(1, "busy", "later", retry=True))
    with pytest.raises(Violation, match="no unjust gap"):
        facts.watch.told(CLIENT, Refused(1, "never", "go away"))


def test_what_has_not_arrived_is_listed(facts: Facts) -> None:
    arrives = EverythingArrives(facts.record, CONFIG)
    subscription = facts.subscribe(condition="price > 50")
    facts.log(4, 10)
    facts.log(6, 60)
    assert arrives.waiting() == [f"{subscription} waits for t/0 {at(6)}"]
    facts.deliver(7, (6, 60))
    assert arrives.waiting() == []
    facts.record.subscribe(
        Subscription(client=CLIENT, number=9, topic=TOPIC, condition="", order="total")
    )
    assert len(arrives.waiting()) == 1


def test_a_delivery_to_nobody_and_a_receipt_for_nothing_are_found(facts: Facts) -> None:
    facts.log(4, 10)
    with pytest.raises(Violation, match="delivered to the living"):
        facts.deliver(8, (4, 10))
    with pytest.raises(Violation, match="answers fit questions"):
        facts.watch.sent(facts.host, CLIENT, Receipt(99, ZERO, (4,)))
