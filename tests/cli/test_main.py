"""The command line starts quickly, and ends with the right code."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gapless
from tests.children import PATIENCE_S, PROGRAM, child, told

HEAVY = ("numpy", "numba", "pyarrow", "pyspark", "matplotlib", "asyncio", "rich.progress")


def python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_loads_nothing_heavy() -> None:
    """Time is not asserted; what takes time is."""
    result = python(
        "import sys, gapless, gapless.cli\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert result.stdout == "[]\n", result.stderr


def test_a_small_matcher_loads_nothing_heavy() -> None:
    result = python(
        "import sys, gapless\n"
        "matcher = gapless.Matcher({'a': 'x > 1'})\n"
        "assert matcher.match({'x': 2}) == ['a']\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    assert result.stdout == "[]\n", result.stderr


def test_every_public_name_is_there() -> None:
    assert all(getattr(gapless, name) for name in gapless.__all__)
    assert set(dir(gapless)) == set(gapless.__all__)


NOBODY = "gapless://127.0.0.1:1"


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (["filter", "a >"], 2, "expected a value"),
        (["subscribe", "t", "a >", "--url", NOBODY], 2, "expected a value"),
        (["read", "t", "a >", "--url", NOBODY], 2, "expected a value"),
        (["serve", "--listen", "127.0.0.1:0", "--data", __file__], 1, "cannot open"),
    ],
)
def test_an_error_is_one_line_for_people_and_a_bad_condition_is_wrong_usage(
    command: list[str], code: int, told: str
) -> None:
    result = python(f"import sys; sys.argv[1:] = {command!r}; import gapless.cli as c; c.main()")
    assert result.returncode == code
    assert result.stderr.startswith(f"gapless: {told}")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "wrong", [["demo", "--events", "0"], ["serve", "--log-level", "loud"], ["publish", "trades"]]
)
def test_wrong_usage_is_code_2(wrong: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {wrong!r}; import gapless.cli as c; c.main()"
    assert python(code).returncode == 2


def test_whoever_interrupts_it_before_it_has_begun_sees_no_traceback() -> None:
    """The signal comes while the commands are loaded, which is the longest part of many of them."""
    result = python(
        "import gapless.cli, os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's `&` ignores it
        "class Interrupt:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'gapless.cli.commands':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "gapless.cli.main()"
    )
    assert (result.returncode, result.stderr) == (130, "gapless: interrupted\n")


def test_a_module_is_run_as_the_program_is() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gapless", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"gapless {gapless.__version__}\n"


def test_a_shell_is_told_what_may_follow() -> None:
    """As the script does that `gapless --show-completion` prints."""
    asked = {"_GAPLESS_COMPLETE": "complete_bash", "COMP_WORDS": "gapless sub", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['gapless']; import gapless.cli as c; c.main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["subscribe", "subscriptions", "subscription"], done.stderr


def test_a_broker_does_not_run_without_its_assertions(tmp_path: Path) -> None:
    command = [sys.executable, "-O", "-m", "gapless", "serve", "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "gapless: a broker does not run under python -O. Run it without -O.\n"
    assert not (tmp_path / "data").exists()


def test_the_version_is_told() -> None:
    code = "import sys; sys.argv[1:] = ['--version']; import gapless.cli as c; c.main()"
    assert python(code).stdout == f"gapless {gapless.__version__}\n"


def test_what_cannot_be_written_is_told_without_a_traceback() -> None:
    with Path("/dev/full").open("w") as full:
        command = [*PROGRAM, "filter", "a = 1"]
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert (ran.returncode, "No space left" in ran.stderr) == (1, True)
    assert "Traceback" not in ran.stderr


def test_a_reader_that_goes_away_ends_a_command_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text('{"a": 1}\n' * 100_000)
    with child([*PROGRAM, "filter", "a = 1", str(path)]) as process:
        assert told(process) == '{"a": 1}\n'
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE_S) == 1


def test_a_standard_input_that_is_closed_is_told() -> None:
    words = " ".join(map(shlex.quote, [*PROGRAM, "publish", "t", "--file", "-"]))
    ran = subprocess.run(["sh", "-c", f"{words} <&-"], capture_output=True, check=False, text=True)
    assert (ran.returncode, ran.stderr[:35]) == (2, "gapless: standard input is closed. ")
