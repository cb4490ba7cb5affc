"""`gapless up` runs a network, restarts what crashed, and stops everything in order."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from gapless.cli.up import last_words
from tests.broker.stage import LINE
from tests.children import PATIENCE_S, PROGRAM, child, rest, told, warned

if TYPE_CHECKING:
    from pathlib import Path


def test_what_a_broker_says_last_is_told_if_it_gave_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("2026 INFO volume opened\ngapless: cannot listen on 127.0.0.1:7117.\n")
    assert last_words(log) == "\n  gapless: cannot listen on 127.0.0.1:7117."
    for other in ("", "gapless: an older one\n2026 INFO broker ready\n", "x" * 5_000):
        log.write_text(other)
        assert last_words(log) == ""


def test_a_broker_that_the_network_has_not_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(LINE)
    with child([*PROGRAM, "up", str(file), "--only", "nobody"]) as up:
        assert "no broker 'nobody'. It has: " in warned(up)
        assert up.wait(PATIENCE_S) == 2


def test_a_limit_that_there_is_not_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    file, data = tmp_path / "network.toml", tmp_path / "data"
    file.write_text(LINE)
    with child([*PROGRAM, "up", str(file), "--set", "nothing=1", "--data", str(data)]) as up:
        assert "'nothing=1' sets no limit" in warned(up)
        assert up.wait(PATIENCE_S) == 2
    assert not data.exists()


@pytest.mark.parametrize(
    ("port", "problem"),
    [("7117", "p and r1 would both listen on 127.0.0.1:7117"), ("99999", "is no address")],
)
def test_addresses_that_cannot_be_are_told_before_anything_is_started(
    tmp_path: Path, port: str, problem: str
) -> None:
    file = tmp_path / "network.toml"
    file.write_text(LINE.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    with child([*PROGRAM, "up", str(file), "--data", str(tmp_path / "data")]) as up:
        assert problem in warned(up)
        assert up.wait(PATIENCE_S) == 2
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_crashed_broker_is_started_again_and_ctrl_c_stops_all(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(LINE)
    options = ("--data", str(tmp_path), "--only", "p", "--only", "r1", "--set", "silence_s=9")
    with child([*PROGRAM, "up", str(file), *options], stderr=None) as up:
        lines = [told(up) for _ in range(4)]  # started and ready, each
        assert sorted(line.split()[0] + line.split()[1] for line in lines) == [
            "pis", "pstarted", "r1is", "r1started",
        ]  # fmt: skip
        process = next(line for line in lines if line.startswith("p started")).split()[-1]
        os.kill(int(process), signal.SIGKILL)
        assert told(up).startswith("p ended with code -9")
        assert told(up).startswith("p started again as process")
        assert told(up).startswith("p is ready at gapless://")
        up.send_signal(signal.SIGINT)
        assert rest(up).splitlines() == ["p stopped", "r1 stopped"]
        assert up.wait(PATIENCE_S) == 0
        assert "broker stopped" in (tmp_path / "r1" / "log").read_text()
