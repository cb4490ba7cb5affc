"""Attribute maps: the map column of events as one column for each attribute.

Theory of operation
    `gapless.client.columns` keeps attributes as a map from name to a struct with one field for each
    kind, of which one field is set. The matcher and the lake want columns. The names are encoded as
    small numbers and sorted by them, which groups the values of each name; no event is looked at
    alone. Where all events of a batch have the same names in the same order, as the events of one
    publisher mostly do, there is nothing to sort: a column is every n-th value.
    The lake keeps one column for each name and kind (`split_maps`). The matcher takes one column
    for each name (`to_columns`), which exists only where the values of a name have one kind in the
    batch; other batches are matched as a list of dicts, which is slower and has no limits.

Invariants
    I1  both ways give the same matches as `Filter.matches` on the attributes as published
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from gapless.client.columns import attributes_column, attributes_of
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.filters.matcher import Matcher

    MatchCounts = tuple[NDArray[np.int64], NDArray[np.uint32]]
    """For each event how many filters match, and the handles of all matches."""

EXACT_MAX = 1 << 53
"""Whole numbers up to here are exact as floats."""


def match_maps(matcher: Matcher[int], maps: Any) -> MatchCounts:
    """The matches of a column of attribute maps."""
    if not kinds.is_struct(maps.type.item_type):
        problem = (
            f"attributes are {maps.type}, and not a map to a struct with a field for each kind"
        )
        raise UsageError(problem, "Give the map that the source makes, or one column an attribute.")
    columns = to_columns(maps)
    if columns is not None:
        found = matcher.match_batch(columns)
        return found.counts, found.handles
    return match_dicts(matcher, [attributes_of(row or ()) for row in maps.to_pylist()])


def match_dicts(matcher: Matcher[int], events: list[dict[str, Any]]) -> MatchCounts:
    pairs = matcher.match_batch(events)
    rows = np.array([row for row, _ in pairs], np.int64)
    handles = np.array([matcher.handle_of(key) for _, key in pairs], np.uint32)
    return np.bincount(rows, minlength=len(events)), handles


def to_columns(maps: Any) -> Any | None:
    """A record batch with one column for each attribute; None where there can be none."""
    forms = _split(maps)
    if not forms:
        return None
    columns = {name: one_kind(each) for name, each in forms.items()}
    return None if any(each is None for each in columns.values()) else pa.record_batch(columns)


def split_maps(maps: Any) -> dict[tuple[str, str], Any]:
    """By name and kind a column with one row for each event, null where the event has none."""
    forms = _split(maps)
    if forms is None:  # null maps, or a name twice in one event
        plain = [attributes_of(row or ()) for row in maps.to_pylist()]
        forms = _split(attributes_column(plain)) or {}
    return {
        (name, kind): column
        for name, each in forms.items()
        for kind, column in each.items()
        if column.null_count < len(column)
    }


def _split(maps: Any) -> dict[str, dict[str, Any]] | None:
    """By name, and by kind where the batch has it, a column; None where a map is not a simple one:
    it is null, or has a name twice."""
    if maps.null_count:
        return None
    offsets = maps.offsets.to_numpy()
    low, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    if not count:
        return {}
    encoded = _encode(maps.keys.slice(low, count))
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    values = maps.items.slice(low, count)
    if values.null_count:  # a name without a value: `flatten` would not tell
        return None
    fields = dict(zip([field.name for field in values.type], values.flatten(), strict=True))
    fields = {kind: field for kind, field in fields.items() if field.null_count < len(field)}
    width = count // len(maps)
    if _is_regular(offsets, codes, width):
        patterns = {kind: _pattern(field, width) for kind, field in fields.items()}
        return {
            names[code]: _every(fields, patterns, place, width)
            for place, code in enumerate(codes[:width].tolist())
        }
    return _group(
        fields, codes, names, np.repeat(np.arange(len(maps)), np.diff(offsets)), len(maps)
    )


def _group(
    fields: dict[str, Any],
    codes: NDArray[np.int32],
    names: list[str],
    rows: NDArray[np.int64],
    count: int,
) -> dict[str, dict[str, Any]] | None:
    """The columns of events that differ in their names."""
    short = (
        codes.astype(np.uint16) if len(names) < 1 << 16 else codes
    )  # 16 bits sort in linear time
    order = np.argsort(short, kind="stable")
    bounds = np.searchsorted(short[order], np.arange(len(names) + 1)).tolist()
    forms: dict[str, dict[str, Any]] = {}
    for name, first, last in zip(names, bounds, bounds[1:], strict=False):
        if first == last:  # a dictionary may have what this batch has not
            continue
        at = order[first:last]
        if (np.diff(rows[at]) == 0).any():
            return None
        taken = {kind: field.take(at) for kind, field in fields.items()}
        forms[name] = {
            kind: _in_place(column, rows[at], count)
            for kind, column in taken.items()
            if column.null_count < len(column)
        }
    return forms


def _encode(names: Any) -> Any:
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
    """Which of `width` values are there, if every run of `width` has the same ones; else None."""
    if field.null_count in (0, len(field)):
        return [not field.null_count] * width
    bits = np.frombuffer(field.buffers()[0], np.uint8)[field.offset // 8 :]
    size = len(field) // (8 * width) * width  # bytes of whole runs of 8 events, each `width` long
    if field.offset % 8 or (size and (bits[:size].reshape(-1, width) != bits[:width]).any()):
        return None
    some = np.concatenate([bits[: min(size, width)], bits[size:]])
    count = min(size, width) * 8 + len(field) % (8 * width)
    present = np.unpackbits(some, bitorder="little")[:count].reshape(-1, width)
    return [bool(each) for each in present[0]] if (present == present[0]).all() else None


def _every(
    fields: dict[str, Any], patterns: dict[str, list[bool] | None], place: int, width: int
) -> dict[str, Any]:
    """By kind, of runs of `width` values the one at `place`."""
    columns: dict[str, Any] = {}
    for kind, values in fields.items():
        pattern = patterns[kind]
        if pattern is not None and not pattern[place]:
            continue
        if pattern is not None and kinds.is_dictionary(values.type):
            indices = _raw(values.indices)[place::width]
            column = pa.DictionaryArray.from_arrays(indices.copy(), values.dictionary)
        elif pattern is not None and (kinds.is_int64(values.type) or kinds.is_float64(values.type)):
            column = pa.array(_raw(values)[place::width].copy())
        else:
            column = values.take(pa.array(np.arange(place, len(values), width)))
        if column.null_count < len(column):
            columns[kind] = column
    return columns


def _raw(numbers: Any) -> NDArray[Any]:
    """The memory of a column of numbers; where a value is null, any number."""
    kind = numbers.type.to_pandas_dtype()
    return np.frombuffer(numbers.buffers()[1], kind)[numbers.offset :][: len(numbers)]


def one_kind(forms: dict[str, Any]) -> Any | None:
    """The values of the only kind there is; whole numbers join floats where that is exact."""
    present = {kind: form for kind, form in forms.items() if form.null_count < len(form)}
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
    if len(rows) == count:
        return values
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    return values.take(pa.array(places, mask=places < 0))
