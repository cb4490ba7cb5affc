"""`gapless up` runs a network, restarts what crashed, and stops everything in order."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.broker.stage import LINE
from tests.children import PATIENCE_S, PROGRAM, child, rest, told

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_crashed_broker_is_started_again_and_ctrl_c_stops_all(tmp_path: Path) -> None:
    file = tmp_path / "network.toml"
    file.write_text(LINE)
    options = ("--data", str(tmp_path), "--only", "p", "--only", "r1")
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
