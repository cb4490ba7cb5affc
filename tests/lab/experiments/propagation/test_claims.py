"""Verdicts on propagation follow the data: each claim can fail."""

from __future__ import annotations

import copy
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import pytest

from gapless_lab.experiments.propagation.claims import bend, judge, slope
from gapless_lab.experiments.propagation.costs import Costs
from gapless_lab.experiments.propagation.setting import FLOODING, PROPAGATION
from tests.lab.experiments.propagation.tiny import tiny_results

if TYPE_CHECKING:
    from gapless_lab.experiments.propagation.experiment import Results
    from gapless_lab.experiments.verdict import Verdict


def verdict(results: Results, words: str) -> Verdict:
    (found,) = [each for each in judge(results) if words in each.claim]
    return found


def spoilt() -> Results:
    """A copy whose parts may be replaced, and whose costs no clock has measured."""
    results = copy.copy(tiny_results())
    nothing = dict.fromkeys((field.name for field in fields(Costs)), 0.0)
    results.costs = Costs(**{**nothing, "publication": 1.0, "event": 1.0})
    results.points, results.vectors = dict(results.points), dict(results.vectors)
    results.latencies = list(results.latencies)
    results.time_line = copy.deepcopy(results.time_line)
    return results


def test_every_figure_has_verdicts() -> None:
    figures = [each.experiment for each in judge(tiny_results())]
    assert list(dict.fromkeys(figures)) == ["4: load", "5: latency", "6: vectors", "7: failure"]
    assert len(figures) == 22


def test_a_line_has_its_slope_and_no_bend() -> None:
    assert slope((1, 4, 7), (10, 16, 22)) == 2
    assert bend((1, 4, 7), (10, 16, 22)) == 0
    assert bend((1, 4, 7), (10, 19, 22)) == pytest.approx(2 / 22)


def test_load_that_propagation_adds_at_the_subscribers_refutes_it() -> None:
    results = spoilt()
    few = results.points[PROPAGATION, 40].tallies["sb"]
    for more, holds in ((1.1, True), (1.2, False)):
        point = results.points[PROPAGATION, 120]
        tally = replace(few, events_in=round(more * few.events_in))
        results.points[PROPAGATION, 120] = replace(point, tallies={**point.tallies, "sb": tally})
        assert verdict(results, "cost sb nothing").holds is holds


def test_load_that_does_not_grow_faster_under_flooding_refutes_it() -> None:
    results = spoilt()
    assert verdict(results, "much faster").holds
    for count in (40, 120):
        results.points[FLOODING, count] = results.points[PROPAGATION, count]
    assert not verdict(results, "much faster").holds


def test_load_that_does_not_grow_is_not_linear_growth() -> None:
    results = spoilt()
    assert verdict(results, "sb, under flooding").holds
    results.points[FLOODING, 120] = results.points[FLOODING, 40]
    assert not verdict(results, "sb, under flooding").holds


def test_a_model_that_is_off_for_one_machine_does_not_agree() -> None:
    results = spoilt()
    for key, point in results.points.items():
        assert results.costs is not None
        took = {name: results.costs.cpu_s(tally) for name, tally in point.tallies.items()}
        results.points[key] = replace(point, measured_cpu_s=took)
    assert verdict(results, "cost model").holds
    point = results.points[FLOODING, 120]
    dear = {**point.measured_cpu_s, "pb2": 2 * point.measured_cpu_s["pb2"]}
    results.points[FLOODING, 120] = replace(point, measured_cpu_s=dear)
    assert not verdict(results, "cost model").holds


def test_a_covered_start_that_grows_with_hops_refutes_it() -> None:
    results = spoilt()
    near, far = results.latencies
    results.latencies = [near, replace(far, local_start_ms=near.local_start_ms)]
    assert verdict(results, "does not depend on hops").holds
    results.latencies = [near, replace(far, local_start_ms=far.global_start_ms)]
    assert not verdict(results, "does not depend on hops").holds


def test_longer_messages_with_more_leaves_refute_the_digests() -> None:
    results = spoilt()
    few, many = results.vectors[PROPAGATION, 2], results.vectors[PROPAGATION, 4]
    results.vectors[PROPAGATION, 4] = replace(many, bytes=1.019 * few.bytes)
    assert verdict(results, "more bytes an event").holds
    results.vectors[PROPAGATION, 4] = replace(many, bytes=1.021 * few.bytes)
    assert not verdict(results, "more bytes an event").holds


@pytest.mark.parametrize("role", ["pb", "ib, for each sb", "sb"])
def test_more_time_than_flooding_takes_refutes_it(role: str) -> None:
    results = spoilt()
    for count in (2, 4):
        ours, theirs = results.vectors[PROPAGATION, count], results.vectors[FLOODING, count]
        results.vectors[PROPAGATION, count] = replace(ours, cpu_us=theirs.cpu_us)
    assert verdict(results, f"filtered, {role} takes").holds
    dear = {name: us * 1.2 for name, us in results.vectors[FLOODING, 4].cpu_us.items()}
    results.vectors[PROPAGATION, 4] = replace(results.vectors[PROPAGATION, 4], cpu_us=dear)
    assert not verdict(results, f"filtered, {role} takes").holds


@pytest.mark.parametrize("what", ["lost", "duplicated", "out_of_order"])
def test_one_event_too_few_or_too_many_refutes_it(what: str) -> None:
    results = spoilt()
    assert verdict(results, "nothing lost").holds
    setattr(results.time_line, what, 1)
    assert not verdict(results, "nothing lost").holds


def test_a_second_without_deliveries_is_a_dip() -> None:
    results = spoilt()
    assert results.time_line is not None
    results.time_line.delivered["group 2"] = [40] * 40
    results.time_line.delivered["group 2"][12] = 30
    assert not verdict(results, "rate is not affected").holds


def test_late_subscribers_that_wait_for_a_relay_to_return_refute_it() -> None:
    results = spoilt()
    assert results.time_line is not None
    assert verdict(results, "one relay left").holds
    results.time_line.delivered["group 4"][20] = 0
    assert not verdict(results, "one relay left").holds


def test_letting_pass_without_a_return_refutes_it() -> None:
    results = spoilt()
    assert results.time_line is not None
    assert verdict(results, "cannot judge").holds
    results.time_line.flooded[20] = 1
    assert not verdict(results, "cannot judge").holds
