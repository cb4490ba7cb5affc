"""The streams of a broker put together: starting, gaps, loss of the tail, and total order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import (
    Ack,
    AckExpected,
    Knowledge,
    Nack,
    ReleaseHold,
    Sideways,
    StartQuery,
    StartReply,
)
from gapless.core.client_messages import Deliveries, Subscribed
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, PubendName
from gapless.core.messages import Message, Ping, Pong
from gapless.core.ticks import Span, Tick
from tests.node.town import ALONE, ANN, CHAIN, CONFIG, NEWS, TOWN, Town, event, publish, subscribe

if TYPE_CHECKING:
    from gapless.core.client_messages import Order

PUBEND = PubendName("news/0")
LEFT = CellName("left")


def knowledge(start: int, end: int, *ticks: int, asked: bool = False) -> Knowledge:
    batch = EventBatch.join(event(f"at {tick}") for tick in ticks)
    return Knowledge(PUBEND, Span(start, end), ticks, batch, requested=asked)


def without_pings(sent: list[tuple[str, Message]]) -> list[tuple[str, Message]]:
    return [each for each in sent if not isinstance(each[1], Ping)]


def started(start: int = 0) -> Town:
    """The broker `l` with one subscriber, of a pubend that stands at `start`."""
    town = Town("l")
    town.connect()
    town.receive(ANN, subscribe(1))
    [(_, answer)] = town.receive("m1", StartReply(PUBEND, LEFT, 1, start))
    assert answer == Subscribed(1, 1, {PUBEND: start})
    return town


def delivered(sent: list[tuple[str, Message]]) -> list[tuple[int, ...]]:
    return [message.ticks for _, message in sent if isinstance(message, Deliveries)]


def test_a_broker_asks_where_a_pubend_stands_until_it_is_told() -> None:
    town = Town("l")
    assert [m for _, m in town.flush() if isinstance(m, StartQuery)] == [
        StartQuery(PUBEND, LEFT, 1)
    ]
    again = [m for _, m in town.wait(CONFIG.start_repeat) if isinstance(m, StartQuery)]
    assert again == [StartQuery(PUBEND, LEFT, 2)]
    town.receive("m1", StartReply(PUBEND, LEFT, 1, 5))
    assert not town.node.durable.streams.is_started(NEWS)  # an answer to an old question
    town.receive("m1", StartReply(PUBEND, LEFT, 2, 7))
    assert town.node.durable.streams.is_started(NEWS)
    assert town.node.horizon(PUBEND) == 7
    town.receive("m1", StartReply(PUBEND, LEFT, 2, 99))
    assert town.node.horizon(PUBEND) == 7
    sent = town.wait(5 * CONFIG.start_repeat)
    assert not any(isinstance(message, StartQuery) for _, message in sent)


def test_what_was_asked_before_there_was_a_link_is_asked_again_when_there_is_one() -> None:
    town = Town("l")
    assert StartQuery(PUBEND, LEFT, 1) in [message for _, message in town.flush()]
    [(to, ping)] = town.link("m1")
    assert (to, type(ping)) == ("m1", Ping), "it need not wait for the heartbeat"
    assert town.receive("m2", Pong()) == [], "there is no new link to that one"
    assert [each for _, each in town.receive("m1", Pong())] == [StartQuery(PUBEND, LEFT, 2)]
    assert town.receive("m1", Pong()) == [], "once is enough"
    town.receive("m1", StartReply(PUBEND, LEFT, 2, 0))
    town.receive("m1", knowledge(50, 60, 55))
    [nack] = [each for _, each in town.wait(CONFIG.gap_patience) if isinstance(each, Nack)]
    assert town.link("m1")
    assert [each for _, each in town.receive("m1", Pong())] == [nack]


def test_a_subscription_waits_until_the_pubend_is_known() -> None:
    town = Town("l")
    town.connect()
    town.flush()
    assert town.receive(ANN, subscribe(1)) == []
    assert town.node.statistics()["waiting_subscriptions"] == 1
    assert town.receive("m1", StartReply(PUBEND, LEFT, 1, 5))[0][0] == ANN


def test_the_question_goes_up_and_the_answer_comes_down_hop_by_hop() -> None:
    query, relay, host = StartQuery(PUBEND, LEFT, 1), Town("m1"), Town("s")
    relay.flush()
    host.flush()
    assert relay.receive("l", query) == [("s", query)]
    host.wait(CONFIG.idle_silence)
    [(to, reply)] = host.receive("m1", query)
    assert isinstance(reply, StartReply)
    assert to in ("m1", "m2")
    assert reply.tick == host.node.durable.streams.pubends[PUBEND].end
    assert relay.receive("s", reply) == [("l", reply)]


def test_what_comes_in_order_is_delivered_at_once() -> None:
    town = started()
    assert delivered(town.receive("m1", knowledge(0, 9, 4))) == [(4,)]
    assert delivered(town.receive("m2", knowledge(9, 12, 10))) == [(10,)]


def test_a_gap_is_asked_for_upstream_and_then_all_is_delivered_in_order() -> None:
    town = started()
    assert delivered(town.receive("m1", knowledge(5, 9, 7))) == []
    sent = town.wait(CONFIG.gap_patience)
    assert [m for _, m in sent if isinstance(m, Nack)] == [Nack(PUBEND, (Span(0, 5),))]
    assert delivered(town.receive("m1", knowledge(0, 5, 2, asked=True))) == [(2, 7)]


def test_a_lost_tail_is_asked_for_when_its_acknowledgement_is_expected() -> None:
    town = started()
    town.receive("m1", knowledge(0, 5, 2))
    town.wait(CONFIG.ack_delay)
    sent = town.receive("m1", AckExpected(PUBEND, 9))
    assert [message for _, message in sent] == [Nack(PUBEND, (Span(5, 9),))]
    assert delivered(town.receive("m1", knowledge(5, 9, 8, asked=True))) == [(8,)]
    sent = without_pings(town.wait(CONFIG.ack_delay))
    assert [m.delivered for _, m in sent if isinstance(m, Ack)] == [9]


def test_a_restarted_relay_in_between_passes_the_question_down() -> None:
    town = Town("h", CHAIN)
    town.receive("t", StartReply(PUBEND, CellName("half"), 1, 5))
    sent = town.receive("t", AckExpected(PUBEND, 9))
    assert ("f", AckExpected(PUBEND, 9)) in sent
    assert ("t", Nack(PUBEND, (Span(5, 9),))) in sent
    assert not any(isinstance(message, Ack) for _, message in sent)


def test_a_host_publishes_to_the_cells_below_and_releases_what_they_have() -> None:
    town = Town("s")
    town.connect()
    town.wait(CONFIG.idle_silence)
    sent = town.receive(ANN, publish("red"))
    [told] = [m for _, m in sent if isinstance(m, Knowledge)]
    assert len(told.ticks) == 1
    end = told.span.end
    town.receive("m1", Ack(PUBEND, CellName("middle"), end, end))
    town.wait(CONFIG.ack_delay + CONFIG.release_delay)
    assert town.node.durable.streams.pubends[PUBEND].released == end
    assert town.volume.bounds("log/news/0").start == end


def test_without_a_link_upstream_a_question_goes_by_way_of_a_sibling() -> None:
    town = Town("m1")
    town.leave("s")
    town.flush()
    assert town.receive("l", Nack(PUBEND, (Span(0, 5),))) == [("m2", Nack(PUBEND, (Span(0, 5),)))]
    query = StartQuery(PUBEND, LEFT, 1)
    assert town.receive("l", query) == [("m2", Sideways(CellName("source"), query))]


def test_those_who_get_nothing_are_told_now_and_then_how_far_they_are() -> None:
    town = started()
    town.receive("m1", knowledge(0, 9))
    sent = without_pings(town.wait(CONFIG.silence_flush))
    assert (ANN, Deliveries(NEWS, 9, PUBEND)) in sent
    sent = town.wait(3 * CONFIG.silence_flush)
    assert delivered(sent) == []


def test_a_total_order_starts_where_the_foremost_pubend_is() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, publish("early"))
    [(_, answer)] = town.receive(ANN, subscribe(1, order="total"))
    assert isinstance(answer, Subscribed)
    horizons = [subend.horizon for subend in town.node.durable.streams.subends.values()]
    assert set(answer.start.values()) == {max(horizons)}
    assert answer.start.keys() == {"news/0", "news/1"}


def test_a_broker_without_subscribers_keeps_no_subend() -> None:
    town = Town("m1", TOWN)
    town.receive("s", knowledge(0, 9, 4))
    assert town.node.durable.streams.subends == {}
    assert town.node.horizon(PUBEND) is None


def test_a_question_is_answered_from_the_cache_to_the_broker_that_asked() -> None:
    town = Town("m1")
    town.receive("s", knowledge(0, 9, 4))
    sent = town.receive("l", Nack(PUBEND, (Span(2, 6),)))
    assert sent == [("l", knowledge(2, 6, 4, asked=True))]


def test_a_total_order_catches_up_with_what_the_relay_knows_already() -> None:
    """Events known beyond a gap when the merge begins are asked of the cache, not waited for."""
    town = started()
    town.receive("m1", knowledge(0, 5, 2))
    town.receive("m1", knowledge(8, 10, 9))
    town.receive(ANN, subscribe(2, order="total"))
    sent = town.receive("m1", knowledge(5, 8, 6))
    got = [(m.pubend, m.ticks) for _, m in sent if isinstance(m, Deliveries)]
    assert sorted(got, key=str) == [(PUBEND, (6, 9)), (None, (6, 9))]


def test_an_idle_pubend_delays_a_total_order_by_the_patience_of_merges_only() -> None:
    town = Town("h", ALONE)
    town.connect()
    town.receive(ANN, subscribe(1, order="total"))
    sent = town.receive(ANN, publish("red"))
    assert delivered(sent) == []
    sent = town.wait(CONFIG.merge_patience)
    assert [len(ticks) for ticks in delivered(sent)] == [1]
    assert CONFIG.merge_patience < CONFIG.gap_patience


def test_a_total_order_is_asked_for_its_acknowledgement_too() -> None:
    town = started()
    town.receive(ANN, subscribe(2, order="total"))
    sent = town.receive("m1", AckExpected(PUBEND, 9))
    assert [message for _, message in sent] == [Nack(PUBEND, (Span(0, 9),))]
    got = town.receive("m1", knowledge(0, 9, 4, asked=True))
    assert delivered(got) == [(4,), (4,)]


def test_a_host_asks_for_an_acknowledgement_that_does_not_come() -> None:
    town = Town("s", dead_after=10 * CONFIG.ack_expected)
    town.connect()
    sent = town.receive(ANN, publish("red"))
    [told] = [m for _, m in sent if isinstance(m, Knowledge)]
    sent = town.wait(2 * CONFIG.ack_expected)
    asked = [m for _, m in sent if isinstance(m, AckExpected)]
    assert asked == [AckExpected(PUBEND, told.span.end)]


def test_a_merge_ends_with_its_last_subscriber_even_one_that_was_too_slow() -> None:
    town = Town("h", ALONE, client_queue_max=1)
    town.connect()
    town.connect("bob")
    town.receive("bob", subscribe(1, order="total"))
    for _ in range(3):
        town.receive(ANN, publish("red"))
        town.wait(2 * CONFIG.idle_silence)
    assert town.node.subscribers.ended_slow == 1
    assert town.node.durable.streams.merges == {}


@pytest.mark.parametrize("order", ["publisher", "total"])
def test_what_becomes_settled_all_at_once_is_delivered_a_part_in_a_step(order: Order) -> None:
    town = Town("l", batch_events_max=2)
    town.connect()
    town.receive(ANN, subscribe(1, order=order))
    town.receive("m1", StartReply(PUBEND, LEFT, 1, 0))
    for start in range(5, 17, 2):
        assert delivered(town.receive("m1", knowledge(start, start + 2, start))) == []
    late = town.receive("m1", knowledge(0, 5, 2))
    assert [tick for ticks in delivered(late) for tick in ticks] == [2, 5]
    parts = []
    for _ in range(3):
        assert town.node.deadline == town.now + 1
        parts.append([tick for ticks in delivered(town.wait(1)) for tick in ticks])
    assert parts == [[7, 9], [11, 13], [15]]
    assert town.node.deadline != town.now + 1


def test_a_hold_that_passed_through_a_sibling_counts_here_too() -> None:
    """The next report of a member of the cell may be the one that the pubend goes by."""
    town = Town("m2")
    town.flush()
    town.receive("s", knowledge(0, 200))
    for cell in ("left", "right"):
        reported = BrokerName(cell[0]), 1, 1
        town.receive(cell[0], Ack(PUBEND, CellName(cell), 100, 100, *reported))
    acks = [each for _, each in town.wait(2 * CONFIG.ack_delay) if isinstance(each, Ack)]
    assert {each.released for each in acks} == {100}
    hold = ReleaseHold(PUBEND, LEFT, Tick(40), 7, BrokerName("l"), 1, 2)
    assert town.receive("m1", hold) == [], "it has gone up already"
    acks = [each for _, each in town.wait(2 * CONFIG.ack_delay) if isinstance(each, Ack)]
    assert {each.released for each in acks} == {40}
