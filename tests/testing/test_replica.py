"""Brokers with a store in the simulated world: nothing breaks, and broken protocols are found."""

from __future__ import annotations

from collections import Counter

import pytest

from gapless.testing.replica_run import FAULTS, simulate_with_store

FOUND = {
    "no fence": (0,),
    "own clock": (1,),
    "volatile promise": (6, 26),  # an unjust gap is told
    "missed commit": (37,),
    "kept commit": (67, 81, 143),
}
"""By fault: seeds that show it."""

AGAIN = (13000025,)
"""Seeds that once failed: a job asked the disk of a machine that was down."""

SITUATIONS = (
    "a machine took over",
    "a machine lost its disk",
    "a commit is in the store, and its sender does not know",
    "a commit came to the store after its sender was cut off",
    "a late commit was fenced",
    "a holder was silent before its lease ended",
    "a zombie spoke while its successor did",
    "a holder without its store said what is settled",
    "several commits are under way to the store",
    "some of the commits under way were there",
    "commits that never came to the store were cut off",
    "cut off from the store: holder",
    "cut off from the store: standby",
    "cut off from the store: holder and standby",
)


def test_whatever_happens_to_machines_and_the_way_to_the_store_every_promise_holds() -> None:
    reached: Counter[str] = Counter()
    for seed in (*range(60), *AGAIN):
        outcome = simulate_with_store(seed)
        assert not outcome.violation, (seed, outcome.violation)
        reached.update(outcome.reached)
    assert [each for each in SITUATIONS if not reached[each]] == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_protocol_is_found(fault: str) -> None:
    for seed in FOUND[fault]:
        assert not simulate_with_store(seed).violation
        assert simulate_with_store(seed, fault=fault).violation


def test_the_same_seed_gives_the_same_course() -> None:
    assert simulate_with_store(7).digest == simulate_with_store(7).digest
