"""Pages are taken apart as they were written, and damaged ones are refused or still whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapless.client.columns import attributes_column
from gapless.pipelines.pages import CODECS, Chunk, RefusedError, _contents, read_chunk

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, **layout: Any) -> None:
    maps = attributes_column([{"a": i % 5, "b": f"x{i % 3}"} for i in range(20)])
    pq.write_table(pa.table({"attributes": maps}), path, **layout)


def read(path: Path, number: int) -> tuple[Chunk, Any]:
    with pa.OSFile(str(path)) as data:
        column = pq.read_metadata(data).row_group(0).column(number)
        return read_chunk(data, column), column


@pytest.mark.parametrize("compression", ["zstd", "lz4", "snappy", "gzip", "none"])
def test_a_column_has_its_dictionary_and_its_pages(tmp_path: Path, compression: str) -> None:
    """The texts in the fifth column: x0, x1 and x2, at every other level."""
    write(tmp_path / "a.parquet", compression=compression, data_page_size=1, write_batch_size=10)
    chunk, _ = read(tmp_path / "a.parquet", 4)
    assert chunk.distinct == 3
    assert chunk.dictionary.tobytes() == b"".join(b"\2\0\0\0x%d" % i for i in range(3))
    assert chunk.pages[0].levels == 10
    assert sum(page.levels for page in chunk.pages) == 40
    assert all(page.is_dictionary for page in chunk.pages)
    assert chunk.pages[0].repetition.tobytes() == bytes([0b101, 0b10101010, 0b10])
    assert chunk.pages[0].values.tobytes() == bytes([2, 3, 0b00100100, 0b01])


def test_whatever_was_damaged_all_levels_are_there_or_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write(path, compression="none")
    whole, refused = path.read_bytes(), 0
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    for place in range(4, len(whole) - footer):
        for change in (1, 0x10, 0x80):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
            for number in range(5):
                try:
                    chunk, column = read(path, number)
                except RefusedError:
                    refused += 1
                else:
                    assert sum(page.levels for page in chunk.pages) == column.num_values
    assert refused > 100


def test_what_is_written_in_another_way_is_refused(tmp_path: Path) -> None:
    others: list[dict[str, Any]] = [
        {"data_page_version": "2.0"},
        {"compression": "brotli"},
        {"use_dictionary": False, "column_encoding": "DELTA_LENGTH_BYTE_ARRAY"},
    ]
    for layout in others:
        maps = attributes_column([{"s": "x"}])
        texts = pa.ListArray.from_arrays(maps.offsets, maps.keys)
        pq.write_table(pa.table({"texts": texts}), tmp_path / "a.parquet", **layout)
        with pytest.raises(RefusedError):
            read(tmp_path / "a.parquet", 0)


@pytest.mark.parametrize("codec", [*CODECS.values(), None])
@pytest.mark.parametrize("plain", [b"", b"a" * 60, bytes(range(30))])
def test_a_page_that_is_not_of_the_size_it_tells_is_refused(
    codec: str | None, plain: bytes
) -> None:
    """Also one that is smaller, of which a codec would leave the rest as memory was."""
    content = plain if codec is None else pa.Codec(codec).compress(plain, asbytes=True)
    for size in range(64):
        header = bytes([0x15, 0, 0x15, 2 * size, 0x15, 2 * len(content), 0])
        if size == len(plain):
            [(_, found)] = _contents(header + content, codec)
            assert found.tobytes() == plain
        else:
            with pytest.raises(RefusedError):
                list(_contents(header + content, codec))


def test_a_column_that_ends_behind_the_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    _, column = read(tmp_path / "a.parquet", 4)
    end = column.dictionary_page_offset + column.total_compressed_size
    assert read_chunk(pa.BufferReader(whole[:end]), column).distinct == 3
    for size in (0, 10, end - 1):
        with pytest.raises(RefusedError):
            read_chunk(pa.BufferReader(whole[:size]), column)
