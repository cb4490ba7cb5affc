"""`gapless demo --matching` agrees with brute force and can be read by a program."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from gapless.cli import app

COMMAND = ("demo", "--matching", "--subscriptions")


def test_the_demo_agrees_with_brute_force_and_says_so_as_json() -> None:
    result = CliRunner().invoke(app, [*COMMAND, "300", "--events", "500", "--json"])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["agrees"] is True
    assert (said["subscriptions"], said["events"]) == (300, 500)
    assert said["deliveries"] > 0


def test_the_demo_shows_a_table_to_people() -> None:
    result = CliRunner().invoke(app, [*COMMAND, "3", "--events", "2"])
    assert result.exit_code == 0, result.output
    assert "one condition after the other" in result.output
    assert "agree" in result.output


def test_the_same_seed_gives_the_same_feed() -> None:
    def deliveries(seed: str) -> int:
        arguments = [*COMMAND, "2000", "--events", "50", "--seed", seed, "--json"]
        return int(json.loads(CliRunner().invoke(app, arguments).stdout)["deliveries"])

    assert deliveries("1") == deliveries("1") != deliveries("2")
