"""Verdicts on durable subscriptions follow the data: each claim can fail."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gapless_lab.experiments.durable.claims import judge
from gapless_lab.experiments.durable.experiment import play_to_end
from gapless_lab.experiments.durable.processor import SLOWNESS
from gapless_lab.experiments.durable.setting import NeverLevelError, Positions
from gapless_lab.experiments.durable.steady import ANONYMOUS, LEAVING, STAYING
from tests.lab.experiments.durable.tiny import tiny_results

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless_lab.experiments.durable.experiment import Results
    from gapless_lab.experiments.verdict import Verdict


def verdict(results: Results, words: str) -> Verdict:
    (found,) = [each for each in judge(results) if words in each.claim]
    return found


def spoilt() -> Results:
    return copy.deepcopy(tiny_results())


def test_every_figure_has_verdicts() -> None:
    figures = list(dict.fromkeys(each.experiment for each in judge(tiny_results())))
    assert figures == [
        "latency",
        "4: peak rate",
        "5: catch-up",
        "6: positions",
        "returns together",
        "7: positions",
        "8: rates",
        "8: processors",
        "all runs",
        "filtered log",
        "auto-acknowledge",
    ]


def test_bounds_stand_in_the_claims() -> None:
    claims = [each.claim for each in judge(tiny_results())]
    assert sum("at least" in each or "at most" in each or "within" in each for each in claims) > 15


def slower(results: Results) -> None:
    assert results.latency is not None
    results.latency = replace(results.latency, durable_ms=2 * results.latency.anonymous_ms)


def costly_absences(results: Results) -> None:
    peak = results.peaks[LEAVING, 2]
    results.peaks[LEAVING, 2] = replace(peak, per_s=peak.per_s / 2)


def costly_durability(results: Results) -> None:
    peak = results.peaks[ANONYMOUS, 1]
    results.peaks[ANONYMOUS, 1] = replace(peak, per_s=peak.per_s * 2)


def busy_pubends(results: Results) -> None:
    peak = results.peaks[STAYING, 2]
    results.peaks[STAYING, 2] = replace(peak, busy={**peak.busy, "p": 0.9})


def slow_catch_up(results: Results) -> None:
    assert results.absences is not None
    late = results.absences.returns[0]._replace(caught_up_s=7.0)
    results.absences = replace(results.absences, returns=[late])


def stalled_stream(results: Results) -> None:
    assert results.absences is not None
    rows = results.absences.positions.rows
    stalled = [replace(row, latest_ms=rows[0].latest_ms) for row in rows[:100]] + rows[100:]
    results.absences = replace(results.absences, positions=Positions(rows=stalled))


def nacks_explode(results: Results) -> None:
    last = results.fan_in[-1]
    results.fan_in[-1] = replace(last, sent_again=last.missed * 2)


def lost_one(results: Results) -> None:
    assert results.crash is not None
    results.crash = replace(results.crash, lost=1)


def released_early(results: Results) -> None:
    crash = results.crash
    assert crash is not None
    rows = [
        replace(row, released_ms=row.latest_ms) if row.second > crash.up_s else row
        for row in crash.positions.rows
    ]
    results.crash = replace(crash, positions=Positions(rows=rows))


def no_recovery(results: Results) -> None:
    """The stream takes as long to recover as the time it missed."""
    crash = results.crash
    assert crash is not None
    rows = [
        replace(row, latest_ms=1000 * (row.second - crash.begin) / 2)
        for row in crash.positions.rows
    ]
    results.crash = replace(crash, positions=Positions(rows=rows))


def pubends_suffer(results: Results) -> None:
    crash = results.crash
    assert crash is not None
    then = int(crash.recovered_s) - crash.begin
    shares = crash.busy["p"]
    results.crash = replace(
        crash, busy={**crash.busy, "p": shares[:then] + [1.0] * (len(shares) - then)}
    )


def slow_machines(results: Results) -> None:
    crash = results.crash
    assert crash is not None
    then = int(crash.recovered_s) - crash.begin
    machines = [counts[:then] + [1] * (len(counts) - then) for counts in crash.machines]
    results.crash = replace(crash, machines=machines)


def as_much_logged(results: Results) -> None:
    assert results.logging is not None
    results.logging = replace(results.logging, filtered_bytes=results.logging.copied_bytes)


def no_grouping(results: Results) -> None:
    row = results.rows[-1]
    results.rows[-1] = replace(row, commits_per_s=row.events_per_s)


@pytest.mark.parametrize(
    ("words", "spoil"),
    [
        ("waits no longer", slower),
        ("absences cost little", costly_absences),
        ("cost a host little more", costly_durability),
        ("idle time", busy_pubends),
        ("level again soon", slow_catch_up),
        ("is steady", stalled_stream),
        ("nothing twice for many", nacks_explode),
        ("nothing is lost", lost_one),
        ("released stands still", released_early),
        ("recovers quickly", no_recovery),
        ("hardly busier", pubends_suffer),
        ("get more than usual", slow_machines),
        ("logs far less", as_much_logged),
        ("share a commit", no_grouping),
    ],
)
def test_data_that_contradicts_a_claim_refutes_it(
    words: str, spoil: Callable[[Results], None]
) -> None:
    results = spoilt()
    assert verdict(results, words).holds
    spoil(results)
    assert not verdict(results, words).holds


def test_a_load_below_the_papers_is_said_to_be_that() -> None:
    results = spoilt()
    peak = results.peaks[STAYING, 1]
    for times, holds in ((0.5, True), (2.0, False)):
        results.peaks[STAYING, 1] = replace(peak, per_s=times * peak.per_s)
        assert verdict(results, "as loaded as the paper's").holds is holds


def test_what_is_sent_again_is_compared_with_what_was_missed() -> None:
    results = spoilt()
    assert results.crash is not None
    for times, holds in ((1, True), (2, False)):
        results.crash = replace(results.crash, sent_again=times * results.crash.missed)
        assert verdict(results, "sends each event again once").holds is holds


def test_processors_that_the_model_gets_wrong_refute_it() -> None:
    results = spoilt()
    assert results.crash is not None
    model = results.crash.model_s
    for factor, holds in ((1.0, True), (2.0, False)):
        measured = {name: factor * seconds / SLOWNESS for name, seconds in model.items()}
        results.crash = replace(results.crash, measured_s=measured)
        assert verdict(results, "cost model").holds is holds


def test_what_an_input_decides_is_shown_and_not_judged() -> None:
    unjudged = [each.claim for each in judge(tiny_results()) if each.holds is None]
    words = ("most of it is logging", "durable: grows", "away: grows", "one stream for all")
    assert len(unjudged) == len(words)
    assert all(any(word in claim for claim in unjudged) for word in words)


def test_a_run_that_does_not_end_is_a_verdict() -> None:
    results = spoilt()
    play_to_end(results, "crash of a host", never)
    results.crash = None
    found = next(each for each in judge(results) if each.experiment == "crash of a host")
    assert (found.value, found.holds) == ("not level again within 1 s", False)
    assert results.plain()["unended"] == {"crash of a host": found.value}


def never() -> None:
    raise NeverLevelError("not level again within 1 s")
