"""Pages are taken apart as they were written, and damaged ones are refused or still whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gapless.client.columns import attributes_column
from gapless.pipelines.pages import Chunk, RefusedError, read_chunk

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
