"""The memory volume: every fault that the simulator may ask for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gapless.testing
from gapless.core.effects import Append, Put, Write
from gapless.core.errors import StorageCorruptError, StorageError, StorageFullError
from gapless.testing.memory_volume import Fault, MemoryVolume


def writes(index: int) -> list[Write]:
    return [Append("a", (index,), (b"%d" % index,)), Put("t", "last", b"%d" % index)]


def commits_in(volume: MemoryVolume) -> list[int]:
    found = volume.scan("a", 0, 99).indices
    assert volume.get("t", "last") == (b"%d" % found[-1] if found else None)
    return found


@pytest.mark.parametrize(
    ("fault", "after"),
    [(Fault.FAILED, [1]), (Fault.TORN, [1]), (Fault.UNANSWERED, [1, 2])],
)
@pytest.mark.parametrize("crashes", [True, False])
def test_a_faulty_commit_is_all_there_or_not_at_all(
    fault: Fault, after: list[int], crashes: bool
) -> None:
    volume = MemoryVolume()
    volume.commit(writes(1))
    volume.inject(fault)
    with pytest.raises(StorageError, match=f"the commit {fault.value}"):
        volume.commit(writes(2))
    assert commits_in(volume) == [1]
    with pytest.raises(StorageError, match="takes no commit"):
        volume.commit(writes(3))
    if crashes:
        volume.crash()
        with pytest.raises(StorageError, match="crashed"):
            volume.bounds("a")
    recovery = volume.reopen()
    assert commits_in(volume) == after
    assert (recovery.cut_bytes > 0) == (fault is Fault.TORN)
    assert recovery.sequence == len(after)
    assert volume.recovery is recovery
    volume.commit(writes(3))
    assert volume.reopen().cut_bytes == 0
    assert commits_in(volume) == [*after, 3]


def test_what_a_lying_disk_took_is_gone_after_a_crash() -> None:
    volume = MemoryVolume()
    volume.commit(writes(1))
    volume.lie()
    volume.commit(writes(2))
    assert commits_in(volume) == [1, 2]
    volume.crash()
    volume.reopen()
    assert commits_in(volume) == [1]
    volume.commit(writes(2))
    volume.reopen()
    assert commits_in(volume) == [1, 2]


def test_a_disk_that_fills_up_gets_room_again() -> None:
    volume = MemoryVolume()
    volume.commit(writes(1))
    volume.size_max = 25
    with pytest.raises(StorageFullError):
        volume.commit(writes(2))
    assert commits_in(volume) == [1]
    volume.size_max = None
    volume.commit(writes(2))
    assert commits_in(volume) == [1, 2]


def test_a_corrupt_record_is_named() -> None:
    volume = MemoryVolume()
    volume.commit(writes(1))
    volume.commit(writes(2))
    volume.corrupt("a", 1)
    with pytest.raises(StorageCorruptError, match="record 1 of 'a'"):
        volume.read("a", 1)
    with pytest.raises(StorageCorruptError, match="record 1 of 'a'"):
        volume.scan("a", 0, 9)
    assert volume.scan("a", 2, 9).records == [b"2"]


def test_the_simulator_needs_no_thread_clock_or_file() -> None:
    """The memory volume pulls in no module that would make a run differ. Its package does,
    for the shipped client: an empty one stands in for it here."""
    folder = str(Path(gapless.testing.__file__).parent)
    code = f"""
import sys, types
sys.path[:] = {sys.path!r}
package = sys.modules["gapless.testing"] = types.ModuleType("gapless.testing")
package.__path__ = [{folder!r}]
before = set(sys.modules)
import gapless.testing.memory_volume
print(*sorted(set(sys.modules) - before))
"""
    command = [sys.executable, "-S", "-c", code]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert "gapless.testing.memory_volume" in loaded
    assert not {"threading", "random", "time", "socket", "lmdb", "asyncio", "fcntl"} & set(loaded)
