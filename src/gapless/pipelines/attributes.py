"""Attributes: the map column of events as one column an attribute, for the matcher.

Theory of operation
    `gapless.client.columns` keeps attributes as a map from name to a struct of four fields of which
    one is set. A matcher wants a record batch with a column an attribute. Names are encoded as
    small numbers and sorted by them, which groups the values of each; no event is looked at alone.
    Where all events of a batch have the same names in the same order, as those of one publisher
    mostly do, there is nothing to sort: a column is every n-th value. Names and texts may come as
    dictionaries, as Parquet has them.
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.filters.matcher import Matcher

    Indices = NDArray[np.uint32]

EXACT_MAX = 1 << 53
"""Whole numbers up to here are the same as floats."""


def match_maps(matcher: Matcher[int], maps: Any) -> tuple[Indices, Indices]:
    """Of a column of attributes: by pair, which event, and the handle of which filter."""
    columns = to_columns(maps)
    if columns is not None:
        found = matcher.match_batch(columns)
        return found.event_indices, found.handles
    pairs = matcher.match_batch([attributes_of(row or ()) for row in maps.to_pylist()])
    both = np.array(pairs, np.uint32).reshape(-1, 2)
    handles = [matcher.handle_of(key) for key in both[:, 1].tolist()]
    return both[:, 0], np.array(handles, np.uint32)


def to_columns(maps: Any) -> Any | None:
    """A record batch with a column an attribute; None where there can be none."""
    if maps.null_count or not len(maps):
        return None
    offsets = maps.offsets.to_numpy()
    low, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    names = _encoded(maps.keys.slice(low, count))
    if not 0 < len(names.dictionary) < 1 << 16:
        return None
    codes = names.indices.to_numpy().astype(np.uint16)
    fields = maps.items.slice(low, count).flatten()
    known, width = names.dictionary.to_pylist(), count // len(maps)
    columns: dict[str, Any] = {}
    if _is_regular(offsets, codes, width):
        valid = [field.is_valid().to_numpy(zero_copy_only=False) for field in fields]
        for place, code in enumerate(codes[:width].tolist()):
            columns[known[code]] = _every(fields, valid, place, width)
    else:
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(known) + 1)).tolist()
        rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
        for name, first, last in zip(known, bounds, bounds[1:], strict=False):
            if first < last:  # a dictionary may have what this batch has not
                at = order[first:last]
                values = _one_type([field.take(at) for field in fields])
                if values is not None:
                    values = _in_place(values, rows[at], len(maps))
                columns[name] = values
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


def _is_regular(offsets: NDArray[np.int32], codes: NDArray[np.uint16], width: int) -> bool:
    """Do all events have the same names in the same order, each once?"""
    if not width or len(np.unique(codes[:width])) < width or (np.diff(offsets) != width).any():
        return False
    return bool((codes.reshape(-1, width) == codes[:width]).all())


def _every(fields: list[Any], valid: list[NDArray[np.bool_]], place: int, width: int) -> Any | None:
    """Of runs of so many values the one at `place`; None if they have several types."""
    present = [
        (field, mask[place::width])
        for field, mask in zip(fields, valid, strict=True)
        if field.null_count < len(field) and mask[place::width].any()
    ]
    if len(present) == 1 and present[0][1].all():
        values = present[0][0]
        if kinds.is_dictionary(values.type):
            indices = _raw(values.indices)[place::width]
            return pa.DictionaryArray.from_arrays(indices.copy(), values.dictionary)
        if kinds.is_int64(values.type) or kinds.is_float64(values.type):
            return pa.array(_raw(values)[place::width].copy())
    at = pa.array(np.arange(place, len(fields[0]), width))
    return _one_type([field.take(at) for field in fields])


def _raw(numbers: Any) -> NDArray[Any]:
    """The memory of a column of numbers; of what is null, anything."""
    kind = numbers.type.to_pandas_dtype()
    return np.frombuffer(numbers.buffers()[1], kind)[numbers.offset :][: len(numbers)]


def _one_type(forms: list[Any]) -> Any | None:
    """The values of the only kind there is; whole numbers go with floats where that is exact."""
    present = [form for form in forms if form.null_count < len(form)]
    if len(present) == 1:
        return present[0]
    if len(present) != 2 or present[0] is not forms[1] or present[1] is not forms[2]:
        return None
    whole, real = present
    extent = pc.min_max(whole).as_py()
    if extent["min"] < -EXACT_MAX or extent["max"] > EXACT_MAX:
        return None
    return pc.coalesce(real, whole.cast(pa.float64()))


def _in_place(values: Any, rows: NDArray[np.int64], count: int) -> Any:
    """The values at these rows, null at all others."""
    if len(rows) == count:
        return values
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))
