"""`gapless filter`, as a user at a terminal or in a pipe sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer.testing import CliRunner

from gapless.cli import app

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = '{"price": 7, "symbol": "T"}\n\n{"price": 3}\n{"price": null}\n'


def run(*arguments: str, given: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, ["filter", *arguments], input=given, catch_exceptions=True)
    return result.exit_code, result.output + str(result.exception or "")


def test_a_good_condition_is_shown_as_it_was_understood() -> None:
    assert run("price>5 and symbol='T'") == (0, "ok: price > 5 AND symbol = 'T'\n")


def test_an_empty_condition_is_said_to_match_everything() -> None:
    assert run("") == (0, "ok: matches everything\n")


def test_what_is_most_likely_not_meant_is_noted() -> None:
    code, output = run("symbol = IBM OR price > 5")
    assert code == 0
    assert "note: IBM and symbol are both taken for attributes" in output
    assert "note: no event can match" in run("price > 5 AND price < 3")[1]
    assert "note" not in run("bid > ask AND symbol = 'IBM'")[1]


def test_a_bad_condition_shows_where_it_went_wrong() -> None:
    code, output = run("price > ")
    assert code
    assert "  price > \n          ^" in output


def test_events_that_match_are_printed_as_they_came() -> None:
    assert run("price > 5", "-", given=EVENTS) == (0, '{"price": 7, "symbol": "T"}\n')
    assert run("price IS NULL", "-", given=EVENTS) == (0, '{"price": null}\n')
    endless = '{"price": {"float": "Infinity"}}\n'
    assert run("price > 5", "-", given=endless) == (0, endless)


def test_events_are_read_from_a_file_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(EVENTS, encoding="utf-8")
    assert run("price > 0", str(path), "--count") == (0, "2\n")


def test_bad_events_are_wrong_usage_and_named_by_line() -> None:
    for line, complaint in (
        ("{", "line 2 is not JSON"),
        ("[1]", "line 2 is no JSON object"),
        ('{"a": [1]}', "line 2: attribute 'a'"),
    ):
        code, output = run("price > 5", "-", given='{"price": 1}\n' + line)
        assert code == 2
        assert complaint in output.replace("│", "").replace("\n", " ").replace("  ", " ")


def test_a_file_that_is_not_utf8_is_no_surprise(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"price": 7}\n\xff\n')
    code, output = run("price > 5", str(path))
    assert code == 2
    assert "line 2 is not UTF-8" in output


def test_explain_shows_the_conjunctions() -> None:
    code, output = run("a = 1 OR b + c > 2", "--explain")
    assert code == 0
    assert "conjunction 2" in output
    assert "checked afterwards" in output
