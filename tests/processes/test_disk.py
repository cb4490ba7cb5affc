"""Disks of real brokers: a torn end of the log, and a disk that is full."""

from __future__ import annotations

import os
import random
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gapless.client.client import connect
from gapless.client.errors import RefusedError
from gapless.core.errors import UsageError
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import ONE, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gapless.client.client import Client

MEBIBYTE = 1 << 20
BODY = b"x" * 200_000


def add_garbage(data: bytes, end: int) -> bytes:
    return data[:end] + random.Random(1).randbytes(500) + data[end + 500 :]


def add_old_frame(data: bytes, end: int) -> bytes:
    """What stood there before the segment was used again."""
    return data[:end] + data[:300] + data[end + 300 :]


@pytest.mark.slow
@pytest.mark.parametrize("tear", [add_garbage, add_old_frame])
def test_a_log_with_a_torn_end_is_whole_up_to_what_was_acknowledged(
    tmp_path: Path, tear: Callable[[bytes, int], bytes]
) -> None:
    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            async with (
                connect(brokers.url("b")) as client,
                client.subscribe("t", name="desk") as subscription,
                client.publisher("t", name="feed") as publisher,
            ):
                for number in range(500):
                    await publisher.send({"i": number}, b"x" * 100)
                await publisher.flush()
                brokers.kill("b")
                (segment,) = (tmp_path / "b" / "volume").glob("*.log")
                data = segment.read_bytes()
                segment.write_bytes(tear(data, len(data.rstrip(b"\0"))))
                await brokers.start("b")
                for number in range(500, 1_000):
                    await publisher.send({"i": number}, b"x" * 100)
                await publisher.flush()
                found = [await anext(subscription) for _ in range(1_000)]
            numbers = [each.attributes["i"] for each in found if isinstance(each, Event)]
            assert numbers == list(range(1_000))

    run(main())


def test_a_log_that_was_cut_is_refused_and_not_served_with_a_hole(tmp_path: Path) -> None:
    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            async with connect(brokers.url("b")) as client:
                await client.publish("t", {"i": 1})
            brokers.kill("b")
            (segment,) = (tmp_path / "b" / "volume").glob("*.log")
            os.truncate(segment, 100)
            with pytest.raises(UsageError, match="Restore the data folder from a copy"):
                await brokers.start("b")

    run(main())


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[None]:
    """Of its own, in memory; the test is skipped where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a file system of a given size can be mounted by root only")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_full_disk_refuses_events_and_takes_them_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    """What is kept for a subscriber fills the disk; when it has acknowledged, there is room."""
    folder = tmp_path / "small"

    async def main() -> None:
        async with Processes(ONE, folder=folder) as brokers:
            await brokers.start("b")
            async with (
                connect(brokers.url("b")) as client,
                connect(brokers.url("b")) as other,
                other.subscribe("t", name="desk") as subscription,
            ):
                client.channel.patience_s = 2.0
                count = await fill(client)
                assert count > 100
                assert free(folder) < 16 * MEBIBYTE, "no room for another segment"
                brokers.kill("b")
                await brokers.start("b")
                found = [await anext(subscription) for _ in range(count)]
                await subscription.acknowledge()
                numbers = [each.attributes["i"] for each in found if isinstance(each, Event)]
                assert numbers == list(range(count)), "all that was accepted, and nothing else"
                client.channel.patience_s = 50.0
                await client.publish("t", {"i": count}, BODY)
                last = await anext(subscription)
                assert isinstance(last, Event)
                assert last.attributes["i"] == count

    def free(path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    async def fill(client: Client) -> int:
        """How many were accepted before one was refused."""
        count = 0
        while True:
            try:
                await client.publish("t", {"i": count}, BODY)
            except RefusedError:
                return count
            count += 1

    with small_disk(folder, 40 * MEBIBYTE):
        run(main())
