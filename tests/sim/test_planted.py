"""The checkers are tested too: every planted fault is found by a few seeds, as what it is."""

from __future__ import annotations

import pytest

from gapless.sim.planted import PLANTED
from gapless.sim.run import simulate

STRICT = ("AssertionError: data at silent tick", "AssertionError: silence at")
"""What the strict lattice says that shadows every stream."""

UNSENT = "nobody here breaks the protocol"
"""A pubend that went back in time gets acknowledgements from its own future."""

FINDS: dict[str, tuple[str | tuple[str, ...], tuple[int, ...]]] = {
    "delivers-past-gap": ("no gap", (29, 18)),
    "forgets-to-nack": ("everything arrives", (31, 18)),
    "delivers-twice": (("exactly once", "in order"), (32, 30)),
    "acknowledges-too-early": ("no gap", (29, 18)),
    "silences-events": ("no gap", (32, 29)),
    "asks-for-each-child": ("one nack for one loss", (7, 29)),
    "reuses-promised-tick": (STRICT, (32, 30)),
    "forgets-promise": (("no gap", *STRICT, UNSENT), (13, 7)),
    "acknowledges-before-durable": ("durable before acknowledged", (32, 3)),
    "publishes-repeats": ("once published", (9, 16)),
    "forgets-publishers": ("everything arrives", (18, 16)),
    "goes-on-without-room": ("durable before acknowledged", (3, 31)),
    "ignores-laggards": ((*STRICT, "no gap"), (42, 7)),
    "trusts-stale-filter": ("no gap", (2, 107)),
    "starts-too-early": ("no gap", (39, 10)),
    "reuses-clock": (("tables are right", "everything arrives"), (58, 17)),
    "forgets-stamp": ("no gap", (38, 4)),
    "ignores-constraint": (("tables are right", "no gap"), (12,)),
    "never-repeats": (("everything arrives", "tables are right"), (38, 0)),
}
"""By fault: what is found, and the seeds that are tried first because they are quick."""

RATES = {
    "forgets-promise": {"crash": 6.0},  # it takes a crash to show
    "ignores-constraint": {"cut": 12.0, "stall": 6.0},  # and here two views of who is alive
}

MORE = range(60)
"""Tried next: courses change with every change to the node, so no single seed must do it."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    promise, seeds = FINDS[name]
    found = (
        simulate(seed, parts=PLANTED[name], fault_rates=RATES.get(name)).violation
        for seed in (*seeds, *MORE)
    )
    assert any(violation.startswith(promise) for violation in found)


def test_the_same_seeds_find_nothing_without_the_fault() -> None:
    for seed in (29, 18, 32):
        assert simulate(seed).violation == ""
