"""One matcher for all cells: against a matcher for each."""

from __future__ import annotations

import random

import pytest

from gapless.core.identity import CellName
from gapless.filters.filter import Filter
from gapless.propagation import joint_matcher
from gapless.propagation.joint_matcher import JointMatcher

CELLS = [CellName(name) for name in "abc"]
CONDITIONS = ["k = 1", "k < 3", "w > 0 AND k = 2", "k = 9", "w <= 0", ""]


def draw_events(dice: random.Random) -> list[dict[str, object]]:
    return [{"k": dice.randrange(5), "w": dice.randrange(-1, 2)} for _ in range(dice.randrange(6))]


@pytest.mark.parametrize("seed", range(20))
def test_each_cell_gets_what_its_own_conditions_match_while_they_come_and_go(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_matcher, "UNIONS_MAX", 2)
    dice, joint = random.Random(seed), JointMatcher()
    wanted: dict[CellName, set[str]] = {cell: set() for cell in CELLS}
    for _ in range(60):
        cell, condition = dice.choice(CELLS), dice.choice(CONDITIONS)
        if condition in wanted[cell]:
            wanted[cell].remove(condition)
            joint.remove(cell, condition)
        else:
            wanted[cell].add(condition)
            joint.add(cell, condition)
        joint.check()
        events = draw_events(dice)
        for _ in range(2):  # the second time from what was kept
            for each in CELLS:
                filters = [Filter.parse(text) for text in wanted[each]]
                expected = [
                    number
                    for number, event in enumerate(events)
                    if any(condition.matches(event) for condition in filters)  # type: ignore[arg-type]
                ]
                assert joint.passing(each, events) == expected  # type: ignore[arg-type]
                assert joint.wants(each) == bool(filters)


def test_a_change_counts_for_the_very_same_batch() -> None:
    joint, events = JointMatcher(), [{"k": 1}]
    joint.add(CELLS[0], "k = 1")
    joint.add(CELLS[1], "k = 2")
    assert (joint.passing(CELLS[0], events), joint.passing(CELLS[1], events)) == ([0], [])
    joint.add(CELLS[1], "k = 1")
    assert joint.passing(CELLS[1], events) == [0]
