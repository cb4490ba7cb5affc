"""The conjunction graph: its roots are those of the definition, whatever came in which order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.filters.normal import Conjunction
from gapless.propagation.graph import ConjunctionGraph, RootChange
from tests.propagation.strategies import conjunction, conjunctions

Steps = list[tuple[bool, Conjunction]]

STEPS = st.lists(st.tuples(st.booleans(), conjunctions()), max_size=25)


def check_all(graph: ConjunctionGraph) -> None:
    """The roots are those of the definition; quadratic."""
    graph.check()
    every = list(graph._nodes)
    uncovered = {one for one in every if not any(a != one and a.covers(one) for a in every)}
    assert set(graph.roots()) == uncovered


def roots_by_definition(held: list[Conjunction]) -> set[Conjunction]:
    some = set(held)
    return {one for one in some if not any(a != one and a.covers(one) for a in some)}


def play(steps: Steps) -> tuple[ConjunctionGraph, list[Conjunction]]:
    """Add, or remove if it is there; and what is held in the end."""
    graph, held = ConjunctionGraph(), list[Conjunction]()
    for is_removal, one in steps:
        if is_removal and one in held:
            held.remove(one)
            graph.remove(one)
        else:
            held.append(one)
            graph.add(one)
    return graph, held


@given(STEPS)
def test_the_roots_are_those_that_nothing_covers(steps: Steps) -> None:
    graph, held = play(steps)
    check_all(graph)
    assert set(graph.roots()) == roots_by_definition(held)


@given(st.lists(conjunctions(), max_size=12), st.randoms(use_true_random=False))
def test_the_roots_do_not_depend_on_the_order(some: list[Conjunction], dice: object) -> None:
    shuffled = list(some)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert set(play([(False, one) for one in some])[0].roots()) == set(
        play([(False, one) for one in shuffled])[0].roots()
    )


@given(STEPS, STEPS)
def test_the_changes_of_a_batch_lead_from_the_old_roots_to_the_new(
    first: Steps, second: Steps
) -> None:
    graph, held = play(first)
    graph.take_change()
    before = set(graph.roots())
    for is_removal, one in second:
        if is_removal and one in held:
            held.remove(one)
            graph.remove(one)
        else:
            held.append(one)
            graph.add(one)
    change = graph.take_change()
    assert (before - set(change.removed)) | set(change.added) == set(graph.roots())
    assert set(change.removed) <= before
    assert not set(change.added) & before


@given(st.lists(conjunctions(), min_size=1, max_size=12))
def test_a_start_time_is_the_least_of_those_that_cover(some: list[Conjunction]) -> None:
    """3.3: "set c.vst to the minimum of these conjunctions" (by brute force)."""
    graph, starts = ConjunctionGraph(), dict[Conjunction, int]()
    for time, one in enumerate(some, start=1):
        covering = [start for other, start in starts.items() if other.covers(one)]
        starts[one] = starts.get(one) or min(covering, default=time)
        assert graph.add(one, time) == starts[one]


@given(st.lists(conjunctions(), max_size=12))
def test_start_times_do_not_grow_on_the_way_down(some: list[Conjunction]) -> None:
    """3.3: "non-increasing vst's as one travels from a root node to the covered nodes"."""
    graph = ConjunctionGraph()
    for time, one in enumerate(some, start=1):
        graph.add(one, time)
    for wide in some:
        for narrow in graph.covered(wide):
            assert narrow.start <= graph.start_of(wide)


def test_an_uncovered_conjunction_becomes_a_root_and_keeps_its_start_time() -> None:
    graph = ConjunctionGraph()
    graph.add(conjunction("p > 1"), 1)
    assert graph.add(conjunction("p > 2"), 2) == 1
    graph.take_change()
    graph.remove(conjunction("p > 1"))
    assert graph.take_change() == RootChange([conjunction("p > 2")], [conjunction("p > 1")])
    assert graph.start_of(conjunction("p > 2")) == 1


def test_a_conjunction_goes_with_the_last_that_wants_it() -> None:
    graph = ConjunctionGraph()
    graph.add(conjunction("p > 1"))
    graph.add(conjunction("p > 1"))
    graph.remove(conjunction("p > 1"))
    assert conjunction("p > 1") in graph
    graph.remove(conjunction("p > 1"))
    assert len(graph) == 0
    assert not graph.take_change()


def test_more_pins_than_have_subsets_looked_up_are_found_too() -> None:
    graph = ConjunctionGraph()
    many = " AND ".join(f"a{number} = {number}" for number in range(8))
    graph.add(conjunction(many))
    graph.add(conjunction("a7 = 7"))
    check_all(graph)
    graph.add(conjunction(f"{many} AND b = 1"))
    check_all(graph)
    assert graph.roots() == [conjunction("a7 = 7")]
