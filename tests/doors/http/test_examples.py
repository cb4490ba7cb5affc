"""The commands of the page on HTTP run, and print what the page says."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.children import PROGRAM, child, told

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "how-to" / "http.md"
ADDRESS = "127.0.0.1:7119"
TIMED_OUT = 28
"""Curl's exit code for a stream that `--max-time` has ended."""


def examples() -> list[tuple[str, list[str]]]:
    """Each command, and what its output is said to have."""
    found: list[tuple[str, list[str]]] = []
    text = PAGE.read_text(encoding="utf-8")
    for block in re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL):
        for line in block.splitlines():
            if line.startswith("# "):
                found[-1][1].append(line.removeprefix("# "))
            else:
                found.append((line, []))
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl on this machine")
def test_the_commands_of_the_page_on_http_print_what_it_says(tmp_path: Path) -> None:
    options = ["--listen", "127.0.0.1:0", "--admin", "none", "--http", "127.0.0.1:0"]
    with child([*PROGRAM, "serve", *options, "--data", str(tmp_path / "data")]) as broker:
        ready = re.search(r"HTTP at http://(\S+)", told(broker))
        assert ready is not None
        commands = examples()
        assert len(commands) > 10
        for command, said in commands:
            done = subprocess.run(
                ["bash", "-c", command.replace(ADDRESS, ready[1])],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0 or "--max-time" in command, done
            assert done.returncode in (0, TIMED_OUT)
            for each in said:
                assert each in done.stdout, (command, done.stdout)
        assert (tmp_path / "trades.arrow").stat().st_size > 500
