"""What a condition may cost, and how much is matched in one turn: counted in units, not in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.client_messages import (
    Deliveries,
    Forget,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.identity import ClientName, Instant, PubendName, SubscriptionName, TopicName
from gapless.filters.cost import LOOK, PATTERN
from gapless.filters.filter import Filter
from gapless.node.delivery.match_meter import EVENT_COST, TEXT_BYTES, MatchMeter
from tests.node.town import ALONE, ANN, CONFIG, NEWS, Town, colours, publish, subscribe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.client_messages import Order
    from gapless.core.messages import Message

DEAR = "colour LIKE '%{}%'"
ONE = LOOK + PATTERN
PLACE: tuple[TopicName, Order] = (NEWS, "publisher")
BOB = ClientName("bob")


def ask(town: Town, message: Subscribe, client: str = ANN) -> Message:
    """The answer to a subscription, which waits until it has begun."""
    sent = town.receive(client, message) + town.wait(1)
    [answer] = [each for _, each in sent if isinstance(each, Subscribed | Refused)]
    return answer


def alone(**limits: Any) -> Town:
    town = Town("h", ALONE, **limits)
    town.connect()
    town.wait(1)
    return town


# --- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, SubscriptionName("kept")])
def test_a_condition_that_makes_events_too_dear_is_refused_until_another_ends(
    name: SubscriptionName | None,
) -> None:
    town = alone(condition_cost_max=2 * ONE)
    first = Subscribe(NEWS, 1, 1, DEAR.format("a"), name=name)
    assert isinstance(ask(town, first), Subscribed)
    assert isinstance(ask(town, subscribe(2, DEAR.format("b"))), Subscribed)
    refused = ask(town, subscribe(3, DEAR.format("c")))
    assert isinstance(refused, Refused)
    assert f"{ONE} units, together with those that there are" in refused.problem
    assert f"on topic 'news' {3 * ONE}, and the limit is {2 * ONE}" in refused.problem
    assert isinstance(ask(town, subscribe(4, DEAR.format("a"))), Subscribed), "matched once for all"
    assert isinstance(ask(town, subscribe(5, "colour = 'red'")), Subscribed), "costs nothing"
    town.receive(ANN, Unsubscribe(4))
    town.receive(ANN, Unsubscribe(1) if name is None else Forget(6, name))
    town.wait(1)
    assert isinstance(ask(town, subscribe(7, DEAR.format("c"))), Subscribed)


def test_those_that_wait_for_their_start_are_counted_when_they_begin() -> None:
    """All are asked for in one breath, before any has begun."""
    town = Town("l", condition_cost_max=3 * ONE)
    town.connect()
    sent = [each for n in range(8) for each in town.receive(ANN, subscribe(n, DEAR.format(n)))]
    assert not [each for _, each in sent if isinstance(each, Subscribed)]
    starts = [m for to, m in sent if to != ANN and type(m).__name__ == "StartQuery"]
    assert starts
    from gapless.core.broker_messages import StartReply
    from gapless.core.identity import CellName

    number = starts[-1].number  # type: ignore[attr-defined]
    reply = StartReply(PubendName("news/0"), CellName("left"), number, 5)
    told = [each for to, each in town.receive("m1", reply) + town.wait(1) if to == ANN]
    assert sum(isinstance(each, Subscribed) for each in told) == 3
    assert sum(isinstance(each, Refused) for each in told) == 5


def test_a_principal_has_a_budget_of_its_own_before_that_of_all() -> None:
    town = Town("h", ALONE, condition_cost_max=4 * ONE, principal_condition_cost_max=2 * ONE)
    for name, owner in ((ANN, "ann"), (BOB, "bob"), (ClientName("carl"), "carl")):
        town._do(town.node.link_up(name, town.now, owner=owner))
    town.wait(1)
    for who in (ANN, BOB):
        for number in (1, 2):
            assert isinstance(
                ask(town, subscribe(number, DEAR.format(who + str(number))), who), Subscribed
            )
        refused = ask(town, subscribe(3, DEAR.format("more")), who)
        assert isinstance(refused, Refused)
        assert f"those that {str(who)!r} has" in refused.problem
    last = ask(town, subscribe(1, DEAR.format("more")), "carl")
    assert isinstance(last, Refused)
    assert "those that there are" in last.problem
    town.leave(ANN)
    town.wait(1)
    assert isinstance(ask(town, subscribe(1, DEAR.format("more")), "carl"), Subscribed)


def test_the_default_is_generous_for_ordinary_conditions() -> None:
    meter = MatchMeter(CONFIG)
    ordinary = [
        text.format(n)
        for n in range(1_000)
        for text in (
            "symbol = 'S{0}' AND price > 90",
            "price BETWEEN {0} AND {0}.5",
            "headline LIKE '%word{0}%' AND kind = 'news'",
            "headline LIKE '%word{0}%'",
            "bid + {0} > ask",
        )
    ]
    for text in ordinary:
        condition = Filter.parse(text)
        assert meter.refusal(PLACE, "desk", condition) is None
        meter.add(PLACE, "desk", condition)
    assert meter.cost(PLACE) < CONFIG.principal_condition_cost_max
    many = " OR ".join(f"headline LIKE '%{n}%'" for n in range(990))
    hostile = [Filter.parse(f"{many} OR n = {n}") for n in range(100)]
    taken = 0
    for condition in hostile:
        if meter.refusal(PLACE, "", condition) is None:
            meter.add(PLACE, "", condition)
            taken += 1
    assert 0 < taken < 50
    for condition in hostile[:taken]:
        meter.remove(PLACE, "", condition)
    for text in ordinary:
        meter.remove(PLACE, "desk", Filter.parse(text))
    meter.check()
    assert meter.cost(PLACE) == EVENT_COST


# --- batches --------------------------------------------------------------------------------------


def deliveries(sent: Iterable[tuple[str, Message]]) -> list[str]:
    return [
        colour
        for to, each in sent
        if to == ANN and isinstance(each, Deliveries)
        for colour in colours(each.events)
    ]


@pytest.mark.parametrize("order", ["publisher", "total"])
def test_a_batch_that_is_dear_is_delivered_in_slices_whole_and_in_order(order: Order) -> None:
    town = alone(turn_cost_max=3 * (EVENT_COST + ONE))
    assert isinstance(ask(town, subscribe(1, "colour LIKE '%e%'", order)), Subscribed)
    wanted = [f"e{n}" for n in range(20)]
    slices = []
    sent = town.receive(ANN, publish(*wanted))
    slices.append(len(deliveries(sent)))
    got = deliveries(sent)
    for _ in range(100):
        if town.node.deadline is None or len(got) == len(wanted):
            break
        town.now = Instant(max(town.now, town.node.deadline))
        town._do(town.node.fire(town.now))
        more = deliveries(town.flush())
        slices.append(len(more))
        got += more
    assert got == wanted
    assert max(slices) <= 3, "a step matches no more than it may"
    assert town.node.subscribers.meter.slices > 0


def test_nothing_is_cut_where_matching_is_cheap() -> None:
    town = alone()
    assert isinstance(ask(town, subscribe(1, "colour LIKE '%e%'")), Subscribed)
    wanted = [f"e{n}" for n in range(1_000)]
    assert deliveries(town.receive(ANN, publish(*wanted))) == wanted
    assert town.node.subscribers.meter.slices == 0


def test_who_found_no_room_goes_first_in_the_next_turn() -> None:
    meter = MatchMeter(CONFIG)
    news, sport = (NEWS, PubendName("news/0")), (TopicName("sport"), PubendName("sport/0"))
    now = Instant(5)
    meter.leave(news, now, had_some=True)
    meter.leave(sport, now, had_some=False)
    meter.check()
    assert meter.ripe(now) == []
    assert meter.ripe(Instant(now + 1)) == [sport, news]
    assert meter.ripe(Instant(now + 1)) == []
    meter.check()


def test_one_event_is_always_matched_however_dear_it_is() -> None:
    town = alone(turn_cost_max=1)
    assert isinstance(ask(town, subscribe(1, "colour LIKE '%e%'")), Subscribed)
    sent = town.receive(ANN, publish("e1", "e2", "e3")) + town.wait(10)
    assert deliveries(sent) == ["e1", "e2", "e3"]


def test_long_texts_are_matched_fewer_at_a_time_where_there_are_patterns() -> None:
    meter, place = MatchMeter(CONFIG), PLACE
    assert meter.room_bytes(place) >= 1 << 24, "without patterns nothing is searched"
    dear = Filter.parse(" OR ".join(f"s LIKE '%{i}%'" for i in range(900)))
    meter.add(place, "", dear)
    room = meter.room_bytes(place)
    assert room < 100 * meter.room(place) * TEXT_BYTES
    meter.spend(place, 1, room)
    assert (meter.room(place), meter.room_bytes(place)) == (0, 0)
    meter.begin_turn()
    assert meter.room_bytes(place) == room
