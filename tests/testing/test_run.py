"""Whole runs of the real node: a smoke swarm, determinism under other hash seeds, known seeds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.core.errors import UsageError
from gapless.node.network import parse_network
from gapless.testing.planted.faults import parts_with
from gapless.testing.run import simulate

SMOKE = range(1_000, 1_060)
CHUNK = 6
KNOWN = [
    int(line.split()[0])
    for line in (Path(__file__).parent / "seeds.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("#")
]

DIGESTS = """
from gapless.testing.run import simulate
print(*(simulate(seed).digest for seed in (1, 2, 7, 11)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("first", SMOKE[::CHUNK])
def test_a_few_seeds_keep_all_promises(first: int) -> None:
    for seed in range(first, first + CHUNK):
        assert simulate(seed).violation == "", f"gapless simulate --seed {seed} --trace"


@pytest.mark.parametrize("seed", KNOWN)
def test_a_seed_that_once_found_something_keeps_all_promises(seed: int) -> None:
    assert simulate(seed).violation == "", f"gapless simulate --seed {seed} --trace"


@pytest.mark.slow
def test_a_seed_takes_the_same_course_under_every_hash_seed() -> None:
    answers = {
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "12345")
    }
    assert len(answers) == 1
    assert len(set(answers.pop().split())) == 4


def test_every_option_is_shown_before_the_trace() -> None:
    lines: list[str] = []
    outcome = simulate(3, out=lines.append)
    assert lines[0] == "seed 3"
    words = {line.split()[0] for line in lines}
    assert {"network", "config", "links", "fault_rates", "offsets", "publishers"} <= words
    assert len(lines) > outcome.steps


def test_a_run_can_be_played_on_a_given_network() -> None:
    network = parse_network(
        """
        cell = [{name = "x", brokers = [{name = "solo"}], subscribers = true}]
        topic = [{name = "news", pubends = ["solo"]}]
        """
    )
    lines: list[str] = []
    outcome = simulate(5, network=network, out=lines.append)
    assert outcome.violation == ""
    assert "network x! news@solo" in lines


def test_a_violation_comes_with_its_options_and_last_lines() -> None:
    outcomes = (simulate(seed, parts=parts_with("delivers-twice")) for seed in range(40))
    outcome = next(each for each in outcomes if each.violation)
    assert outcome.options[0] == f"seed {outcome.seed}"
    assert re.search(r" <- | fire$", outcome.last_lines[-1]), "the step in which it was found"


def test_an_unknown_fault_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="delivers-twice"):
        parts_with("sings")
