"""Subscribers: one message for each connection, each event once, and the slow harm nobody."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.core.client_messages import Deliveries, Ended, Lost
from gapless.core.effects import Effect, Send
from gapless.core.identity import ClientName, PubendName, TopicName
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.knowledge.subend import Settled
from gapless.node.delivery.audience import DURABLE
from gapless.node.delivery.connections import ClientConnections
from gapless.node.delivery.subscribers import Subscribers
from gapless.wire.events import decode_attributes
from tests.node.town import CONFIG, NEWS, colours, event

if TYPE_CHECKING:
    from gapless.core.client_messages import Order

PUBEND = PubendName("news/0")
ANN, BOB = ClientName("ann"), ClientName("bob")
RED, BLUE, ANY = "colour = 'red'", "colour = 'blue'", ""


def subscribers(*some: tuple[ClientName, int, str], **limits: Any) -> Subscribers:
    machine = Subscribers(replace(CONFIG, **limits), decode_attributes, ClientConnections())
    for name, number, condition in some:
        add(machine, name, number, condition)
    return machine


def add(
    machine: Subscribers, name: ClientName, number: int, condition: str, order: Order = "publisher"
) -> None:
    machine.clients.connect(name)
    machine.add(name, number, NEWS, order, Filter.parse(condition))
    machine.check()


def settled(*which: str, lost: tuple[Span, ...] = ()) -> Settled:
    ticks = list(range(10, 10 + len(which)))
    return Settled(ticks, list(map(event, which)), [(PUBEND, span) for span in lost])


def deliver(machine: Subscribers, *which: str, through: int = 50) -> list[Effect]:
    effects = machine.deliver(NEWS, PUBEND, settled(*which), through).effects
    machine.check()
    return effects


def shown(effects: list[Effect]) -> list[tuple[str, list[str], tuple[tuple[int, ...], ...]]]:
    out: list[tuple[str, list[str], tuple[tuple[int, ...], ...]]] = []
    for effect in effects:
        assert isinstance(effect, Send)
        assert isinstance(effect.message, Deliveries)
        out.append((effect.to, colours(effect.message.events), effect.message.takers))
    return out


def test_each_connection_gets_one_message_with_each_event_once_and_its_takers() -> None:
    machine = subscribers((ANN, 1, RED), (ANN, 2, ANY), (BOB, 1, BLUE))
    assert shown(deliver(machine, "red", "blue", "green")) == [
        ("ann", ["red", "blue", "green"], ((1, 2), (2,), (2,))),
        ("bob", ["blue"], ((1,),)),
    ]
    assert machine.clients.delivered == 4


def test_a_delivery_says_at_which_ticks_and_how_far() -> None:
    machine = subscribers((ANN, 1, BLUE))
    [effect] = deliver(machine, "red", "blue", through=77)
    assert isinstance(effect, Send)
    message = effect.message
    assert isinstance(message, Deliveries)
    assert (message.ticks, message.through, message.pubend) == ((11,), 77, PUBEND)


def test_nobody_is_bothered_with_what_he_does_not_want() -> None:
    machine = subscribers((ANN, 1, BLUE))
    assert deliver(machine, "red") == []
    assert machine.deliver(TopicName("sport"), PUBEND, settled("blue"), 50).effects == []
    assert machine.deliver(NEWS, None, settled("blue"), 50).effects == []


def test_total_and_publisher_order_are_apart() -> None:
    machine = subscribers((ANN, 1, ANY))
    add(machine, ANN, 2, ANY, "total")
    assert shown(deliver(machine, "red")) == [("ann", ["red"], ((1,),))]
    assert shown(machine.deliver(NEWS, None, settled("red"), 50).effects) == [
        ("ann", ["red"], ((2,),))
    ]
    assert machine.wants(NEWS, "total")
    machine.remove(ANN, 2)
    assert not machine.wants(NEWS, "total")


def test_a_slow_client_loses_what_would_add_to_its_queue_and_others_do_not() -> None:
    machine = subscribers((ANN, 1, RED), (ANN, 2, BLUE), (BOB, 1, ANY), client_queue_max=2)
    deliver(machine, "red", "red")
    machine.clients[BOB].consume(2)
    ended, kept = deliver(machine, "red")
    assert isinstance(ended, Send)
    assert isinstance(ended.message, Ended)
    assert (ended.to, ended.message.subscription) == (ANN, 1)
    assert "not consumed in time" in ended.message.problem
    assert shown([kept]) == [("bob", ["red"], ((1,),))]
    assert machine.ended_slow == 1
    machine.clients[ANN].consume(2)
    assert [to for to, _, _ in shown(deliver(machine, "blue"))] == ["ann", "bob"]


def test_one_batch_may_be_larger_than_the_queue_of_an_idle_client() -> None:
    machine = subscribers((ANN, 1, ANY), client_queue_max=2, waiting_events_max=1)
    assert len(shown(deliver(machine, "red", "red", "red"))) == 1
    assert machine.clients[ANN].outstanding == 3


def test_consuming_more_than_was_sent_is_no_credit() -> None:
    machine = subscribers((ANN, 1, ANY), client_queue_max=1)
    machine.clients[ANN].consume(99)
    deliver(machine, "red")
    assert machine.clients[ANN].outstanding == 1


def test_those_to_whom_nothing_was_sent_are_told_their_position_once() -> None:
    machine = subscribers((ANN, 1, RED), (BOB, 1, BLUE))
    deliver(machine, "red", through=60)
    assert machine.tell_position(NEWS, PUBEND, 60) == [Send(BOB, Deliveries(NEWS, 60, PUBEND))]
    assert machine.tell_position(NEWS, PUBEND, 60) == []
    assert machine.tell_position(NEWS, None, 60) == []


def test_loss_is_told_to_every_subscription_of_the_order() -> None:
    machine = subscribers((ANN, 1, RED), (ANN, 2, BLUE), (BOB, 1, RED))
    effects = machine.deliver(NEWS, PUBEND, settled(lost=(Span(3, 5),)), 50).effects
    assert effects == [
        Send(ANN, Lost((1, 2), PUBEND, Span(3, 5))),
        Send(BOB, Lost((1,), PUBEND, Span(3, 5))),
    ]


def test_a_connection_that_ends_takes_its_subscriptions_along() -> None:
    machine = subscribers((ANN, 1, ANY), (BOB, 1, ANY))
    machine.disconnect(ANN)
    machine.disconnect(ANN)
    machine.check()
    assert machine.subscription_count == 1
    assert [to for to, _, _ in shown(deliver(machine, "red"))] == ["bob"]
    machine.disconnect(BOB)
    assert machine.audiences == {}


def test_what_a_client_has_not_consumed_is_bounded_in_bytes_too() -> None:
    machine = subscribers((ANN, 1, ANY), client_queue_bytes_max=60)
    deliver(machine, "red")
    outstanding = machine.clients[ANN].outstanding_bytes
    assert 0 < outstanding <= 60
    deliver(machine, "red")
    machine.clients[ANN].consume(2)
    assert machine.clients[ANN].outstanding_bytes == 0
    deliver(machine, *["red"] * 20)
    [ended] = deliver(machine, "red")
    assert isinstance(ended, Send)
    assert isinstance(ended.message, Ended)


def test_many_deliveries_go_out_in_several_messages_that_cover_all() -> None:
    machine = subscribers((ANN, 1, ANY), batch_events_max=2)
    sent = [effect for effect in deliver(machine, "red", "blue", "red") if isinstance(effect, Send)]
    messages = [each.message for each in sent if isinstance(each.message, Deliveries)]
    assert [len(message.ticks) for message in messages] == [2, 1]
    assert messages[0].through == messages[1].ticks[0], "settled up to the next one"
    assert messages[1].through > messages[1].ticks[-1]


def test_connections_that_want_just_the_same_get_the_very_same_message() -> None:
    eve = ClientName("eve")
    machine = subscribers((ANN, 1, RED), (BOB, 1, RED), (eve, 2, RED))
    first, second, third = (
        effect.message for effect in deliver(machine, "red", "blue") if isinstance(effect, Send)
    )
    assert first is second
    assert isinstance(third, Deliveries)
    assert third.takers == ((2,),)


def test_bytes_of_what_is_consumed_in_part_count_by_its_share() -> None:
    machine = subscribers((ANN, 1, ANY))
    deliver(machine, "red", "red", "red", "red")
    client = machine.clients[ANN]
    whole = client.outstanding_bytes
    machine.clients[ANN].consume(1)
    assert (client.outstanding, client.outstanding_bytes) == (3, whole - whole // 4)
    machine.clients[ANN].consume(3)
    assert (client.outstanding, client.outstanding_bytes) == (0, 0)


def test_one_that_is_alone_with_its_condition_gets_nothing_before_its_start() -> None:
    machine = subscribers((BOB, 2, BLUE))
    machine.clients.connect(ANN)
    machine.add(ANN, 1, NEWS, "publisher", Filter.parse(RED), {PUBEND: 12})
    assert shown(deliver(machine, "red", "blue", "red", through=13)) == [
        ("ann", ["red"], ((1,),)),
        ("bob", ["blue"], ((2,),)),
    ]
    assert shown(deliver(machine, "red")) == [("ann", ["red"], ((1,),))], "it is young no more"


def test_who_takes_an_event_durably_is_said_of_that_event_alone() -> None:
    machine = subscribers((ANN, 1, BLUE))
    for number, condition in ((3, RED), (4, ANY)):
        machine.add_durable((DURABLE, number), NEWS, Filter.parse(condition), {})
    done = machine.deliver(NEWS, PUBEND, settled("red", "blue", "red"), 50)
    assert list(map(sorted, done.takers)) == [[3, 4], [4], [3, 4]]
    machine.remove_durable((DURABLE, 3), NEWS)
    machine.remove_durable((DURABLE, 4), NEWS)
    assert machine.deliver(NEWS, PUBEND, settled("red", "blue"), 60).takers == [[], []]


class Unread(dict[Any, Any]):
    """Nobody may look through it."""

    def items(self) -> Any:
        raise AssertionError("all subscriptions of a client were looked at")

    __iter__ = keys = values = items


def test_positions_of_a_topic_ask_for_its_own_subscriptions_only() -> None:
    """There may be very many others, and very many topics."""
    machine = subscribers((ANN, 1, RED), (ANN, 2, BLUE), (BOB, 1, ANY))
    other = TopicName("other")
    machine.add(BOB, 2, other, "publisher", Filter.parse(ANY))
    machine.add(ANN, 3, NEWS, "total", Filter.parse(ANY))
    for client in machine.clients.values():
        client.subscriptions = Unread(client.subscriptions)
    told = machine.tell_position(NEWS, PUBEND, 70)
    assert [effect.to for effect in told if isinstance(effect, Send)] == [ANN, BOB]
    told = machine.tell_position(other, PUBEND, 70)
    assert [effect.to for effect in told if isinstance(effect, Send)] == [BOB]
    lost = machine.deliver(NEWS, PUBEND, settled(lost=(Span(3, 5),)), 80).effects
    assert [(e.to, e.message.subscriptions) for e in lost] == [(ANN, (1, 2)), (BOB, (1,))]  # type: ignore[union-attr]
    assert machine.subscription_count == 5
