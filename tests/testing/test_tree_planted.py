"""The checkers of the tree are tested too: every planted fault is found, as what it is."""

from __future__ import annotations

import random
from dataclasses import asdict, replace

import pytest

from gapless.testing.tree.options import (
    TreeOptions,
    crashing,
    draw_rounds,
    draw_siege,
    dying,
    flapping,
    in_mode,
    restless,
)
from gapless.testing.tree.planted import PLANTED_PARTS, ShortWindow
from gapless.testing.tree.run import simulate_tree

SHORT_WINDOW = "short-window"

SEEDS = range(8)
"""One of the first few finds it; the rest is not played."""

SCOPED = in_mode(crashing(1), "source", "scoped")
RESTLESS = in_mode(restless(1), "source", "scoped")
UNCLEAN = replace(in_mode(restless(2), "source", "scoped"), faults=("one_way_cut", "cut"))
DYING = in_mode(dying(1), "source", "scoped")
SIEGE = draw_siege(random.Random(2))
ROUNDS = draw_rounds(random.Random(2))


FINDS: dict[str, tuple[TreeOptions, str]] = {
    SHORT_WINDOW: (flapping(1, repeats="trail"), "the trail tells repeats"),
    "no-legitimacy": (flapping(1, repeats="trail"), "the trail tells repeats"),
    "no-holding": (flapping(1, repeats="trail"), "a contiguous run"),
    "no-flush": (restless(0), "a contiguous run"),
    "no-tags": (restless(0), "a contiguous run"),
    "confirmed-window": (SIEGE, "it goes on while brokers are out of reach"),
    "neighbours-only": (ROUNDS, "it goes on while brokers are out of reach"),
    "no-window": (SIEGE, "AssertionError: I3"),
    "keeps-all": (SIEGE, "it goes on while brokers are out of reach"),
    "untold": (SIEGE, "nothing is lost"),
    "silent-end": (DYING, "that a source has ended is told"),
    "not-introduced": (SIEGE, "nothing is lost"),
    "open-early": (RESTLESS, "a contiguous run"),
    "always-clean": (UNCLEAN, "a contiguous run"),
}
"""Where each is played, and the promise that it breaks."""


def test_every_planted_fault_is_looked_for() -> None:
    in_a_story = {"no-looking"}  # by tests/tree/test_broker.py
    assert FINDS.keys() | in_a_story == {SHORT_WINDOW, *PLANTED_PARTS}


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
    [
        (flapping(1, repeats="trail"), 0),
        (restless(0), 0),
        (SCOPED, 1),
        (RESTLESS, 1),
        (UNCLEAN, 5),
        (SIEGE, 0),
        (ROUNDS, 0),
        (DYING, 2),
    ],
)
def test_without_a_fault_the_same_seed_finds_nothing(options: TreeOptions, seed: int) -> None:
    assert simulate_tree(seed, options=options).violation == ""
