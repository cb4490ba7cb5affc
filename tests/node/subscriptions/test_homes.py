"""A named subscription is found wherever its client comes, and nobody starts anew what exists."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from gapless.core.client_messages import (
    Acknowledge,
    Deliveries,
    Done,
    Forget,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.identity import BrokerName, ClientName, PubendName, SubscriptionName
from gapless.core.name_messages import NameEntry, NameQuestion
from gapless.node.directory.registry import registrar_of
from tests.node.country import Country
from tests.node.town import ALONE, NEWS, Town, publish

NET = """
cell = [
    {name = "p", brokers = [{name = "p"}], links = ["m"]},
    {name = "m", brokers = [{name = "m1"}, {name = "m2"}]},
    {name = "a", links = ["m"], subscribers = true, brokers = [{name = "a"}]},
    {name = "b", links = ["m"], subscribers = true, brokers = [{name = "b"}]},
    {name = "c", links = ["m"], subscribers = true, brokers = [{name = "c"}]},
]
topic = [{name = "news", pubends = ["p"]}]
"""
BEATS = 4
NOBODY = SubscriptionName("nobody")


class Land(Country):
    """A network with three brokers that have subscribers."""

    def __init__(self, **limits: Any) -> None:
        super().__init__(NET, **limits)
        self.wait(BEATS)

    def name_at(self, registrar: str) -> SubscriptionName:
        """A name of which this broker is the registrar."""
        network = self.towns["a"].network
        names = (SubscriptionName(f"desk-{number}") for number in range(100))
        return next(each for each in names if registrar_of(network, each) == registrar)

    def subscribe(self, broker: str, name: str, client: str = "ann", **wish: Any) -> Any:
        town = self.towns[broker]
        town.connect(client)
        message = Subscribe(NEWS, 1, 1, name=SubscriptionName(name), **wish)
        town._do(town.node.receive(ClientName(client), message, town.now))
        heard = self.heard[f"{client}@{broker}"] = []
        self.run()
        for _ in range(BEATS):
            if answers := [each for each in heard if hasattr(each, "request")]:
                return answers[0]
            self.wait()
        raise AssertionError("there is no answer")

    def leave(self, broker: str, client: str = "ann") -> None:
        self.towns[broker].leave(client)
        self.run()

    def homes(self, name: str) -> list[str]:
        return [
            str(broker)
            for broker, town in self.towns.items()
            if town.node.durable.subscriptions.get(SubscriptionName(name)) is not None
        ]


def test_without_a_token_a_client_is_sent_to_where_its_subscription_is() -> None:
    land = Land()
    for registrar in "abc":
        name = land.name_at(registrar)
        assert isinstance(land.subscribe("a", name), Subscribed)
        land.leave("a")
        refused = land.subscribe("b", name)
        assert (refused.elsewhere, land.homes(name)) == (("a",), ["a"])
        kept = land.subscribe("c", name, tokens="broker", token={"news/0": 1})
        assert kept.elsewhere == ("a",), "what its broker keeps is there"
        assert isinstance(land.subscribe("a", name), Subscribed)
        land.leave("a")


def test_with_its_token_it_is_taken_over_though_nobody_says_where_it_was() -> None:
    land = Land()
    for registrar in "abc":
        name = land.name_at(registrar)
        first = land.subscribe("a", name)
        land.leave("a")
        land.ask("p", publish("red"), "pub")
        moved = land.subscribe("b", name, token=first.start)
        assert isinstance(moved, Subscribed)
        assert (moved.start, moved.moves) == (first.start, 1)
        land.wait(BEATS)
        assert land.homes(name) == ["b"], "the copy that was left is forgotten"
        got = [m.ticks for m in land.heard["ann@b"] if isinstance(m, Deliveries) and m.ticks]
        assert len(got) == 1, "what was published meanwhile has come"
        land.leave("b")
        assert land.subscribe("c", name).elsewhere == ("b",), "the registrar knows of the move"


def test_a_name_that_a_drained_broker_claimed_and_never_got_is_free_for_others() -> None:
    land = Land()
    name = land.name_at("b")
    claim = NameQuestion(name, BrokerName("a"), BrokerName("b"), "claim", 1, 1, None, "")
    land.towns["b"].receive("m1", claim)  # a crash of a came before its creation
    land.run()
    drained = land.towns["a"]
    drained._do(drained.node.drain(drained.now))
    assert land.subscribe("c", name).elsewhere == ("a",)
    assert "a" not in land.subscribe("a", name).elsewhere, "nobody is taken in there any more"
    land.wait(BEATS)
    assert isinstance(land.subscribe("c", name, client="bob"), Subscribed)


def test_one_that_exists_needs_no_registrar_and_a_new_one_waits_for_it_and_is_told_why() -> None:
    land = Land()
    name = land.name_at("c")
    first = land.subscribe("a", name)
    land.leave("a")
    land.cut.add("c")
    assert isinstance(land.subscribe("a", name, token=first.start), Subscribed)
    refused = land.subscribe("b", name, client="bob")
    assert (refused.retry, refused.elsewhere) == (True, ())
    assert "'c', which keeps its name, is silent" in refused.problem
    land.cut.clear()
    assert land.subscribe("b", name, client="bob").elsewhere == ("a",)


def test_one_that_its_broker_keeps_needs_no_registrar_and_no_token() -> None:
    land = Land()
    name = land.name_at("c")
    land.subscribe("a", name, tokens="broker")
    land.leave("a")
    land.cut.add("c")
    assert isinstance(land.subscribe("a", name, tokens="broker"), Subscribed)


def test_a_claim_is_repeated_until_it_is_answered() -> None:
    land = Land()
    name = land.name_at("c")
    land.cut.add("c")
    town = land.towns["a"]
    town.connect("ann")
    town._do(town.node.receive(ClientName("ann"), Subscribe(NEWS, 1, 1, name=name), town.now))
    land.run()
    assert land.heard.get("ann@a", []) == []
    land.cut.clear()
    land.wait(BEATS)
    assert any(isinstance(each, Subscribed) for each in land.heard["ann@a"])


@pytest.mark.parametrize("way", ["unsubscribe", "leave"])
def test_who_waits_for_a_name_may_give_up(way: str) -> None:
    land = Land()
    name = land.name_at("c")
    land.cut.add("c")
    town = land.towns["a"]
    town.connect("ann")
    town.receive("ann", Subscribe(NEWS, 1, 1, name=name))
    twice = town.receive("ann", Subscribe(NEWS, 2, 1, name=name))
    assert isinstance(twice[0][1], Refused), "the number is in use"
    if way == "leave":
        town.leave("ann")
    else:
        town.receive("ann", Unsubscribe(1))
    assert (town.node.durable.homes.questions, town.node.durable.homes.waiting) == ({}, {})
    land.cut.clear()
    land.wait(BEATS)
    assert land.homes(name) == []


def test_a_crash_between_claim_and_creation_leaves_nothing_that_is_in_the_way() -> None:
    land = Land()
    name = land.name_at("c")
    granted = NameQuestion(name, BrokerName("a"), BrokerName("c"), "claim", 1, 1)
    land.towns["c"].receive("m1", granted)
    assert land.subscribe("b", name).elsewhere == ("a",)
    assert isinstance(land.subscribe("a", name), Subscribed), "who has claimed it makes it"
    other = SubscriptionName("desk-x")
    registrar = registrar_of(land.towns["a"].network, other)
    land.towns[str(registrar)].node.durable.homes.registry._set(
        other, land.towns["c"].node.durable.homes.registry.entries[name]
    )
    answer = land.ask("a", Forget(9, other), "bob")
    assert isinstance(answer, Refused), "there is none"
    assert isinstance(land.subscribe("b", other, client="eve"), Subscribed), "nor is it taken"


def test_it_is_ended_through_any_broker_and_then_its_name_is_free() -> None:
    land = Land()
    for registrar in "abc":
        name = land.name_at(registrar)
        land.subscribe("a", name)
        assert land.ask("p", Forget(5, name), "bob").elsewhere == ("a",)  # type: ignore[attr-defined]
        assert land.ask("a", Forget(6, name), "bob") == Done(6)
        assert land.homes(name) == []
        unknown = land.ask("b", Forget(7, name), "bob")
        assert isinstance(unknown, Refused)
        assert (unknown.retry, unknown.elsewhere) == (False, ())
        assert isinstance(land.subscribe("b", name), Subscribed)
        land.leave("b")
        land.leave("a")


def test_it_is_acknowledged_by_name_where_it_is() -> None:
    land = Land()
    for registrar in "abc":
        name = land.name_at(registrar)
        land.subscribe("a", name)
        land.leave("a")
        reached = land.towns["a"].node.durable.streams.subends[PubendName("news/0")].horizon
        refused = land.ask("b", Acknowledge(0, {"news/0": reached}, 7, name), "bob")
        assert isinstance(refused, Refused)
        assert refused.elsewhere == ("a",)
        assert land.ask("a", Acknowledge(0, {"news/0": reached}, 8, name), "bob") == Done(8)
        known = land.towns["a"].node.durable.subscriptions.get(name)
        assert known is not None
        assert known.released.get("news/0") == reached
    nobody = land.ask("c", Acknowledge(0, {"news/0": 1}, 9, SubscriptionName("nobody")), "bob")
    assert isinstance(nobody, Refused)
    assert "no subscription 'nobody' of yours" in nobody.problem


def test_its_end_is_not_answered_before_the_name_is_free() -> None:
    land = Land()
    name = land.name_at("c")
    land.subscribe("a", name)
    land.cut.add("c")
    town = land.towns["a"]
    town.connect("bob")
    assert "bob" not in {to for to, _ in town.receive("bob", Forget(6, name))}
    refused = land.subscribe("a", name, client="eve")
    assert refused.retry, "nobody claims what is not free yet"
    land.wait(BEATS)
    later = [each for each in land.heard["bob@a"] if isinstance(each, Refused)]
    assert {(each.request, each.retry) for each in later} == {(6, True)}
    town._do(town.node.receive(ClientName("bob"), Forget(7, name), town.now))
    land.cut.clear()
    land.wait(BEATS)
    assert Done(7) in land.heard["bob@a"]
    assert isinstance(land.subscribe("b", name), Subscribed)


def test_its_end_is_answered_though_somebody_looks_for_it_meanwhile() -> None:
    land = Land()
    name = land.name_at("c")
    land.subscribe("a", name)
    land.cut.add("c")
    town = land.towns["a"]
    town.connect("bob")
    town.receive("bob", Forget(6, name))
    land.run()
    land.cut.clear()
    assert isinstance(land.ask("a", Acknowledge(0, {"news/0": 1}, 8, name), "eve"), Refused)
    land.wait(BEATS)
    assert Done(6) in land.heard["bob@a"]


@pytest.mark.parametrize("request_", [Forget(6, NOBODY), Acknowledge(0, {"news/0": 1}, 6, NOBODY)])
def test_a_name_stays_claimed_while_its_subscription_starts_whoever_asks_for_it(
    request_: Forget | Acknowledge,
) -> None:
    for registrar in "abc":
        land = Land()
        name = land.name_at(registrar)
        land.cut.add("p")  # so it waits for its start
        town = land.towns["a"]
        town.connect("ann")
        town._do(town.node.receive(ClientName("ann"), Subscribe(NEWS, 1, 1, name=name), town.now))
        land.run()
        refused = land.ask("a", structs.replace(request_, name=name), "bob")
        assert isinstance(refused, Refused), "it is not there yet"
        land.cut.clear()
        land.wait(BEATS)
        assert any(isinstance(each, Subscribed) for each in land.heard["ann@a"])
        land.leave("a")
        assert land.subscribe("b", name, client="eve").elsewhere == ("a",)
        assert land.homes(name) == ["a"]


def test_registrars_are_told_of_what_they_do_not_know_when_a_broker_starts() -> None:
    land = Land()
    name = land.name_at("c")
    land.subscribe("a", name)
    land.leave("a")
    registry = land.towns["c"].node.durable.homes.registry
    registry._set(name, None)  # as if there had been no registrars then
    definitions = land.towns["a"].node.durable.subscriptions
    known = definitions.get(name)
    assert known is not None
    assert known.definition.registrar == "c"
    land.towns["a"]._do(definitions.redefine(replace(known.definition, registrar=None)))
    land.restart("a")
    land.wait(BEATS)
    assert land.subscribe("b", name).elsewhere == ("a",)
    known = land.towns["a"].node.durable.subscriptions.get(name)
    assert known is not None
    assert known.definition.registrar == "c", "it need not be told again"


def test_a_broker_alone_asks_nobody_and_writes_one_fact() -> None:
    town = Town("h", ALONE)
    town.connect("ann")
    [(_, told)] = town.receive("ann", Subscribe(NEWS, 1, 1, name=SubscriptionName("desk")))
    assert isinstance(told, Subscribed)
    assert list(town.volume.items("names")) == ["desk"]
    assert town.receive("ann", Forget(2, SubscriptionName("desk")))[-1] == ("ann", Done(2))
    assert list(town.volume.items("names")) == []


def test_beyond_its_limit_a_broker_asks_about_no_more_names() -> None:
    land = Land(name_questions_max=1)
    land.cut.add("c")
    town = land.towns["a"]
    town.connect("ann")
    town.receive("ann", Subscribe(NEWS, 1, 1, name=land.name_at("c")))
    [(_, refused)] = town.receive("ann", Subscribe(NEWS, 2, 2, name=SubscriptionName("more")))
    assert isinstance(refused, Refused)
    assert refused.retry
    [(_, refused)] = town.receive("ann", Forget(3, SubscriptionName("more")))
    assert isinstance(refused, Refused)
    assert refused.retry


def test_one_that_is_ended_at_both_brokers_while_it_moves_is_over_at_both() -> None:
    land = Land()
    name = land.name_at("c")
    first = land.subscribe("a", name)
    land.leave("a")
    land.cut.add("a")
    moved = land.subscribe("b", name, token=first.start, previous=BrokerName("a"))
    assert isinstance(moved, Subscribed)
    old, new = land.towns["a"], land.towns["b"]
    for town, client in ((old, "bob"), (new, "eve")):
        town.connect(client)
        town._do(town.node.receive(ClientName(client), Forget(7, name), town.now))
    land.cut.clear()
    land.wait(2 * BEATS)
    assert land.homes(name) == []
    assert Done(7) in land.heard["bob@a"]
    assert Done(7) in land.heard["eve@b"]
    assert isinstance(land.subscribe("a", name), Subscribed), "and the name is free"


def test_one_life_has_one_claim_however_many_ask_for_it_before_it_is_made() -> None:
    land = Land()
    land.cut.add("p")  # no start is known meanwhile
    name = land.name_at("a")
    land.restart("a")
    town = land.towns["a"]
    for client in ("ann", "bob"):
        town.connect(client)
        town._do(town.node.receive(ClientName(client), Subscribe(NEWS, 1, 1, name=name), town.now))
        land.run()
    assert len(town.node.durable.requests.pending) == 2
    land.cut.clear()
    land.wait(BEATS)
    known = town.node.durable.subscriptions.get(name)
    assert known is not None
    assert known.definition.moves == town.node.durable.homes.registry.entries[name].moves == 0


def test_who_is_noted_with_more_moves_than_it_has_counts_on_from_there() -> None:
    land = Land()
    name = land.name_at("c")
    first = land.subscribe("a", name)
    land.leave("a")
    registry = land.towns["c"].node.durable.homes.registry
    land.subscribe("b", name, token=first.start, previous=BrokerName("a"))
    registry._set(name, NameEntry(BrokerName("b"), 7))  # of a claim that came to nothing
    land.wait(BEATS)
    land.restart("b")
    known = land.towns["b"].node.durable.subscriptions.get(name)
    assert known is not None
    land.towns["b"].node.durable.named.table.tell_home(name)
    land.wait()
    assert known.definition.moves == 7
    assert isinstance(land.subscribe("a", name, token=first.start), Subscribed)
    land.wait(BEATS)
    assert (registry.entries[name].home, land.homes(name)) == ("a", ["a"])
