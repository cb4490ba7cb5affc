"""Figure 4's network: what is published on a machine goes by its own member, and is filtered."""

from __future__ import annotations

from gapless_lab.experiments.propagation.load import (
    BETWEEN,
    CELLS,
    CENTRE,
    MACHINES,
    PUBLISHERS,
    TOPICS,
    play_load,
)
from gapless_lab.experiments.propagation.setting import FLOODING, PROPAGATION
from gapless_lab.experiments.propagation.ways import carrier
from tests.lab.experiments.propagation.tiny import ticking, tiny_results


def test_only_what_is_wanted_reaches_the_subscribers_under_propagation() -> None:
    points = tiny_results().points
    for scheme, reach in ((PROPAGATION, 1), (FLOODING, 3)):
        point = points[scheme, 120]
        assert point.published == 120  # 2 a second each, for 0.5 s
        assert abs(point.to_subscribers - reach * point.delivered) <= 4
    assert points[PROPAGATION, 40].delivered == points[FLOODING, 40].delivered > 10


def test_flooding_brings_every_event_to_every_machine_once() -> None:
    point = tiny_results().points[FLOODING, 120]
    for machine in PUBLISHERS:
        # What others published, over the wire, and what it published itself, from member to member.
        assert abs(point.tallies[machine].events_in - point.published) <= 4
        assert point.tallies[machine].matches == 0
    assert set(point.tallies) == set(MACHINES)
    assert len(BETWEEN) == len(MACHINES)


def test_a_share_of_a_processor_is_its_time_over_virtual_time() -> None:
    results = tiny_results()
    assert results.costs is not None
    point = results.points[PROPAGATION, 120]
    took = sum(results.costs.cpu_s(point.tallies[each]) for each in PUBLISHERS)
    assert point.utilisation(PUBLISHERS, results.costs) == took / 4 / 0.5
    assert point.measured(("sb",)) == point.measured_cpu_s["sb"] / 0.5 > 0


def test_what_a_machine_publishes_goes_by_its_own_member() -> None:
    pairs = zip(TOPICS, PUBLISHERS, BETWEEN, strict=False)
    for topic, machine, member in pairs:
        assert carrier(CELLS, machine, CENTRE, topic) == member


def test_the_same_seed_gives_the_same_counts() -> None:
    again = play_load(PROPAGATION, 120, subscriptions=40, seconds=0.5, seed=3, clock=ticking())
    assert again.tallies == tiny_results().points[PROPAGATION, 120].tallies
