"""Attributes: the map column of events as one column an attribute, for the matcher.

Theory of operation
    `gapless.client.columns` keeps attributes as a map from name to a struct of four fields of which
    one is set. A matcher wants a record batch with a column an attribute. Names are encoded as
    small numbers and sorted by them, which groups the values of each; no event is looked at alone.
    Where all events of a batch have the same names in the same order, as those of one publisher
    mostly do, there is nothing to sort: a column is every n-th value. Names and texts may come as
    dictionaries, as Parquet has them, and fields that no value has may be left out.
    Where the values of a name have several types within one batch no column can hold them: such a
    batch is matched as a list of dicts, which is slower and knows no limits.

Invariants
    I1  both ways give the same matches as `Filter.matches` on the attributes as published
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from gapless.client.columns import attributes_of
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.filters.matcher import Matcher

    Counted = tuple[NDArray[np.int64], NDArray[np.uint32]]

EXACT_MAX = 1 << 53
"""Whole numbers up to here are the same as floats."""


def match_maps(matcher: Matcher[int], maps: Any) -> Counted:
    """Of a column of attributes: by event how many filters match, and their handles."""
    if not kinds.is_struct(maps.type.item_type):
        problem = f"attributes are {maps.type}, and not a map to a struct of a field a kind"
        raise UsageError(problem, "Give them as the lake has them, or a column an attribute.")
    columns = to_columns(maps)
    if columns is not None:
        found = matcher.match_batch(columns)
        return found.counts, found.handles
    pairs = matcher.match_batch([attributes_of(row or ()) for row in maps.to_pylist()])
    rows = np.array([row for row, _ in pairs], np.int64)
    handles = np.array([matcher.handle_of(key) for _, key in pairs], np.uint32)
    return np.bincount(rows, minlength=len(maps)), handles


def to_columns(maps: Any) -> Any | None:
    """A record batch with a column an attribute; None where there can be none."""
    if maps.null_count or not len(maps):
        return None
    offsets = maps.offsets.to_numpy()
    low, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    names = _encoded(maps.keys.slice(low, count))
    if not 0 < len(names.dictionary) < 1 << 16:
        return None
    codes = names.indices.to_numpy()
    values = maps.items.slice(low, count)
    fields = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    known, width = names.dictionary.to_pylist(), count // len(maps)
    columns: dict[str, Any] = {}
    if _is_regular(offsets, codes, width):
        patterns = {name: _pattern(field, width) for name, field in fields.items()}
        for place, code in enumerate(codes[:width].tolist()):
            columns[known[code]] = _every(fields, patterns, place, width)
    else:
        short = codes.astype(np.uint16)  # so that sorting takes time in proportion
        order = np.argsort(short, kind="stable")
        bounds = np.searchsorted(short[order], np.arange(len(known) + 1)).tolist()
        rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
        for name, first, last in zip(known, bounds, bounds[1:], strict=False):
            if first < last:  # a dictionary may have what this batch has not
                at = order[first:last]
                found = _one_type({kind: field.take(at) for kind, field in fields.items()})
                columns[name] = None if found is None else _in_place(found, rows[at], len(maps))
    if not columns or any(each is None for each in columns.values()):
        return None
    return pa.record_batch(columns)


def _encoded(names: Any) -> Any:
    """As a dictionary that has each name once."""
    if kinds.is_dictionary(names.type):
        if len(names.dictionary.unique()) == len(names.dictionary):
            return names
        names = names.dictionary_decode()
    return names.dictionary_encode()


def _is_regular(offsets: NDArray[np.int32], codes: NDArray[np.int32], width: int) -> bool:
    """Do all events have the same names in the same order, each once?"""
    if not width or len(np.unique(codes[:width])) < width or (np.diff(offsets) != width).any():
        return False
    return np.array_equal(codes[width:], codes[:-width])  # each is as the one before it


def _pattern(field: Any, width: int) -> list[bool] | None:
    """Which of so many values are there, if it is the same ones in every run; else None."""
    if field.null_count in (0, len(field)):
        return [not field.null_count] * width
    bits = np.frombuffer(field.buffers()[0], np.uint8)[field.offset // 8 :]
    size = len(field) // (8 * width) * width  # bytes of whole runs of 8 events, each `width` long
    if field.offset % 8 or (size and (bits[:size].reshape(-1, width) != bits[:width]).any()):
        return None
    some = np.concatenate([bits[: min(size, width)], bits[size:]])
    count = min(size, width) * 8 + len(field) % (8 * width)
    told = np.unpackbits(some, bitorder="little")[:count].reshape(-1, width)
    return [bool(each) for each in told[0]] if (told == told[0]).all() else None


def _every(
    fields: dict[str, Any], patterns: dict[str, list[bool] | None], place: int, width: int
) -> Any | None:
    """Of runs of so many values the one at `place`; None if they have several types."""
    present = [name for name, pattern in patterns.items() if pattern is None or pattern[place]]
    if not present:
        return None
    if len(present) == 1 and patterns[present[0]] is not None:
        values = fields[present[0]]
        if kinds.is_dictionary(values.type):
            indices = _raw(values.indices)[place::width]
            return pa.DictionaryArray.from_arrays(indices.copy(), values.dictionary)
        if kinds.is_int64(values.type) or kinds.is_float64(values.type):
            return pa.array(_raw(values)[place::width].copy())
    at = pa.array(np.arange(place, len(fields[present[0]]), width))
    return _one_type({name: fields[name].take(at) for name in present})


def _raw(numbers: Any) -> NDArray[Any]:
    """The memory of a column of numbers; of what is null, anything."""
    kind = numbers.type.to_pandas_dtype()
    return np.frombuffer(numbers.buffers()[1], kind)[numbers.offset :][: len(numbers)]


def _one_type(forms: dict[str, Any]) -> Any | None:
    """The values of the only kind there is; whole numbers go with floats where that is exact."""
    present = {name: form for name, form in forms.items() if form.null_count < len(form)}
    if len(present) == 1:
        return next(iter(present.values()))
    if present.keys() != {"int", "float"}:
        return None
    extent = pc.min_max(present["int"]).as_py()
    if extent["min"] < -EXACT_MAX or extent["max"] > EXACT_MAX:
        return None
    return pc.coalesce(present["float"], present["int"].cast(pa.float64()))


def _in_place(values: Any, rows: NDArray[np.int64], count: int) -> Any:
    """The values at these rows, null at all others."""
    if np.array_equal(rows, np.arange(count)):  # a map of others may have a name twice
        return values
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))
