"""A name whose broker lost its disk, and with it where the subscription was."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Deliveries, Lost, Subscribed
from gapless.core.store import DiskIdentity
from gapless.testing.memory_volume import MemoryVolume
from tests.node.subscriptions.test_homes import BEATS, Land
from tests.node.subscriptions.test_recall import lose
from tests.node.town import publish


def lost_in(land: Land, broker: str) -> list[tuple[int, int]]:
    heard = land.heard[f"ann@{broker}"]
    return [(each.span.start, each.span.end) for each in heard if isinstance(each, Lost)]


@pytest.mark.parametrize("earliest", [False, True])
def test_a_token_that_a_broker_kept_and_lost_is_told_as_a_gap(earliest: bool) -> None:
    """Its registrar knows that there was one; nobody knows where it was."""
    land = Land()
    name = land.name_at("b")
    land.subscribe("a", name, tokens="broker")
    land.leave("a")
    land.ask("p", publish("red"), "pub")
    lose(land, "a")
    land.wait(BEATS)
    again = land.subscribe("a", name, tokens="broker", earliest=earliest)
    assert isinstance(again, Subscribed)
    land.ask("p", publish("red"), "pub")
    land.wait(BEATS)
    [(low, high)] = lost_in(land, "a")
    ticks = [tick for m in land.heard["ann@a"] if isinstance(m, Deliveries) for tick in m.ticks]
    assert low == 1
    assert len(ticks) == 1
    assert high <= ticks[0], "what is published from now on comes"


def test_the_gap_is_told_again_until_it_was_acknowledged_over_a_restart() -> None:
    land = Land()
    name = land.name_at("b")
    land.subscribe("a", name, tokens="broker")
    land.leave("a")
    lose(land, "a")
    land.wait(BEATS)
    land.subscribe("a", name, tokens="broker")
    land.leave("a")
    land.restart("a")
    land.wait(BEATS)
    assert isinstance(land.subscribe("a", name, tokens="broker"), Subscribed)
    land.wait(BEATS)
    assert len(lost_in(land, "a")) == 1


def test_a_name_that_is_new_or_has_ended_or_lives_tells_no_gap() -> None:
    land = Land()
    name = land.name_at("b")
    assert isinstance(land.subscribe("a", name, tokens="broker"), Subscribed)
    land.wait(BEATS)
    assert lost_in(land, "a") == []
    land.leave("a")
    land.restart("a")
    land.wait(BEATS)
    assert isinstance(land.subscribe("a", name, tokens="broker"), Subscribed)
    land.wait(BEATS)
    assert lost_in(land, "a") == []


def test_a_copy_that_is_older_than_a_subscription_tells_a_gap() -> None:
    land = Land()
    name = land.name_at("b")
    town = land.towns["a"]
    assert isinstance(town.volume, MemoryVolume)
    town.volume.identity = DiskIdentity(b"disk", (b"disk",))
    land.restart("a")
    land.wait(BEATS)
    copy = town.volume.copy(b"another disk")
    land.subscribe("a", name, tokens="broker")
    land.leave("a")
    town.volume = copy
    land.restart("a")
    land.wait(BEATS)
    assert isinstance(land.subscribe("a", name, tokens="broker"), Subscribed)
    land.wait(BEATS)
    assert lost_in(land, "a")
