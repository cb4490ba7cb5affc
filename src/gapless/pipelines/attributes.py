"""Attributes: the map column of events as one column an attribute, for the matcher.

Theory of operation
    `gapless.client.columns` keeps attributes as a map from name to a struct of four fields of which
    one is set. A matcher wants a record batch with a column an attribute. Names are encoded as
    small numbers and sorted by them, which groups the values of each; no event is looked at alone.
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
    names = maps.keys.slice(low, count).dictionary_encode()
    if not 0 < len(names.dictionary) < 1 << 16:
        return None
    codes = names.indices.to_numpy().astype(np.uint16)
    fields = maps.items.slice(low, count).flatten()
    order = np.argsort(codes, kind="stable")
    bounds = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    columns = {}
    for code, name in enumerate(names.dictionary.to_pylist()):
        at = order[bounds[code] : bounds[code + 1]]
        values = _one_type([field.take(at) for field in fields])
        if values is None:
            return None
        columns[name] = _in_place(values, rows[at], len(maps))
    return pa.record_batch(columns)


def _one_type(kinds: list[Any]) -> Any | None:
    """The values of the only kind there is; whole numbers go with floats where that is exact."""
    present = [kind for kind in kinds if kind.null_count < len(kind)]
    if len(present) == 1:
        return present[0]
    if len(present) != 2 or present[0] is not kinds[1] or present[1] is not kinds[2]:
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
