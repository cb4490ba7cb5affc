"""What the cleaner has copied is read as quickly as what it has not: each frame is decoded once.

Small commits of a stream that is kept, beside a stream that is released at once: the cleaner copies
a whole segment of small commits into one frame, which then holds several extents.
"""

from __future__ import annotations

from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Append, Chop
from gapless.core.store import RUN_BYTES
from gapless.storage.disk import DiskVolume
from gapless.storage.extent import EXTENT_BYTES
from gapless.storage.frame import ENTRY_BYTES
from tests.storage.labs import NO_SYNC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gapless.storage.extent import Extent

COUNT = 3_000
SEGMENT_BYTES = 1 << 20


def record(index: int) -> bytes:
    return b"kept %d " % index * 40


@pytest.fixture(scope="module")
def volume(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DiskVolume]:
    path: Path = tmp_path_factory.mktemp("volume")
    made = DiskVolume(path, segment_bytes=SEGMENT_BYTES, sync=NO_SYNC)
    for index in range(COUNT):
        made.commit([Append("kept", (index,), (record(index),))])
        made.commit([Append("gone", (index,), (bytes(4_000),)), Chop("gone", index)])
    yield made
    made.check()
    made.close()


def copies(volume: DiskVolume) -> list[Extent]:
    """The extents that the cleaner has copied, up to the first that it has not."""
    extents = volume._state.catalogue.from_index("kept", 0)
    return list(takewhile(attrgetter("moved"), extents))


def frames(extents: list[Extent]) -> int:
    """In how many frames they stand: few, or these tests show nothing."""
    count = len({(each.segment, each.start) for each in extents})
    assert len(extents) > 4 * count > 0
    return count


def test_small_commits_are_copied_as_few_extents(volume: DiskVolume) -> None:
    """A frame of copies is decoded whole, so it may not have a section for each small commit."""
    copied = copies(volume)
    size = sum(len(record(index)) + ENTRY_BYTES for index in range(copied[-1].last + 1))
    assert len(copied) <= 2 * size // EXTENT_BYTES + frames(copied)


def decodes(volume: DiskVolume) -> int:
    return volume.statistics().frames_decoded


def test_a_scan_decodes_each_frame_of_copies_once(volume: DiskVolume) -> None:
    copied = copies(volume)
    before, end = decodes(volume), copied[-1].last + 1
    found = volume.scan("kept", 0, end, bytes_max=1 << 30)
    assert found.indices == list(range(end))
    assert found.records == list(map(record, range(end)))
    assert decodes(volume) - before <= frames(copied)


def test_looking_at_one_record_of_each_extent_decodes_each_frame_once(volume: DiskVolume) -> None:
    copied = copies(volume)
    before = decodes(volume)
    for each in copied:
        assert volume.read("kept", each.last) == record(each.last)
        assert volume.read_near("kept", each.last)[each.last] == record(each.last)
    assert decodes(volume) - before <= frames(copied)


def test_pages_of_a_scan_go_on_in_a_frame_that_is_decoded(volume: DiskVolume) -> None:
    copied = copies(volume)
    before, at, seen = decodes(volume), 0, list[int]()
    end = copied[-1].last + 1
    while indices := volume.scan("kept", at, end, bytes_max=2_000).indices:
        seen += indices
        at = indices[-1] + 1
    assert seen == list(range(end))
    assert decodes(volume) - before <= frames(copied)


def test_the_runs_of_a_scan_share_what_was_decoded(volume: DiskVolume) -> None:
    """Each run holds a view of it: as many copies as extents would be more than the log itself."""
    copied = copies(volume)
    runs = volume.scan_runs("kept", 0, copied[-1].last + 1, bytes_max=1 << 30)
    descriptions = {id(run.ends.obj) for run in runs if isinstance(run.ends, memoryview)}
    assert len(runs) == len(copied)
    assert 0 < len(descriptions) <= frames(copied)


def test_a_scan_ends_after_a_bounded_number_of_tiny_commits(volume: DiskVolume) -> None:
    """Copied or not, each takes its time, however few bytes it has."""
    runs_max, found, scans = 20, list[int](), 0
    while True:
        after = found[-1] + 1 if found else 0
        runs = volume.scan_runs("kept", after, 1 << 62, bytes_max=runs_max * RUN_BYTES)
        if not runs:
            break
        assert len(runs) <= runs_max
        found += [index for run in runs for index in run.indices]
        scans += 1
    assert found == list(range(COUNT))
    assert scans < 3 * COUNT // runs_max
