"""Pages: what one column of a row group of Parquet has, taken apart as far as it is needed.

Theory of operation
    A chunk is a dictionary, if there is one, and pages of values, each compressed by itself. A page
    within a list has three parts: repetition levels, definition levels, values. Arrow makes values
    and nulls of them, number by number. Who expects something of the levels can check that
    on the packed bytes (`packed`) and take the values alone; so here only the parts are found.
    What is written in another way than Arrow and most others do by default is refused.

Invariants
    I1  whatever the bytes are, they give parts of themselves or a `RefusedError`

Source: Apache Parquet, data pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

DATA_PAGE, DICTIONARY_PAGE = 0, 2
PLAIN, PLAIN_DICTIONARY, LEVELS, DICTIONARY = 0, 2, 3, 8  # encodings
KIND, SIZE, PACKED_SIZE = 1, 2, 3  # places in a header
COUNT, ENCODING, DEFINITION, REPETITION = 81, 82, 83, 84  # of a page of values
DISTINCT, DICTIONARY_ENCODING = 113, 114  # of a dictionary
HEADER_PLACES = 128

CODECS = {"ZSTD": "zstd", "LZ4": "lz4_raw", "SNAPPY": "snappy", "GZIP": "gzip"}

PAGE_BYTES_MAX = 1 << 28
"""Of one page, as it is in memory: a larger one is left to Arrow."""


class RefusedError(Exception):
    """Not in the form that is known here: Arrow shall read it."""


class Page(NamedTuple):
    """The parts of one page, and how many levels it has of each kind."""

    levels: int
    repetition: Bytes
    definition: Bytes
    is_dictionary: bool  # are the values indices into the dictionary?
    values: Bytes


class Chunk(NamedTuple):
    """A column of a row group: how many distinct values there are, all of them, and the pages."""

    distinct: int
    dictionary: Bytes
    pages: list[Page]


def read_chunk(file: pa.NativeFile, column: Any) -> Chunk:
    """`column` is what pyarrow's metadata know of it."""
    codec = CODECS.get(column.compression)
    if codec is None and column.compression != "UNCOMPRESSED":
        raise RefusedError
    start = column.data_page_offset
    if column.has_dictionary_page:
        start = min(start, column.dictionary_page_offset)
    size = column.total_compressed_size
    if start < 0 or size < 0 or start + size > file.size():
        raise RefusedError
    data = file.read_at(size, start)
    distinct, dictionary, pages, found = 0, NOTHING, list[Page](), 0
    for header, content in _contents(data, codec):
        if header[KIND] == DICTIONARY_PAGE and not pages:
            if header[DICTIONARY_ENCODING] not in (PLAIN, PLAIN_DICTIONARY):
                raise RefusedError
            distinct, dictionary = header[DISTINCT], content
        elif header[COUNT]:
            pages.append(_page(header, content))
            found += pages[-1].levels
    if found != column.num_values or distinct < 0:
        raise RefusedError
    return Chunk(distinct, dictionary, pages)


def _contents(data: bytes, compression: str | None) -> Iterator[tuple[list[int], Bytes]]:
    from gapless.pipelines import packed

    codec = None if compression is None else pa.Codec(compression)
    at, whole, places = 0, np.frombuffer(data, np.uint8), np.empty(HEADER_PLACES, np.int64)
    while at < len(data):
        begin = packed.read_header(whole, at, places)
        header = places.tolist()
        at = begin + header[PACKED_SIZE]
        if begin < 0 or not begin <= at <= len(data) or not 0 <= header[SIZE] <= PAGE_BYTES_MAX:
            raise RefusedError
        content = whole[begin:at]
        if codec is not None and len(content):
            content = _unpacked(content, codec, header[SIZE])
        if len(content) != header[SIZE]:
            raise RefusedError
        yield header, content


def _unpacked(content: Bytes, codec: pa.Codec, size: int) -> Bytes:
    if _size(content, codec.name, size) != size:
        raise RefusedError
    try:
        return np.frombuffer(codec.decompress(content, size), np.uint8)
    except (OSError, ValueError):
        raise RefusedError from None


def _size(content: Bytes, codec: str, otherwise: int) -> int:
    """How many bytes it is, unpacked. If fewer than it is told, Arrow's codec says so of zstd only,
    and leaves the rest as memory was before."""
    from gapless.pipelines import packed

    if codec == "lz4_raw":
        return int(packed.lz4_size(content))
    if codec == "gzip":
        return int.from_bytes(content[-4:].tobytes(), "little")
    if codec != "snappy":
        return otherwise
    size = 0
    for place, byte in enumerate(content[:5].tolist()):
        size |= (byte & 127) << 7 * place
        if byte < 128:
            break
    return size


def _page(header: list[int], content: Bytes) -> Page:
    """Of values within lists."""
    if header[KIND] != DATA_PAGE or header[COUNT] < 0:
        raise RefusedError
    if header[DEFINITION] != LEVELS or header[REPETITION] != LEVELS:
        raise RefusedError
    if header[ENCODING] not in (PLAIN, PLAIN_DICTIONARY, DICTIONARY):
        raise RefusedError
    repetition, rest = _levels(content)
    definition, values = _levels(rest)
    return Page(header[COUNT], repetition, definition, header[ENCODING] != PLAIN, values)


def _levels(content: Bytes) -> tuple[Bytes, Bytes]:
    """They stand behind their length; and what is behind them."""
    size = int.from_bytes(content[:4].tobytes(), "little")
    if len(content) < 4 + size:
        raise RefusedError
    return content[4 : 4 + size], content[4 + size :]


NOTHING = np.frombuffer(b"", np.uint8)
