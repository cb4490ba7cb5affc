"""A registrar with another disk hears of all names before it says whose one is."""

from __future__ import annotations

import pytest

from gapless.core.client_messages import Refused, Subscribed
from gapless.node.config import Config
from gapless.testing.memory_volume import MemoryVolume
from tests.node.subscriptions.test_homes import BEATS, Land

PATIENCE = 1 + Config().dead_after // Config().heartbeat


def land_with_a_name() -> tuple[Land, str]:
    """A subscription at a, of whose name b is the registrar."""
    land = Land()
    name = land.name_at("b")
    assert isinstance(land.subscribe("a", name), Subscribed)
    land.leave("a")
    land.wait(BEATS)
    return land, name


def lose(land: Land, broker: str) -> None:
    land.towns[broker].volume = MemoryVolume()
    land.restart(broker)


def is_recalling(land: Land, broker: str) -> bool:
    return land.towns[broker].node.durable.homes.registry.is_recalling


def test_a_registrar_that_lost_its_disk_is_told_every_name() -> None:
    land, name = land_with_a_name()
    lose(land, "b")
    land.wait(BEATS)
    assert land.subscribe("c", name).elsewhere == ("a",), "nobody begins it anew"
    assert land.subscribe("b", name, client="bob").elsewhere == ("a",)
    assert land.homes(name) == ["a"]
    assert not is_recalling(land, "b")


def test_what_it_has_heard_outlives_a_restart() -> None:
    land, _ = land_with_a_name()
    lose(land, "b")
    land.wait(BEATS)
    land.cut.add("a")
    land.restart("b")
    assert not is_recalling(land, "b")


def test_nobody_is_told_whose_a_name_is_until_all_have_answered() -> None:
    land, name = land_with_a_name()
    land.cut.add("a")
    land.cut.add("c")  # so that nobody tells it that it has a past
    lose(land, "b")
    land.wait(1)
    refused = land.subscribe("b", name)
    assert isinstance(refused, Refused)
    assert refused.retry
    land.cut.clear()
    land.wait(BEATS)
    assert land.subscribe("b", name, client="bob").elsewhere == ("a",)


@pytest.mark.parametrize("cut", [{"a"}, {"a", "c"}])
def test_a_registrar_that_is_new_or_lost_its_disk_waits_for_all(cut: set[str]) -> None:
    land, name = land_with_a_name()
    land.cut |= cut
    lose(land, "b")
    land.wait(2 * PATIENCE)
    refused = land.subscribe("b", name)
    assert refused.retry, "cut off as it is, it cannot know that the network is not new"
    assert "has not heard of all names yet" in refused.problem
    assert all(broker in refused.remedy for broker in cut)
    land.cut.clear()
    land.wait(BEATS)
    assert land.subscribe("b", name, client="bob").elsewhere == ("a",)
