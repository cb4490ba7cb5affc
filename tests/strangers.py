"""A user without rights and without a home, for tests that a process of theirs must pass.

Only root can start one. Where the interpreter lies in a folder of root's own, that user is allowed
to read everything, and still writes nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gapless

if TYPE_CHECKING:
    from collections.abc import Iterator

USER = 65534
DROP = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
READ = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
CHILD = "import numba, subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
TRIAL = [sys.executable, "-c", CHILD]
"""A broker starts another process, too."""
SOURCES = Path(gapless.__file__).parent


@cache
def prefix() -> list[str]:
    """Before a command of that user; the test is skipped where there can be none."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can start a process of another user")
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv")
    for words in (DROP, [*DROP, *READ]):
        if subprocess.run([*words, *TRIAL], capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("another user cannot read this interpreter")


@contextmanager
def belongings() -> Iterator[Path]:
    """A folder of that user, which other users can come to."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, USER, USER)
        yield Path(name)


@contextmanager
def installation() -> Iterator[Path]:
    """A copy of the package that nobody has compiled anything for, and only root can write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        shutil.copytree(
            SOURCES, Path(name) / "gapless", ignore=shutil.ignore_patterns("__pycache__")
        )
        yield Path(name)


def environment(sources: Path, **more: str) -> dict[str, str]:
    return {"HOME": "/nonexistent", "PYTHONPATH": str(sources), "PATH": os.environ["PATH"], **more}
