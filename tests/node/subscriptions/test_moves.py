"""What was acknowledged stays so, wherever its client goes on and with whichever token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from gapless.core.broker_messages import HandOver
from gapless.core.client_messages import (
    Acknowledge,
    Done,
    Forget,
    Refused,
    Subscribe,
    Subscribed,
)
from gapless.core.identity import BrokerName, ClientName
from gapless.node.network import parse_network
from tests.node.country import HEARTBEAT
from tests.node.subscriptions.test_homes import BEATS, NET, Land
from tests.node.town import NEWS

if TYPE_CHECKING:
    from gapless.core.messages import Message

FINISHED = {"news/0": 3 << 32}
"""Beyond where any of these subscriptions starts, and not yet too far ahead to be believed."""

LINES = NET.splitlines(keepends=True)


def finish(land: Land, broker: str, name: str, **wish: Any) -> Subscribed:
    """A client comes to this broker, acknowledges what it has finished, and leaves."""
    came = land.subscribe(broker, name, **wish)
    assert isinstance(came, Subscribed)
    assert land.ask(broker, Acknowledge(1, FINISHED, 5), "ann") == Done(5)
    land.leave(broker)
    return came


def after(came: Subscribed, broker: str) -> dict[str, Any]:
    """How a client comes to another broker with the token that it had at the start."""
    return {"token": came.start, "previous": BrokerName(broker), "moves": came.moves}


@pytest.mark.parametrize("registrar", "abc")
@pytest.mark.parametrize("is_told", [True, False])
def test_who_moved_with_an_older_token_and_comes_without_goes_on_from_what_it_acknowledged(
    registrar: str, is_told: bool
) -> None:
    land = Land()
    name = land.name_at(registrar)
    first = finish(land, "a", name)
    wish = after(first, "a") if is_told else {"token": first.start}
    assert land.subscribe("b", name, **wish).start == first.start, "it may go back"
    land.leave("b")
    land.wait(BEATS)
    assert land.homes(name) == ["b"]
    assert land.subscribe("b", name).start == FINISHED


def test_who_comes_without_a_token_waits_until_its_old_broker_has_told_what_it_finished() -> None:
    land = Land()
    name = land.name_at("c")
    first = finish(land, "a", name)
    land.cut.add("a")
    land.subscribe("b", name, **after(first, "a"))
    land.leave("b")
    land.wait(BEATS)
    refused = land.subscribe("b", name)
    assert isinstance(refused, Refused)
    assert refused.retry
    assert "'a'" in refused.remedy
    land.leave("b")
    assert land.subscribe("b", name, token=first.start).start == first.start, "it may say so"
    land.leave("b")
    land.cut.clear()
    land.wait(BEATS)
    assert land.subscribe("b", name).start == FINISHED


@pytest.mark.parametrize("broker", "ab")
def test_a_crash_while_it_is_told_what_was_finished_takes_none_of_it_back(broker: str) -> None:
    land = Land(released_flush=6 * HEARTBEAT)
    name = land.name_at("c")
    first = finish(land, "a", name)
    land.subscribe("b", name, **after(first, "a"))
    land.leave("b")
    land.wait(2)
    kept = land.towns["b"].node.durable.subscriptions.get(name)
    assert kept is not None
    assert dict(kept.acknowledged) == FINISHED
    assert dict(kept.released) == first.start, "it is not durable yet"
    assert land.homes(name) == ["a", "b"], "so that its old broker still has it"
    land.restart(broker)
    land.wait(3 * BEATS)
    assert land.homes(name) == ["b"]
    assert land.subscribe("b", name).start == FINISHED


def test_one_that_went_round_before_its_first_broker_heard_of_it_has_all_that_it_finished() -> None:
    """Then a copy is forgotten for one that did not come from it: it is the other way round."""
    land = Land()
    name = land.name_at("c")
    first = land.subscribe("a", name)
    land.leave("a")
    land.cut.add("a")
    second = finish(land, "b", name, **after(first, "a"))
    land.cut.add("b")
    third = land.subscribe("c", name, **after(second, "b"))
    land.leave("c")
    land.cut.add("c")
    fourth = land.subscribe("a", name, **after(third, "c"))
    assert [each.moves for each in (first, second, third)] == [0, 1, 2]
    assert fourth.start == first.start
    land.leave("a")
    land.wait(BEATS)
    land.cut = {"c"}
    land.wait(2 * BEATS)
    land.cut.clear()
    land.wait(4 * BEATS)
    [home] = land.homes(name)
    assert land.subscribe(home, name).start == FINISHED


def test_what_was_finished_in_an_earlier_life_of_the_name_is_not_finished_in_the_next() -> None:
    land = Land()
    name = land.name_at("c")
    first = land.subscribe("a", name)
    land.leave("a")
    land.cut = {"a", "c"}
    land.subscribe("b", name, **after(first, "a"))
    land.ask("b", Acknowledge(1, FINISHED), "ann")
    land.leave("b")
    land.cut = {"b"}
    assert land.ask("a", Forget(7, name), "ann") == Done(7), "nobody knows of the move"
    land.restart("a")
    land.wait(BEATS)
    anew = land.subscribe("a", name)
    land.leave("a")
    assert land.homes(name) == ["a", "b"]
    land.cut.clear()
    land.wait(2 * BEATS)
    assert land.homes(name) == ["a"]
    assert land.subscribe("a", name).start == anew.start


def tell(land: Land, broker: str, message: Message, client: str) -> None:
    """A client's request at a broker that cannot answer it yet."""
    town = land.towns[broker]
    town.connect(client)
    town._do(town.node.receive(ClientName(client), message, town.now))
    land.run()


