"""`gapless up` runs a network, restarts what crashed, and stops everything in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from tests.broker.stage import LINE

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = [sys.executable, "-c", "from gapless.cli import main; main()"]
PATIENCE_S = 60


@pytest.mark.slow
def test_a_crashed_broker_is_started_again_and_ctrl_c_stops_all(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(LINE)
    up = subprocess.Popen(
        [*PROGRAM, "up", str(file), "--data", str(tmp_path), "--only", "p", "--only", "r1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(PATIENCE_S, up.kill)
    watchdog.start()
    assert up.stdout is not None
    try:
        told = [up.stdout.readline() for _ in range(4)]  # started and ready, each
        assert sorted(line.split()[0] + line.split()[1] for line in told) == [
            "pis", "pstarted", "r1is", "r1started",
        ]  # fmt: skip
        process = next(line for line in told if line.startswith("p started")).split()[-1]
        os.kill(int(process), signal.SIGKILL)
        assert up.stdout.readline().startswith("p ended with code -9")
        assert up.stdout.readline().startswith("p started again as process")
        assert up.stdout.readline().startswith("p is ready at gapless://")
        up.send_signal(signal.SIGINT)
        assert up.stdout.read().splitlines() == ["p stopped", "r1 stopped"]
        assert up.wait(PATIENCE_S) == 0
        assert "broker stopped" in (tmp_path / "r1" / "log").read_text()
    finally:
        watchdog.cancel()
        up.kill()
        up.communicate()
