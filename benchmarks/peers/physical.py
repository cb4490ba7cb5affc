"""What the machine could do at best: its bytes over loopback, its bytes synced to disk."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import uvloop

from benchmarks.broker import BATCH, bare_commits, bare_transfer
from benchmarks.peers.workloads import Figures, middle
from gapless.core.effects import Append
from gapless.storage.disk import DiskVolume

SYNCS = 200


def limits(workload: str, *, quick: bool) -> Figures:
    """Figures of the same names as those of the workload; empty where there is no such limit."""
    scale = 1 if quick else 4
    match workload:
        case "W1-10":
            return {"deliveries/s": _transfer(10, 20_000 * scale)}
        case "W1-100":
            return {"deliveries/s": _transfer(100, 2_000 * scale)}
        case "W2":
            return {"published/s": _transfer(4, 20_000 * scale) / 4}
        case "W3":
            return {"deliveries/s": _transfer(100, 2_000 * scale)}
        case "W4":
            count = 40_000 * scale
            return {"confirmed/s, 1": count / bare_commits(count, BATCH)}
        case "latency":
            return {"sync ms": _sync_ms()}
        case _:
            return {}


def _transfer(connections: int, count: int) -> float:
    moved = connections * (count // BATCH) * BATCH
    return moved / uvloop.run(bare_transfer(connections, count))


def _sync_ms() -> float:
    """The usual time of one commit of one event."""
    took = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        volume = DiskVolume(folder)
        for number in range(SYNCS):
            begin = time.perf_counter()
            volume.commit([Append("s", (number,), (b"x" * 330,))])
            took.append((time.perf_counter() - begin) * 1e3)
        volume.close()
    return middle(took)
