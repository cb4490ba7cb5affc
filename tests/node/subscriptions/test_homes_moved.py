"""Who lost its token is not served by an old copy of its subscription, which has moved."""

from __future__ import annotations

from typing import Any

import pytest

from gapless.core.client_messages import (
    Acknowledge,
    Done,
    Ended,
    Forget,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.identity import BrokerName, ClientName, SubscriptionName
from gapless.node.subscriptions.attachments import UNCONFIRMED_MAX
from tests.node.subscriptions.test_homes import BEATS, Land
from tests.node.town import NEWS


def moved(land: Land, registrar: str, *cut: str) -> SubscriptionName:
    """A name whose client has gone on from "a" to "b", while some brokers were cut off."""
    name = land.name_at(registrar)
    first = land.subscribe("a", name)
    land.leave("a")
    land.cut.update(cut)
    wish = {"token": first.start, "previous": BrokerName("a"), "moves": first.moves}
    assert isinstance(land.subscribe("b", name, **wish), Subscribed)
    return name


def acknowledge(land: Land, broker: str, *requests: int) -> list[int]:
    """Those of all requests that are confirmed."""
    for request in requests:
        land.ask(broker, Acknowledge(1, {"news/0": 7 << 20}, request), "ann")
    return [each.request for each in land.heard[f"ann@{broker}"] if isinstance(each, Done)]


@pytest.mark.parametrize("registrar", "abc")
def test_who_lost_its_token_is_not_served_by_an_old_copy_that_does_not_know_of_its_move(
    registrar: str,
) -> None:
    land = Land()
    name = moved(land, registrar, "a")
    land.wait(BEATS)
    if registrar != "a":  # who knows of the move, and "a" does not
        assert acknowledge(land, "b", 5) == [5]
    land.leave("b")
    land.cut.clear()
    assert land.homes(name) == ["a", "b"]
    came = land.subscribe("a", name)
    if registrar != "a":
        assert came.elsewhere == ("b",)
    else:  # nothing was confirmed that the old copy does not know
        assert isinstance(came, Subscribed)


def test_what_is_finished_after_a_move_is_confirmed_when_the_move_is_known() -> None:
    for opened in "ac":
        land = Land()
        moved(land, "c", "a", "c")
        land.wait(BEATS)
        assert acknowledge(land, "b", 5, 6) == []
        land.cut.discard(opened)  # where it was, or its registrar: one of them is enough
        land.wait(BEATS)
        assert acknowledge(land, "b", 7) == [5, 6, 7]


def test_no_more_than_so_many_acknowledgements_wait_for_a_move_to_be_known() -> None:
    land = Land()
    moved(land, "c", "a", "c")
    acknowledge(land, "b", *range(2, UNCONFIRMED_MAX + 3))
    refused = [each for each in land.heard["ann@b"] if isinstance(each, Refused)]
    assert [(each.request, each.retry) for each in refused] == [(UNCONFIRMED_MAX + 2, True)]


def test_one_whose_subscription_moves_while_the_registrar_is_asked_is_sent_after_it() -> None:
    land = Land(name_patience=60_000_000)
    name = land.name_at("c")
    first = land.subscribe("a", name)
    land.leave("a")
    land.cut.add("c")
    town = land.towns["a"]
    town.connect("bob")
    town.receive("bob", Subscribe(NEWS, 1, 1, name=name))
    wish = {"token": first.start, "previous": BrokerName("a"), "moves": first.moves}
    assert isinstance(land.subscribe("b", name, **wish), Subscribed)
    land.wait(1)
    assert land.homes(name) == ["b"]
    land.cut.clear()
    land.wait(BEATS)
    [refused] = [each for each in land.heard["bob@a"] if isinstance(each, Refused)]
    assert refused.elsewhere == ("b",)


def test_what_waits_to_be_confirmed_is_answered_though_its_session_ends_meanwhile() -> None:
    land = Land()
    moved(land, "c", "a", "c")
    land.wait(BEATS)
    assert acknowledge(land, "b", 5) == []
    land.ask("b", Unsubscribe(1), "ann")
    land.cut.clear()
    land.wait(BEATS)
    assert acknowledge(land, "b") == [5]


def test_what_waits_to_be_confirmed_is_answered_though_all_of_it_is_ended_meanwhile() -> None:
    land = Land()
    name = moved(land, "c", "a", "c")
    land.wait(BEATS)
    assert acknowledge(land, "b", 5) == []
    land.ask("b", Forget(6, name), "ann")
    land.cut.clear()
    land.wait(BEATS)
    assert land.homes(name) == []
    assert acknowledge(land, "b") == [6]
    [refused] = [each for each in land.heard["ann@b"] if isinstance(each, Refused)]
    assert (refused.request, refused.retry) == (5, True)


def test_the_end_of_an_old_copy_is_answered_when_the_subscription_is_over_where_it_is() -> None:
    land = Land(name_patience=60_000_000)
    name = moved(land, "c", "a")
    land.wait(BEATS)
    land.leave("b")
    assert land.homes(name) == ["a", "b"]
    land.cut = {"b"}
    town = land.towns["a"]
    town.connect("eve")
    town._do(town.node.receive(ClientName("eve"), Forget(7, name), town.now))
    land.wait(BEATS)
    assert land.homes(name) == ["b"]
    assert Done(7) not in land.heard.get("eve@a", []), "it lives on"
    land.cut.clear()
    land.wait(BEATS)
    assert land.homes(name) == []
    assert Done(7) in land.heard["eve@a"]


@pytest.mark.parametrize("registrar", "abc")
@pytest.mark.parametrize("has_token", [True, False])
def test_a_name_that_has_moved_away_and_ended_begins_anew_where_it_was(
    registrar: str, *, has_token: bool
) -> None:
    land = Land()
    name = moved(land, registrar)
    land.wait(BEATS)
    land.ask("b", Forget(6, name), "ann")
    land.wait(BEATS)
    assert Done(6) in land.heard["ann@b"]
    wish: dict[str, Any] = {"token": {"news/0": 7 << 20}} if has_token else {}
    came = land.subscribe("a", name, **wish)
    assert isinstance(came, Subscribed)
    land.wait(2 * BEATS)
    assert land.homes(name) == ["a"]
    assert not [each for each in land.heard["ann@a"] if isinstance(each, Ended)]
