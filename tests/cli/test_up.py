"""`gapless up` runs a network, restarts what crashed, and stops everything in order."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from gapless.broker.addresses import read_addresses
from gapless.cli.supervision import (
    QUICK_ENDS_MAX,
    RESTART_LONGEST_S,
    STEADY_S,
    BrokerProcess,
    Restarts,
    last_words,
)
from tests.broker.stage import LINE, run, wait_until
from tests.children import PATIENCE_S, PROGRAM, child, rest, told, warned

if TYPE_CHECKING:
    from pathlib import Path


def test_what_a_broker_says_last_is_told_if_it_gave_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("2026 INFO volume opened\ngapless: cannot listen on 127.0.0.1:7117.\n")
    assert last_words(log) == "gapless: cannot listen on 127.0.0.1:7117."
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
        assert "there is no setting 'nothing'" in warned(up)
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


def test_a_broker_that_cannot_run_as_told_ends_all_with_its_words(tmp_path: Path) -> None:
    """Its port is in use: to start it again and again would change nothing."""
    file = tmp_path / "network.toml"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        first, _, rest_of_it = LINE.partition("127.0.0.1:0")
        file.write_text(f"{first}127.0.0.1:{port}{rest_of_it}")
        options = ("--data", str(tmp_path), "--only", "p", "--only", "r1")
        with child([*PROGRAM, "up", str(file), *options]) as up:
            assert up.wait(PATIENCE_S) == 2
            lines = rest(up).splitlines()
            assert sum(line.startswith("p started") for line in lines) == 1
            assert "r1 stopped" in lines
            assert up.stderr is not None
            said = up.stderr.read()
    assert said.startswith("gapless: the broker p cannot run with these settings")
    assert f"cannot listen on 127.0.0.1:{port}: it is in use. Stop what uses it" in said


def test_a_broker_that_crashes_again_and_again_is_started_later_and_later_and_then_no_more() -> (
    None
):
    restarts = Restarts()
    waits = [restarts.wait_s(0.1) for _ in range(QUICK_ENDS_MAX)]
    assert waits.pop() is None
    known = [each for each in waits if each is not None]
    assert len(known) == QUICK_ENDS_MAX - 1
    assert known == sorted(known)
    assert known[-1] == RESTART_LONGEST_S
    restarts = Restarts()
    for _ in range(5 * QUICK_ENDS_MAX):  # it works in between
        assert restarts.wait_s(0.1) == known[0]
        assert restarts.wait_s(STEADY_S + 1) == 0.0


def test_a_child_that_is_given_up_is_told_of_and_is_no_more_looked_at(tmp_path: Path) -> None:
    """A real process that ends at once, as often as it may."""
    command = [sys.executable, "-c", "print('gapless: no disk. Mend it.'); raise SystemExit(1)"]
    failing = BrokerProcess("p", command, tmp_path / "p" / "log")
    failing.pauses.quick_ends = QUICK_ENDS_MAX - 1
    assert failing.look().startswith("p started as process")
    assert failing.process is not None
    failing.process.wait(PATIENCE_S)
    said = failing.look()
    assert said.startswith("p ended with code 1")
    assert "gapless: no disk. Mend it." in said
    assert said.endswith("it is not started again")
    assert failing.has_given_up
    assert failing.look() == ""


@pytest.mark.slow
def test_a_hang_up_reaches_the_brokers_and_a_closed_pipe_stops_none(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(LINE)
    options = ("--data", str(tmp_path), "--only", "p")
    with child([*PROGRAM, "up", str(file), *options], stderr=None) as up:
        assert told(up).startswith("p started")
        assert told(up).startswith("p is ready at")
        up.send_signal(signal.SIGHUP)
        log = tmp_path / "p" / "log"
        run(wait_until(lambda: "network and settings are what they were" in log.read_text()))
        assert up.stdout is not None
        up.stdout.close()  # who read it is gone
        os.kill(int(read_addresses(tmp_path / "p")["process"]), signal.SIGKILL)
        run(wait_until(lambda: log.read_text().count("broker ready") == 2))
        up.send_signal(signal.SIGTERM)
        assert up.wait(PATIENCE_S) == 0
        assert "broker stopped" in log.read_text()


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
