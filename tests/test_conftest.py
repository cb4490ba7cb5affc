"""One test that fails makes no other fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import PATIENCE_S

ROOT = Path(__file__).parent.parent

TWO = """
import asyncio, gc, subprocess, sys

def test_one():
    async def main():
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "input()",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        assert process is other
    asyncio.run(main())

def test_two():
    gc.collect()
"""


@pytest.mark.slow
def test_what_a_failed_test_leaves_open_is_not_held_against_the_next(tmp_path: Path) -> None:
    file = tmp_path / "test_two.py"
    file.write_text(TWO)
    given = ("-q", "-W", "error", "-p", "tests.conftest", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *given, "--rootdir", str(tmp_path), str(file)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "test_two.py::test_one" in done.stdout
