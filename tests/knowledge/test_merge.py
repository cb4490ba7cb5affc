"""The merge: several pubends in one order, against `sorted`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.identity import Instant, PubendName
from gapless.core.ticks import Span
from gapless.knowledge.merge import Merge
from tests.knowledge.notation import CONFIG, knowledge, make_subend, show

NAMES = [PubendName(f"news/{number}") for number in range(3)]
LIMIT = 15


def merge(start: int = 0) -> Merge:
    return Merge({name: make_subend(start, name) for name in NAMES}, CONFIG)


def tell(machine: Merge, number: int, text: str, now: int = 0) -> list[str]:
    nacks = machine.receive_knowledge(knowledge(text, NAMES[number]), Instant(now))
    machine.check()
    return [show(each) for each in nacks]


def take(machine: Merge, now: int = 0) -> list[int]:
    settled = machine.take(Instant(now))
    machine.check()
    return settled.ticks


@given(st.dictionaries(st.integers(0, LIMIT - 1), st.integers(0, 2)), st.data())
def test_whatever_comes_first_the_order_is_that_of_the_ticks(
    truth: dict[int, int], draw: st.DataObject
) -> None:
    """`truth` says which pubend has an event at a tick; pieces come shuffled and repeated."""
    machine, got = merge(), list[int]()
    pieces = [(n, Span(low, low + 5)) for n in range(3) for low in range(0, LIMIT, 5)]
    for number, where in draw.draw(st.permutations(pieces + pieces[::2])):
        data = [f"D{t}" for t in sorted(truth) if truth[t] == number and t in where]
        tell(machine, number, " ".join([str(where), *data]))
        got += take(machine)
        assert got == sorted(truth)[: len(got)]
    assert got == sorted(truth)
    assert machine.position == LIMIT


def test_an_event_waits_for_every_input_that_may_still_have_an_earlier_one() -> None:
    machine = merge()
    tell(machine, 0, "[0,9) D4")
    tell(machine, 1, "[0,6) D2")
    assert take(machine) == []
    tell(machine, 2, "[0,3)")
    assert take(machine) == [2]
    tell(machine, 2, "[3,7)")
    assert take(machine) == [4]
    assert machine.position == 6


def test_inputs_that_lag_are_asked_up_to_the_foremost() -> None:
    machine = merge()
    tell(machine, 0, "[0,9) D4", now=5)
    assert machine.deadline == 5 + CONFIG.gap_patience
    assert machine.fire(Instant(5 + CONFIG.gap_patience - 1)) == []
    asked = machine.fire(Instant(5 + CONFIG.gap_patience))
    assert [(each.pubend, show(each)) for each in asked] == [
        (NAMES[1], "nack [0,9)"),
        (NAMES[2], "nack [0,9)"),
    ]
    machine.check()


def test_while_the_horizon_moves_nobody_is_asked() -> None:
    machine = merge()
    for number in range(3):
        tell(machine, number, f"[0,{2 + number})")
    take(machine)
    tell(machine, 0, "[2,3)", now=CONFIG.gap_patience - 1)
    take(machine, now=CONFIG.gap_patience - 1)
    assert machine.fire(Instant(CONFIG.gap_patience)) == []
    assert machine.deadline is not None


def test_inputs_that_stand_together_need_no_deadline() -> None:
    machine = merge(start=4)
    for number in range(3):
        tell(machine, number, "[0,9)")
    assert machine.deadline is None
    assert machine.position == 4


def test_loss_is_told_of_the_pubend_it_happened_to() -> None:
    machine = merge()
    tell(machine, 0, "[0,9) D8 lost<3")
    for number in (1, 2):
        tell(machine, number, "[0,9)")
    settled = machine.take(Instant(0))
    assert settled.lost == [(NAMES[0], Span(0, 3))]
    assert settled.ticks == [8]


def test_an_expected_tick_is_asked_of_its_own_pubend_only() -> None:
    machine = merge()
    [nack] = machine.expect(NAMES[1], 5, Instant(0))
    assert (nack.pubend, show(nack)) == (NAMES[1], "nack [0,5)")
