"""What processes use: CPU seconds and bytes written, from /proc."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

HERTZ = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    """Totals since the processes started; `machine` is that of everybody."""

    broker_s: float
    publishers_s: float
    subscribers_s: float
    machine_s: float
    disk_bytes: int


def usage(broker: Iterable[int], publishers: Iterable[int], subscribers: Iterable[int]) -> Usage:
    family = {member for pid in broker for member in members(pid)}
    return Usage(
        sum(map(cpu_seconds, family)),
        sum(map(cpu_seconds, publishers)),
        sum(map(cpu_seconds, subscribers)),
        _machine_seconds(),
        sum(map(_written_bytes, family)),
    )


def cpu_seconds(pid: int) -> float:
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / HERTZ if fields else 0.0


def members(pid: int) -> list[int]:
    """A process and all that it started."""
    found, rest = [], [pid]
    while rest:
        found.append(one := rest.pop())
        for task in Path(f"/proc/{one}/task").glob("*"):
            rest += map(int, _read(f"{task}/children").split())
    return found


def _written_bytes(pid: int) -> int:
    for line in _read(f"/proc/{pid}/io").splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0


def _machine_seconds() -> float:
    """CPU seconds that anybody used; stolen time counts as used."""
    ticks = list(map(int, _read("/proc/stat").splitlines()[0].split()[1:9]))
    return (sum(ticks) - ticks[3] - ticks[4]) / HERTZ


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:  # it ended meanwhile
        return ""
