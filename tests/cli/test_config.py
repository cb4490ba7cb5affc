"""`gapless config show`: the settings, their defaults, and where each comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from gapless.cli.commands import app
from gapless.cli.configuration import basic_settings, kinds_of_settings

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def show(*arguments: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["config", "show", "--json", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


def test_the_basic_settings_are_shown_with_their_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = show()
    assert {row["name"] for row in rows} == set(basic_settings())
    assert all(row["value"] == row["default"] and row["from"] == "default" for row in rows)


def test_all_settings_are_shown_if_asked_for() -> None:
    assert {row["name"] for row in show("--all")} == set(kinds_of_settings())


def test_what_a_file_and_the_command_line_change_is_shown_with_its_source(tmp_path: Path) -> None:
    file = tmp_path / "gapless.toml"
    file.write_text('listen = "127.0.0.1:7000"\nsubscriptions_max = 7\ndead_after = 4_000_000\n')
    rows = show("--changed", "--config", str(file), "--set", "subscriptions_max=9")
    assert {row["name"]: (row["value"], row["from"]) for row in rows} == {
        "listen": ("127.0.0.1:7000", str(file)),
        "subscriptions_max": (9, "--set"),
        "dead_after": (4_000_000, str(file)),
    }


def test_a_file_that_a_broker_would_refuse_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "gapless.toml"
    file.write_text("subscription_max = 7\n")
    result = CliRunner().invoke(app, ["config", "show", "--config", str(file)])
    assert "subscriptions_max" in str(result.exception) + result.output
