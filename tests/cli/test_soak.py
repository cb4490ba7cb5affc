"""`gapless soak`: which blows fall, and what is said at the end."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from gapless.cli import app
from gapless.cli.soak import show
from gapless.core.errors import UsageError
from gapless.testing.processes.soak import BLOWS, BROKERS, KILLS, LINKS, SoakSummary, draw

if TYPE_CHECKING:
    from pathlib import Path


def test_the_seed_gives_the_blows_and_each_falls_before_any_falls_again() -> None:
    drawn = draw(1, 2 * len(BLOWS))
    assert drawn == draw(1, 2 * len(BLOWS)) != draw(2, 2 * len(BLOWS))
    assert sorted(drawn[: len(BLOWS)]) == sorted(BLOWS)
    assert set(Counter(drawn).values()) == {2}
    assert set(draw(1, 5, KILLS)) == {f"kill {name}" for name in BROKERS}


def test_every_link_of_the_network_may_be_struck_and_the_first_name_dials() -> None:
    assert len(LINKS) == len(set(LINKS)) == 7
    assert all(dialler < dialled for dialler, dialled in LINKS)
    assert {f"cut {dialler}:{dialled}" for dialler, dialled in LINKS} <= set(BLOWS)


@pytest.mark.slow
def test_a_short_soak_keeps_its_data_and_says_how_it_went(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    options = ["--cycles", "2", "--only", "leave", "--json", "--keep-data", str(folder)]
    result = CliRunner().invoke(app, ["soak", *options])
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert (said["cycles"], said["blows"], said["problem"]) == (2, {"leave": 2}, "")
    assert said["deliveries"] > 0
    assert "2 of 2" in result.stderr
    for name in BROKERS:
        assert "broker stopped" in (folder / name / "log").read_text(encoding="utf-8")


def test_a_blow_that_there_is_not_is_refused() -> None:
    result = CliRunner().invoke(app, ["soak", "--only", "tickle"])
    assert isinstance(result.exception, UsageError)
    assert "no blow begins with 'tickle'" in str(result.exception)


def test_a_broken_promise_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show(SoakSummary(7, problem="no gap: desk never got 5"))
    output = " ".join(capsys.readouterr().out.split())
    assert "seed 7" in output
    assert "broken: no gap: desk never got 5" in output
