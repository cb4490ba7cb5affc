"""`gapless check` names what is damaged in a data folder, also while its broker serves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from gapless.cli import app
from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.core.effects import Append, Put
from gapless.core.events import Event
from gapless.storage.disk import DiskVolume
from tests.broker.stage import connected, make_broker, run
from tests.storage.labs import NO_SYNC, SMALL_SEGMENT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

COUNT = 400


def body(number: int) -> bytes:
    return b"n%05d" % number * 50


async def published(folder: Path) -> None:
    """Events that two named subscriptions, which are away, have not acknowledged."""
    async with make_broker(folder) as broker, connected(broker) as client:
        for life in range(2):
            async with client.subscribe("t", name=f"away {life}", tokens="broker"):
                pass
        for start in range(0, COUNT, 20):
            await client.publish_many("t", [({"i": i}, body(i)) for i in range(start, start + 20)])


def flip(folder: Path, number: int) -> None:
    """One bit of one event, in the log."""
    for path in sorted((folder / "b" / "volume").glob("*.log")):
        data = bytearray(path.read_bytes())
        place = data.find(body(number))
        if place >= 0:
            with path.open("r+b") as file:
                file.seek(place + 7)
                file.write(bytes([data[place + 7] ^ 4]))
            return
    raise AssertionError("it is not there")


def checked(folder: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["check", str(folder), *options])
    return result.exit_code, result.stdout


def test_a_whole_folder_is_whole_and_stays_as_it_is(tmp_path: Path) -> None:
    run(published(tmp_path))
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    code, told = checked(tmp_path)
    assert code == 0
    assert "all is whole" in told
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files
    for folder in (tmp_path / "b", tmp_path / "b" / "volume"):
        assert checked(folder)[0] == 0


def test_a_folder_without_a_volume_is_a_wrong_use(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert "there is no volume of a broker" in str(result.exception)


def test_a_flipped_bit_is_named_and_is_one_gap_for_those_who_want_it(tmp_path: Path) -> None:
    """By check while the broker serves; by the named subscription and by range reads; and once in
    the figures. After a restart all is the same."""

    async def main() -> None:
        await published(tmp_path)
        flip(tmp_path, 123)
        for life in range(2):
            async with make_broker(tmp_path) as broker:
                code, told = checked(tmp_path, "--json")
                assert code == 1
                [volume] = json.loads(told)
                [damage] = volume["damages"]
                assert (damage["holds"], damage["topic"], damage["pubend"]) == (
                    "events",
                    "t",
                    "t/0",
                )
                lost = range(damage["start"], damage["end"])
                place = (tmp_path / "b" / "volume" / damage["file"]).read_bytes()
                assert 0 < damage["offset"] < place.find(body(124))
                async with connect(f"gapless://{broker.address}") as client:
                    items = [
                        item async for item in client.read("t", gaps="yield")
                    ]  # fmt: skip
                    gaps = [item for item in items if isinstance(item, Gap)]
                    ticks = [
                        event.tick
                        for item in items
                        if not isinstance(item, Gap)
                        for event in item.events()
                    ]
                    assert [(gap.span.start, gap.span.end) for gap in gaps if gap.span.start] == [
                        (lost.start, lost.stop)
                    ]
                    assert COUNT - 20 < len(ticks) < COUNT
                    assert not set(lost) & set(ticks)
                    async with client.subscribe("t", name=f"away {life}", tokens="broker") as away:
                        seen, told_gaps = list[int](), list[Gap]()
                        async for item in away:
                            if isinstance(item, Gap):
                                told_gaps.append(item)
                            elif isinstance(item, Event):
                                seen.append(int(item.attributes["i"]))
                                if seen[-1] == COUNT - 1:
                                    break
                    missing = sorted(set(range(COUNT)) - set(seen))
                    assert 123 in missing
                    assert missing == list(range(missing[0], missing[-1] + 1))
                    assert len(missing) < 20, "one page is lost, and no more"
                    assert len(told_gaps) == 1
                assert broker._volume.statistics().damaged == 1, life

    run(main())


@pytest.mark.parametrize("damage", ["newest gone", "description", "cut"])
def test_what_keeps_a_broker_from_starting_is_told_with_a_remedy(
    tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "b" / "volume"
    volume = DiskVolume(path, segment_bytes=SMALL_SEGMENT_BYTES, sync=NO_SYNC)
    for index in range(60):
        volume.commit([Append("log/t/0", (index,), (bytes(1000),)), Put("t", f"key {index}", b"")])
    volume.close()
    files = sorted(path.glob("*.log"))
    match damage:
        case "newest gone":
            files[-1].unlink()
        case "description":
            files[-1].write_bytes(files[-1].read_bytes().replace(b"key 58", b"key 85", 1))
        case _:
            files[1].write_bytes(files[1].read_bytes()[:-1])
    code, told = checked(tmp_path)
    assert code == 1
    assert "1 DAMAGED" in told
    assert files[-1 if damage != "cut" else 1].name in told
    assert "restore" in told.lower()
