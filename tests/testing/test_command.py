"""The commands: what they print, how they end, and that a failure says how to repeat it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import typer
from typer.testing import CliRunner

from gapless.cli.simulate import simulate, swarm

if TYPE_CHECKING:
    from pathlib import Path

app = typer.Typer()
app.command()(simulate)
app.command()(swarm)


def test_a_seed_is_replayed_with_its_trace_and_its_hash() -> None:
    traced = CliRunner().invoke(app, ["simulate", "--seed", "3", "--trace"])
    plain = CliRunner().invoke(app, ["simulate", "--seed", "3", "--json"])
    assert traced.exit_code == plain.exit_code == 0
    assert traced.output.startswith("seed 3\nnetwork ")
    assert "all promises kept" in traced.output
    outcome = json.loads(plain.output)
    assert outcome["hash"] in traced.output
    assert outcome["violation"] is None


def test_a_failure_ends_with_the_command_that_repeats_it() -> None:
    for seed in range(20):
        words = ["simulate", "--seed", str(seed), "--planted", "silences-events"]
        result = CliRunner().invoke(app, [*words, "--fault", "crash=1"])
        if result.exit_code:
            break
    assert result.exit_code == 1
    command = f"gapless simulate --seed {seed} --trace --planted silences-events --fault crash=1"
    assert result.output.rstrip().endswith(command)


def test_a_network_file_is_played(tmp_path: Path) -> None:
    path = tmp_path / "network.toml"
    path.write_text(
        'cell = [{name = "x", brokers = [{name = "solo"}], subscribers = true}]\n'
        'topic = [{name = "news", pubends = ["solo"]}]\n',
        encoding="utf-8",
    )
    words = ["simulate", "--seed", "4", "--trace", "--network", str(path)]
    assert "network x! news@solo" in CliRunner().invoke(app, words).output


@pytest.mark.parametrize("fault", ["crash", "crash=often", "crash=0", "rain=3"])
def test_a_fault_that_is_none_is_refused(fault: str) -> None:
    result = CliRunner().invoke(app, ["simulate", "--seed", "1", "--fault", fault])
    assert result.exit_code == 2


@pytest.mark.parametrize("service", ["reliable", "multicast"])
def test_seeds_of_every_service_are_replayed_and_swarmed(service: str) -> None:
    words = ["--service", service, "--json"]
    played = json.loads(CliRunner().invoke(app, ["simulate", "--seed", "2", *words]).stdout)
    assert played["violation"] is None
    assert played["deliveries"] > 0
    again = CliRunner().invoke(app, ["simulate", "--seed", "2", *words[:2], "--trace"])
    assert played["hash"] in again.output
    many = ["swarm", "--seeds", "2", "--from", "2", "--jobs", "1", *words]
    result = json.loads(CliRunner().invoke(app, many).stdout)
    assert (result["seeds"], result["violations"]) == (2, [])


def test_a_swarm_of_all_services_tells_of_each() -> None:
    many = ["swarm", "--seeds", "1", "--from", "2", "--jobs", "1", "--service", "all", "--json"]
    result = json.loads(CliRunner().invoke(app, many).stdout)
    assert list(result) == ["durable", "reliable", "multicast"]
    assert all(each["seeds"] == 1 and not each["violations"] for each in result.values())


@pytest.mark.parametrize(
    "words",
    [
        ["simulate", "--seed", "1", "--service", "other"],
        ["simulate", "--seed", "1", "--service", "reliable", "--fault", "crash=1"],
        ["swarm", "--seeds", "1", "--service", "other"],
    ],
)
def test_a_service_that_is_none_or_takes_no_faults_is_refused(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.slow
def test_a_swarm_plays_every_seed_once_and_counts_situations() -> None:
    words = ["swarm", "--seeds", "10", "--from", "5", "--jobs", "2"]
    result = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert (result["seeds"], result["violations"]) == (10, [])
    assert result["situations"]["a nack"] > 0
    shown = CliRunner().invoke(app, ["swarm", "--seeds", "2", "--jobs", "1"])
    assert shown.exit_code == 0
    assert "2 seeds in" in shown.output
    assert "situations met" in shown.output
