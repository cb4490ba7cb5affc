"""The tutorial does what it says: its commands and its Python run, in order."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.children import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import Desk

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "spark.md"
SAID = re.compile(r"print\(.*\)  # (.*)$")


def test_the_tutorial_runs_and_prints_what_it_says(
    spark: SparkSession, broker: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.version  # the tutorial gets the session that there is
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text(encoding="utf-8").replace("gapless://127.0.0.1:7117", broker.url)
    for folder in ('"copy/', '"lake/'):  # the session runs in another folder
        text = text.replace(folder, f'"{tmp_path}/{folder[1:]}')
    names: dict[str, Any] = {}
    printed, expected = io.StringIO(), list[str]()
    for kind, block in re.findall(r"```(py|sh)\n(.*?)```", text, flags=re.DOTALL):
        if kind == "sh":
            run_commands(block, broker.url)
            continue
        expected += [found[1] for line in block.splitlines() if (found := SAID.match(line))]
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "tutorial", "exec"), names)
    assert printed.getvalue().splitlines() == expected
    assert len(expected) == 8


def run_commands(block: str, url: str) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "GAPLESS_URL": url, "PATH": path}
    subprocess.run(["bash", "-euc", block], env=environment, check=True, timeout=PATIENCE_S)
