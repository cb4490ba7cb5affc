"""Random trees that play the variants of section 3.7; and that their checker would notice."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.propagation.actors import NOTHING, Planted
from tests.propagation.checker import ViolationError
from tests.propagation.test_world import is_quiet, step
from tests.propagation.variant_checker import VariantChecker
from tests.propagation.variant_world import Variant, VariantWorld

if TYPE_CHECKING:
    from collections.abc import Sequence

PLAIN = Variant()
BACK = Variant(goes_back=True)
BELOW = Variant(history_max=8)
BOTH = Variant(goes_back=True, history_max=8)
FEW = ("p > 5", "p > 7", "p < 3")  # so that many a change is empty

PLANTED = {
    "silence believed": (BACK, Planted(is_silence_believed=True), "B-S2"),
    "minimum ignored": (BACK, Planted(is_minimum_ignored=True), "B-S4"),
    "silence believed, below": (BELOW, Planted(is_silence_believed=True), "B-S2"),
    "history a range": (BOTH, Planted(is_history_a_range=True), "B-S1"),
    "history endless": (BELOW, Planted(is_history_endless=True), "B-S5"),
}


def live(
    seed: int,
    variant: Variant,
    planted: Planted = NOTHING,
    conditions: Sequence[str] | None = None,
) -> tuple[VariantWorld, VariantChecker]:
    """Two seconds of chaos, then peace until all has been calm for a while."""
    checker = VariantChecker(Counter())
    world = VariantWorld(seed, checker, variant, planted)
    world.conditions = conditions or world.conditions
    for _ in range(200):
        if world.dice.random() < 0.3:
            world.churn()
        if world.dice.random() < 0.02:
            up = [each for each in world.brokers() if each.is_up]
            if up:
                world.crash(world.dice.choice(up))
        step(world)
    world.loss = 0.0
    calm = 0
    while calm < 30:
        step(world)
        calm = calm + 1 if is_quiet(checker, world) else 0
        if world.now > 14_000_000:
            checker.quiet(world)
    world.run(1_000_000)
    checker.complete(world)
    return world, checker


def violation(seed: int, variant: Variant, planted: Planted) -> str:
    try:
        live(seed, variant, planted, FEW)
    except ViolationError as error:
        return str(error) if str(error).startswith("B-") else ""
    return ""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("variant", [BACK, BELOW, BOTH], ids=str)
def test_nothing_is_missed_though_vectors_go_back_or_empty_changes_stay_below(
    seed: int, variant: Variant
) -> None:
    live(seed, variant)


@pytest.mark.parametrize("variant", [BACK, BELOW], ids=str)
def test_silence_is_doubted_and_asked_for_again(variant: Variant) -> None:
    assert sum(live(seed, variant)[0].asked for seed in range(100, 102)) > 0


def told_above(variant: Variant) -> int:
    return sum(live(seed, variant, conditions=FEW)[1].told_above for seed in range(200, 203))


def test_fewer_changes_go_up_if_the_empty_ones_stay_below() -> None:
    assert told_above(Variant(history_max=64)) < told_above(PLAIN)


@pytest.mark.parametrize("name", PLANTED)
def test_the_checker_finds_a_planted_fault(name: str) -> None:
    variant, planted, promise = PLANTED[name]
    found = next(filter(None, (violation(seed, variant, planted) for seed in range(100))))
    assert found.startswith(promise)
