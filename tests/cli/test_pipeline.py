"""`gapless pipeline`: from the log to the lake and back, and the verdict on who got what."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

import gapless
from gapless.cli import app
from gapless.cli.audit import read_subscriptions
from gapless.core.errors import UsageError
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from typer.testing import Result


def command(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def ok(*words: object) -> str:
    result = command(*words)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with broker_in_a_thread(tmp_path / "data") as found:
        yield found


def publish(url: str, first: int, count: int) -> list[int]:
    with gapless.sync.connect(url) as client:
        events = [({"i": i}, b"") for i in range(first, first + count)]
        return [receipt.tick for receipt in client.publish_many("t", events)]


def test_a_log_goes_to_the_lake_and_a_gap_is_filled_from_it(url: str, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    ok("pipeline", "archive", "t", lake, "--url", url)
    ticks = publish(url, 0, 20)
    result = json.loads(ok("pipeline", "archive", "t", lake, "--url", url, "--json"))
    assert result["events"] == 20
    assert result["token"]["t/0"] > ticks[-1]
    assert "0 events were moved" in ok("pipeline", "archive", "t", lake, "--url", url)
    publish(url, 20, 2)
    lines = ok("pipeline", "replay", "t", "i >= 17", "--lake", lake, "--url", url).splitlines()
    assert [json.loads(line)["attributes"]["i"] for line in lines] == [17, 18, 19, 20, 21]
    gap = {"gap": {"start": ticks[5], "end": ticks[9]}, "topic": "t", "pubend": "t/0"}
    alone = ("--lake", lake, "--no-log")
    found = ok("pipeline", "replay", "t", "i <> 6", *alone, "--gap", json.dumps(gap)).splitlines()
    assert [json.loads(line)["tick"] for line in found] == [ticks[5], ticks[7], ticks[8]]


def test_a_topic_that_is_not_there_leaves_nothing_in_the_lake(url: str, tmp_path: Path) -> None:
    for name in ("none", "..", "."):
        refused = command("pipeline", "archive", name, tmp_path / "lake", "--url", url)
        assert "there is no topic" in str(refused.exception)
    assert not (tmp_path / "lake").exists()
    alone = command("pipeline", "replay", "t", "--lake", tmp_path / "none", "--no-log")
    assert "has nothing of the topic 't'" in str(alone.exception)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    def problem(*words: object) -> str:
        error = command("pipeline", *words).exception
        assert isinstance(error, UsageError), error
        return error.problem

    assert "nothing to read" in problem("replay", "t", "--no-log")
    assert "is no gap" in problem("replay", "t", "--gap", "{}")
    other = '{"gap": {"start": 1, "end": 2}, "topic": "u", "pubend": "u/0"}'
    assert "'u'" in problem("replay", "t", "--gap", other)
    assert "a start and an end" in problem("replay", "t", "--gap", other, "--from", "{}")
    assert "slices" in problem("archive", "t", tmp_path, "--slice-seconds", "7")
    (tmp_path / "_SUCCESS").touch()
    assert "already" in problem("match", "t", "x.csv", tmp_path, "--lake", tmp_path, "--no-log")
    assert "cannot read" in problem("audit", "t", tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", r"no \[\[subscription"),
        ("[[subscription]]\nname = ''", "no name"),
        ("[[subscription]]\nname = 'a'\njournal = 'x'", "'journal'"),
        ("[[subscription]]\nname = 'a'\njournals = ['none']", "there is no"),
        ("[[subscription]]\nname = 'a'\nstart = 'soon'", "'soon' is no bound"),
    ],
)
def test_a_file_of_subscriptions_is_checked(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "audit.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=problem):
        read_subscriptions(file)
