"""The earliest deadline of many machines is always known, however they are moved."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gapless.core.identity import Instant
from gapless.node.deadlines import RIPE_MAX, STALE_MIN, Machines

NAMES = ("a", "b", "c", "d")


@dataclass
class Clock:
    """Wants to be woken at `deadline`."""

    deadline: Instant | None = None


STEPS = some.lists(
    some.tuples(some.sampled_from(NAMES), some.none() | some.integers(0, 20), some.booleans())
)


@given(STEPS)
def test_it_is_the_least_of_all_after_any_moves(
    steps: list[tuple[str, int | None, bool]],
) -> None:
    machines: Machines[str, Clock] = Machines()
    for name, instant, is_removed in steps:
        if is_removed:
            machines.pop(name, None)
        elif (machine := machines.get(name)) is not None:
            machine.deadline = None if instant is None else Instant(instant)
        else:
            machines[name] = Clock(None if instant is None else Instant(instant))
        known = [each.deadline for each in machines.values() if each.deadline is not None]
        assert machines.deadline == min(known, default=None)
        machines.check()


def test_those_that_are_ripe_come_once_in_the_order_they_were_put_in() -> None:
    machines: Machines[str, Clock] = Machines()
    for name, instant in (("z", 5), ("a", 3), ("m", 9), ("b", 3)):
        machines[name] = Clock(Instant(instant))
    ripe = machines.ripe(Instant(5))
    assert [each.deadline for each in ripe] == [5, 3, 3]
    for each in ripe:
        each.deadline = None
    assert machines.ripe(Instant(5)) == []
    assert machines.deadline == 9


def test_a_step_wakes_a_bounded_number_and_the_rest_stays_due() -> None:
    machines: Machines[str, Clock] = Machines()
    for number in range(2 * RIPE_MAX + 1):
        machines[str(number)] = Clock(Instant(number % 3))
    counts = []
    while ripe := machines.ripe(Instant(5)):
        counts.append(len(ripe))
        for each in ripe:
            each.deadline = None
        assert (machines.deadline is None) == (sum(counts) == len(machines))
        machines.check()
    assert counts == [RIPE_MAX, RIPE_MAX, 1]


def test_who_moves_a_machine_without_looking_it_up_is_found_out_unless_he_says_so() -> None:
    machines: Machines[str, Clock] = Machines()
    machines["a"] = Clock(Instant(5))
    assert machines.deadline == 5
    for each in machines.values():
        each.deadline = Instant(3)
    with pytest.raises(AssertionError):
        machines.check()
    machines.touch()
    assert machines.deadline == 3
    machines.check()


def test_what_was_superseded_does_not_pile_up() -> None:
    machines: Machines[str, Clock] = Machines()
    machines["a"] = Clock()
    for instant in range(10 * STALE_MIN):
        machines["a"].deadline = Instant(10_000 - instant)
        assert machines.deadline == 10_000 - instant
    assert len(machines._heap) <= STALE_MIN + 3
