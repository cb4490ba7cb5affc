"""InterestTable: what passes to which cell, and what messages get on their way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import (
    Knowledge,
    Nack,
    Sideways,
    SubscriptionChange,
    SubscriptionState,
)
from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.identity import BrokerName, CellName, Instant, PubendName, TopicName
from gapless.core.messages import Ping, Pong
from gapless.core.ticks import Span
from gapless.filters.filter import Filter
from gapless.node.config import Config
from gapless.node.context import Context, EventEncoding
from gapless.node.durable.interest_table import InterestTable
from gapless.node.network import parse_network
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.events import decode_attributes
from tests.node.town import ANN, CHAIN, CONFIG, NEWS, TOWN, Town, event, subscribe

if TYPE_CHECKING:
    from gapless.core.broker_messages import Vector
    from gapless.core.events import Attributes, EventBatch

TWO_TOPICS = TOWN + '[[topic]]\nname = "weather"\npubends = ["s"]\n'
WEATHER = TopicName("weather")
ZERO, RAIN = PubendName("news/0"), PubendName("weather/0")
LEFT, RIGHT = CellName("left"), CellName("right")
L, M2, S = BrokerName("l"), BrokerName("m2"), BrokerName("s")
NOW = Instant(1_000)
RED, BLUE, GREEN = map(event, ("red", "blue", "green"))


class Counted:
    """Reads attributes, and counts how often."""

    def __init__(self) -> None:
        self.batches = 0

    def __call__(self, events: EventBatch) -> list[Attributes]:
        self.batches += 1
        return decode_attributes(events)


def interests(
    name: str, read: Counted | None = None, text: str = TWO_TOPICS, *, propagates: bool = True
) -> InterestTable:
    network, config = parse_network(text), Config(propagates=propagates)
    encoding = EventEncoding(read or Counted())
    return InterestTable(Context(BrokerName(name), network, MemoryVolume(), NOW, encoding, config))


def relay(read: Counted | None = None) -> InterestTable:
    """One that knows that the left wants red, and of the right nothing."""
    some = interests("m1", read)
    wanted = SubscriptionState(LEFT, {"l": 1}, ("colour = 'red'",), NEWS)
    some.by_topic[NEWS].receive(L, wanted, NOW)
    return some


def news(
    digest: int, vector: Vector | None = None, base: int = 0, pubend: PubendName = ZERO
) -> Knowledge:
    return Knowledge(pubend, Span(10, 20), digest=digest, vector=vector, base=base)


def sends(effects: list[Effect]) -> list[Effect]:
    return [each for each in effects if isinstance(each, Send)]


# --- the edge -------------------------------------------------------------------------------------


def test_without_propagation_everything_passes_as_it_came() -> None:
    some = interests("m1", propagates=False)
    assert some.by_topic == {}
    assert some.select(ZERO, LEFT, 5, [RED, BLUE]) == [0, 1]
    assert some.stamped(news(0)) == news(0)
    assert some.learn(S, news(4, {"l": 1}), NOW) == (news(4, {"l": 1}), [])
    send = Send(L, news(4))
    assert some.dressed([send]) == [send]
    assert some.deadline is None
    some.subscribe(NEWS, ("ann", 1), Filter.parse(""), NOW)
    assert some.update(NOW) == []


def test_where_it_is_known_what_counts_only_what_is_wanted_passes() -> None:
    some = relay()
    some.learn(S, news(4, {"l": 1}), NOW)
    assert some.select(ZERO, LEFT, 4, [BLUE, RED, GREEN, RED]) == [1, 3]
    assert some.select(ZERO, RIGHT, 4, [BLUE, RED]) == []
    interest = some.by_topic[NEWS]
    assert (interest.filtered, interest.flooded) == (4, 0)


def test_where_it_is_not_known_what_counts_everything_passes() -> None:
    some = relay()
    assert some.select(ZERO, LEFT, 4, [RED, BLUE]) == [0, 1], "an unknown digest"
    some.learn(S, news(4, {"l": 2, "r": 0}), NOW)
    assert some.select(ZERO, LEFT, 4, [RED, BLUE]) == [0, 1], "a change that did not come yet"
    assert some.select(ZERO, RIGHT, 4, [RED, BLUE]) == [], "to others it makes no difference"
    assert some.select(ZERO, RIGHT, 0, [RED, BLUE]) == [0, 1], "no digest at all"
    interest = some.by_topic[NEWS]
    assert (interest.filtered, interest.flooded) == (2, 6)


def test_one_event_that_several_conditions_want_passes_once() -> None:
    some = relay()
    both = SubscriptionState(LEFT, {"l": 2}, ("colour = 'red'", "colour <> 'blue'"), NEWS)
    some.by_topic[NEWS].receive(L, both, NOW)
    some.learn(S, news(4, {"l": 2}), NOW)
    assert some.select(ZERO, LEFT, 4, [GREEN, RED]) == [0, 1]


def test_attributes_are_read_once_for_all_cells_and_not_at_all_where_nothing_is_wanted() -> None:
    read = Counted()
    some = relay(read)
    some.learn(S, news(4, {"l": 1}), NOW)
    some.select(ZERO, RIGHT, 4, [RED, BLUE])
    assert read.batches == 0
    wanted = SubscriptionState(RIGHT, {"r": 1}, ("colour = 'blue'",), NEWS)
    some.by_topic[NEWS].receive(BrokerName("r"), wanted, NOW)
    assert some.select(ZERO, LEFT, 4, [RED, BLUE]) == [0]
    assert some.select(ZERO, RIGHT, 4, [RED, BLUE]) == [1]
    assert read.batches == 1
    assert some.select(ZERO, RIGHT, 4, [BLUE, RED]) == [0]
    assert read.batches == 2


def test_topics_know_nothing_of_each_other() -> None:
    some = relay()
    some.learn(S, news(4, {"l": 1}), NOW)
    some.learn(S, news(4, {}, pubend=RAIN), NOW)
    assert some.select(ZERO, LEFT, 4, [RED, BLUE]) == [0]
    assert some.select(RAIN, LEFT, 4, [RED, BLUE]) == []


# --- messages on their way ------------------------------------------------------------------------


def test_what_comes_in_loses_its_vector_and_what_goes_out_gets_what_the_neighbour_lacks() -> None:
    some = relay()
    assert some.learn(S, news(4, {"l": 1}), NOW) == (news(4), [])
    once = some.dressed([Send(L, news(4)), Send(L, news(4)), Send(BrokerName("r"), news(4))])
    assert once == [
        Send(L, news(4, {"l": 1})),
        Send(L, news(4)),
        Send(BrokerName("r"), news(4, {"l": 1})),
    ]
    some.learn(S, news(5, {"r": 3}, base=4), NOW)
    assert some.dressed([Send(L, news(5))]) == [Send(L, news(5, {"r": 3}, base=4))]


def test_what_goes_sideways_has_its_vector_in_full_for_whoever_gets_it_in_the_end() -> None:
    some = relay()
    some.learn(S, news(4, {"l": 1}), NOW)
    sideways = Send(M2, Sideways(LEFT, news(4)))
    for _ in range(2):
        assert some.dressed([sideways]) == [Send(M2, Sideways(LEFT, news(4, {"l": 1})))]


def test_everything_else_goes_out_as_it_is() -> None:
    some = relay()
    some.learn(S, news(4, {"l": 1}), NOW)
    plain: list[Effect] = [
        Send(L, Ping(1)),
        Send(L, news(0)),
        Send(M2, Sideways(LEFT, news(0))),
        Send(M2, Sideways(LEFT, Nack(ZERO, (Span(1, 2),)))),
        Persist((), (Tell(Ping(1)),)),
    ]
    assert some.dressed(plain) == plain


def test_after_a_link_broke_all_topics_are_announced_there_in_full() -> None:
    some = relay()
    for pubend in (ZERO, RAIN):
        some.learn(S, news(4, {"l": 1}, pubend=pubend), NOW)
        some.dressed([Send(L, news(4, pubend=pubend))])
    some.forget_peer(L)
    for pubend in (ZERO, RAIN):
        assert some.dressed([Send(L, news(4, pubend=pubend))]) == [
            Send(L, news(4, {"l": 1}, pubend=pubend))
        ]


# --- steps, time ----------------------------------------------------------------------------------


def begun(name: str) -> InterestTable:
    """With their clocks durable."""
    some = interests(name)
    for interest in some.by_topic.values():
        for effect in interest.begin(NOW):
            assert isinstance(effect, Persist)
            for each in effect.then:
                assert isinstance(each, Tell)
                interest.persisted(each.message, NOW)  # type: ignore[arg-type]
    return some


@pytest.mark.parametrize(
    ("name", "above", "text"), [("l", "m1", TOWN), ("f", "h", CHAIN), ("h", "t", CHAIN)]
)
def test_what_was_told_before_there_was_a_link_is_told_again_when_there_is_one(
    name: str, above: str, text: str
) -> None:
    town = Town(name, text, propagates=True)
    town.connect()
    town.receive(ANN, subscribe(1, "colour = 'red'"))
    town.wait(CONFIG.change_gather)  # and is told, to nobody
    town.link(above)
    sent = town.receive(above, Pong())
    [state] = [each for to, each in sent if isinstance(each, SubscriptionState) and to == above]
    assert state.conditions == ("colour = 'red'",)
    assert state.vector == {name: 1}
    town.link(above)
    town.receive(above, Knowledge(ZERO, Span(1, 2), digest=7, vector=state.vector))
    sent = town.receive(above, Pong())
    assert not [each for _, each in sent if isinstance(each, SubscriptionState)], "it has come"


def test_at_the_end_of_a_step_the_topics_are_told_that_something_was_asked_for() -> None:
    some = begun("l")
    key = ("ann", 1)
    some.subscribe(WEATHER, key, Filter.parse("sun"), NOW)
    told = SubscriptionChange(LEFT, {"l": 1}, {"l": 0}, ("sun = TRUE",), (), WEATHER)
    assert sends(some.update(NOW)) == [Send(BrokerName("m1"), told)]
    assert some.update(NOW) == []
    some.unsubscribe(WEATHER, key, NOW)
    assert some.update(NOW) == []
    due = NOW + Config().change_gather
    assert some.deadline == due
    [send] = sends(some.fire(Instant(due)))
    assert isinstance(send, Send)
    assert send.message == SubscriptionChange(
        LEFT, {"l": 2}, {"l": 1}, (), ("sun = TRUE",), WEATHER
    )
    assert some.fire(Instant(due + Config().change_gather)) == []
    some.check()


def test_the_earliest_deadline_of_all_topics_counts() -> None:
    some = relay()
    assert some.deadline is None
    some.learn(S, news(4, {"l": 9}, pubend=RAIN), NOW)
    some.learn(S, news(4, {"l": 9}), Instant(NOW + 5))
    assert some.deadline == NOW + Config().lag_patience
