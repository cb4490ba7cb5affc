"""Topics come and go while a swarm runs, and everything promised holds for them too."""

from __future__ import annotations

import random

import pytest

from gapless.testing.options import draw_options
from gapless.testing.run import simulate


def test_some_seeds_have_founders_and_drawing_them_changes_nothing_else() -> None:
    drawn = [draw_options(seed, random.Random(seed)) for seed in range(20)]
    assert 2 <= sum(bool(each.founders) for each in drawn) <= 18
    dice = random.Random(3)
    draw_options(3, dice)
    state = dice.getstate()
    assert drawn[3].founders
    again = random.Random(3)
    assert draw_options(3, again) == drawn[3]
    assert again.getstate() == state


@pytest.mark.parametrize("seed", [3, 26, 43])
def test_topics_that_are_founded_in_a_run_keep_all_promises(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.violation == ""
    assert outcome.reached["createtopic done"] >= 2
