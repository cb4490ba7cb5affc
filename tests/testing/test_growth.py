"""Networks that change while they run keep every promise."""

from __future__ import annotations

import pytest

from gapless.testing.growth import FAULTS, simulate_growth

SEEDS = {
    27: "a client that came from a removed broker was refused",
    70: "a broker that was drained, removed and came back gave a name away that lived elsewhere",
    10: "a client moved while its broker was drained and removed: two copies",
    39: "a new broker that nobody could reach gave a name away that lived elsewhere",
}


@pytest.mark.parametrize("seed", SEEDS)
def test_seeds_that_once_found_something_find_nothing(seed: int) -> None:
    assert not simulate_growth(seed).violation


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    seeds = range(8, 17)
    found = next(each for each in seeds if simulate_growth(each, fault=fault).violation)
    assert not simulate_growth(found).violation, "it is the fault that was found"
