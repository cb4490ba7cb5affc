"""The broker that forwards and forgets, against which exactly once is measured, still does so."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import gapless

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = [sys.executable, "-m", "benchmarks.peers.best_effort", "127.0.0.1:0"]


def test_the_twin_without_promises_serves_and_stops_in_order(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1].rstrip(",")
        with gapless.sync.connect(url) as client, client.subscribe("events", "i > 0"):
            pass  # it gives no receipts: what it delivers is seen where it is measured
        process.terminate()
        _, problems = process.communicate(timeout=20)
        assert (process.returncode, problems) == (0, "")
    finally:
        process.kill()
        process.wait()
