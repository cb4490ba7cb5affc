"""No option is ignored: one that would have no effect beside the others is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from gapless.cli import app
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = ("--url", "gapless://127.0.0.1:1")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("topic", "create", "x", "--pubends", "3", "--host", "a"), "contradict"),
        (("topic", "create", "x", "--pubends", "1", "--host", "a", "--host", "b"), "contradict"),
        (
            ("topic", "list", "--access-token", "FILE", *PLAIN),
            "--access-token would have no effect",
        ),
        (("publish", "t", "a=1", "--ca", "FILE", *PLAIN), "--ca would have no effect"),
        (("publish", "t", "a=1", "a=2"), "'a' is there twice"),
        (("publish", "t", "--file", "x.jsonl", "--types", "a=int"), "--types is for .csv files"),
        (("subscribe", "t", "--token-file", "x"), "a token is of a named subscription"),
        (("read", "t", "--json", "--parquet", "x"), "--json and --parquet contradict"),
        (("read", "t", "--parquet", "."), "is a folder"),
        (("status", "--admin", "h:1", "--data", "x"), "--admin and --data contradict"),
        (("status", "--admin", "127.0.0.1:1", "--key", "FILE"), "--key would have no effect"),
        (("subscriptions", "--admin", "h:1", "--data", "x"), "--admin and --data contradict"),
        (("filter", "a = 1", "--count"), "--count is for events"),
        (("pipeline", "archive", "t", "lake", "--every", "5"), "--every is for --follow"),
        (("pipeline", "archive", "t", "lake", "--ca", "FILE", *PLAIN), "--ca would have no effect"),
        (("pipeline", "replay", "t", "--master", "yarn"), "--master is for --out"),
        (("pipeline", "audit", "t", "x", "--published", "y", "--no-log"), "--published says"),
        (("security", "certificate", "x", "--host", "h"), "--host is for a broker"),
        (("security", "certificate", "x", "--broker", "--rights", "all"), "a broker has no rights"),
        (("broker", "x", "--join", "nonsense"), "'nonsense' is no address"),
        (("serve", "--set", "topics_max=1", "--set", "topics_max=2"), "topics_max is set twice"),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    (tmp_path / "file").write_text("token")
    given = [str(tmp_path / "file") if word == "FILE" else word for word in words]
    result = CliRunner().invoke(app, given)
    assert isinstance(result.exception, UsageError), result.output
    assert problem in str(result.exception)


def test_credentials_of_the_environment_are_for_whoever_needs_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("token")
    known = {"GAPLESS_TOKEN_FILE": str(tmp_path / "file"), "GAPLESS_CA": str(tmp_path / "file")}
    result = CliRunner().invoke(app, ["topic", "list", *PLAIN], env=known)
    assert "no broker answers" in str(result.exception)
