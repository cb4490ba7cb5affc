"""`gapless serve` and what talks to it, as processes: what a first user does."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.children import PATIENCE_S, PROGRAM, child, rest, told, warned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A `gapless serve` on any free port: its URL and process."""
    command = [*PROGRAM, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with child([*command, "--data", str(folder), *options]) as process:
        line = told(process)
        assert "is ready at gapless" in line, process.communicate()[1]
        yield line.split("ready at ")[1].split(",")[0].strip(), process


def gapless(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )


def test_a_first_user_serves_subscribes_publishes_and_looks(tmp_path: Path) -> None:
    options = ("price > 90", "--count", "2", "--json")
    with (
        serving(tmp_path, "--topic", "trades") as (url, process),
        child([*PROGRAM, "subscribe", "trades", *options, "--url", url]) as subscribe,
    ):
        assert told(process).startswith("without security: it listens on loopback only")
        assert "subscribed to trades" in warned(subscribe)
        done = gapless("publish", "trades", "symbol=IBM", "price=92.5", "--body", "b", "--url", url)
        assert done.stdout.startswith("published at trades/0, tick "), done.stderr
        bytes_of_no_text = gapless("publish", "trades", "a=1", "--body", "\udcff", "--url", url)
        assert bytes_of_no_text.returncode == 0, bytes_of_no_text.stderr
        gapless("publish", "trades", "price=91", 'symbol="7"', "--url", url)
        first, second = map(json.loads, rest(subscribe).splitlines())
        assert (first["attributes"], first["body"]) == ({"symbol": "IBM", "price": 92.5}, "b")
        assert second["attributes"] == {"price": 91, "symbol": "7"}
        status = gapless("status", "--data", str(tmp_path), "--json")
        assert json.loads(status.stdout)["serve"]["delivered"] == 2
        lines = gapless("status", "--data", str(tmp_path)).stdout.splitlines()
        assert len(lines) == 1
        assert "broker=serve  state=ready" in lines[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    gone = gapless("status", "--data", str(tmp_path))
    assert ("no answer" in gone.stdout, gone.returncode) == (True, 1)
    assert "gapless serve" in gone.stderr


def test_status_says_that_there_is_no_admin_port_and_why(tmp_path: Path) -> None:
    with serving(tmp_path, "--admin", "none"):
        shown = gapless("status", "--data", str(tmp_path))
        state = "state=no admin port (it was switched off by --admin none)"
        assert (state in shown.stdout, shown.returncode) == (True, 1)
        listed = gapless("subscriptions", "--data", str(tmp_path))
        assert "serve has no admin port (it was switched off" in listed.stderr
        assert listed.returncode == 1
    gone = gapless("status", "--data", str(tmp_path))
    assert "no answer" in gone.stdout


def test_a_second_broker_on_a_machine_says_where_its_admin_port_is(tmp_path: Path) -> None:
    with serving(tmp_path / "1"):
        taken = json.loads((tmp_path / "1" / "serve" / "address.json").read_text())["admin"]
        with serving(tmp_path / "2", "--admin", taken) as (_, process):
            line = told(process)
            assert line.startswith("the admin port is at 127.0.0.1:")
            assert line.rstrip().endswith(f"{taken} is in use")


def test_a_file_under_a_name_is_published_once_however_often_it_is_run(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"i": 0, "x": null}\n\n{"i": 1}\n')
    with serving(tmp_path / "data", "--topic", "events") as (url, _):
        command = ("publish", "events", "--file", str(events), "--name", "load", "--json")
        first = json.loads(gapless(*command, "--url", url).stdout)
        assert (first["published"], first["skipped"]) == (2, 0)
        with events.open("a") as file:
            file.write('{"i": 2}\n')
        again = json.loads(gapless(*command, "--url", url).stdout)
        assert (again["published"], again["skipped"]) == (1, 2)
        table = tmp_path / "events.csv"
        table.write_text("i,text,body\n3,a b,hello\n4,,\n")
        options = ("--file", str(table), "--body-field", "body", "--rate", "1000", "--json")
        loaded = json.loads(gapless("publish", "events", *options, "--url", url).stdout)
        assert loaded["published"] == 2


def test_status_is_watched_in_a_pipe_too(tmp_path: Path) -> None:
    command = [*PROGRAM, "status", "--data", str(tmp_path), "--watch", "--json"]
    with serving(tmp_path), child(command) as watch:
        uptimes = [json.loads(told(watch))["serve"]["uptime_s"] for _ in range(2)]
        assert uptimes[0] < uptimes[1]


def test_on_a_terminal_a_file_shows_how_far_it_is_and_how_fast(tmp_path: Path) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"i": 1}\n' * 2_000)
    with serving(tmp_path / "data", "--topic", "events") as (url, _):
        ours, theirs = pty.openpty()
        done = subprocess.run(
            [*PROGRAM, "publish", "events", "--file", str(events), "--url", url],
            stdout=subprocess.PIPE,
            stderr=theirs,
            text=True,
            env={**os.environ, "COLUMNS": "100", "TERM": "xterm"},
            check=True,
            timeout=PATIENCE_S,
        )
        os.close(theirs)
        shown = os.read(ours, 1 << 16).decode()
        os.close(ours)
        assert "a second" in shown
        assert done.stdout.startswith("published 2000 events, ")


NOBODY = ("--url", "gapless://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("publish", "t", "a=1", *NOBODY), 1, "start a broker with"),
        (("subscribe", "t", *NOBODY), 1, "start a broker with"),
        (("status", "--data", "missing"), 1, "no broker keeps its data in missing"),
        (("subscriptions", "--admin", "127.0.0.1:1"), 1, "127.0.0.1:1 does not answer"),
        (("topic", "create", "t", "--retention-bytes", "0"), 2, "retention must be above zero"),
        (("publish", "t"), 2, "there is nothing to publish"),
        (("publish", "t", "a", "--url", "x"), 2, "'a' is no attribute"),
        (("publish", "t", "a=1", "--file", "f"), 2, "attributes are for one event"),
        (("publish", "t", "--file", "missing.jsonl"), 2, "cannot read missing.jsonl"),
        (("broker", "missing.toml", "b"), 2, "cannot read missing.toml"),
        (("broker", "missing.toml"), 2, "which broker of the network?"),
        (("up", "missing.toml"), 2, "cannot read missing.toml"),
    ],
)
def test_an_error_says_what_to_do_in_one_line(
    arguments: tuple[str, ...], code: int, problem: str
) -> None:
    result = gapless(*arguments)
    assert result.returncode == code
    *waiting, last = result.stderr.splitlines()
    assert problem in last
    assert waiting in ([], ["gapless: waiting for a broker at 127.0.0.1:1"])
