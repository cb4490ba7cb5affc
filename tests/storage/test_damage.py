"""Bits flipped and files cut at every kind of place: a clear refusal, or all that is not damaged.

A volume of full segments, copies, facts and several streams is damaged at places drawn from fixed
seeds. Opening it either fails with a `StorageError` that says what is wrong, or everything that is
read is as it was written, and what is not there is told: no wrong record, no silent loss.
"""

from __future__ import annotations

import shutil
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import StorageCorruptError, StorageDamagedError, StorageError
from gapless.storage.disk import DiskVolume
from tests.storage.labs import NO_SYNC, SMALL_SEGMENT_BYTES, small, tried

if TYPE_CHECKING:
    from pathlib import Path

STREAMS = ("a", "b", "gone")
SUFFIXES = (".log", ".index", ".json")
Truth = dict[str, dict[int, bytes]]


def record(stream: str, index: int) -> bytes:
    return f"{stream} {index} ".encode() * (3 + index % 30 + 300 * (stream == "gone"))


def build(path: Path) -> Truth:
    """Small and large commits, segments that are full, spares, and frames with copies."""
    volume, truth = small(path), Truth()
    at = dict.fromkeys(STREAMS, 0)
    dice = Random(5)
    for number in range(260):
        writes: list[Append | Chop | Put] = []
        for stream in STREAMS:
            count = dice.choice([0, 1, 1, 2, 12 if number % 20 == 0 else 1])
            indices = tuple(range(at[stream], at[stream] + 3 * count, 3))
            if indices:
                at[stream] = indices[-1] + 3
                some = tuple(record(stream, index) for index in indices)
                writes.append(Append(stream, indices, some))
                truth.setdefault(stream, {}).update(zip(indices, some, strict=True))
        writes.append(Put("t", f"key {number % 7}", b"%d" % number))
        writes.append(Chop("gone", at["gone"]))
        volume.commit(writes)
    truth["gone"] = {}
    assert any(each.moved for each in volume._state.catalogue.from_index("a", 0))
    volume.close()
    return truth


