"""The catalogue: few extents for many commits, copies replace originals, an index reads back."""

from __future__ import annotations

from gapless.storage.extent import (
    EXTENT_BYTES,
    Extent,
    ExtentCatalogue,
    FrameRange,
    decode_index,
    encode_index,
)


def extent(
    first: int, last: int, *, segment: int = 1, start: int = 0, end: int = 100, moved: bool = False
) -> Extent:
    return Extent("a", first, last, last - first + 1, FrameRange(segment, start, end), moved)


def shown(catalogue: ExtentCatalogue, index: int = 0) -> list[tuple[int, int, int]]:
    catalogue.check()
    return [(one.segment, one.first, one.last) for one in catalogue.from_index("a", index)]


def test_commits_close_together_share_an_extent() -> None:
    catalogue = ExtentCatalogue()
    step = EXTENT_BYTES // 4
    for number in range(8):
        catalogue.add(extent(number, number, start=number * step, end=(number + 1) * step))
    assert shown(catalogue) == [(1, 0, 3), (1, 4, 7)]
    catalogue.add(extent(8, 8, segment=2, start=0, end=step))
    assert shown(catalogue, 5) == [(1, 4, 7), (2, 8, 8)]
    assert catalogue.live_bytes == {1: 8, 2: 1}


def test_records_of_one_commit_share_an_extent_however_large_it_is() -> None:
    catalogue = ExtentCatalogue()
    for number in range(50):
        catalogue.add(extent(number, number, start=64, end=64 + 3 * EXTENT_BYTES))
    assert shown(catalogue) == [(1, 0, 49)]


def test_copies_replace_what_they_copy_however_it_was_cut() -> None:
    """After a crash the originals may have been found again, divided in another way."""
    catalogue = ExtentCatalogue()
    for first, last in [(1, 15), (16, 40)]:
        catalogue.add(extent(first, last, start=first * EXTENT_BYTES, end=first * EXTENT_BYTES + 9))
    catalogue.add(extent(41, 50, segment=2))
    for first, last in [(11, 25), (26, 40)]:
        catalogue.add(extent(first, last, segment=3, moved=True))
    assert shown(catalogue) == [(3, 11, 25), (3, 26, 40), (2, 41, 50)]
    assert catalogue.live_bytes == {1: 0, 2: 10, 3: 30}
    catalogue.forget(1)


def test_only_neighbours_of_one_stream_are_copied_together() -> None:
    """A copy replaces all that lies between its first record and its last."""
    catalogue = ExtentCatalogue()
    catalogue.add(extent(0, 9, segment=1, start=0, end=EXTENT_BYTES))
    catalogue.add(extent(10, 19, segment=1, start=EXTENT_BYTES, end=2 * EXTENT_BYTES))
    catalogue.add(extent(20, 29, segment=2))
    catalogue.add(extent(30, 39, segment=1, start=2 * EXTENT_BYTES, end=3 * EXTENT_BYTES))
    catalogue.add(Extent("b", 40, 49, 10, FrameRange(1, 0, 100)))
    stretches = [[one.first for one in some] for some in catalogue.stretches(1)]
    assert stretches == [[0, 10], [30], [40]]


def test_what_is_copied_together_has_the_size_of_an_extent() -> None:
    catalogue = ExtentCatalogue()
    for number in range(6):
        start = number * EXTENT_BYTES
        kept = EXTENT_BYTES // 2
        frames = FrameRange(1, start, start + EXTENT_BYTES)
        catalogue.add(Extent("a", number, number, kept, frames))
    assert list(map(len, catalogue.stretches(1))) == [2, 2, 2]


def test_chop_drops_whole_extents_only() -> None:
    catalogue = ExtentCatalogue()
    for number in range(3):
        catalogue.add(extent(10 * number, 10 * number + 9, segment=number))
    catalogue.chop("a", 15)
    assert shown(catalogue) == [(1, 10, 19), (2, 20, 29)]
    assert catalogue.in_segment(0) == []
    assert catalogue.holds("a", 19)
    assert not catalogue.holds("a", 18)


def test_an_index_reads_back_and_nothing_else_passes_for_it() -> None:
    extents = [extent(1, 5, start=64, end=900), extent(6, 9, start=900, end=999, moved=True)]
    data = encode_index(extents, 1, 77, 42)
    found = decode_index(data, 1, 42)
    assert found is not None
    assert found[1] == 77
    fields = Extent.__slots__
    assert [[getattr(one, name) for name in fields] for one in found[0]] == [
        [getattr(one, name) for name in fields] for one in extents
    ]
    assert decode_index(data, 2, 42) is None
    assert decode_index(data, 1, 43) is None
    for place in range(len(data)):
        assert decode_index(data[:place], 1, 42) is None
        damaged = bytearray(data)
        damaged[place] ^= 4
        assert decode_index(bytes(damaged), 1, 42) is None
