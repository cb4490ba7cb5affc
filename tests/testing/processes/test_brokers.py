"""Broker processes are started, killed, hung and measured as asked, and none is left behind."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import pytest

from gapless.core.errors import UsageError
from gapless.node.network import parse_network
from gapless.testing.processes.brokers import (
    Processes,
    cell,
    cpu_s,
    memory_bytes,
    topic,
    with_detours,
)

if TYPE_CHECKING:
    from pathlib import Path

TEXT = (cell("all", ["b"], subscribers=True), topic("t", "b"))
has_proc = pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")


def test_a_killed_broker_is_gone_and_is_found_at_the_same_place_when_it_is_back() -> None:
    async def main() -> tuple[str, str, list[int]]:
        async with Processes(*TEXT) as brokers:
            await brokers.start("b")
            first, numbers = brokers.url("b"), [brokers.running["b"].pid]
            brokers.kill("b")
            await brokers.start("b")
            numbers.append(brokers.running["b"].pid)
            return first, brokers.url("b"), numbers

    first, second, numbers = asyncio.run(main())
    assert first == second
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_a_given_folder_is_kept_and_an_own_one_is_removed(tmp_path: Path) -> None:
    async def main(folder: Path | None) -> Path:
        async with Processes(*TEXT, folder=folder) as brokers:
            return brokers.folder

    assert asyncio.run(main(tmp_path / "kept")).is_dir()
    assert not asyncio.run(main(None)).exists()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        async with Processes(*TEXT, folder=tmp_path, config={"heartbeat": 0}) as brokers:
            await brokers.start("b")

    with pytest.raises(UsageError, match="heartbeat must be above zero"):
        asyncio.run(main())


def test_a_detour_changes_where_a_broker_is_found_and_nothing_else() -> None:
    network = parse_network("".join((*TEXT, cell("c", ["c"], "all"))))
    seen = with_detours(network, {"c": "127.0.0.1:1"})
    listens = {each.name: each.listen for cell in seen.cells for each in cell.brokers}
    assert listens == {"b": "127.0.0.1:0", "c": "127.0.0.1:1"}
    assert with_detours(seen, {"c": "127.0.0.1:0"}) == network


@has_proc
def test_processor_time_and_memory_are_what_the_system_says_of_the_process() -> None:
    sum(number * number for number in range(300_000))  # so that there is some
    measured, own = cpu_s(os.getpid()), os.times()
    assert measured is not None
    assert 0 < measured <= own.user + own.system + 0.02, "in steps of about 10 ms"
    before = memory_bytes(os.getpid())
    held = b"x" * (64 << 20)
    after = memory_bytes(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before > len(held) // 2
    assert cpu_s(2**30) is None, "there is no such process"
    assert memory_bytes(2**30) is None
