"""Groups under faults: a few seeds, every time; and each planted fault is found."""

from __future__ import annotations

from collections import Counter

import pytest

from gapless.testing.groups.planted import PLANTED_GROUPS
from gapless.testing.groups.run import simulate_group

SEEDS = range(24)

FIRST: dict[str, tuple[int, ...]] = {
    "gives-key-to-two": (2,),
    "forgets-finished": (9, 22),
    "counts-handed-as-finished": (12,),
    "forgets-the-lost": (2,),
    "hands-out-of-order": (2,),
}
"""By fault: seeds that are tried first because they find it."""

MORE = range(250)
"""Tried next: courses change with every change to a machine, so no single seed must do it."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_group_keeps_its_promises_whatever_breaks(seed: int) -> None:
    outcome = simulate_group(seed)
    assert outcome.violation == "", "\n".join([*outcome.last_lines, *outcome.options])


def test_these_seeds_meet_what_may_happen_to_members() -> None:
    outcomes = [simulate_group(seed) for seed in range(12)]
    reached = sum((each.reached for each in outcomes), Counter[str]())
    for what in ("was killed", "left in order", "rejected an event", "was redirected"):
        assert reached[f"a member {what}"], what
    assert sum(each.letters for each in outcomes)
    assert sum(each.repeats for each in outcomes)
    assert sum(each.finished for each in outcomes) > 100


def test_the_same_seed_takes_the_same_course() -> None:
    assert simulate_group(5).digest == simulate_group(5).digest
    assert simulate_group(5).digest != simulate_group(6).digest


@pytest.mark.parametrize("name", PLANTED_GROUPS)
def test_a_planted_fault_is_found(name: str) -> None:
    seeds = (*FIRST[name], *MORE)
    found = (simulate_group(seed, parts=PLANTED_GROUPS[name]).violation for seed in seeds)
    assert any(found)
