"""The broker that forwards and forgets, against which exactly once is measured, still does so."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import gapless
from tests.children import child, told

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "benchmarks.peers.best_effort", "127.0.0.1:0"]


def test_the_twin_without_promises_serves_and_stops_in_order(tmp_path: Path) -> None:
    with child([*COMMAND, str(tmp_path)]) as process:
        url = told(process).split()[-1].rstrip(",")
        with gapless.sync.connect(url) as client, client.subscribe("events", "i > 0"):
            pass  # it gives no receipts: what it delivers is seen where it is measured
        process.terminate()
        _, problems = process.communicate()
        assert (process.returncode, problems) == (0, "")
