"""Runs of an experiment: played on processes kept, taken up again."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pytest

from gapless.core.errors import UsageError
from gapless_lab.experiments import players as experiment_runs
from gapless_lab.experiments.players import (
    Kept,
    in_processes,
    play_jobs,
    play_runs,
    read_kept,
    time_left,
    waves,
)
from gapless_lab.experiments.runs import Outcomes, Run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def multiply(one: int, other: int) -> list[int]:
    return [one * other]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def squares(count: int, point: str = "squares") -> list[Run]:
    return [Run(point, n, 1.0, partial(multiply, n, n)) for n in range(count)]


def refuse() -> None:
    raise AssertionError("this was kept")


def test_outcomes_come_by_the_number_of_the_run() -> None:
    outcomes = Outcomes()
    for run in reversed(squares(4)):
        outcomes.keep(run, run.play())
    assert outcomes.of("squares") == [[0], [1], [4], [9]]
    assert outcomes.plain() == {"squares": [[0], [1], [4], [9]]}


def test_what_was_kept_is_not_played_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "runs.jsonl", "code")
    play_runs(squares(3), Outcomes(), kept, None)
    assert len(read_kept(kept)) == 3
    old = [run._replace(play=refuse) for run in squares(3)]
    outcomes = Outcomes()
    play_runs([*old, *squares(5)[3:], *squares(2, "others")], outcomes, kept, None)
    assert outcomes.plain() == {"others": [[0], [1]], "squares": [[0], [1], [4], [9], [16]]}
    assert len(read_kept(kept)) == 7


def test_a_line_that_a_kill_cut_short_is_played_again_and_spoils_no_other(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "runs.jsonl", "code")
    play_runs(squares(3), Outcomes(), kept, None)
    lines = kept.path.read_text().splitlines()
    kept.path.write_text("\n".join(lines)[:-5])
    assert len(read_kept(kept)) == 2
    outcomes = Outcomes()
    play_runs(squares(4), outcomes, kept, None)
    assert outcomes.of("squares") == [[0], [1], [4], [9]]
    assert len(read_kept(kept)) == 4


def test_outcomes_of_other_code_do_not_count(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "runs.jsonl", "code")
    play_runs(squares(2), Outcomes(), kept, None)
    assert len(read_kept(kept)) == 2
    assert read_kept(kept._replace(code="other")) == {}


def test_what_is_over_plays_nothing(tmp_path: Path) -> None:
    kept, outcomes = Kept(tmp_path / "runs.jsonl", "code"), Outcomes()
    play_runs(squares(2), Outcomes(), kept)
    play_runs(squares(9), outcomes, kept, is_over=True)
    assert outcomes.of("squares") == [[0], [1]]


@dataclass
class Sums:
    """Results of jobs."""

    seed: int
    values: list[int] = field(default_factory=list)


def test_jobs_go_on_where_they_were_stopped(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "jobs.pickle", "code")

    def jobs(results: Sums, count: int) -> list[tuple[str, Callable[[], None]]]:
        return [(f"job {n}", partial(results.values.append, n)) for n in range(count)]

    first = Sums(1)
    play_jobs(jobs(first, 2), first, kept)
    second = Sums(1)
    play_jobs(
        [(name, lambda: second.values.append(7)) for name, _ in jobs(second, 3)], second, kept
    )
    assert second.values == [0, 1, 7]
    other = Sums(2)
    play_jobs(jobs(other, 1), other, kept)
    assert other.values == [0], "of another seed nothing counts"


def test_an_interrupt_says_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(played: object, runs: object) -> object:
        yield squares(1)[0], [0]
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment_runs, "shown", interrupted)
    with pytest.raises(KeyboardInterrupt):
        play_runs(squares(3), Outcomes(), Kept(tmp_path / "runs.jsonl", "code"), None)
    assert "1 of 3 runs are in" in capsys.readouterr().err
    assert len(read_kept(Kept(tmp_path / "runs.jsonl", "code"))) == 1


def test_a_killed_worker_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="Play fewer at once"):
        list(in_processes([Run("death", 0, 1.0, die)]))


def test_waves_have_all_runs_in_order_and_none_is_too_heavy() -> None:
    weights = (3, 3, 9, 1, 1)
    runs = [run._replace(weight=n) for run, n in zip(squares(5), weights, strict=True)]
    cut = list(waves(runs, 6.0))
    assert [run for wave in cut for run in wave] == runs
    assert [len(wave) for wave in cut] == [2, 1, 2]
    assert list(waves([], 1.0)) == []


@pytest.mark.parametrize(
    ("elapsed_s", "share", "text"),
    [(10, 0.5, "10 s"), (100, 0.25, "5 min"), (3600, 0.1, "9 h 0 min"), (60, 1.0, "0 s")],
)
def test_the_time_left_follows_from_the_share_that_is_done(
    elapsed_s: float, share: float, text: str
) -> None:
    assert time_left(elapsed_s, share) == text


def test_lines_in_a_pipe_say_how_long_it_will_take(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(experiment_runs, "LINE_EVERY_S", 0.0)
    runs = squares(3)
    list(experiment_runs.with_lines([(run, None) for run in runs], runs))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == ["1 of 3 runs", "2 of 3 runs"]
