"""The multicast experiment: a small one, against what must be so."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from gapless_lab.experiments.multicast.claims import judge
from gapless_lab.experiments.multicast.experiment import Results, play_memory, play_trees
from gapless_lab.experiments.multicast.repair import measure_repair
from gapless_lab.experiments.multicast.structure import measure_structure
from gapless_lab.experiments.multicast.trees import topic_sizes
from tests.lab.experiments.multicast.tiny import SHAPE, TINY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def results() -> Results:
    """All of it, runs in the other order."""
    found = Results(seed=1, size=TINY)
    for run in reversed(found.runs()):
        found.outcomes.keep(run, run.play())
    return found


def test_every_claim_is_judged_and_every_figure_told(results: Results) -> None:
    verdicts = judge(results)
    assert Counter(each.experiment for each in verdicts) == {
        "hops": 3,
        "delay": 2,
        "link stress": 2,
        "node stress": 3,
        "repair": 2,
    }
    recalled = [each for each in verdicts if each.experiment.endswith(("stress", "delay"))]
    assert all("(recalled)" in each.paper for each in recalled)
    notes = results.notes()
    assert len(notes) == 3 + 2 + 1 + 1
    assert "30% of 30 nodes fail" in notes[4]


def test_a_claim_does_not_hold_when_trees_are_worse(results: Results) -> None:
    spoiled = Results(seed=1, size=TINY)
    for run in results.runs():
        [outcome] = results.outcomes.of(run.point)
        if run.point.startswith("trees: 300"):
            outcome = outcome | {
                "hops": [[9, 1]],
                "maximal_delay": [9.0],
                "stress": [[900, 10]],
                "entries": [[99, 10]],
            }
        elif run.point.startswith("repair: 30%"):
            outcome = outcome | {"repaired_after_s": None, "ordered": [1.0, 0.9]}
        spoiled.outcomes.keep(run, outcome)
    was = [each.holds for each in judge(results)]
    now = [each.holds for each in judge(spoiled)]
    assert was.count(False) == 0
    assert [index for index, holds in enumerate(now) if not holds] == [2, 3, 5, 6, 8, 10, 11]
    assert "never" in spoiled.notes()[4]


def test_names_of_runs_differ_where_outcomes_may() -> None:
    other = replace(
        TINY, repair_nodes=31, structure=(301, 20), played=((41, 4), (81, 8)), joined=41
    )
    sizes = (TINY, other)
    runs = [run for seed in (1, 2) for size in sizes for run in Results(seed, size).runs()]
    names = [run.name for run in runs if not run.point.startswith("memory")]
    assert len(names) == len(set(names))


def test_topics_get_smaller_as_in_the_literature() -> None:
    sizes = topic_sizes(100_000, 1_500)
    assert sizes[0] == 100_000
    assert sizes[-1] == 11
    assert sizes == sorted(sizes, reverse=True)
    assert min(topic_sizes(40, 50)) == 5


def test_a_played_ring_and_its_structure_alone_have_like_trees() -> None:
    played = play_trees(150, 10, SHAPE, "seed")
    made = measure_structure(150, 10, SHAPE, "seed")
    assert played["members"] == made["members"] == sum(topic_sizes(150, 10))
    for name in ("stress", "entries", "tables"):
        ours, theirs = (
            sum(value * count for value, count in figures[name]) for figures in (played, made)
        )
        assert ours == pytest.approx(theirs, rel=0.25)
    assert all(ratio >= 1 for ratio in (*played["maximal_delay"], *played["average_delay"]))
    assert played["stress"][-1][0] >= played["ip_stress"][-1][0]


def test_a_tenth_of_all_nodes_may_fail_and_the_rest_hear_again() -> None:
    figures = measure_repair(40, 0.1, SHAPE, "seed 2")
    assert figures["plain"][:4] == [1.0] * 4  # before
    assert min(figures["plain"]) < 1.0  # some lost their parent
    after = figures["repaired_after_s"]
    assert after is not None
    assert set(figures["plain"][5 + after :]) == {1.0}
    assert figures["plain"][5 + after - 1] < 1.0
    assert set(figures["ordered"]) == {1.0}


def test_memory_is_that_of_members() -> None:
    few, many = play_memory(30, 2), play_memory(30, 40)
    assert 1_000 < few < many < 200_000
