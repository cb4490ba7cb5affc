"""A damaged record in the log of a pubend is one lost range: told as a gap, all else is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.client_messages import Deliveries, Lost, Subscribed
from gapless.core.identity import BrokerName, PubendName
from gapless.core.range_messages import RangeRead, ReadRange
from gapless.core.ticks import Span
from tests.node.subscriptions.test_homes import BEATS
from tests.node.test_lost_log import ALL, NAME, PUBEND, Coast
from tests.node.town import NEWS, colours, publish, subscribe

if TYPE_CHECKING:
    from gapless.core.messages import Message

LOG = f"log/{PUBEND}"


def one(tick: int) -> Span:
    return Span(tick, tick + 1)


def news(heard: list[Message]) -> list[str | Span]:
    """Events and losses, in the order in which they came."""
    found: list[str | Span] = []
    for each in heard:
        if isinstance(each, Deliveries):
            found += colours(each.events)
        elif isinstance(each, Lost):
            found.append(each.span)
    return found


class Shore(Coast):
    """The same coast, on whose log the salt gnaws."""

    def gnaw(self, *which: str) -> None:
        for colour in which:
            self.towns["p"].volume.corrupt(LOG, self.ticks[colour])

    def restart_all(self) -> None:
        for name in ALL:
            self.restart(name)
        self.wait(BEATS)


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "at once"])
def test_who_returns_is_told_of_the_damaged_event_and_gets_all_others(restarted: bool) -> None:
    shore = Shore(past_window=1, cache_events_max=1, cache_bytes_max=1)
    shore.gnaw("red")
    if restarted:
        shore.restart_all()
    shore.returns()
    assert news(shore.heard["ann@a"]) == [one(shore.ticks["red"]), "blue"]
    shore.ask("p", publish("white"), "pub")
    shore.wait(BEATS)
    assert news(shore.heard["ann@a"])[2:] == ["white"], "it goes on"


def test_damage_that_nobody_wants_is_told_to_nobody() -> None:
    shore = Shore()
    shore.gnaw("green")
    shore.restart_all()
    assert shore.returns() == (["red", "blue"], [])


def test_who_goes_on_at_another_broker_is_told_too() -> None:
    """That broker asks for all of it, for it does not know what was wanted."""
    shore = Shore()
    shore.gnaw("red")
    shore.restart_all()
    shore.returns("b")
    assert news(shore.heard["ann@b"]) == [one(shore.ticks["red"]), "blue"]


class Storm(Shore):
    """Brokers that host subscribers are away while events are published, and one is damaged."""

    def __init__(self, *damaged: str) -> None:
        super().__init__()
        for name in ("a", "b"):
            town = self.towns[name]
            town.connect("bob")
            town._do(town.node.receive(BrokerName("bob"), subscribe(number=7), town.now))
        attached = self.subscribe("a", NAME, condition="colour <> 'green'", token=self.token)
        assert isinstance(attached, Subscribed)
        self.wait(BEATS)
        for heard in self.heard.values():
            heard.clear()
        self.cut = {"a", "b"}
        self.ask("p", publish("cyan"), "pub")
        self.ask("p", publish("gold"), "pub")
        self.ask("p", publish("pink"), "pub")
        log = self.towns["p"].volume.scan(LOG, 0, 1 << 62)
        self.ticks = dict(zip(colours(log[1]), log[0], strict=True))
        self.gnaw(*damaged)
        for name in ("p", "m1", "m2"):  # what their caches have is gone
            self.restart(name)
        self.cut = set()
        self.wait(3 * BEATS)


def test_subscribers_of_brokers_that_were_cut_off_are_told_in_order_and_go_on() -> None:
    """Anonymous ones and named ones that are connected: the loss comes with the stream."""
    storm = Storm("gold")
    expected = ["cyan", one(storm.ticks["gold"]), "pink"]
    assert news(storm.heard["bob@a"]) == expected
    assert news(storm.heard["bob@b"]) == expected
    assert news(storm.heard["ann@a"]) == expected
    storm.ask("p", publish("white"), "pub")
    storm.wait(BEATS)
    for who in ("bob@a", "bob@b", "ann@a"):
        assert news(storm.heard[who]) == [*expected, "white"], who


def test_losses_in_a_row_are_told_and_what_stands_between_is_served() -> None:
    storm = Storm("cyan", "pink")
    expected = [one(storm.ticks["cyan"]), "gold", one(storm.ticks["pink"])]
    for who in ("bob@a", "bob@b", "ann@a"):
        assert news(storm.heard[who]) == expected, who


def test_a_named_subscription_that_was_away_meanwhile_is_told_when_it_returns() -> None:
    """The stream has passed the loss while nobody was there; it was noted for it all the same."""
    storm = Storm("gold")
    storm.leave("a")
    storm.heard["ann@a"].clear()
    storm.restart_all()
    storm.returns()
    assert news(storm.heard["ann@a"]) == [
        "red", "blue", "cyan", one(storm.ticks["gold"]), "pink",
    ]  # fmt: skip


@pytest.mark.parametrize("whole", [True, False], ids=["as it stands", "event by event"])
@pytest.mark.parametrize("condition", ["", "colour <> 'violet'"])
def test_range_reads_are_told_what_is_damaged_and_get_all_else(whole: bool, condition: str) -> None:
    shore = Shore()
    shore.gnaw("red", "blue")
    shore.restart_all()
    found: list[str | Span] = []
    at, more, steps = 0, True, 0
    while more:
        span = Span(at, 1 << 62)
        message = ReadRange(NEWS, 7, PubendName(PUBEND), span, condition, whole=whole)
        answer = shore.ask("p", message, "reader")
        assert isinstance(answer, RangeRead)
        assert answer.span is not None
        if answer.lost_below > at:
            found.append(Span(at, answer.lost_below))
        events = answer.run.cut() if answer.run is not None else answer.events.events
        found += colours(events)
        at, more, steps = answer.span.end, answer.more, steps + 1
        assert steps < 20
    losses = [one(shore.ticks["red"]), one(shore.ticks["blue"])]
    if isinstance(found[0], Span) and found[0].start == 0:  # released, as nobody needed it
        found = found[1:]
    assert found == [losses[0], "green", losses[1]]


@pytest.mark.parametrize("restarted", [True, False], ids=["restarted", "at once"])
@pytest.mark.parametrize("damaged", [["red"], ["blue"], ["red", "blue"]])
def test_where_the_filtered_log_is_damaged_all_is_asked_for_and_nothing_is_lost(
    damaged: list[str], restarted: bool
) -> None:
    """The broker of the subscription does not know any more what that wants, and filters anew."""
    shore = Shore(past_window=1, cache_events_max=1, cache_bytes_max=1)
    for colour in damaged:
        shore.towns["a"].volume.corrupt(f"filtered/{PUBEND}", shore.ticks[colour])
    if restarted:
        shore.restart_all()
    assert shore.returns() == (["red", "blue"], [])
    shore.ask("p", publish("white"), "pub")
    shore.wait(BEATS)
    assert news(shore.heard["ann@a"])[2:] == ["white"]
