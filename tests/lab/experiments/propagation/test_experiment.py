"""Propagation's experiment as a whole: everything is played, kept, and plain."""

from __future__ import annotations

import json

import pytest

from gapless_lab.experiments.propagation.setting import FLOODING, PROPAGATION
from tests.lab.experiments.propagation.tiny import TINY, tiny_results


def test_every_size_is_played_under_both_schemes() -> None:
    results = tiny_results()
    assert set(results.points) == {(s, n) for s in (PROPAGATION, FLOODING) for n in (40, 120)}
    assert set(results.vectors) == {(s, n) for s in (PROPAGATION, FLOODING) for n in (2, 4)}
    assert [each.hops for each in results.latencies] == [1, 3]


def test_data_is_plain_and_says_what_it_was_computed_with() -> None:
    data = json.loads(json.dumps(tiny_results().plain()))
    assert data["size"]["publisher_counts"] == list(TINY.publisher_counts)
    assert len(data["costs_us"]) == 13
    assert len(data["load"]) == len(data["vectors"]) == 4
    assert data["failure"]["lost"] == 0


def test_the_fitted_model_takes_as_long_in_all_as_the_played_nodes_did() -> None:
    results = tiny_results()
    took = [sum(each.measured_cpu_s.values()) for each in results.points.values()]
    machines = ("pb1", "pb2", "pb3", "pb4", "sb")
    fitted = [
        5 * TINY.load_s * share
        for s in (PROPAGATION, FLOODING)
        for share in results.loads(s, machines)
    ]
    assert sum(fitted) == pytest.approx(sum(took))


def test_notes_state_constants_rates_and_what_is_left_out() -> None:
    text = " ".join(tiny_results().notes())
    for words in ("decode", "times", "Disk and sockets are not in it", "40 subscriptions"):
        assert words in text
