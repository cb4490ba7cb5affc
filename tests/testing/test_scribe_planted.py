"""The checkers of the multicast swarm are tested too: each planted fault is found as what it is."""

from __future__ import annotations

import pytest

from gapless.testing.scribe.planted import PLANTED_SCRIBE
from gapless.testing.scribe.run import simulate_scribe

FINDS: dict[str, tuple[str, tuple[int, ...]]] = {
    "takes-hearsay": ("leaf sets are right", (6, 18)),
    "gives-up-on-the-way": ("never misrouted", (10, 19, 4)),
    "trusts-silent-parents": ("one tree, and every subscriber in it", (19, 22)),
    "stays-root": ("one tree, and every subscriber in it", (4, 2, 11)),
    "hands-out-at-once": ("an ordered topic has no gap", (12, 7, 24)),
    "never-asks": ("what was confirmed arrives", (24, 20)),
    "commits-alone": ("one number, one event", (24, 50, 3)),
    "needs-nobody": ("what was confirmed arrives", (11, 4, 17)),
    "publishes-repeats": ("at most once", (17, 8, 14)),
}
"""By fault: what is found, and the seeds that are tried first because they are quick."""

MORE = range(60)
"""Tried next: courses change with every change to a machine, so no single seed must do it."""


@pytest.mark.parametrize("name", PLANTED_SCRIBE)
def test_a_planted_fault_is_found(name: str) -> None:
    promise, seeds = FINDS[name]
    found = (
        simulate_scribe(seed, parts=PLANTED_SCRIBE[name]).violation for seed in (*seeds, *MORE)
    )
    assert any(violation.startswith(promise) for violation in found)
