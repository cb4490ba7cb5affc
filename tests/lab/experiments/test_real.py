"""`gapless experiment --real`: small runs with real broker processes, and their accounts."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from gapless_lab.experiments.command import experiment, show
from gapless_lab.experiments.durable.real import Absence, Commits, Crash
from gapless_lab.experiments.durable.real_claims import absence, commits, crash
from gapless_lab.experiments.propagation.real import (
    FLOODING,
    PROPAGATION,
    Failure,
    Latency,
    Load,
    Results,
)
from gapless_lab.experiments.propagation.real import QUICK as SMALL
from gapless_lab.experiments.propagation.real_claims import judge
from gapless_lab.experiments.real_clients import HOST, Account

app = typer.Typer()
app.command()(experiment)

RIGHT = Account(owed=10)


@pytest.mark.slow
def test_a_real_run_of_propagation_loses_nothing_though_two_relays_are_killed() -> None:
    result = CliRunner().invoke(app, ["propagation", "--real", "--quick", "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    accounts = [each["account"] for each in (*data["loads"], data["failure"])]
    assert len(accounts) == 5
    assert all(each["owed"] > 0 for each in accounts)
    assert [(each["lost"], each["doubled"], each["disordered"]) for each in accounts] == [
        (0, 0, 0)
    ] * 5
    assert [each["hops"] for each in data["latencies"]] == [1, 2]
    assert all(len(each["start_ms"]) == SMALL.starts for each in data["latencies"])
    assert {each["experiment"] for each in data["claims"]} >= {"5: latency", "7: failure"}


@pytest.mark.slow
def test_a_real_run_of_durable_loses_nothing_though_the_host_is_killed() -> None:
    result = CliRunner().invoke(app, ["durable", "--real", "--quick", "--json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    for part in (data["absence"], data["crash"]):
        owed, *wrong = part["account"].values()
        assert owed > 0
        assert wrong == [0, 0, 0]
    assert len(data["crash"]["level_s"]) == data["size"]["subscribers"]
    assert [each["subscribers"] for each in data["commits"]] == [1, 2]
    assert all(each["acknowledged_per_s"] > 0 for each in data["commits"])
    assert len(data["claims"]) == 6


def test_the_table_says_that_processes_are_real(capsys: pytest.CaptureFixture[str]) -> None:
    show(crash(Crash(RIGHT, 4.0, [1.0])), [], "real processes")
    output = capsys.readouterr().out
    assert output.split("\n")[0].strip() == "real processes"
    assert "2 of 2 claims hold." in output


def test_what_is_not_there_with_real_processes_is_refused() -> None:
    for options in (["exactly-once"], ["durable", "--out", "figures"]):
        result = CliRunner().invoke(app, [*options, "--real"])
        assert result.exit_code == 2
        assert "--real is for propagation and durable" in " ".join(
            result.output.replace("│", " ").split()
        )


def test_an_account_tells_what_is_lost_doubled_and_out_of_order() -> None:
    assert Account().plus([1, 2, 3], [1, 2, 3]).is_right
    assert not Account().is_right, "nothing owed proves nothing"
    assert Account().plus([1, 2, 3], [1, 3, 3]) == Account(3, lost=1, doubled=1)
    found = Account().plus([1, 2, 3], [2, 1, 3]).plus([4], [])
    assert found == Account(4, lost=1, disordered=1)


def results(
    leaf: tuple[float, float, float, float], delivery_ms: tuple[float, float], account: Account
) -> Results:
    """Made up: processor time of leaves by flooding, then by propagation, at both rates."""
    ways = [(scheme, rate) for scheme in (FLOODING, PROPAGATION) for rate in SMALL.rates_per_s]
    loads = [
        Load(scheme, rate, {HOST: share, "s1": share}, RIGHT)
        for (scheme, rate), share in zip(ways, leaf, strict=True)
    ]
    latencies = [
        Latency(hops, [took], [1.0], [10.0 * hops])
        for hops, took in zip((1, 4), delivery_ms, strict=True)
    ]
    return Results(SMALL, loads, latencies, Failure(account, 5.0, 20.0))


def test_claims_of_propagation_hold_only_as_measured() -> None:
    good = judge(results((0.1, 0.4, 0.1, 0.1), (3.0, 6.0), RIGHT))
    assert [each.holds for each in good] == [True] * 9
    bad = judge(results((0.1, 0.1, 0.1, 0.4), (6.0, 3.0), RIGHT._replace(lost=1)))
    assert [each.holds for each in bad] == [False] * 4 + [True, True, True, False, True]


def test_without_processor_times_load_is_not_judged_and_that_is_said() -> None:
    found = results((0.1, 0.4, 0.1, 0.1), (3.0, 6.0), RIGHT)
    found.loads = [each._replace(busy={}) for each in found.loads]
    assert len(judge(found)) == 6
    assert "No processor times" in found.notes()[-1]


def test_claims_of_durable_hold_only_as_measured() -> None:
    good = [
        *absence(Absence(RIGHT, 4.0, 1.0, 800.0, 200.0)),
        *crash(Crash(RIGHT, 4.0, [1.0, 2.0])),
        commits([Commits(1, 100.0, 100.0), Commits(8, 400.0, 150.0)]),
        commits([Commits(1, 100.0, None), Commits(8, 400.0, None)]),
    ]
    assert all(each.holds for each in good)
    wrong = RIGHT._replace(doubled=1)
    bad = [
        *absence(Absence(wrong, 4.0, None, 0.0, 200.0)),
        *crash(Crash(wrong, 4.0, [1.0, None])),
        commits([Commits(1, 100.0, 100.0), Commits(8, 400.0, 800.0)]),
        commits([Commits(1, 100.0, None), Commits(8, 90.0, None)]),
    ]
    assert not any(each.holds for each in bad)
