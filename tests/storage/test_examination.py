"""An examination finds what is damaged, and nothing else, also while the volume is written to."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING

from gapless.core.effects import Append, Chop, Put
from gapless.storage.examination import examine
from tests.storage.labs import small

if TYPE_CHECKING:
    from pathlib import Path


def nowhere(done: int, total: int) -> None:
    assert 0 <= done <= total


def test_a_volume_that_fills_chops_copies_and_reuses_segments_is_whole_all_the_time(
    tmp_path: Path,
) -> None:
    """Segments come, go, and are written over under another name while they are examined."""
    stop, errors = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            with closing(small(tmp_path)) as volume:
                index = 0
                while not stop.is_set():
                    volume.commit([Append("slow", (index,), (b"%d " % index * 9,))])
                    volume.commit([Append("log", (index,), (bytes(900),)), Put("t", "k", b"v")])
                    volume.commit([Chop("log", index), Chop("slow", max(0, index - 400))])
                    index += 1
        except BaseException as error:
            errors.append(error)

    small(tmp_path).close()
    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = rounds = 0
        while (rounds < 60 or seen <= 10) and not errors:  # the writer may begin late
            report = examine(tmp_path, nowhere)
            assert report.damages == []
            seen = max(seen, report.records)
            rounds += 1
    finally:
        stop.set()
        writer.join()
    assert not errors
    assert seen > 10
    assert examine(tmp_path, nowhere).damages == []


def test_each_damaged_stretch_is_told_once_and_released_ones_are_not(tmp_path: Path) -> None:
    volume = small(tmp_path)
    for index in range(60):
        volume.commit([Append("a", (index,), (b"record %02d " % index * 90,))])
    volume.commit([Chop("a", 10)])
    volume.close()
    for path in sorted(tmp_path.glob("*.log")):
        data = path.read_bytes()
        for number in (9, 12, 30, 31):
            data = data.replace(b"record %02d " % number, b"rEcord %02d " % number, 1)
        path.write_bytes(data)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    report = examine(tmp_path, nowhere)
    assert [(each.stream, each.start, each.end) for each in report.damages] == [
        ("a", 12, 13),
        ("a", 30, 31),
        ("a", 31, 32),
    ]
    for each in report.damages:
        with open(each.file, "rb") as file:
            file.seek(each.offset)
            assert file.read(9) == b"rEcord %02d" % each.start
    assert report.records == 50 - 3
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before, "nothing changes"
