"""Interest: subscriptions of one topic at one broker, gathered and passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import (
    Sideways,
    SubscriptionChange,
    SubscriptionNack,
)
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, CellName, Instant
from gapless.node.config import Config
from gapless.node.durable.topic_interest import AHEAD_MAX
from gapless.testing.memory_volume import MemoryVolume
from tests.node.stand import (
    ANY,
    BLUE,
    GATHER,
    LEFT,
    PATIENCE,
    RED,
    RIGHT,
    TWO_WAYS,
    Stand,
    change,
    news,
    state,
)
from tests.node.town import CHAIN, NEWS

if TYPE_CHECKING:
    from gapless.core.broker_messages import Propagated


# --- gathering ------------------------------------------------------------------------------------


def test_a_request_after_a_while_of_rest_is_told_at_once() -> None:
    leaf = Stand("l")
    leaf.subscribe(1, RED)
    assert leaf.interest.deadline == leaf.now
    assert leaf.update() == [("m1", change("left", "l", 1, RED))]
    assert leaf.interest.deadline is None


def test_requests_within_the_gathering_time_are_one_step_of_the_clock() -> None:
    leaf = Stand("l")
    leaf.ask(1, RED)
    due = leaf.now + GATHER
    leaf.now = Instant(due - 2)
    leaf.subscribe(2, BLUE)
    leaf.unsubscribe(1)
    assert leaf.update() == []
    assert leaf.interest.deadline == due
    assert leaf.wait(1) == []
    assert leaf.wait(1) == [("m1", change("left", "l", 2, BLUE, removed=(RED,)))]


def test_what_is_taken_back_before_it_was_told_is_never_told() -> None:
    leaf = Stand("l")
    leaf.ask(1, RED)
    leaf.subscribe(2, BLUE)
    leaf.unsubscribe(2)
    assert leaf.wait(GATHER) == []
    assert leaf.interest.leaf is not None
    assert leaf.interest.leaf.clock == 2


def test_a_number_may_be_used_again_at_once() -> None:
    leaf = Stand("l")
    leaf.ask(1, RED)
    leaf.unsubscribe(1)
    leaf.subscribe(1, BLUE)
    assert leaf.wait(GATHER) == [("m1", change("left", "l", 2, BLUE, removed=(RED,)))]


def test_the_end_of_what_was_never_asked_for_is_nothing() -> None:
    leaf = Stand("l")
    leaf.unsubscribe(7)
    assert leaf.interest.deadline is None


def test_what_is_covered_costs_no_step() -> None:
    leaf = Stand("l")
    leaf.ask(1, ANY)
    assert leaf.ask(2, RED) == []
    leaf.now = Instant(leaf.now + GATHER)
    leaf.unsubscribe(1)
    assert leaf.update() == [("m1", change("left", "l", 2, RED, removed=(ANY,)))]


# --- to whom --------------------------------------------------------------------------------------


def test_changes_go_to_the_first_live_member_in_the_networks_order() -> None:
    leaf = Stand("l")
    leaf.routing.lose(BrokerName("m1"), leaf.now)
    [(to, _)] = leaf.ask(1, RED)
    assert to == "m2"
    leaf.routing.receive_pong(BrokerName("m1"), leaf.now)
    [(to, _)] = leaf.ask(2, BLUE)
    assert to == "m1"


def test_without_a_link_to_the_cell_above_a_change_goes_by_way_of_a_sibling() -> None:
    relay = Stand("m1")
    relay.routing.lose(BrokerName("s"), relay.now)
    sent = relay.receive("l", change("left", "l", 1, RED))
    up = SubscriptionChange(CellName("middle"), {"l": 1}, {"l": 0}, (RED,), (), NEWS)
    assert ("m2", Sideways(CellName("source"), up)) in sent
    relay.routing.lose(BrokerName("m2"), relay.now)
    sent = relay.receive("l", change("left", "l", 2, BLUE))
    assert [to for to, _ in sent] == ["m2"], "the copy for the sibling is all that is tried"


def test_a_change_goes_up_in_every_direction_and_to_a_sibling_once() -> None:
    relay = Stand("m1", TWO_WAYS)
    assert set(relay.interest.branches) == {"north", "south"}
    incoming = change("east", "e", 1, RED)
    sent = relay.receive("e", incoming)
    ours = SubscriptionChange(CellName("middle"), {"e": 1}, {"e": 0}, (RED,), (), NEWS)
    assert sent == [("m2", incoming), ("n", ours), ("s", ours)]


def test_what_a_sibling_passes_on_is_applied_and_told_to_nobody() -> None:
    relay = Stand("m2", TWO_WAYS)
    assert relay.receive("m1", change("east", "e", 1, RED)) == []
    assert all(branch.vector == {"e": 1} for branch in relay.interest.branches.values())


def test_a_direction_is_told_only_of_those_who_are_not_beyond_it() -> None:
    """What the subscribers of the northern host want is nothing for that host."""
    relay = Stand("m1", TWO_WAYS)
    sent = relay.receive("n", change("north", "n", 1, RED))
    assert [to for to, _ in sent] == ["m2", "s"]
    assert relay.interest.branches[CellName("north")].vector == {}


# --- a broker that is a leaf and a relay ----------------------------------------------------------


def test_a_relay_tells_its_own_subscriptions_and_those_below_as_one() -> None:
    relay = Stand("h", CHAIN)
    mine = {"f": 0, "h": 0}
    assert relay.ask(1, RED) == [("t", change("half", "h", 1, RED))]
    assert relay.receive("f", change("foot", "f", 1, ANY)) == [
        ("t", SubscriptionChange(CellName("half"), {"f": 1}, mine | {"h": 1}, (ANY,), (RED,), NEWS))
    ]
    assert relay.ask(2, BLUE) == [
        ("t", SubscriptionChange(CellName("half"), {"h": 2}, {"f": 1, "h": 1}, (), (), NEWS))
    ]


def test_what_only_a_relays_own_subscribers_want_goes_no_further_down() -> None:
    relay = Stand("h", CHAIN)
    relay.ask(1, ANY)
    children = relay.interest.branches[CellName("top")].children
    assert len(children[CellName("half")].conditions) == 1
    assert not children[CellName("foot")].conditions


def test_a_relay_that_lags_behind_its_own_subscriptions_asks_itself() -> None:
    volume = MemoryVolume()
    before = Stand("h", CHAIN, volume=volume)
    before.ask(1, RED)
    after = Stand("h", CHAIN, volume=volume, now=2_000_000)
    assert after.interest.leaf is not None
    time = after.interest.leaf.clock - 1
    branch = after.interest.branches[CellName("top")]
    assert branch.vector == {"h": time}, "it has told its state to itself as well"
    assert [to for to, _ in after.begun] == ["t"]
    after.learn("t", news(0, 1, {"h": time + 5}))
    [(to, answer)] = after.wait(PATIENCE)
    assert isinstance(answer, SubscriptionChange)
    assert (to, answer.vector) == ("t", {"h": time + 5}), "who has forgotten us is followed"
    far = after.now // 1_000 + 10 * AHEAD_MAX
    after.learn("t", news(10, 2, {"h": far}))
    sent = after.wait(PATIENCE)
    assert sent == [("t", state("half", {"h": time + 5}))], "not into the far future: all it has"


# --- what neighbours may say ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sender", "message"),
    [
        ("l", state("right", {"r": 3}, RED)),
        ("l", state("left", {"r": 3}, RED)),
        ("l", change("right", "r", 1, RED)),
        ("l", state("left", {"l": 3}, RED, "a = 1 OR b = 2")),
        ("m2", change("left", "l", 1, "no condition at all")),
        ("l", SubscriptionNack(LEFT, {"l": 1}, NEWS)),
        ("m2", SubscriptionNack(LEFT, {"l": 1}, NEWS)),
        ("s", state("source", {}, RED)),
        ("m2", state("nowhere", {}, RED)),
    ],
)
def test_what_a_neighbour_may_not_say_is_refused_and_changes_nothing(
    sender: str, message: Propagated
) -> None:
    relay = Stand("m1")
    relay.receive("r", change("right", "r", 1, BLUE))
    with pytest.raises(ProtocolError):
        relay.receive(sender, message)
    [branch] = relay.interest.branches.values()
    assert branch.vector == {"r": 1}
    assert [*branch.children[RIGHT].conditions.values()] == [BLUE]
    assert not branch.children[LEFT].conditions
    assert not branch.pending_changes
    assert relay.interest.deadline is None


def test_a_sibling_may_speak_for_any_cell_below() -> None:
    relay = Stand("m1")
    relay.receive("m2", state("right", {"r": 3}, RED))
    assert relay.interest.branches[CellName("source")].vector == {"r": 3}


def test_a_question_is_answered_to_the_one_that_asked() -> None:
    leaf = Stand("l")
    leaf.ask(1, RED)
    asked = SubscriptionNack(LEFT, {"l": 1}, NEWS)
    assert leaf.receive("m2", asked) == [("m2", state("left", {"l": 1}, RED))]
    relay = Stand("m2")
    relay.receive("l", change("left", "l", 1, RED))
    asked = SubscriptionNack(CellName("middle"), {"l": 1}, NEWS)
    assert relay.receive("s", asked) == [("s", state("middle", {"l": 1}, RED))]


# --- lag, loss ------------------------------------------------------------------------------------


def test_a_relay_that_a_vector_shows_to_lag_asks_below_after_its_patience() -> None:
    relay = Stand("m1")
    assert relay.learn("s", news(0, 1, {"l": 5, "r": 2})) == []
    relay.receive("r", state("right", {"r": 2}))
    assert relay.wait(PATIENCE - 1) == []
    assert relay.wait(1) == [("l", SubscriptionNack(LEFT, {"l": 5}, NEWS))]


def test_a_leaf_whose_change_does_not_come_back_tells_all_it_has() -> None:
    leaf = Stand("l")
    leaf.ask(1, RED)
    assert leaf.learn("m1", news(0, 1, {"l": 0})) == []
    leaf.now = Instant(leaf.now + Config().change_wait)
    assert leaf.learn("m1", news(10, 1)) == [("m1", state("left", {"l": 1}, RED))]


def test_a_topic_is_unwanted_only_when_every_cell_has_said_so() -> None:
    host = Stand("s", now=5_000_000)

    def is_unwanted() -> bool:
        return host.interest.is_unwanted

    assert host.interest.stamp is not None
    assert host.interest.stamp.is_in_use
    assert not is_unwanted()  # a subscription may have begun that we have not heard of
    vector = dict(host.interest.stamp.vector)
    host.receive("m1", state("middle", vector))
    assert is_unwanted()
    host.receive("m1", change("middle", "l", vector["l"] + 1, RED))
    assert not is_unwanted()
