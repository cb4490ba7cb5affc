"""The cost model: a sum over the tally, of constants that were measured."""

from __future__ import annotations

from dataclasses import asdict, fields

import pytest

from gapless_lab.experiments.propagation.costs import (
    CALLS,
    Costs,
    alone,
    each,
    measure_costs,
    timed,
)
from gapless_lab.experiments.propagation.tally import Tally
from tests.lab.experiments.propagation.tiny import ticking

NOTHING = dict.fromkeys((field.name for field in fields(Costs)), 0.0)


@pytest.mark.parametrize(
    ("constant", "count"),
    [
        ("decode", "decoded"),
        ("decode_event", "events_decoded"),
        ("encode", "encoded"),
        ("encode_event", "events_encoded"),
        ("write", "writes"),
        ("publication", "publications"),
        ("relay", "relayed"),
        ("passing", "passed"),
        ("host", "hosted"),
        ("event", "events_in"),
        ("other", "others_in"),
        ("matching", "matchings"),
        ("match", "matches"),
    ],
)
def test_each_constant_charges_for_its_count(constant: str, count: str) -> None:
    costs = Costs(**{**NOTHING, constant: 5.0})
    everything = {field.name: 1 for field in fields(Tally)}
    assert costs.cpu_s(Tally(**{**everything, count: 40})) == pytest.approx(200e-6)


def test_what_a_message_costs_is_told_from_what_an_event_in_it_does() -> None:
    took_us = {1: 7.0, 11: 27.0}
    assert each(took_us) == 2.0
    assert alone(took_us) == 5.0


def test_a_call_is_timed_at_its_best() -> None:
    instants = iter([0.0, 9.0, 10.0, 14.0, *(float(n) for n in range(20, 120, 5))])
    assert timed(lambda: next(instants), lambda: None, calls=2) == pytest.approx(2.0e6)


def test_every_constant_is_measured_on_the_real_parts() -> None:
    costs = measure_costs(ticking(), ["publisher = 'p1'"])
    assert all(value >= 0 for value in asdict(costs).values())
    assert costs.other == pytest.approx(1 / CALLS)  # a look at the clock for all of a round
