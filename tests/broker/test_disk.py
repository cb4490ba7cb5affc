"""Writes become durable off the loop, and what they carry comes after, in order."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from gapless.broker.disk import Disk
from gapless.core.effects import Append, Chop, Effect, Persist, Put, Tell
from gapless.core.errors import StorageError, StorageFullError
from gapless.core.messages import Ping
from gapless.testing.memory_volume import MemoryVolume
from tests.broker.stage import run, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from gapless.core.effects import Write


class SlowVolume(MemoryVolume):
    """Commits when it is let to, and notes how many commits each sync took."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.groups: list[int] = []
        self.errors: list[StorageError] = []

    def commit_each(self, commits: Sequence[Sequence[Write]]) -> list[StorageError | None]:
        self.gate.wait()
        self.groups.append(len(commits))
        if self.errors:
            raise self.errors.pop(0)
        return super().commit_each(commits)


def persist(number: int) -> Persist:
    write = Append("s", (number,), (b"x",))
    return Persist((write,), (Tell(Ping(number)),), (Tell(Ping(-number)),))


async def outcomes(volume: SlowVolume, count: int) -> tuple[list[int], list[BaseException]]:
    """What is carried out, and which failures are told, after so many writes at once."""
    done: list[int] = []
    failures: list[BaseException] = []

    def carry_out(effects: Sequence[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Tell)
            assert isinstance(effect.message, Ping)
            number = effect.message.number
            assert volume.bounds("s").end > number, "it is durable before anyone hears of it"
            done.append(number)

    disk = Disk(volume, carry_out, failures.append)
    disk.write(persist(1))
    disk.flush()
    await asyncio.sleep(0)
    for number in range(2, count + 1):
        disk.write(persist(number))
    disk.flush()
    assert done == [], "nothing is durable yet"
    volume.gate.set()
    await disk.wait_idle()
    await wait_until(lambda: disk.pending == 0)
    await disk.close()
    return done, failures


def test_what_a_write_carries_comes_after_it_and_in_order() -> None:
    volume = SlowVolume()
    assert run(outcomes(volume, 20)) == (list(range(1, 21)), [])


def test_outcomes_that_take_long_let_the_loop_turn_between_them_and_keep_their_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gapless.broker.disk.TURN_S", 0.0)

    async def main() -> None:
        done: list[Effect] = []
        disk = Disk(MemoryVolume(), done.extend, done.append)  # type: ignore[arg-type]
        disk.pending = 3
        for number in range(3):
            disk._note(persist(number), None)
        for number in range(3):
            await asyncio.sleep(0)
            assert done == [Tell(Ping(each)) for each in range(number + 1)]
        await disk.close()

    run(main())


def test_writes_that_came_while_one_was_under_way_share_a_sync() -> None:
    volume = SlowVolume()
    run(outcomes(volume, 20))
    assert len(volume.groups) <= 2
    assert sum(volume.groups) == 20


def test_where_there_is_no_room_the_other_way_is_taken_and_later_writes_go_on() -> None:
    volume = SlowVolume()
    volume.errors = [StorageFullError("full"), StorageFullError("full")]
    done, failures = run(outcomes(volume, 1))
    assert (done, failures) == ([-1], [])


def test_a_full_disk_is_logged_once_and_once_more_when_what_was_refused_finds_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def append(index: int, size: int) -> Append:
        return Append("s", (index,), (b"x" * size,))

    async def main(volume: SlowVolume) -> None:
        disk = Disk(volume, lambda _: None, lambda _: None)
        volume.gate.set()

        async def write(one: Write, *, fits: bool) -> list[str]:
            """What is logged then."""
            if not fits:
                volume.errors.append(StorageFullError("the limit is reached", "Make room."))
            caplog.clear()
            disk.write(Persist((one,)))
            disk.flush()
            await disk.wait_idle()
            return [record.levelname for record in caplog.records]

        with caplog.at_level("INFO"):
            assert await write(append(1, 100), fits=True) == []
            assert await write(append(2, 100), fits=False) == ["WARNING"]
            assert "Make room." in caplog.records[0].__dict__["reason"]
            assert await write(append(2, 90), fits=False) == []
            assert await write(append(2, 10), fits=True) == [], "there is always room for some"
            assert await write(Chop("s", 2), fits=True) == []
            assert await write(Put("t", "k", b"x" * 200), fits=True) == []
            assert await write(append(3, 95), fits=True) == ["INFO"]
            assert await write(append(4, 95), fits=True) == []
            assert await write(append(5, 95), fits=False) == ["WARNING"]
        await disk.close()

    run(main(SlowVolume()))


def test_after_a_failed_write_nothing_is_carried_out_any_more() -> None:
    volume = SlowVolume()
    volume.errors = [StorageError("broken")]
    done, failures = run(outcomes(volume, 5))
    assert [str(failure) for failure in failures] == [str(StorageError("broken"))]
    assert done == []


def test_the_writes_of_one_turn_share_a_sync_though_none_is_under_way() -> None:
    async def main() -> list[int]:
        volume = SlowVolume()
        volume.gate.set()
        disk = Disk(volume, lambda _: None, lambda _: None)
        for number in (1, 2, 3):
            disk.write(persist(number))
        assert volume.groups == []
        disk.flush()
        disk.flush()
        await disk.wait_idle()
        await disk.close()
        return volume.groups

    assert run(main()) == [3]
