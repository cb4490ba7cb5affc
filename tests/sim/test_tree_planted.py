"""The checkers of the tree are tested too: every planted fault is found, as what it is."""

from __future__ import annotations

import random
from dataclasses import asdict, replace

import pytest

from gapless.sim.tree.options import TreeOptions, draw_restless, flapping, in_mode, restless
from gapless.sim.tree.planted import PLANTED_PARTS, ShortWindow
from gapless.sim.tree.run import simulate_tree

SHORT_WINDOW = "short-window"

SEEDS = (30, 52, *range(8))
"""One of the first few finds it; the rest is not played."""


def scoped(seed: int) -> TreeOptions:
    return in_mode(draw_restless(random.Random(seed * 7 + 1)), "source", "scoped")


FINDS: dict[str, tuple[TreeOptions, str]] = {
    SHORT_WINDOW: (flapping(1, repeats="trail"), "the trail tells repeats"),
    "no-legitimacy": (flapping(1, repeats="trail"), "the trail tells repeats"),
    "no-holding": (flapping(1, repeats="trail"), "a contiguous run"),
    "no-flush": (restless(0), "a contiguous run"),
    "no-tags": (restless(0), "a contiguous run"),
    "no-looking": (scoped(52), "a contiguous run"),
    "open-early": (scoped(30), "a contiguous run"),
    "always-clean": (scoped(30), "a contiguous run"),
}
"""Where each is played, and the promise that it breaks."""


def test_every_planted_fault_is_looked_for() -> None:
    assert FINDS.keys() == {SHORT_WINDOW, *PLANTED_PARTS}


@pytest.mark.parametrize("fault", FINDS)
def test_a_planted_fault_is_found(fault: str) -> None:
    options, promise = FINDS[fault]
    if fault == SHORT_WINDOW:
        options = replace(options, settings=ShortWindow(**asdict(options.settings)))
    parts = PLANTED_PARTS.get(fault)
    played = (simulate_tree(seed, options=options, parts=parts).violation for seed in SEEDS)
    assert any(violation.startswith(promise) for violation in played)


@pytest.mark.parametrize(
    ("options", "seed"),
    [(flapping(1, repeats="trail"), 0), (restless(0), 0), (scoped(30), 30), (scoped(52), 52)],
)
def test_without_a_fault_the_same_seed_finds_nothing(options: TreeOptions, seed: int) -> None:
    assert simulate_tree(seed, options=options).violation == ""
