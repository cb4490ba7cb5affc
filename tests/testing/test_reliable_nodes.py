"""Whole nodes with a reliable topic, played: the very objects that brokers run."""

from __future__ import annotations

import pytest

from gapless.tree.broker import TreeBroker
from gapless.tree.subscriptions import SubscriptionTable
from tests.testing.feed import A_WHILE, Play


@pytest.mark.parametrize("seed", range(6))
def test_each_gets_a_contiguous_run_of_each_source_and_the_end_of_those_that_live(
    seed: int,
) -> None:
    play = Play(seed)
    play.storm(25)
    assert play.holes() == []
    play.world.heal()
    for _ in range(3):
        play.world.run(A_WHILE)
        for name in play.world.processes:
            assert play.reader(name) is not None
    for name in play.world.processes:
        play.publish(name, 1, 2)  # something for every condition
    play.world.run(A_WHILE)
    assert play.holes() == []
    assert play.missing() == []
    assert play.untold() == []
    assert play.waiting() == []
    assert all(reader.has_begun for reader in play.readers.values())
    assert all(reader.reached_at is not None for reader in play.readers.values())
    deliveries = sum(len(ticks) for r in play.readers.values() for ticks in r.got.values())
    assert deliveries > 100, "hardly anything happened"


def test_the_same_seed_takes_the_same_course() -> None:
    plays = [Play(3) for _ in range(2)]
    for play in plays:
        play.storm(5)
    assert plays[0].world.trace.digest == plays[1].world.trace.digest


def test_a_network_whose_tables_forget_a_subscription_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    match = SubscriptionTable.matching
    monkeypatch.setattr(
        SubscriptionTable, "matching", lambda *some: dict(list(match(*some).items())[1:])
    )
    play = Play(0)
    play.storm(5)
    play.world.run(A_WHILE)
    assert play.holes() or play.missing()


def test_brokers_that_do_not_say_what_is_not_reached_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TreeBroker, "unreached", lambda *_: ())
    play = Play(5)
    play.storm(25)
    play.world.heal()
    play.world.run(A_WHILE)
    assert play.holes() == []
    assert play.untold()
