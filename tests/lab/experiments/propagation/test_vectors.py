"""Figure 6: every event goes everywhere, vectors change, and both schemes deliver the same."""

from __future__ import annotations

from gapless_lab.experiments.propagation.setting import FLOODING, PROPAGATION
from gapless_lab.experiments.propagation.vectors import make_event, play_vectors
from tests.lab.experiments.propagation.tiny import ticking, tiny_results


def test_every_event_is_wanted_at_every_broker() -> None:
    for (_, leaves), cost in tiny_results().vectors.items():
        assert cost.published == 100
        assert abs(cost.delivered - leaves * cost.published) <= 4 * leaves


def test_subjects_and_colours_come_in_all_combinations() -> None:
    kinds = {(a["subject"], a["colour"]) for _, a in map(make_event, range(25))}
    assert len(kinds) == 25


def test_a_vector_adds_bytes_and_its_change_more() -> None:
    vectors = tiny_results().vectors
    assert vectors[PROPAGATION, 2].bytes > vectors[FLOODING, 2].bytes > 250
    calm, busy = (
        play_vectors(PROPAGATION, 4, events_per_s=100, seconds=s, seed=1, clock=ticking())
        for s in (0.1, 1.0)
    )
    assert calm.changes == 0
    assert busy.changes == 2  # four brokers, each every two seconds
    assert busy.messages > 1  # a new vector is told at once, event or not
    assert busy.bytes > calm.bytes


def test_processor_time_is_given_for_each_role() -> None:
    for cost in tiny_results().vectors.values():
        assert list(cost.cpu_us) == ["pb", "ib, for each sb", "sb"]
        assert min(cost.cpu_us.values()) > 0
