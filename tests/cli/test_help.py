"""What a command says of itself is what was written, on a screen of any width."""

from __future__ import annotations

import re

import pytest
import typer.rich_utils
from typer.testing import CliRunner

from gapless.cli import app
from gapless.cli.help import flow, lay_out
from gapless.core.errors import UsageError


def help_of(monkeypatch: pytest.MonkeyPatch, *command: str) -> str:
    monkeypatch.setattr(typer.rich_utils, "MAX_WIDTH", 200)
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0, result.output
    return re.sub(r"\x1b\[[0-9;]*m", "", result.output)


@pytest.mark.parametrize(
    ("command", "written"),
    [
        (["up"], "[[cell]]"),
        (["serve"], "A file with [security];"),
        (["pipeline", "audit"], "[[subscription]] with name"),
    ],
)
def test_brackets_are_shown(
    monkeypatch: pytest.MonkeyPatch, command: list[str], written: str
) -> None:
    assert written in help_of(monkeypatch, *command)


@pytest.mark.parametrize("command", [["serve"], ["topic", "create"], []])
def test_a_flag_takes_no_value(monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    assert "<bool>" not in help_of(monkeypatch, *command)


def test_paragraphs_flow_and_examples_stand_as_written() -> None:
    text = "First\nline.\n\n\b\na  1\nb  2\n\nMore\ntext."
    assert flow(text) == "First line.\n\na  1\nb  2\n\nMore text."


def test_a_command_of_the_laboratory_says_where_it_is() -> None:
    alone = typer.Typer()
    alone.command()(lambda: None)
    alone.command(name="other")(lambda: None)
    lay_out(alone)
    with pytest.raises(UsageError, match="gapless-lab, which is not installed"):
        CliRunner().invoke(alone, ["demo"], catch_exceptions=False)


def test_commands_of_the_laboratory_are_there_where_it_is_installed() -> None:
    shown = CliRunner().invoke(app, ["--help"]).output
    assert "experiment" in shown
    assert "demo" in shown
