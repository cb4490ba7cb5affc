"""The experiments on exactly-once delivery: same seed, same numbers; verdicts follow the data."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest

from gapless_lab.experiments.exactly_once.claims import judge
from gapless_lab.experiments.exactly_once.experiment import QUICK, Results, jobs
from gapless_lab.experiments.exactly_once.fault_run import Course, Plan, play
from gapless_lab.experiments.exactly_once.faults import (
    crash_host,
    crash_relay,
    stall_between_cells,
    stall_to_host,
)
from gapless_lab.experiments.exactly_once.layout import EVENT_BYTES, TOPICS, level_of, make_event
from gapless_lab.experiments.exactly_once.overhead import measure

if TYPE_CHECKING:
    from gapless_lab.experiments.verdict import Verdict

SHORT = Plan(seed=5, host_count=2, events_per_s=10, before_s=4.0, fault_s=6.0, after_s=3.0)
TINY = replace(QUICK, host_counts=(1, 2), subscription_counts=(10, 20), load_s=0.5)


@cache
def tiny_results() -> Results:
    """One small run of everything; a clock that goes on by a µs at each look."""
    results = Results(seed=3, size=TINY)
    ticking = itertools.count()
    for _, job in jobs(results, lambda: next(ticking) / 1e6):
        job()
    return results


def verdict(results: Results, words: str) -> Verdict:
    (found,) = [each for each in judge(results) if words in f"{each.experiment}: {each.claim}"]
    return found


def test_an_event_has_its_length_and_is_unlike_all_others() -> None:
    events = {make_event(topic, number) for topic in TOPICS for number in (0, 9, 300, 70_000)}
    assert len(events) == 8
    assert {len(event) for event in events} == {EVENT_BYTES}


def test_links_are_counted_by_level() -> None:
    assert level_of("s3", "b4") == "hosts → lower"
    assert level_of("b3", "b2") == "lower → upper"
    assert level_of("b1", "p") == "upper → p"


def test_a_stalled_link_delays_only_what_is_behind_it() -> None:
    course = play(SHORT, stall_to_host)
    assert course.behind == [("s1", "rates")]
    assert course.worst()["s1", "rates"] > 1.0
    assert max(late for stream, late in course.worst().items() if stream != ("s1", "rates")) < 0.05
    assert course.nacks("upper → p") == 0  # the cells below have it


def test_every_event_is_counted_at_every_host_once() -> None:
    course = play(SHORT, crash_host)
    assert course.published == 2 * 13 * 10  # two topics, 13 s, 10 a second
    assert len(course.samples) == 2 * course.published
    assert (course.lost, course.duplicated, course.out_of_order) == (0, 0, 0)
    assert 5.9 < course.longest_pause_s() < 6.4


def test_the_same_seed_takes_the_same_course_and_another_does_not() -> None:
    one, again = play(SHORT, crash_relay), play(SHORT, crash_relay)
    other = play(replace(SHORT, seed=6), crash_relay)
    assert one == again
    assert one.digest != other.digest


def test_a_stall_between_cells_reaches_the_pubend_host_as_one_question() -> None:
    course = play(SHORT, stall_between_cells)
    assert course.nacks("upper → p") == 1
    assert course.nacks("hosts → lower") >= 2
    assert course.nacked_s_by_level["upper → p"] == pytest.approx(3.0, abs=1.0)


def test_both_protocols_deliver_the_same_and_only_one_acknowledges() -> None:
    loads = {
        protocol: measure(protocol, 20, seed=1, seconds=1.0, clock=itertools.count().__next__)
        for protocol in ("exactly once", "best effort")
    }
    ours, theirs = loads["exactly once"], loads["best effort"]
    assert ours.published == theirs.published == 100
    assert ours.delivered == theirs.delivered == 100
    assert "Ack" in ours.messages_by_kind
    assert set(theirs.messages_by_kind) == {"Ping", "Pong", "Knowledge", "Deliveries"}
    assert ours.link_bytes > theirs.link_bytes > 7 * EVENT_BYTES * theirs.published
    assert all(ours.cpu_s[role] > theirs.cpu_s[role] > 0 for role in theirs.cpu_s)


def test_every_experiment_has_verdicts_and_the_data_is_plain() -> None:
    results = tiny_results()
    experiments = {each.experiment for each in judge(results)}
    assert experiments == {
        "link b4 – s1 stalls",
        "link b1 – b4 stalls",
        "stall between cells",
        "relay crash",
        "pubend host crash",
        "all faults",
        "overhead",
    }
    plain = results.plain()
    assert [each["host_count"] for each in plain["nack_fan_in"]] == [1, 2]  # type: ignore[attr-defined]
    assert len(plain["overhead"]) == 4  # type: ignore[arg-type]


def spoil_course(results: Results, name: str) -> Course:
    results.courses = dict(results.courses)
    results.courses[name] = copy.copy(results.courses[name])
    return results.courses[name]


def test_delay_elsewhere_refutes_that_delay_is_local() -> None:
    results = copy.copy(tiny_results())
    assert verdict(results, "link b4 – s1 stalls").holds
    course = spoil_course(results, "stall to a host")
    course.samples = [*course.samples, course.samples[0]._replace(host="s2", latency_s=0.2)]
    assert not verdict(results, "link b4 – s1 stalls").holds


def test_nacks_that_grow_with_the_hosts_refute_consolidation() -> None:
    results = copy.copy(tiny_results())
    assert verdict(results, "upstream nacks").holds
    results.fan_in = [results.fan_in[0], replace(results.fan_in[1], to_pubend_host=3)]
    assert not verdict(results, "upstream nacks").holds


def test_one_late_recovery_refutes_the_bound() -> None:
    results = copy.copy(tiny_results())
    results.recoveries_s = [2.0, 3.0]
    results.courses = {**results.courses, "relay crash": play(SHORT, crash_host)}
    assert not verdict(results, "another path").holds
    results = copy.copy(tiny_results())
    results.recoveries_s = [2.0, 3.5]
    assert not verdict(results, "another path").holds


def test_a_nack_after_the_return_is_a_disturbance() -> None:
    results = copy.copy(tiny_results())
    assert verdict(results, "its return").holds
    course = spoil_course(results, "relay crash")
    course.nacks_by_level = {"hosts → lower": {int(course.end_s) + 1: 1}}
    assert not verdict(results, "its return").holds


@pytest.mark.parametrize("what", ["lost", "duplicated", "out_of_order"])
def test_one_event_too_few_or_too_many_refutes_exactly_once(what: str) -> None:
    results = copy.copy(tiny_results())
    assert verdict(results, "nothing lost").holds
    setattr(spoil_course(results, "relay crash"), what, 1)
    assert not verdict(results, "nothing lost").holds


def test_a_cost_that_grows_with_subscriptions_is_not_constant() -> None:
    results = copy.copy(tiny_results())
    assert verdict(results, "messages between brokers beyond").holds
    results.loads = dict(results.loads)
    load = results.loads["exactly once", 20]
    results.loads["exactly once", 20] = replace(load, link_messages=2 * load.link_messages)
    assert not verdict(results, "messages between brokers beyond").holds
