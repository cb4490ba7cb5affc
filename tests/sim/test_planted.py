"""The checkers are tested too: every planted fault is found by a few seeds, as what it is."""

from __future__ import annotations

import pytest

from gapless.sim.planted import PLANTED
from gapless.sim.run import simulate

STRICT = "AssertionError: data at silent tick"
"""What the strict lattice says that shadows every stream."""

UNSENT = "nobody here breaks the protocol"
"""A pubend that went back in time gets acknowledgements from its own future."""

FINDS: dict[str, tuple[str | tuple[str, ...], tuple[int, ...]]] = {
    "delivers-past-gap": ("no gap", (13, 24)),
    "forgets-to-nack": ("everything arrives", (30, 18)),
    "delivers-twice": ("exactly once", (31, 32)),
    "acknowledges-too-early": ("no gap", (24, 14)),
    "silences-events": ("no gap", (3, 31)),
    "asks-for-each-child": ("one nack for one loss", (29, 39)),
    "reuses-promised-tick": (STRICT, (2, 3)),
    "forgets-promise": (("no gap", STRICT, UNSENT), (30, 34)),
    "acknowledges-before-durable": ("durable before acknowledged", (0, 3)),
    "publishes-repeats": ("once published", (3, 21)),
    "forgets-publishers": ("everything arrives", (37, 3)),
    "goes-on-without-room": ("durable before acknowledged", (13, 4)),
    "ignores-laggards": (STRICT, (7, 16)),
}
"""By fault: what is found, and the seeds that are tried first because they are quick."""

MORE = range(60)
"""Tried next: courses change with every change to the node, so no single seed must do it."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    promise, seeds = FINDS[name]
    rates = {"crash": 6.0} if name == "forgets-promise" else None  # it takes a crash to show
    found = (
        simulate(seed, parts=PLANTED[name], fault_rates=rates).violation for seed in (*seeds, *MORE)
    )
    assert any(violation.startswith(promise) for violation in found)


def test_the_same_seeds_find_nothing_without_the_fault() -> None:
    for seed in (13, 24, 3):
        assert simulate(seed).violation == ""