def check_stream(volume: DiskVolume, stream: str, truth: dict[int, bytes]) -> int:
    """Read it through, past what is damaged; how many records are told to be lost."""
    start, end = volume.bounds(stream)
    at, found, losses = start, dict[int, bytes](), list[tuple[int, int]]()
    while at < end:
        limit = end
        part = tried(partial(volume.scan, stream, at, limit, bytes_max=700))
        if isinstance(part, StorageDamagedError):
            assert part.stream == stream
            assert part.end > at
            if part.start <= at:
                losses.append((at, part.end))
                at = part.end
                continue
            limit = part.start
            part = volume.scan(stream, at, limit, bytes_max=700)
        found.update(zip(part.indices, part.records, strict=True))
        at = part.indices[-1] + 1 if part.indices else limit
    lost = 0
    for index, expected in truth.items():
        if index in found:
            assert found[index] == expected, "never a wrong record"
        elif start <= index < end:
            lost += 1
            assert any(low <= index < high for low, high in losses), f"{stream} {index}: silence"
    assert found.keys() <= truth.keys()
    for index in list(truth)[:: max(1, len(truth) // 40)]:  # and one by one
        if start <= index < end:
            single = tried(partial(volume.read, stream, index))
            near = tried(partial(volume.read_near, stream, index))
            if isinstance(single, StorageDamagedError) or isinstance(near, StorageDamagedError):
                assert isinstance(near, StorageDamagedError)
                assert isinstance(single, StorageDamagedError)
                assert single.start <= index < single.end
            else:
                assert single == near[index] == truth[index]
    return lost


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    path = tmp_path_factory.mktemp("made") / "volume"
    return path, build(path)


def test_without_damage_every_record_is_found_by_itself_as_in_a_scan(
    made: tuple[Path, Truth], tmp_path: Path
) -> None:
    """Frames with copies stand between frames of the same stream, and are older than these."""
    path, truth = made
    shutil.copytree(path, tmp_path / "work")
    volume = small(tmp_path / "work")
    for stream, some in truth.items():
        assert dict(zip(*volume.scan(stream, 0, 1 << 60, bytes_max=1 << 30), strict=True)) == some
        for index, expected in some.items():
            assert volume.read(stream, index) == expected
            assert volume.read_near(stream, index)[index] == expected
    volume.close()


def examine(path: Path, truth: Truth, *, is_crashed: bool) -> str:
    """Open what was damaged and read all of it: what came of it."""
    ends = {stream: max(some) for stream, some in truth.items() if some}
    try:
        volume = DiskVolume(path, segment_bytes=SMALL_SEGMENT_BYTES, sync=NO_SYNC)
    except StorageError as error:  # any other would be a traceback
        return "refused" if error.problem and error.remedy else ""
    try:
        lost = 0
        for stream, some in truth.items():
            if some and volume.bounds(stream).end <= ends[stream]:  # a last commit, cut as torn
                assert is_crashed
                assert volume.recovery.cut_bytes
            lost += check_stream(volume, stream, some)
        if not volume.recovery.cut_bytes:
            values = sorted(int(value) for value in volume.items("t").values())
            assert values == list(range(253, 260))
        last = volume.bounds("a").end
        volume.commit([Append("a", (last,), (b"more",))])  # it works on
        assert volume.read("a", last) == b"more"
        assert bool(lost) <= bool(volume.statistics().damaged)
        volume.check()
    finally:
        volume.close()
    return "told" if lost else "whole"


@pytest.mark.parametrize("is_crashed", [False, True], ids=["closed", "crashed"])
def test_a_flipped_bit_anywhere_is_refused_or_told_or_harmless(
    made: tuple[Path, Truth], tmp_path: Path, is_crashed: bool
) -> None:
    path, truth = made
    dice, outcomes = Random(18), dict[str, int]()
    names = sorted(each.name for each in path.iterdir() if each.suffix in SUFFIXES)
    for name in names * 3:
        shutil.copytree(path, tmp_path / "work")
        data = bytearray((path / name).read_bytes())
        used = len(data.rstrip(b"\0"))
        for _ in range(dice.choice([1, 1, 3])):
            data[dice.randrange(used)] ^= 1 << dice.randrange(8)
        (tmp_path / "work" / name).write_bytes(data)
        if is_crashed:
            (tmp_path / "work" / "closed.json").unlink()
        outcome = examine(tmp_path / "work", truth, is_crashed=is_crashed)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        shutil.rmtree(tmp_path / "work")
    assert outcomes.keys() == {"refused", "told", "whole"}, outcomes
    assert outcomes["told"] > outcomes["refused"], outcomes


@pytest.mark.parametrize("is_crashed", [False, True], ids=["closed", "crashed"])
def test_a_file_that_was_cut_or_lost_is_refused_or_harmless(
    made: tuple[Path, Truth], tmp_path: Path, is_crashed: bool
) -> None:
    path, truth = made
    dice, outcomes = Random(19), dict[str, int]()
    for name in sorted(each.name for each in path.iterdir()):
        size = (path / name).stat().st_size
        for kept in (None, 0, 63, size - 1, dice.randrange(size)):
            shutil.copytree(path, tmp_path / "work")
            if kept is None:
                (tmp_path / "work" / name).unlink()
            else:
                (tmp_path / "work" / name).write_bytes((path / name).read_bytes()[:kept])
            if is_crashed:
                (tmp_path / "work" / "closed.json").unlink(missing_ok=True)
            outcome = examine(tmp_path / "work", truth, is_crashed=True)
            assert name.endswith((".index", ".json", ".spare", "lock")) or outcome == "refused"
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
            shutil.rmtree(tmp_path / "work")
    assert outcomes.keys() == {"refused", "whole"}, outcomes


def note(told: list[str], damage: StorageDamagedError) -> None:
    told.append(str(damage))


def test_a_damaged_record_in_the_newest_segment_is_told_and_not_refused(tmp_path: Path) -> None:
    """Its commit is described, and commits follow: nothing else is in doubt."""
    volume = small(tmp_path)
    for index in range(5):
        volume.commit([Append("a", (index,), (b"record %d " % index * 5,)), Put("t", "k", b"v")])
    volume.close()
    path = tmp_path / "000000000001.log"
    for crashed, damaged in ((True, b"record 2 "), (False, b"record 4 ")):
        data = path.read_bytes()
        path.write_bytes(data.replace(damaged, b"RECORD 2 ", 1))
        if crashed:
            (tmp_path / "closed.json").unlink()
        told = list[str]()
        volume = small(tmp_path)
        volume.on_damage(partial(note, told))
        index = int(damaged.split()[1])
        for _ in range(3):
            with pytest.raises(StorageDamagedError, match=f"record {index} of 'a'") as lost:
                volume.read("a", index)
        assert (lost.value.start, lost.value.end) == (index, index + 1)
        assert len(told) == volume.statistics().damaged == 1, "each is told once"
        assert volume.scan("a", 0, 2).indices == [0, 1]
        volume.close()


def test_a_damaged_description_in_the_newest_segment_is_refused(tmp_path: Path) -> None:
    """Nobody knows which facts it had put, and tables are not guessed."""
    volume = small(tmp_path)
    for index in range(5):
        volume.commit([Put("t", f"key {index}", b"value")])
    volume.close()
    path = tmp_path / "000000000001.log"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"key 2", b"kEy 2", 1))
    with pytest.raises(StorageCorruptError, match="damaged"):
        small(tmp_path)
