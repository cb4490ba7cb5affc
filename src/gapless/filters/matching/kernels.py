"""Kernels: the entry points of the compiled index, and whether they are compiled already.

Theory of operation
    numba keeps the machine code of a function on disk, keyed by the processor, the function's
    own file and the values it closes over; it does not notice changes in functions it calls. So
    only entry points are kept, and each closes over a stamp of all sources it is made of.
    Where: `gapless.machine_code` decides.

Cost: compiling all takes some 25 s of CPU, once a machine; loading them 0.7 s, once a process.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba import float64, int64, types, uint8, uint32

from gapless import machine_code
from gapless.filters.matching import arena, bucket, rows, search, text_table

if TYPE_CHECKING:
    from collections.abc import Callable


def _source_stamp() -> int:
    stamp = 0
    for module in (arena, bucket, rows, search, text_table):
        stamp = zlib.crc32(Path(str(module.__file__)).read_bytes(), stamp)
    return stamp


STAMP = _source_stamp()


class EntryPoint(NamedTuple):
    """One compiled function and the one signature it is called with."""

    function: Any
    signature: tuple[Any, ...]

    def is_ready(self) -> bool:
        """Was it compiled before, for this processor and these sources?"""
        if self.function.signatures:
            return True
        # The only way numba has to look without compiling; where it is gone, be careful.
        cache = getattr(self.function, "_cache", None)
        if cache is None:
            return False
        return cache.load_overload(self.signature, self.function.targetctx) is not None

    def compile(self) -> None:
        self.function.compile(self.signature)


def _keep(function: Callable[..., object]) -> Any:
    return machine_code.keep(function, nogil=True, error_model="numpy")


def _index_entries(stamp: int) -> tuple[Any, ...]:
    # `stamp` is never 0. That the functions name it makes it part of what numba keys them by.
    def insert(words):  # type: ignore[no-untyped-def]
        return rows_insert(words) if stamp else 0

    def remove(words, handle):  # type: ignore[no-untyped-def]
        return rows_remove(words, handle) if stamp else 0

    def transfer(words, fresh, codes, columns, sets):  # type: ignore[no-untyped-def]
        return rows_transfer(words, fresh, codes, columns, sets) if stamp else 0

    def match_one(words):  # type: ignore[no-untyped-def]
        return search_one(words) if stamp else 0

    def match_rows(words, events, width, extra, extra_ends, out, ends, first):  # type: ignore[no-untyped-def]
        if stamp:
            return search_rows(words, events, width, extra, extra_ends, out, ends, first)
        return 0

    def match_pairs(words, row, columns, values, value_ends, extra, extra_ends, out, ends, first):  # type: ignore[no-untyped-def]
        if stamp:
            return search_pairs(
                words, row, columns, values, value_ends, extra, extra_ends, out, ends, first
            )
        return 0

    entries = insert, remove, transfer, match_one, match_rows, match_pairs
    return tuple(_keep(one) for one in entries)


def _text_entries(stamp: int) -> tuple[Any, ...]:
    def learn_texts(table, heap, offsets, codes):  # type: ignore[no-untyped-def]
        return texts_learn(table, heap, offsets, codes) if stamp else 0

    def look_up_texts(table, heap, data, offsets, codes):  # type: ignore[no-untyped-def]
        return texts_look_up(table, heap, data, offsets, codes) if stamp else 0

    def place_texts(table, heap, data, kinds, starts, lengths, rows, width, column):  # type: ignore[no-untyped-def]
        if stamp:
            return texts_place(table, heap, data, kinds, starts, lengths, rows, width, column)
        return 0

    def fill_rows(kinds, values, columns, rows, width):  # type: ignore[no-untyped-def]
        return texts_fill(kinds, values, columns, rows, width) if stamp else 0

    return tuple(_keep(one) for one in (learn_texts, look_up_texts, place_texts, fill_rows))


rows_insert, rows_remove, rows_transfer = rows.insert, rows.remove, rows.transfer
search_one, search_rows, search_pairs = search.match_one, search.match_rows, search.match_pairs
texts_learn, texts_look_up = text_table.learn, text_table.look_up
texts_place, texts_fill = text_table.place, text_table.fill
insert, remove, transfer, match_one, match_rows, match_pairs = _index_entries(STAMP)
learn_texts, look_up_texts, place_texts, fill_rows = _text_entries(STAMP)

WORDS, BYTES, FLOATS = int64[::1], uint8[::1], float64[::1]
FIXED_BYTES = types.Array(uint8, 1, "C", readonly=True)
ENTRIES = (
    EntryPoint(insert, (WORDS,)),
    EntryPoint(remove, (WORDS, int64)),
    EntryPoint(transfer, (WORDS, WORDS, BYTES, BYTES, BYTES)),
    EntryPoint(match_one, (WORDS,)),
    EntryPoint(match_rows, (WORDS, FLOATS, int64, WORDS, WORDS, uint32[::1], WORDS, int64)),
    EntryPoint(
        match_pairs,
        (WORDS, FLOATS, WORDS, FLOATS, WORDS, WORDS, WORDS, uint32[::1], WORDS, int64),
    ),
    EntryPoint(learn_texts, (WORDS, FIXED_BYTES, WORDS, WORDS)),
    EntryPoint(look_up_texts, (WORDS, FIXED_BYTES, FIXED_BYTES, WORDS, FLOATS)),
    EntryPoint(
        place_texts,
        (WORDS, FIXED_BYTES, FIXED_BYTES, BYTES, WORDS, WORDS, FLOATS, int64, int64),
    ),
    EntryPoint(fill_rows, (uint8[:, ::1], float64[:, ::1], WORDS, FLOATS, int64)),
)


def are_ready() -> bool:
    """May the compiled engine be used without compiling anything?"""
    return all(entry.is_ready() for entry in ENTRIES)


def prepare() -> None:
    """Load all entry points, compiling those that are missing."""
    for entry in ENTRIES:
        entry.compile()
