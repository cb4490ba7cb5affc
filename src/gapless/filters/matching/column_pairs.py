"""Column pairs: events as pairs of a column and a value, for indexes of very many attributes.

Theory of operation
    Filters may name hundreds of thousands of attributes, and an event has a dozen of them. So what
    an event has is looked up, and nothing is written for what it has not: the kernel keeps one row,
    that of an event without attributes, and changes what the event has. Values that filters name
    become edge keys, and so do the attributes that guard clauses (`columns`).
    Nothing is prepared, so this also serves while filters come and go.

Invariants
    I1  the row that results is what `encoder` makes of the same attributes

Cost: some 0.5 µs for each attribute of an event that filters name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from numpy.typing import NDArray

    from gapless.filters.matching.columns import ColumnLayout


class Pairs(NamedTuple):
    """Columns and values of all events, end to end, and their edge keys; where each event ends."""

    columns: NDArray[np.int64]
    values: NDArray[np.float64]
    ends: NDArray[np.int64]
    edges: NDArray[np.int64]
    edge_ends: NDArray[np.int64]


def encode_pairs(columns: ColumnLayout, events: Iterable[Mapping[str, Any]]) -> Pairs:
    known = columns.attributes.get
    computed = [(one.column, one.of) for one in columns.expressions.values()]
    places: list[int] = []
    values: list[float] = []
    edges: list[int] = []
    ends: list[int] = []
    edge_ends: list[int] = []
    for attributes in events:
        for name, value in attributes.items():
            attribute = known(name)
            if attribute is not None and value is not None:
                attribute.fill(value, places, values, edges)
        for column, compute in computed:
            places.append(column)
            values.append(compute(attributes))
        ends.append(len(places))
        edge_ends.append(len(edges))
    return Pairs(
        np.array(places, np.int64),
        np.array(values, np.float64),
        np.array(ends, np.int64),
        np.array(edges, np.int64),
        np.array(edge_ends, np.int64),
    )