def say(land: Land, sender: str, receiver: str, message: HandOver) -> None:
    """A message of long ago arrives, or one that was sent twice."""
    late = replace(message, sender=BrokerName(sender), receiver=BrokerName(receiver))
    town = land.towns[receiver]
    town._do(town.node.receive(BrokerName("m1"), late, town.now))
    land.run()


def test_a_late_request_of_the_broker_that_it_came_from_costs_nothing_that_it_finished() -> None:
    land = Land()
    name = land.name_at("c")
    first = land.subscribe("a", name)
    land.leave("a")
    second = finish(land, "b", name, **after(first, "a"))
    land.wait(BEATS)
    land.cut.add("b")
    assert land.subscribe("a", name, **after(second, "b")).moves == 2
    land.leave("a")
    land.cut.clear()
    say(land, "b", "a", HandOver(name, moves=1, released=first.start))
    land.wait(2 * BEATS)
    assert land.homes(name) == ["a"]
    assert land.subscribe("a", name).start == FINISHED


def test_what_was_told_to_one_that_was_here_before_comes_too_late() -> None:
    land = Land()
    name = land.name_at("c")
    first = finish(land, "a", name)
    second = land.subscribe("b", name, **after(first, "a"))
    land.wait(BEATS)
    assert land.ask("b", Forget(7, name), "ann") == Done(7)
    anew = land.subscribe("b", name)
    assert anew.moves > second.moves
    for moves, start in ((second.moves, anew.start), (anew.moves, FINISHED)):
        land.leave("b")
        say(land, "a", "b", HandOver(name, moves=moves, released=FINISHED, ahead=True))
        assert land.subscribe("b", name).start == start


def test_it_has_arrived_when_the_broker_that_it_came_from_is_no_more() -> None:
    land = Land()
    name = land.name_at("c")
    first = finish(land, "a", name)
    land.cut.add("a")
    land.subscribe("b", name, **after(first, "a"))
    land.leave("b")
    land.wait(BEATS)
    del land.towns["a"]
    for broker, town in land.towns.items():
        town.network = parse_network("".join(line for line in LINES if '"a"' not in line))
        land.restart(broker)
    land.wait(BEATS)
    assert land.subscribe("b", name).start == first.start, "what only that one knew is gone with it"
    assert land.ask("b", Forget(7, name), "ann") == Done(7)


def copies(land: Land, name: str) -> None:
    """The subscription has gone to `b` and come back to `a`, and neither has heard of the other."""
    first = land.subscribe("a", name)
    land.leave("a")
    land.cut.add("a")
    second = land.subscribe("b", name, **after(first, "a"))
    land.leave("b")
    land.cut.add("b")
    land.subscribe("a", name, **after(second, "b"))
    land.leave("a")
    assert land.homes(name) == ["a", "b"]


@pytest.mark.parametrize("registrar", "abc")
def test_two_copies_that_are_ended_at_once_do_not_take_each_other_over_for_ever(
    registrar: str,
) -> None:
    land = Land()
    name = land.name_at(registrar)
    copies(land, name)
    tell(land, "a", Forget(7, name), "ann")
    tell(land, "b", Forget(8, name), "bob")
    land.cut.clear()
    land.wait(4 * BEATS)
    assert land.homes(name) == []
    assert land.heard["ann@a"][-1] == Done(7)
    assert land.heard["bob@b"][-1].elsewhere == ("a",), "it had gone on there"  # type: ignore[attr-defined]


@pytest.mark.parametrize("registrar", "abc")
def test_a_client_that_ends_the_copy_that_was_left_is_sent_to_the_one_that_lives(
    registrar: str,
) -> None:
    """It is not told that the subscription is over, and the living one does not come back."""
    land = Land()
    name = land.name_at(registrar)
    copies(land, name)
    tell(land, "b", Forget(8, name), "bob")
    land.cut.clear()
    land.wait(4 * BEATS)
    assert land.homes(name) == ["a"]
    assert land.heard["bob@b"][-1].elsewhere == ("a",)  # type: ignore[attr-defined]
    assert land.ask("a", Forget(8, name), "bob") == Done(8)
    assert land.homes(name) == []


def test_a_copy_that_finds_no_room_on_the_disk_is_not_told_to_be_over() -> None:
    """It lives where it was: the client that wanted it ended tries again."""
    land = Land()
    name = land.name_at("c")
    first = land.subscribe("a", name)
    land.leave("a")
    town = land.towns["b"]
    town.slow = []
    tell(land, "b", Subscribe(NEWS, 1, 1, name=name, **after(first, "a")), "bob")
    land.wait()
    tell(land, "b", Forget(8, name), "ann")
    assert "ann@b" not in land.heard, "it is not durable yet"
    writes, town.slow = town.slow, None
    for write in writes:
        town._do(write.otherwise)
    land.run()
    [refused] = land.heard["ann@b"]
    assert isinstance(refused, Refused)
    assert refused.retry
    assert land.homes(name) == ["a"]
    assert land.ask("b", Forget(9, name), "ann").elsewhere == ("a",)  # type: ignore[attr-defined]
